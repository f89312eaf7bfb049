"""configure() in programs of its own: a process has one global TracerProvider, one SIGTERM handler, one exit."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import agenttrace
from agenttrace import connect
from agenttrace import store as store_module
from agenttrace.batch import SpanBatcher
from agenttrace.errors import ConfigError
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.guard import guard
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store

PRELUDE = """
import os, signal, sys, threading, time
import agenttrace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from agenttrace.spool import Spool, spool_folder
from pathlib import Path
db = Path(sys.argv[1])
def span(name, **attributes):
    trace.get_tracer("test").start_span(name, attributes=attributes).end()
def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "waited 30 s"
        time.sleep(0.002)
"""


def program(script: str, *arguments: object, wait: bool = True, **options: Any) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    if wait:
        out, err = process.communicate(timeout=60)
        process.out, process.err = out, err  # type: ignore[attr-defined]
    return process


def run(script: str, *arguments: object, status: int = 0) -> str:
    process = program(script, *arguments)
    assert process.returncode == status, process.err
    assert "Traceback" not in process.err, process.err
    return process.out + process.err


def names(db: Path) -> list[str]:
    compact_store(db, budget_s=30, wait_s=10)
    with open_store(db) as con:
        return [name for (name,) in con.execute("SELECT name FROM spans ORDER BY name").fetchall()]


class TestProvider:
    """Where spans go."""

    def test_a_provider_is_made_where_none_is(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db, service_name="shop")
            span("a"); span("b")
            print(agenttrace.flush(), agenttrace.flush(), agenttrace.shutdown())
            """,
            store,
        )
        assert out.count("FlushResult(written=2, waiting=0, dropped=0)") == 3
        with open_store(store) as con:
            assert con.execute("SELECT DISTINCT service_name FROM spans").fetchall() == [("shop",)]

    def test_the_programs_seed_gives_it_the_same_numbers_and_no_span_an_id_twice(self, store: Path) -> None:
        script = """
            import random
            agenttrace.configure(db)
            for task in range(2):
                random.seed(42)
                span(f"{sys.argv[2]}{task}")
                if os.fork() == 0:
                    span(f"{sys.argv[2]}{task} of the child")
                    agenttrace.flush()
                    os._exit(0)
                assert os.wait()[1] == 0
                print(random.randrange(1000))
            agenttrace.flush()
            """
        assert run(script, store, "a") == run(script, store, "b") == "654\n654\n"
        assert names(store) == [f"{run}{task}{end}" for run in "ab" for task in "01" for end in ("", " of the child")]

    def test_a_recording_that_begins_anew_drops_nothing_and_warns_of_nothing(self, store: Path) -> None:
        out = run(
            """
            for name in "abc":
                agenttrace.configure(db)
                span(name)
                print(agenttrace.shutdown())
            """,
            store,
        )
        assert out.count("FlushResult(written=1, waiting=0, dropped=0)") == 3
        assert "Spans are dropped" not in out
        assert sorted(names(store)) == ["a", "b", "c"]

    def test_the_provider_of_the_program_is_joined(self, store: Path) -> None:
        out = run(
            """
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
            memory = InMemorySpanExporter()
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(memory))
            trace.set_tracer_provider(provider)
            agenttrace.configure(db)
            span("a")
            assert trace.get_tracer_provider() is provider
            print(len(memory.get_finished_spans()), agenttrace.flush().written)
            """,
            store,
        )
        assert out == "1 1\n"

    def test_called_twice_it_exports_once_and_a_second_target_too(self, store: Path, tmp_path: Path) -> None:
        out = run(
            """
            agenttrace.configure(db); agenttrace.configure(str(db), spans="agent")
            agenttrace.configure(db, threads=False); agenttrace.configure(sys.argv[2])
            processors = trace.get_tracer_provider()._active_span_processor._span_processors
            span("a")
            print(len(processors), agenttrace.flush())
            """,
            store,
            tmp_path / "second.duckdb",
        )
        assert out == "2 FlushResult(written=2, waiting=0, dropped=0)\n"
        assert names(store) == names(tmp_path / "second.duckdb") == ["a"]

    def test_a_provider_that_takes_no_processor_is_warned_about(self, store: Path) -> None:
        out = run(
            """
            from opentelemetry.trace import NoOpTracerProvider
            trace.set_tracer_provider(NoOpTracerProvider())
            agenttrace.configure(db); agenttrace.configure(db)
            span("a")
            print(agenttrace.flush())
            """,
            store,
        )
        assert out.count("NoOpTracerProvider, takes no span processor; nothing is recorded.") == 1
        assert "written=0" in out

    def test_a_sampler_that_drops_and_limits_that_cut_are_warned_about_once(self, store: Path) -> None:
        out = run(
            """
            from opentelemetry.sdk.trace import SpanLimits
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            limits = SpanLimits(max_attribute_length=80)
            trace.set_tracer_provider(TracerProvider(ParentBased(TraceIdRatioBased(0.5)), span_limits=limits))
            agenttrace.configure(db); agenttrace.configure(db)
            """,
            store,
        )
        assert out.count("drops spans; verdicts need whole traces") == 1
        assert out.count("cut attributes at 80 characters") == 1

    def test_a_complete_sampler_is_not_warned_about(self, store: Path) -> None:
        out = run(
            """
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
            trace.set_tracer_provider(TracerProvider(ALWAYS_ON))
            agenttrace.configure(db)
            """,
            store,
        )
        assert out == ""

    def test_own_limits_leave_long_conversations_whole(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db)
            current = trace.get_tracer("test").start_span("a", attributes={f"llm.{i}": i for i in range(500)})
            for i in range(500): current.add_event("agenttrace.thought")
            current.end(); agenttrace.flush()
            """,
            store,
        )
        assert out == ""
        with open_store(store) as con:
            query = "SELECT len(json_keys(attributes)), json_array_length(events) FROM spans"
            assert con.execute(query).fetchall() == [(500, 500)]

    def test_it_can_begin_anew_after_a_shutdown(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db); span("a"); print(agenttrace.shutdown())
            span("lost")
            agenttrace.configure(db); span("b"); print(agenttrace.shutdown())
            """,
            store,
        )
        assert out.count("written=1, waiting=0, dropped=0") == 2
        assert names(store) == ["a", "b"]

    def test_the_store_is_that_of_the_command_line(self, store: Path) -> None:
        env = os.environ | {"AGENTTRACE_DB": str(store)}
        process = program("agenttrace.configure(); span('a')", store, env=env)
        assert process.returncode == 0
        assert names(store) == ["a"]

    def test_only_spans_of_agents_where_told_so(self, store: Path) -> None:
        run(
            """
            agenttrace.configure(db, spans="agent")
            span("health check"); span("chat", **{"gen_ai.operation.name": "chat"})
            """,
            store,
        )
        assert names(store) == ["chat"]

    def test_redaction_is_passed_on(self, store: Path) -> None:
        run(
            """
            agenttrace.configure(db, redact_patterns=[r"order-\\d+"], redact=lambda text: text.replace("rice", "****"))
            agenttrace.configure(db)
            @agenttrace.tool
            def check(order: str) -> str: return "rice for " + order
            check("order-17")
            """,
            store,
        )
        with open_store(store) as con:
            [(attributes,)] = con.execute("SELECT attributes FROM spans").fetchall()
        assert "order-17" not in attributes
        assert "rice" not in attributes

    @pytest.mark.parametrize("target", ["ftp://host", "http://", "grpc://", "://", "grpc://host:x", "http://[::"])
    def test_a_target_of_no_known_kind_is_refused_where_it_is_written(self, target: str) -> None:
        with pytest.raises(ConfigError, match="expected a path, http://host:4318 or grpc://host:4317"):
            agenttrace.configure(target)

    @pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan"), 1e12])
    def test_an_interval_that_no_thread_can_wait_is_refused(self, seconds: float, store: Path) -> None:
        with pytest.raises(ConfigError, match=r"flush_interval is .*; expected seconds, such as 1\.0"):
            agenttrace.configure(store, flush_interval=seconds)


