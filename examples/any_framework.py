"""Spans of a framework that knows nothing of agenttrace, sent over OTLP.

Here it is Pydantic AI with its own test model (no network, no key) and its own OpenTelemetry instrumentation; any
other program that exports OTLP works the same way.

    pip install "agenttrace-otel[examples]"
    agenttrace collect                          # in one terminal
    python examples/any_framework.py            # in another; give it the address that `collect` printed, if another
    agenttrace list
"""

import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

agent = Agent(TestModel(custom_output_text="Take an umbrella."), name="weather")


@agent.tool_plain
def get_forecast(city: str) -> str:
    """Says what the weather will be."""
    return f"rain in {city}"


def main(address: str) -> None:
    """Asks the agent once and sends its spans to an OTLP receiver."""
    provider = TracerProvider(resource=Resource.create({"service.name": "weather"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    trace.set_tracer_provider(provider)
    Agent.instrument_all()
    print(agent.run_sync("Do I need an umbrella in Bergen?").output)
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4318")
