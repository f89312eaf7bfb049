"""Settings that every test shares."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import hypothesis
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenttrace import redact
from agenttrace.guard import guard
from agenttrace.spans import SpanRow
from agenttrace.store import SCHEMA_VERSION

# Shared machines pause for longer than any deadline. Under CI, Hypothesis loads its own `ci` profile: the same examples
# every time, so that a red run is the change's own.
hypothesis.settings.register_profile("default", deadline=None, max_examples=30)
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("ci"), max_examples=30)

_LONGEST_ID = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """A body of a megabyte names no test: its length does."""
    is_long = isinstance(val, (str, bytes)) and len(val) > _LONGEST_ID
    return f"{len(val):,}" if is_long else None


# Settings of the person who runs the tests must reach neither them nor the processes they start.
for name in [name for name in os.environ if name.startswith(("AGENTTRACE_", "OTEL_"))]:
    del os.environ[name]


@pytest.fixture(autouse=True)
def _own_hash_key() -> Iterator[None]:
    """Where one test has the key of its hashes is no matter of the next one."""
    folder, key = redact._State.key_folder, redact._State.key
    yield
    redact._State.key_folder, redact._State.key = folder, key


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage of the processes that a test starts costs a third of their time, and other tests run the same lines."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a test's database goes; nothing is there yet."""
    return tmp_path / "agenttrace.duckdb"


@pytest.fixture(scope="session")
def make_span() -> Callable[..., SpanRow]:
    """Makes the ended tool span with this number; keywords change its fields."""
    return _span


def _span(number: int, **changes: Any) -> SpanRow:
    row = SpanRow(
        trace_id=f"{number:032x}",
        span_id=f"{number:016x}",
        parent_span_id=None,
        name="execute_tool check_stock",
        span_kind="internal",
        start_time_unix_nano=1_700_000_000_000_000_000 + number,
        end_time_unix_nano=1_700_000_000_000_000_500 + number,
        status_code="unset",
        status_message=None,
        service_name="shop",
        scope_name="agenttrace",
        scope_version=None,
        operation_name="execute_tool",
        openinference_kind=None,
        agent_name=None,
        tool_name="check_stock",
        tool_call_id=None,
        conversation_id=None,
        model=None,
        input_tokens=None,
        output_tokens=None,
        error_type=None,
        attributes="{}",
        events="[]",
        links="[]",
        resource_attributes="{}",
        scope_attributes="{}",
        trace_state=None,
        flags=257,
        resource_schema_url=None,
        scope_schema_url=None,
        dropped_attributes_count=0,
        dropped_events_count=0,
        dropped_links_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )
    return row._replace(**changes)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, to be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


_T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
_REQUIRED: dict[str, dict[str, object]] = {
    "spans": {
        "name": "span",
        "span_kind": "internal",
        "start_time_unix_nano": 1_000,
        "end_time_unix_nano": 2_000,
        "status_code": "unset",
        "attributes": "{}",
        "events": "[]",
        "links": "[]",
        "resource_attributes": "{}",
        "scope_attributes": "{}",
        "dropped_attributes_count": 0,
        "dropped_events_count": 0,
        "dropped_links_count": 0,
        "resource_dropped_attributes_count": 0,
        "scope_dropped_attributes_count": 0,
        "received_at": _T0,
    },
    "steps": {"trace_id": "t1", "status": "ok", "origin": "span", "convention": "gen_ai", "start_time": _T0},
    "trajectories": {
        "trace_id": "t1",
        "tools": [],
        "tool_call_count": 0,
        "model_call_count": 0,
        "error_count": 0,
        "mutation_count": 0,
        "unpriced_model_calls": 0,
        "complete": True,
        "last_arrival": _T0,
        "root_ended": True,
        "start_time": _T0,
    },
    "findings": {
        "finding_id": "f1",
        "fingerprint": "p1",
        "run_id": "e1",
        "related_span_ids": [],
        "message": "something happened",
        "evidence": "{}",
    },
    "evaluation_runs": {
        "run_id": "e1",
        "started_at": _T0,
        "finished_at": _T0,
        "trajectories": 1,
        "config_hash": "c",
        "evaluator_versions": '{"duplicate_mutations": "v"}',
    },
    "dirty_traces": {},
    "judgements": {},
}


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to copy: the comments of its columns take a tenth of a second."""
    path = tmp_path_factory.mktemp("empty") / "agenttrace.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(resources.files("agenttrace").joinpath("schema.sql").read_text(encoding="utf-8"))
        connection.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
    return path


@pytest.fixture
def fill_store(store: Path, empty_store: Path) -> Callable[..., Path]:
    """Makes a store whose tables hold the given rows; columns that must not be NULL have defaults."""

    def fill(**tables: list[dict[str, object]]) -> Path:
        shutil.copyfile(empty_store, store)
        with duckdb.connect(store) as connection:
            for table, rows in tables.items():
                for row in rows:
                    values = _REQUIRED[table] | row
                    names, marks = ", ".join(values), ", ".join("?" for _ in values)
                    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))
        return store

    return fill


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans that ended, under a tracer provider that is global for one test; faults of ours are raised, not logged."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    monkeypatch.setattr(guard, "strict", True)
    return exporter