class TestThreads:
    """The current span in threads."""

    SCRIPT = """
        from concurrent.futures import ThreadPoolExecutor
        agenttrace.configure(db, threads=sys.argv[2] == "on"); agenttrace.configure(db, threads=sys.argv[2] == "on")
        with ThreadPoolExecutor(1) as pool, trace.get_tracer("test").start_as_current_span("parent"):
            pool.submit(span, "child").result()
            thread = threading.Thread(target=span, args=("child",)); thread.start(); thread.join()
            class Worker(threading.Thread):
                def run(self):
                    span("child")
            thread = Worker(); thread.start(); thread.join()
            assert "run" not in vars(thread)
    """

    @pytest.mark.parametrize(("setting", "orphans"), [("on", 0), ("off", 3)])
    def test_children_keep_their_parent_unless_switched_off(self, store: Path, setting: str, orphans: int) -> None:
        assert run(self.SCRIPT, store, setting) == ""
        compact_store(store, budget_s=10)
        with open_store(store) as con:
            query = "SELECT count(*) FROM spans WHERE name = 'child' AND parent_span_id IS NULL"
            assert con.execute(query).fetchall() == [(orphans,)]


class Receiver(BaseHTTPRequestHandler):
    """An OTLP/HTTP receiver that keeps the names of the spans it got."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        self.server.names += span_names(ExportTraceServiceRequest.FromString(body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def span_names(request: ExportTraceServiceRequest) -> list[str]:
    return [s.name for resource in request.resource_spans for scope in resource.scope_spans for s in scope.spans]


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.names, server.paths = [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestReceivers:
    """Targets that speak OTLP."""

    SCRIPT = """
        agenttrace.configure(sys.argv[1])
        for i in range(1500): span(str(i))
        print(agenttrace.flush(), agenttrace.shutdown())
    """

    def test_http(self, receiver: Any) -> None:
        out = run(self.SCRIPT, f"http://127.0.0.1:{receiver.server_port}")
        assert out.count("FlushResult(written=1500, waiting=0, dropped=0)") == 2
        assert sorted(receiver.names) == sorted(map(str, range(1500)))
        assert set(receiver.paths) == {"/v1/traces"}

    def test_http_with_a_path_of_its_own(self, receiver: Any) -> None:
        run(self.SCRIPT, f"http://127.0.0.1:{receiver.server_port}/custom/traces")
        assert set(receiver.paths) == {"/custom/traces"}

    def test_grpc(self) -> None:
        got: list[str] = []

        class Service(TraceServiceServicer):
            def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:
                got.extend(span_names(request))
                return ExportTraceServiceResponse()

        server = grpc.server(futures.ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(Service(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            out = run(self.SCRIPT, f"grpc://127.0.0.1:{port}")
        finally:
            server.stop(None).wait()
        assert out.count("FlushResult(written=1500, waiting=0, dropped=0)") == 2
        assert sorted(got) == sorted(map(str, range(1500)))

    def test_a_forked_child_has_a_connection_of_its_own(self, receiver: Any) -> None:
        out = run(
            """
            agenttrace.configure(sys.argv[1])
            span("before"); print(agenttrace.flush().written, flush=True)
            child = os.fork()
            span("child" if child == 0 else "parent")
            print(agenttrace.flush(), flush=True)
            if child: os.waitpid(child, 0)
            """,
            f"http://127.0.0.1:{receiver.server_port}",
        )
        assert sorted(receiver.names) == ["before", "child", "parent"]
        assert "FlushResult(written=1, waiting=0, dropped=0)" in out
        assert "FlushResult(written=2, waiting=0, dropped=0)" in out

    def test_nobody_listening_holds_neither_a_flush_nor_the_exit_up(self) -> None:
        out = run(
            """
            import atexit
            # Exit handlers run last in, first out: this one measures what the others take.
            atexit.register(lambda: print(time.monotonic() - ended < 3.5, flush=True))
            agenttrace.configure(sys.argv[1])
            span("a")
            start = time.monotonic()
            print(agenttrace.flush(timeout=0.2), time.monotonic() - start < 2)
            ended = time.monotonic()
            """,
            "http://127.0.0.1:9",
        )
        assert out.startswith("FlushResult(written=0")
        assert "True\nTrue\n" in out.partition(")")[2].lstrip()

    def test_start_records_are_not_for_foreign_backends(self, receiver: Any) -> None:
        run(
            """
            agenttrace.configure(sys.argv[1])
            @agenttrace.tool(mutates=True)
            def refund() -> str: return "done"
            refund()
            """,
            f"http://127.0.0.1:{receiver.server_port}",
        )
        assert receiver.names == ["execute_tool refund"]


class TestEnd:
    """The end of a process."""

    @pytest.mark.parametrize(
        ("ending", "status"), [("", 0), ("sys.exit(3)", 3), ("raise SystemExit(4)", 4)], ids=["end", "exit", "raise"]
    )
    def test_spans_of_the_last_moment_are_in_the_store(self, store: Path, ending: str, status: int) -> None:
        run(f"agenttrace.configure(db); span('a')\n{ending}", store, status=status)
        with open_store(store) as con:
            assert con.execute("SELECT count(*) FROM spans").fetchall() == [(1,)]
        assert Spool(spool_folder(store)).segments() == []

    def test_spans_that_end_in_other_exit_handlers_are_kept(self, store: Path) -> None:
        run(
            """
            import atexit
            atexit.register(lambda: span("late"))
            agenttrace.configure(db)
            span("a")
            """,
            store,
        )
        assert "a" in names(store)

    def test_a_file_that_another_program_holds_keeps_the_spans_waiting(self, store: Path) -> None:
        run("agenttrace.configure(db); span('a')", store)
        hold = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.readline()"
        with subprocess.Popen(
            [sys.executable, "-c", hold, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            out = run("agenttrace.configure(db); span('b'); print(agenttrace.flush())", store)
            holder.communicate("\n")
        assert out == "FlushResult(written=1, waiting=1, dropped=0)\n"
        assert names(store) == ["a", "b"]

    def test_what_ended_an_interval_ago_outlives_os_exit(self, store: Path) -> None:
        run(
            """
            agenttrace.configure(db, flush_interval=0.05)
            span("a")
            wait_for(Spool(spool_folder(db)).segments)
            os._exit(0)
            """,
            store,
        )
        assert names(store) == ["a"]

    def test_ten_thousand_spans_in_a_burst_all_arrive(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db)
            for i in range(10_000): span("a")
            print(agenttrace.flush())
            """,
            store,
        )
        assert out == "FlushResult(written=10000, waiting=0, dropped=0)\n"


