"""The wheel: what it holds, and that it works where only the wheel is installed."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"agenttrace": "agenttrace", "collectors": "agenttrace/collectors", "evaluators": "agenttrace/evaluators"}
INSTALLED_EXAMPLES = {f"agenttrace/examples/{name}.py" for name in ("__init__", "grocery", "refunds")}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy, for setuptools keeps what an earlier build left in build/lib.
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in (*FOLDERS, "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"),
        *("--wheel-dir", source / "dist", source),
        cwd=source,
    )
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path) -> Path:
    """An interpreter that has the wheel and, without a download, the dependencies of this session."""
    home = wheel.parent.parent / "clean"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=wheel.parent)
    python = home / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"),
        *("--no-compile", wheel),
        cwd=wheel.parent,
    )
    # Python reads no .pth file of a folder that a .pth file names: the editable checkout stays invisible.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected | INSTALLED_EXAMPLES


def test_wheel_has_one_top_level_package(wheel: Path) -> None:
    top_level = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"agenttrace"}
    assert len(top_level) == 2


def test_the_installed_wheel_works_alone(clean_python: Path, tmp_path: Path) -> None:
    site = clean_python.parent.parent
    names = "agenttrace, agenttrace.collectors, agenttrace.evaluators, agenttrace.examples.grocery"
    program = (
        f"import sys, {names}; print(*(module.__file__ for name, module in sys.modules.items() if name in '{names}'))"
    )
    where = run(clean_python, "-c", program, cwd=tmp_path)
    assert all(Path(path).is_relative_to(site) for path in where.split()), where
    command = site / "bin" / "agenttrace"
    assert run(command, "--version", cwd=tmp_path).split()[-1][0].isdigit()
    assert "duplicate_mutations" in run(command, "evaluators", cwd=tmp_path)
    assert "trajectory_id" in run(command, "schema", cwd=tmp_path)
