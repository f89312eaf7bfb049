"""Peers side by side, each in an environment of its own below build/peers, which the first run installs (1.5 GB).

Run: `python benchmarks/peers.py [NAME...]`. Three comparisons: a tool call under each decorator against the same span
written by hand in the same process; agentevals and agenttrace scoring the same file; the same OTLP requests sent to
Phoenix, MLflow and `agenttrace collect`. A peer that cannot be installed is named with the reason and left out.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import peer_scoring
import receiver
from clients import Load, send
from peer_calls import KINDS
from processes import AGENTTRACE, Server, command, free_port
from ratios import Figure, Taken, Work, figure, measure, report

HERE = Path(__file__).parent
FOLDER = HERE.parent / "build" / "peers"
PACKAGES = {
    "openinference": ["openinference-instrumentation"],
    # traceloop-sdk imports httpx and does not ask for it.
    "traceloop": ["traceloop-sdk", "httpx"],
    "logfire": ["logfire"],
    "langfuse": ["langfuse"],
    "mlflow": ["mlflow"],
    "agentevals": ["agentevals-cli"],
    "phoenix": ["arize-phoenix"],
}
DECORATORS = ("openinference", "traceloop", "logfire", "langfuse", "mlflow")
RUNS = (100, 1_000)
LOAD = Load(clients=4, requests=100)
_INSTALL_S = 1_200
_STORED_S = 120.0


class Peer(NamedTuple):
    """A peer that is installed."""

    folder: Path
    title: str

    def program(self, name: str) -> str:
        """Returns the path of one of its commands."""
        return str(self.folder / "bin" / name)


def installed(name: str) -> Peer | str:
    """Installs a peer unless it is there; returns it, or why that failed."""
    folder, packages = FOLDER / name, PACKAGES[name]
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != packages:
        print(f"installing {' '.join(packages)} in {folder.relative_to(FOLDER.parent.parent)} ...", file=sys.stderr)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        # Python's own pip may be old, and takes minutes to resolve what a newer one does in seconds.
        steps = [[sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, "--upgrade", "pip"], [*pip, *packages]]
        for step in steps:
            try:
                subprocess.run(step, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
            except subprocess.TimeoutExpired:
                return f"not installed within {_INSTALL_S} s"
            except subprocess.CalledProcessError as err:
                said = (err.stderr.strip().splitlines() or ["installation failed"])[-1]
                return re.sub(r"https?://\S+", "...", said)[:200]
        stamp.write_text(json.dumps(packages))
    code = f"import importlib.metadata as m; print(m.version({packages[0]!r}))"
    version = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return Peer(folder, f"{packages[0]} {version}")


# Decorators


def calls(python: str, name: str, env: Mapping[str, str] | None = None, rounds: int = 15, count: int = 500) -> Any:
    """Runs peer_calls.py in an environment; returns what it prints."""
    arguments = [python, str(HERE / "peer_calls.py"), name, str(rounds), str(count)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            arguments, cwd=folder, env={**os.environ, **(env or {})}, check=True, capture_output=True, text=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def check_recorded(name: str, example: dict[str, Any]) -> None:
    """The comparison is fair only where arguments and result are in the span."""
    text = json.dumps(example["attributes"])
    missing = [word for word in ("rice", "40", "back door", "r-17", "PO-1", "812.5") if word not in text]
    assert not missing, f"{name} did not record {missing}: {text}"


def decorators(
    peers: Mapping[str, Peer], left_out: dict[str, str], rounds: int = 15, count: int = 500
) -> dict[str, list[Figure]]:
    """A table for each kind of function; a peer that does not run here goes to `left_out` with the reason."""
    found = {
        "agenttrace, redaction off": calls(sys.executable, "agenttrace", {"AGENTTRACE_REDACT": "off"}, rounds, count),
        "agenttrace, redaction on (default)": calls(sys.executable, "agenttrace", None, rounds, count),
    }
    for name in DECORATORS:
        if peer := peers.get(name):
            try:
                found[peer.title] = calls(peer.program("python"), name, None, rounds, count)
            except subprocess.CalledProcessError as err:
                left_out[name] = err.stderr.strip().splitlines()[-1][:200]
    for title, result in found.items():
        check_recorded(title, result["example"])
        print(f"{title} records {json.dumps(result['example']['attributes'])[:400]}")
    tables: dict[str, list[Figure]] = {}
    for kind in KINDS:
        rows: list[Figure] = []
        for title, result in found.items():
            base, own = ([Taken(*pair) for pair in result[kind][of]] for of in ("by hand", "decorated"))
            rows += [] if rows else [figure("the same span by hand", base, base)]
            rows.append(figure(title, own, base))
        tables[f"decorated tool call, to the same span by hand: {kind}"] = rows
    return tables


# Scoring


def scoring(agentevals: Peer, runs: int, rounds: int = 3) -> list[Figure]:
    """Both score the same file, as whole processes, and must find the same runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peer_scoring.write(folder, runs)
        wrong = sum(map(peer_scoring.is_faulty, range(1, runs + 1)))
        judge = ["run", "traces.json", "-e", "eval_set.json", "-m", "tool_trajectory_avg_score", "-o", "json"]
        theirs = [agentevals.program("agentevals"), *judge]
        result = json.loads(subprocess.run(theirs, cwd=folder, capture_output=True, text=True).stdout)
        statuses = [metric["eval_status"] for trace in result["traces"] for metric in trace["metrics"]]
        assert (len(statuses), statuses.count("FAILED")) == (runs, wrong), statuses
        works = [Work(f"{agentevals.title}: its tool trajectory", lambda: command(theirs, cwd=folder, code=(1,)))]
        for title, only in (("tool_sequence", ["--only", "tool_sequence"]), ("every evaluator", [])):
            works.append(Work(f"agenttrace import, evaluate: {title}", lambda only=only: _scored(folder, wrong, only)))
        return measure(works, rounds=rounds)