class TestSigterm:
    """SIGTERM does what it did before, after the spans are on disk."""

    def end(self, script: str, db: Path) -> "subprocess.Popen[str]":
        process = program(script, db, wait=False)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.out, process.err = process.communicate(timeout=60)  # type: ignore[attr-defined]
        return process

    WAIT = "print('ready', flush=True); signal.pause()"

    def test_the_default_action_still_kills(self, store: Path) -> None:
        process = self.end(f"agenttrace.configure(db, flush_interval=60); span('a'); {self.WAIT}", store)
        assert process.returncode == -signal.SIGTERM
        assert names(store) == ["a"]

    def test_a_function_of_the_users_is_called_afterwards(self, store: Path) -> None:
        process = self.end(
            f"""
            def handler(signum, frame):
                print(len(Spool(spool_folder(db)).segments()), signum, flush=True)
                os._exit(5)
            signal.signal(signal.SIGTERM, handler)
            agenttrace.configure(db, flush_interval=60); agenttrace.configure(db)
            span("a"); {self.WAIT}
            """,
            store,
        )
        assert (process.returncode, process.out) == (5, f"1 {int(signal.SIGTERM)}\n")

    def test_while_the_main_thread_is_in_the_middle_of_recording(self, store: Path) -> None:
        process = self.end(
            """
            agenttrace.configure(db, flush_interval=60)
            for count in range(10**9):
                span("a")
                if count == 500: print("ready", flush=True)
            """,
            store,
        )
        assert process.returncode == -signal.SIGTERM
        assert len(names(store)) > 0

    def test_a_handler_that_is_set_later_stays(self, store: Path) -> None:
        process = self.end(
            f"""
            agenttrace.configure(db)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(6)); span("a"); {self.WAIT}
            """,
            store,
        )
        assert process.returncode == 6
        assert names(store) == ["a"]

    def test_handlers_of_others_are_left_alone(self, store: Path) -> None:
        out = run(
            """
            import asyncio
            def handler(signum, frame): pass
            class Server:
                def handle_exit(self, signum, frame): pass
            Server.handle_exit.__module__ = Server.__module__ = "uvicorn.server"
            server = Server()
            handlers = [signal.SIG_IGN, server.handle_exit]
            for old in handlers:
                signal.signal(signal.SIGTERM, old); agenttrace.configure(db)
                print(signal.getsignal(signal.SIGTERM) == old)
            async def main():
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
                old = signal.getsignal(signal.SIGTERM); agenttrace.configure(db)
                print(signal.getsignal(signal.SIGTERM) is old)
            asyncio.run(main())
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            thread = threading.Thread(target=agenttrace.configure, args=(db,)); thread.start(); thread.join()
            print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
            """,
            store,
        )
        assert out == "True\n" * 4


