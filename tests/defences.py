"""Takes each defence of docs/security.md out of a copy of the sources: the test of its line must fail.

Run: `make defences`, or `python tests/defences.py [WORD...]` for the lines that hold these words. tests/defences.toml
says where each defence is. Ends with 1 where a test passes without the defence that it stands for, with 2 where one
fails in a copy with all of them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("agenttrace", "collectors", "evaluators", "examples")
PATIENCE_S = 120
ROW = re.compile(
    r"^\| (?P<threat>[^|]+) \| [^|]+ \| (?P<tests>`tests/\w+\.py::\w+`(?:, `tests/\w+\.py::\w+`)*) \|$", re.MULTILINE
)


def main(*words: str) -> int:
    """Tries the lines that hold all of the words, and returns the exit code."""
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    rows = {row["threat"]: re.findall("`(tests/.+?)`", row["tests"]) for row in ROW.finditer(page)}
    defences = tomllib.loads((ROOT / "tests" / "defences.toml").read_text("utf-8"))["defence"]
    wanted = [defence for defence in defences if all(word in f"{defence}{rows[defence['threat']]}" for word in words)]
    if not wanted:
        print(f"no line holds {' '.join(words)}", file=sys.stderr)
        return 2
    if not _passes([], [test for defence in wanted for test in rows[defence["threat"]]]):
        print("A test fails although all defences are there: run them by themselves first.", file=sys.stderr)
        return 2
    useless = 0
    for defence in wanted:
        tests = rows[defence["threat"]]
        passes = _passes(list(zip(defence["files"], defence["find"], defence["replace"], strict=True)), tests)
        useless += passes
        verdict = "PASSES" if passes else "fails"
        print(f"{verdict} without its defence: {defence['threat']}: {', '.join(tests)}", flush=True)
    print(f"{len(wanted) - useless} of {len(wanted)} lines have a test that fails without their defence")
    return int(useless > 0)


def _passes(edits: Sequence[tuple[str, str, str]], tests: Sequence[str]) -> bool:
    """Runs tests in a copy with these texts replaced, each (file, find, replace)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in (*PACKAGES, "tests", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for file, find, replace in edits:
            text = (copy / file).read_text("utf-8")
            assert text.count(find) == 1, f"{file}: {find!r} is not there once"
            (copy / file).write_text(text.replace(find, replace), "utf-8")
        # The hook of an editable install leads to the checkout; a copy of the installed shape goes before it.
        installed = copy / "installed" / "agenttrace"
        shutil.copytree(copy / "agenttrace", installed)
        for name in PACKAGES[1:]:
            shutil.copytree(copy / name, installed / name)
        return _run(copy, installed.parent, list(dict.fromkeys(tests)))


def _run(copy: Path, importable: Path, tests: Sequence[str]) -> bool:
    options: list[Any] = ["-q", "-x", "-p", "no:cacheprovider", "-c", copy / "pyproject.toml"]
    command = [sys.executable, "-P", "-m", "pytest", *options, *(copy / test for test in tests)]
    environment = {"PYTHONPATH": str(importable), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(copy)}
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S * len(tests),
        )
    except subprocess.TimeoutExpired:
        # What the defence is against is an endless run.
        return False
    # Anything but "passed" and "a test failed" is no answer, such as a test that is not there.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