def _scored(folder: Path, wrong: int, only: list[str]) -> Callable[[], Taken]:
    home = Path(tempfile.mkdtemp(dir=folder))
    place = ["--db", str(home / "store.duckdb"), "--config", "agenttrace.toml"]
    answer = str(home / "answer.json")
    read = command([AGENTTRACE, "import", "traces.json", *place], cwd=folder)
    judge = command(
        [AGENTTRACE, "evaluate", *place, *only, "--format", "json", "--output", answer], cwd=folder, code=(1,)
    )

    def run() -> Taken:
        first, second = read(), judge()
        findings = json.loads(Path(answer).read_text())["findings"]
        found = {finding["trajectory_id"] for finding in findings if finding["evaluator"] == "tool_sequence"}
        assert len(found) == wrong, f"{len(found)} runs with findings, expected {wrong}"
        return Taken(first.cpu_s + second.cpu_s, first.wall_s + second.wall_s)

    return run


# Servers


def phoenix(peer: Peer, folder: Path) -> tuple[Server, Path, dict[str, str]]:
    """Starts Phoenix with its default store; returns it, that store, and headers to send."""
    env = {
        **os.environ,
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(free_port()),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    server = Server([peer.program("phoenix"), "serve"], r"Uvicorn running on (http://\S+)", cwd=folder, env=env)
    return server, folder / "phoenix.db", {}


def mlflow(peer: Peer, folder: Path) -> tuple[Server, Path, dict[str, str]]:
    """Starts MLflow's server with its default store and one worker, since it has only one to write that."""
    arguments = [peer.program("mlflow"), "server", "--host", "127.0.0.1", "--port", str(free_port()), "--workers", "1"]
    server = Server(arguments, r"Uvicorn running on (http://\S+)", cwd=folder)
    return server, folder / "mlflow.db", {"x-mlflow-experiment-id": "0"}


SERVERS = {"phoenix": phoenix, "mlflow": mlflow}


def theirs(name: str, peer: Peer, folder: Path, load: Load) -> Callable[[], Callable[[], Taken]]:
    """Sends the requests to a peer, and waits until its store has all rows."""

    def prepare() -> Callable[[], Taken]:
        home = Path(tempfile.mkdtemp(dir=folder))
        server, db, headers = SERVERS[name](peer, home)
        warm = send(server.address, Load(requests=5, first=1 << 30, headers=headers))
        wait_for_rows(db, len(warm.acknowledged) * load.spans)
        before = server.cpu_s()

        def run() -> Taken:
            with server:
                sent = send(server.address, Load(load.clients, load.requests, headers=headers))
                answered_s = server.cpu_s() - before
                spans = len(sent.acknowledged) * load.spans
                lag_s = wait_for_rows(db, spans + len(warm.acknowledged) * load.spans)
                result = receiver.taken(sent, load, server.cpu_s() - before)
            return result._replace(more={**result.more, "us/span to answer": 1e6 * answered_s / spans, "lag s": lag_s})

        return run

    return prepare


def wait_for_rows(db: Path, spans: int) -> float:
    """Waits until a store of SQLite has so many spans; returns the seconds that it took."""
    started, found = time.monotonic(), 0
    while time.monotonic() - started < _STORED_S:
        con = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=10)
        (found,) = con.execute("SELECT count(*) FROM spans").fetchone()
        con.close()
        if found == spans:
            return time.monotonic() - started
        time.sleep(0.05)
    raise AssertionError(f"{db.name} holds {found} of {spans} acknowledged spans after {_STORED_S:.0f} s")


def servers(peers: Mapping[str, Peer], load: Load = LOAD, rounds: int = 3) -> list[Figure]:
    """The same requests to each; every acknowledged span must be in its store at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        works = [
            Work("bare: parse, answer", receiver.bare("parse", folder, load)),
            Work("agenttrace collect", receiver.ours(folder, load)),
        ]
        works += [Work(peers[it].title, theirs(it, peers[it], folder, load)) for it in SERVERS if it in peers]
        return measure(works, rounds=rounds)


def main(*names: str) -> bool:
    """Prints the tables."""
    found = {name: installed(name) for name in names or PACKAGES}
    peers = {name: peer for name, peer in found.items() if isinstance(peer, Peer)}
    left_out = {name: why for name, why in found.items() if isinstance(why, str)}
    tables: dict[str, list[Figure]] = decorators(peers, left_out)
    if agentevals := peers.get("agentevals"):
        for runs in RUNS:
            title = f"scoring one OTLP JSON file, a run in {peer_scoring.FAULTY} with a call too many: {runs:,} runs"
            tables[title] = scoring(agentevals, runs)
    if any(name in SERVERS for name in peers):
        title = f"OTLP protobuf -> rows, {LOAD.spans} spans a request, {LOAD.clients} clients"
        tables[title] = servers(peers)
    facts = {f"left out: {name}": why for name, why in left_out.items()}
    return report("peers", tables, facts)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
