"""The GitHub Action and the workflow that uses it: their scripts run as GitHub would run them."""

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from agenttrace.cli import main

ROOT = Path(__file__).parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "nightly.yml").read_text(encoding="utf-8"))
INSTALL, JUDGE = (step for step in ACTION["runs"]["steps"] if "run" in step)


def run(folder: Path, step: dict[str, Any], **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Runs a step's script as GitHub does: inputs in the environment, the summary in a file."""
    values = {name: given["default"] for name, given in ACTION["inputs"].items()} | inputs
    stated = {
        name: values[value.removeprefix("${{ inputs.").removesuffix(" }}")] for name, value in step["env"].items()
    }
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), **stated}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    main(["demo", str(folder)])
    return folder / "agenttrace-demo.duckdb"


@pytest.fixture
def folder(tmp_path: Path, demo: Path) -> Path:
    shutil.copyfile(demo, tmp_path / "agenttrace.duckdb")
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_no_input_stands_in_a_script() -> None:
    scripts = [step["run"] for step in (*ACTION["runs"]["steps"], *WORKFLOW["jobs"]["judge"]["steps"]) if "run" in step]
    assert len(scripts) == 3
    assert not [script for script in scripts if "${{" in script]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("command", ["evaluate", "nightly --tz Europe/Berlin"])
def test_findings_become_annotations_a_summary_and_a_report(folder: Path, command: str) -> None:
    done = run(folder, JUDGE, command=command)
    assert done.returncode == 1, done.stderr
    assert "::error title=duplicate_mutations/unverified_retry::place_order(item=rice, qty=40) ran twice" in done.stdout
    assert (folder / "summary.md").read_text().startswith("## agenttrace: FAILED: ")
    assert (folder / "agenttrace-report.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    "command",
    ["evaluate; touch pwned", "evaluate $(touch pwned)", "evaluate `touch pwned` *", "evaluate\ntouch pwned", ""],
)
def test_a_command_is_words_and_no_script(folder: Path, command: str) -> None:
    assert run(folder, JUDGE, command=command).returncode == 2
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize(("version", "wanted"), [("", "agenttrace-otel"), ("0.1.0", "agenttrace-otel==0.1.0")])
def test_the_version_asked_for_is_installed(folder: Path, version: str, wanted: str) -> None:
    python = folder / "bin" / "python"
    python.write_text('#!/bin/sh\nfor last; do :; done; echo "$last"\n')
    python.chmod(0o755)
    assert run(folder, INSTALL, version=version).stdout.strip() == wanted


def test_the_workflow_uses_the_action_as_it_is() -> None:
    [used] = [step for step in WORKFLOW["jobs"]["judge"]["steps"] if step.get("uses", "").startswith("agenttrace/")]
    assert set(used["with"]) <= set(ACTION["inputs"])


def test_the_workflow_keeps_all_that_belongs_to_the_store() -> None:
    caches = {
        step["uses"]: step["with"] for step in WORKFLOW["jobs"]["judge"]["steps"] if "/cache/" in step.get("uses", "")
    }
    restore, save = caches["actions/cache/restore@v4"], caches["actions/cache/save@v4"]
    assert (restore["path"], restore["key"]) == (save["path"], save["key"])
    assert save["key"].startswith(restore["restore-keys"])
    assert "github.run_attempt" in save["key"]
    for name in ("agenttrace.duckdb", "agenttrace.duckdb.spool"):
        assert fnmatch(name, save["path"])
