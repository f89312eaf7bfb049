"""Benchmarks with sizes so small that they say nothing: that they run, and how ratios are formed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Imports modules of the folder, whose results go elsewhere; gone again after the test, since names are common."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(importlib.import_module("ratios"), "RESULTS", tmp_path / "results")

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_a_figure_is_the_median_of_the_ratios_of_its_rounds(load, tmp_path: Path) -> None:
    ratios = load("ratios")
    base = [ratios.Taken(1.0, 2.0), ratios.Taken(2.0, 2.0), ratios.Taken(4.0, 2.0)]
    own = [ratios.Taken(3.0, 1.0, {"n": 1}), ratios.Taken(2.0, 4.0, {"n": 5}), ratios.Taken(8.0, 6.0, {"n": 3})]
    # 3/1, 2/2, 8/4 and 1/2, 4/2, 6/2
    row = ratios.figure("own", own, base, 1.99)
    assert (row.cpu_s, row.wall_s, row.cpu_ratio, row.wall_ratio, row.rounds) == (3.0, 4.0, 2.0, 2.0, 3)
    assert row.more == {"n": 3}
    assert not row.is_met
    rows = [ratios.figure("base", base, base), row]
    assert not ratios.report("one", {"times": rows, "sizes": ratios.amounts("bytes", {"raw": 8, "ours": 2})})
    [target] = load("summary").targets(["one", "never run"], tmp_path / "results")
    assert (target.part, target.baseline, target.ratio, target.is_met) == ("own", "base", 2.0, False)
    assert "| times: own | 2.00 | 1.99 | base |" in load("summary").readme(["one"], tmp_path / "results")


def test_a_work_is_measured_by_what_it_returns(load) -> None:
    ratios = load("ratios")
    other = ratios.Taken(0.25, 0.5, {"spans/s": 7.0})
    works = [ratios.Work("none", lambda: lambda: None), ratios.Work("other", lambda: lambda: other)]
    base, row = ratios.measure([*works], rounds=2)
    assert (base.cpu_ratio, row.cpu_s, row.wall_s, row.more) == (1.0, 0.25, 0.5, {"spans/s": 7.0})
    [added] = ratios.measure([ratios.Work("adds", lambda: lambda: 100.0, repeats=4)], rounds=1)
    assert 100.0 <= added.cpu_s < 101.0


def test_clients_speak_grpc(load, tmp_path: Path) -> None:
    receiver = load("receiver")
    with receiver.start("append", tmp_path, "grpc") as server:
        sent = receiver.send(server.address, receiver.Load(clients=2, requests=4, door="grpc"))
    assert (sorted(sent.acknowledged), sent.refused) == ([1, 2, 3, 4], {})
    assert (tmp_path / "bodies").stat().st_size == 4 * sent.body_bytes


def test_the_receiver_has_all_that_it_acknowledged(load, tmp_path: Path) -> None:
    receiver = load("receiver")
    sent = receiver.Load(clients=2, requests=4, encoding="json")
    base, own = load("ratios").measure(
        [
            load("ratios").Work("bare", receiver.bare("append", tmp_path, sent)),
            load("ratios").Work("collect", receiver.ours(tmp_path, sent)),
        ],
        rounds=1,
    )
    assert base.more.keys() < own.more.keys()
    lost = receiver.Sent(acknowledged=[99])
    [home] = (path.parent for path in tmp_path.glob("*/store.duckdb"))
    with pytest.raises(AssertionError, match="request 99"):
        receiver.check(home, [(sent, lost)])


def test_requests_differ_in_ids_alone_and_are_alike_in_both_encodings(load) -> None:
    requests = load("otlp_requests")
    bodies = {encoding: requests.Bodies(40, encoding) for encoding in ("protobuf", "json")}
    message = requests.ExportTraceServiceRequest.FromString(bodies["protobuf"].body(7))
    spans = list(requests.spans_of(message))
    texts = [
        span
        for group in json.loads(bodies["json"].body(7))["resourceSpans"]
        for part in group["scopeSpans"]
        for span in part["spans"]
    ]
    assert [span.span_id.hex() for span in spans] == [span["spanId"] for span in texts]
    assert [span.trace_id.hex() for span in spans] == [span["traceId"] for span in texts]
    assert len({span.trace_id for span in spans}) == 2
    assert all(span["spanId"].startswith("00000007") for span in texts)


def test_storage_and_soak_form_their_tables(load, tmp_path: Path) -> None:
    load("storage").PARTS = 1
    assert load("storage").main(40, False)
    assert "store: spans" in (tmp_path / "results" / "storage.json").read_text()
    soak = load("soak")
    samples = [soak.Sample(at, at / 2, 100.0 + at, 7, 1.5) for at in range(130)]
    sent = load("clients").Sent(latencies_s=[0.002] * 13, answered_s=[it * 10.0 for it in range(13)])
    rows = soak.by_minute(sent, samples)
    assert [row["spans acknowledged"] for row in rows] == [600, 600]
    assert [(row["memory MB"], round(row["processor %"])) for row in rows] == [(159.0, 50), (219.0, 50)]


def test_programs_are_measured_from_outside(load) -> None:
    processes, startup = load("processes"), load("startup")
    taken = processes.command([sys.executable, "-c", "sum(range(10**6))"])()
    assert 0 < taken.cpu_s < 60
    assert 1 < processes.peak_mb("pass") < 1_000
    assert startup.imported("json")().cpu_s > 0
    with pytest.raises(AssertionError, match="exit code 3"):
        processes.command([sys.executable, "-c", "raise SystemExit(3)"])()
    with pytest.raises(RuntimeError, match="did not start: no such model"):
        processes.Server([sys.executable, "-c", "print('no such model')"], "listening on (x)")


def test_a_decorator_is_compared_only_if_it_records_arguments_and_result(load) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "peer_calls.py"), "agenttrace", "1", "3"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert len(found["function"]["decorated"]) == len(found["coroutine"]["by hand"]) == 1
    load("peers").check_recorded("agenttrace", found["example"])
    with pytest.raises(AssertionError, match="none did not record"):
        load("peers").check_recorded("none", {"attributes": {"item": "rice"}})


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_module_is_a_program_with_a_main_or_part_of_one(name: str, load) -> None:
    module = load(name)
    bench = load("bench").BENCHMARKS
    assert callable(getattr(module, "main", None)) or name not in bench
    assert module.__doc__


def test_an_unknown_benchmark_is_named(load, capsys: pytest.CaptureFixture[str]) -> None:
    bench = load("bench")
    assert all((BENCHMARKS / f"{name}.py").exists() for name in bench.BENCHMARKS)
    assert bench.main("no such") == 2
    assert "no such benchmark: no such" in capsys.readouterr().err
