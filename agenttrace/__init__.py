"""OpenTelemetry tracing for AI agents, with an offline evaluator."""

from typing import TYPE_CHECKING, Any

from agenttrace.configure import configure, flush, shutdown
from agenttrace.errors import AgentTraceError
from agenttrace.instrument import agent, model, tool
from agenttrace.outcomes import outcome
from agenttrace.runs import model_call, run, tool_call

if TYPE_CHECKING:
    from agenttrace.exporter import DuckDBSpanExporter


__all__ = [
    "AgentTraceError",
    "DuckDBSpanExporter",
    "agent",
    "configure",
    "flush",
    "model",
    "model_call",
    "outcome",
    "run",
    "shutdown",
    "tool",
    "tool_call",
]


def __getattr__(name: str) -> Any:
    # The exporter needs pyarrow, which an import of agenttrace must not cost.
    if name == "DuckDBSpanExporter":
        from agenttrace.exporter import DuckDBSpanExporter

        return DuckDBSpanExporter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