class TestForks:
    """Children of all kinds."""

    def test_each_process_exports_what_ended_in_it(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db, flush_interval=60)
            span("before")
            open_span = trace.get_tracer("test").start_span("across")
            child = os.fork()
            span("child" if child == 0 else "parent")
            open_span.end()
            if child:
                os.waitpid(child, 0)
            print(agenttrace.flush())
            """,
            store,
        )
        assert sorted(out.splitlines())[-1].startswith("FlushResult(written=3, waiting=")
        assert names(store) == ["across", "before", "child", "parent"]

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_children_of_multiprocessing(self, store: Path, tmp_path: Path, method: str) -> None:
        script = tmp_path / "main.py"
        script.write_text(
            PRELUDE
            + textwrap.dedent(
                """
                import multiprocessing
                agenttrace.configure(db, flush_interval=60)
                if __name__ == "__main__":
                    context = multiprocessing.get_context(sys.argv[2])
                    children = [context.Process(target=span, args=(f"child{i}",)) for i in range(2)]
                    for child in children: child.start()
                    for child in children: child.join()
                    assert [child.exitcode for child in children] == [0, 0]
                """
            )
        )
        subprocess.run([sys.executable, script, store, method], check=True, timeout=60)
        assert names(store) == ["child0", "child1"]

    def test_configured_in_the_child_alone(self, store: Path) -> None:
        run(
            """
            import multiprocessing
            def work():
                agenttrace.configure(db, flush_interval=60)
                span("child")
            child = multiprocessing.get_context("fork").Process(target=work); child.start(); child.join()
            """,
            store,
        )
        assert names(store) == ["child"]

    def test_a_process_pool(self, store: Path) -> None:
        run(
            """
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context
            agenttrace.configure(db, flush_interval=60)
            with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
                list(pool.map(span, [str(i) for i in range(20)]))
            """,
            store,
        )
        assert names(store) == sorted(str(i) for i in range(20))

    def test_workers_of_a_pre_fork_server_that_are_terminated(self, store: Path) -> None:
        process = program(
            """
            agenttrace.configure(db, flush_interval=60)
            span("master")
            workers = []
            for number in range(3):
                worker = os.fork()
                if worker == 0:
                    span(f"worker{number}")
                    os.write(1, b".")
                    signal.pause()
                workers.append(worker)
            sys.stdin.readline()
            for worker in workers: os.kill(worker, signal.SIGTERM)
            print([os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers])
            """,
            store,
            wait=False,
        )
        assert process.stdout is not None
        assert process.stdout.read(3) == "..."
        out, err = process.communicate("\n", timeout=60)
        assert out == f"{[-signal.SIGTERM] * 3}\n", err
        assert names(store) == ["master", "worker0", "worker1", "worker2"]

    def test_a_child_that_traces_nothing_gets_no_thread(self, store: Path) -> None:
        out = run(
            """
            agenttrace.configure(db)
            span("a")
            if os.fork() == 0:
                print(threading.active_count(), flush=True)
                os._exit(0)
            os.wait()
            """,
            store,
        )
        assert out == "1\n"

    def test_a_child_forked_amid_a_compaction_leaves_the_store_to_others(self, store: Path) -> None:
        DuckDBSpanExporter(store).force_flush()
        with store_module.writer(store, 1.0):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                answer = compact_store(store, budget_s=1) is None or not Spool(spool_folder(store)).segments()
                os.write(writer, b"left" if connect.process.has_ghost and answer else b"took")
                os._exit(0)
            os.waitpid(child, 0)
            assert os.read(reader, 4) == b"left"
        assert not connect.process.has_ghost


class Slow(SpanExporter):
    """An exporter that stands still until it is let go."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.is_busy, self.may_go, self.result = threading.Event(), threading.Event(), result
        self.got: list[str] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.is_busy.set()
        self.may_go.wait(30)
        self.got += [span.name for span in spans]
        return self.result


