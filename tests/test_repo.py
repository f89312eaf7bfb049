"""Guards for what rots: files that must match other files, and words that must not be in any."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest

import agenttrace

ROOT = Path(__file__).parent.parent
PACKAGES = ("agenttrace", "collectors", "evaluators", "examples", "benchmarks")
# Folders of one machine, and hosts of package registries. In brackets, so that the pattern does not match itself.
FORBIDDEN = re.compile(r"/(?:work|farm|root)/|python[h]osted|pypi[.]org|registry[.]npmjs|deb[.]debian", re.IGNORECASE)


def tracked_files() -> list[Path]:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path.suffix not in {".jsonl", ".gz", ".pb"}  # recordings of other people's programs
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert hits == []


def test_modules_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > 500} == {}


@pytest.mark.parametrize(
    ("queries", "cases"), [("evaluators", "evaluators"), ("collectors/conventions", "conventions")]
)
def test_every_query_has_golden_cases_and_every_golden_file_its_query(queries: str, cases: str) -> None:
    names = {path.stem for path in (ROOT / queries).glob("*.sql")}
    golden = {path.stem for path in (ROOT / "tests" / cases).glob("*.toml")}
    assert names == golden
    assert names


def test_public_names_are_few_and_importable() -> None:
    assert 0 < len(agenttrace.__all__) < 20
    assert agenttrace.__all__ == sorted(set(agenttrace.__all__))
    assert [name for name in agenttrace.__all__ if not hasattr(agenttrace, name)] == []


@pytest.mark.parametrize("package", ["agenttrace.collectors", "agenttrace.evaluators", "agenttrace.evaluators.reports"])
def test_every_module_of_a_package_imports(package: str) -> None:
    folder = Path(importlib.import_module(package).__path__[0])
    for path in folder.glob("[!_]*.py"):
        assert importlib.import_module(f"{package}.{path.stem}").__doc__


def test_every_table_and_column_says_what_it_means() -> None:
    con = duckdb.connect()
    con.execute((ROOT / "agenttrace" / "schema.sql").read_text(encoding="utf-8"))
    silent = con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        " UNION ALL SELECT table_name, NULL FROM duckdb_tables() WHERE comment IS NULL"
    ).fetchall()
    assert silent == []
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() != (0,)


def test_changelog_begins_with_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert version
    assert first
    assert first[1] in {version[1], "Unreleased"}
