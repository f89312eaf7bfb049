"""What `import agenttrace` costs and offers."""

import subprocess
import sys

import pytest

import agenttrace

PROGRAM = """
import sys
import agenttrace

@agenttrace.tool
def add(a, b):
    return a + b

with agenttrace.run("r"):
    assert add(1, 2) == 3
heavy = {"duckdb", "pyarrow", "grpc", "typer", "rich", "pydantic", "numpy", "starlette", "jsonschema"}
print(*sorted(heavy.intersection(sys.modules)))
"""


def test_importing_and_tracing_stay_light() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_all_is_what_can_be_imported() -> None:
    assert all(callable(getattr(agenttrace, name)) for name in agenttrace.__all__)
    assert len(agenttrace.__all__) < 20
    assert sorted(agenttrace.__all__) == agenttrace.__all__


def test_the_exporter_is_imported_when_asked_for() -> None:
    from agenttrace.exporter import DuckDBSpanExporter

    assert agenttrace.DuckDBSpanExporter is DuckDBSpanExporter
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        agenttrace.missing  # noqa: B018 # type: ignore[attr-defined] # pyright: ignore