class TestBatches:
    """The queue between the program and an exporter."""

    def batcher(self, exporter: SpanExporter, **options: Any) -> tuple[SpanBatcher, Any]:
        guard._seen.clear()
        batcher = SpanBatcher(lambda: exporter, flush_interval=0.01, **options)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(batcher)
        return batcher, provider.get_tracer("test")

    def test_what_a_full_queue_refuses_is_counted_and_warned_about_once(self, caplog: pytest.LogCaptureFixture) -> None:
        exporter = Slow()
        batcher, tracer = self.batcher(exporter, capacity=10)
        tracer.start_span("first").end()
        assert exporter.is_busy.wait(10)
        with caplog.at_level(logging.WARNING, "agenttrace"):
            for number in range(15):
                tracer.start_span(f"{number}").end()
        assert batcher.result() == (0, 11, 5)
        assert len(caplog.messages) == 1
        exporter.may_go.set()
        assert batcher.drain(10)
        assert batcher.result() == (11, 0, 5)
        assert exporter.got == ["first", *map(str, range(10))]
        batcher.shutdown()

    def test_a_drain_ends_when_its_time_is_up(self) -> None:
        exporter = Slow()
        batcher, tracer = self.batcher(exporter)
        tracer.start_span("a").end()
        assert not batcher.drain(0.05)
        assert not batcher.force_flush(50)
        exporter.may_go.set()
        assert batcher.drain(10)
        batcher.shutdown()

    def test_a_drain_takes_what_has_ended_and_not_what_ends_meanwhile(self) -> None:
        class Endless(Slow):
            def export(self, spans: Any) -> SpanExportResult:
                self.got += [span.name for span in spans]
                if len(self.got) < 1000:
                    tracer.start_span("another").end()
                return self.result

        exporter = Endless()
        batcher, tracer = self.batcher(exporter, capacity=10)
        tracer.start_span("a").end()
        assert batcher.drain(30)
        assert len(exporter.got) < 1000
        batcher.shutdown()

    @pytest.mark.parametrize("fault", [GeneratorExit, SystemExit])
    def test_an_exporter_that_raises_no_exception_loses_its_batch_alone(self, fault: type[BaseException]) -> None:
        class Raising(Slow):
            def export(self, spans: Any) -> SpanExportResult:
                self.got += [span.name for span in spans]
                if self.got == ["first"]:
                    raise fault
                return self.result

        guard.strict = False
        exporter = Raising()
        batcher, tracer = self.batcher(exporter)
        for name in ("first", "second"):
            tracer.start_span(name).end()
            assert batcher.drain(10)
        assert exporter.got == ["first", "second"]
        assert batcher.result() == (1, 0, 1)
        batcher.shutdown()

    def test_failed_exports_are_counted_as_dropped(self, caplog: pytest.LogCaptureFixture) -> None:
        exporter = Slow(SpanExportResult.FAILURE)
        exporter.may_go.set()
        batcher, tracer = self.batcher(exporter)
        tracer.start_span("a").end()
        assert batcher.drain(10)
        assert batcher.result() == (0, 0, 1)
        batcher.shutdown()

    def test_an_exporter_that_raises_does_not_end_the_thread(self, caplog: pytest.LogCaptureFixture) -> None:
        class Raising(Slow):
            def export(self, spans: Any) -> SpanExportResult:
                if not self.got:
                    self.got.append("raised")
                    raise RuntimeError("no")
                return super().export(spans)

        exporter = Raising()
        exporter.may_go.set()
        batcher, tracer = self.batcher(exporter)
        for name in ("a", "b"):
            tracer.start_span(name).end()
            assert batcher.drain(10)
        assert batcher.result() == (1, 0, 1)
        batcher.shutdown()

    def test_spans_after_a_shutdown_are_counted_as_dropped(self) -> None:
        exporter = Slow()
        exporter.may_go.set()
        batcher, tracer = self.batcher(exporter)
        batcher.shutdown()
        batcher.shutdown()
        tracer.start_span("a").end()
        assert batcher.result() == (0, 0, 1)

    def test_eight_threads_lose_no_span(self) -> None:
        exporter = Slow()
        exporter.may_go.set()
        batcher, tracer = self.batcher(exporter)

        def work() -> None:
            for _ in range(500):
                tracer.start_span("a").end()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert batcher.drain(10)
        assert batcher.result() == (4_000, 0, 0)
        batcher.shutdown()
