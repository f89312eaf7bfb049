"""README.md as a reader runs it: every snippet and command, in order, in one empty folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# A block after a line like "`shop.py`:" or "`cases.jsonl`:" is that file; another one runs as it stands.
BLOCK = re.compile(r"(?:^`(\w+\.(?:py|jsonl))`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What differs from run to run, and so stands in README for all runs.
VARYING = (
    (re.compile(r"\b[0-9a-f]{8,32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "DURATION"),
    (re.compile(r"[-─━]{3,}"), "---"),
    (re.compile(r"[ \t]+"), " "),
)


def settled(text: str, folder: Path) -> list[str]:
    """The lines of an output without what differs between two runs of the same command."""
    text = text.replace(str(folder), ".")
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def environment(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "HOME": str(home), "COLUMNS": "120", "NO_COLOR": "1"}


@contextmanager
def receiver(folder: Path) -> Iterator[str]:
    """`agenttrace collect` on a free port; gives the address that it prints when it is ready."""
    command = ["agenttrace", "collect", "--http-port", "0", "--grpc-port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address
        yield address[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command.partition("  #")[0].strip(), output


def check_command(command: str, output: str, folder: Path) -> None:
    if command.startswith("pip install"):
        assert command.split()[-1].strip('"') in {"agenttrace-otel", "agenttrace-otel[examples]"}
    elif command.startswith("make "):
        subprocess.run(["make", "--dry-run", command.split()[1]], cwd=ROOT, check=True, capture_output=True)
    else:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment(folder), capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert settled(done.stdout, folder) == settled(output, folder), command


@pytest.mark.usefixtures("unmeasured")
def test_every_snippet_and_command_does_what_readme_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with ExitStack() as running:
        address = ""
        for file_name, language, text in BLOCK.findall(README):
            if file_name:
                (tmp_path / file_name).write_text(text, encoding="utf-8")
            elif language == "python":
                subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment(tmp_path), check=True)
            elif language == "toml":
                (tmp_path / "agenttrace.toml").write_text(text, encoding="utf-8")
            else:
                assert language == "console", f"README.md holds a block that no test runs: {language}"
                for command, output in commands(text):
                    if command == "agenttrace collect &":
                        address = running.enter_context(receiver(tmp_path))
                    elif command.endswith("any_framework.py"):
                        check_command(f"{command} {address}", output, tmp_path)
                    else:
                        check_command(command, output, tmp_path)


def test_commands_and_evaluators_are_all_listed() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "README.md"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
