"""The examples of frameworks, live: installs each, runs it against a scripted model, and compares what arrives.

Usage: live_examples.py FOLDER [NAME...]. Each `examples/with_*` tells one story: an invoice is read, a refund times out
after it was paid, and is issued again. So every framework must give the same trajectory, whatever its spans look like.
Environments are kept in FOLDER and made again when an example's dependencies change. Ends with 1 where one differs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recordings import query

from agenttrace.config import Settings
from agenttrace.evaluators.run import evaluate
from agenttrace.store import refresh

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
from scripted_model import ScriptedModel  # noqa: E402 - the examples are no package

AGENTTRACE = Path(sys.executable).with_name("agenttrace")
TIMEOUT_S = 300
_METADATA = re.compile(r"^# /// script\n(.*?)^# ///$", re.DOTALL | re.MULTILINE)

Json = dict[str, Any]

INVOICE = {"name": "get_invoice", "arguments": {"invoice_id": "INV-7"}}
REFUND = {"name": "issue_refund", "arguments": {"order_id": "A-12", "amount": 30.0}}
ANSWER = "Refunded 30.00 EUR on order A-12."
SCRIPT: list[Json] = [
    {"calls": [INVOICE], "usage": [120, 14]},
    {"calls": [REFUND], "usage": [180, 21]},
    {"calls": [REFUND], "usage": [240, 21, 64]},
    {"text": ANSWER, "usage": [300, 11]},
]
CALLS = [(call["name"], call["arguments"]) for turn in SCRIPT for call in turn.get("calls", [])]
WANTED: Json = {
    "runs": [{"model_call_count": 4, "input_tokens": 840, "output_tokens": 67, "final_response": ANSWER}],
    "requested": CALLS,
    "executed": CALLS,
    # Some frameworks hide from their own spans that the error was a time-out.
    "statuses": ["ok", "error", "ok"],
    "duplicate refund found": True,
}


def main(folder: Path, names: list[str]) -> int:
    """Runs the examples; prints a line for each and returns 1 where one differs from the story."""
    paths = sorted(path for path in EXAMPLES.glob("with_*") if not names or path.stem.removeprefix("with_") in names)
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in paths:
        problems = list(_problems(path, folder / path.stem))
        failed += bool(problems)
        sys.stdout.write(f"{path.name:28} {'differs: ' + '; '.join(problems) if problems else 'as told'}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(paths) - failed} of {len(paths)} frameworks gave the same trajectory\n")
    return int(failed > 0 or not paths)


def _problems(path: Path, home: Path) -> Iterator[str]:
    home.mkdir(exist_ok=True)
    store = home / "agenttrace.duckdb"
    for old in home.glob("agenttrace.duckdb*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    command = _installed(path, home)
    model = ScriptedModel(SCRIPT)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with _collector(store) as address:
        done = subprocess.run(
            command,
            env=_environment(model.address, address, home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    model.shutdown()
    if done.returncode or ANSWER not in done.stdout:
        yield f"exit {done.returncode}, printed {done.stdout[-200:]!r}, {done.stderr[-600:]!r}"
        return
    yield from _differences(store)


def _installed(path: Path, home: Path) -> list[str]:
    """Makes the environment that an example names; returns the command that runs it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".mjs":
        wanted = text.splitlines()[0].removeprefix("// npm: ").split()
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(home), *wanted]
        (home / path.name).write_text(text, encoding="utf-8")
        command = ["node", str(home / path.name)]
    else:
        found = _METADATA.search(text)
        assert found, f"{path}: no `# /// script` block"
        wanted = tomllib.loads(re.sub(r"^# ?", "", found.group(1), flags=re.MULTILINE))["dependencies"]
        python = home / "venv" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted]
        command = [str(python), str(path)]
    stamp = home / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != wanted:
        subprocess.run(install, check=True)
        stamp.write_text(json.dumps(wanted))
    return command


def _environment(model: str, collector: str, home: Path) -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "OPENAI_", "PYTHONPATH"))},
        "HOME": str(home),
        "OPENAI_BASE_URL": f"{model}/v1",
        "OPENAI_API_BASE": f"{model}/v1",
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": model,
        "GOOGLE_API_KEY": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }


@contextmanager
def _collector(store: Path) -> Iterator[str]:
    """Runs `agenttrace collect` on a free port; on leaving it has drained into the store."""
    command = [AGENTTRACE, "collect", "--http-port", "0", "--grpc-port", "0", "--db", store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        address = next(found.group() for line in process.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        yield address
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _differences(store: Path) -> Iterator[str]:
    """What differs from the story: tokens, calls, the answer, the verdict."""
    refresh(store)
    findings = [finding.evaluator for finding in evaluate(store, Settings()).findings]
    runs = query(store, "SELECT model_call_count, input_tokens, output_tokens, final_response FROM trajectories")
    steps = query(store, "SELECT * FROM steps WHERE duplicate_of IS NULL ORDER BY step_index")
    requested = [call for step in steps for call in json.loads(step["requested_tool_calls"] or "[]")]
    ran = [step for step in steps if step["kind"] == "tool" and step["tool_ran"]]
    found: Json = {
        "runs": [{**run, "final_response": (run["final_response"] or "").strip()} for run in runs],
        "requested": [(call["name"], call["arguments"]) for call in requested],
        "executed": [(step["tool_name"], json.loads(step["arguments"] or "null")) for step in ran],
        "statuses": [{"timeout": "error"}.get(step["status"], step["status"]) for step in ran],
        "duplicate refund found": "duplicate_mutations" in findings,
    }
    yield from (f"{name}: {found[name]}" for name, wanted in WANTED.items() if found[name] != wanted)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
