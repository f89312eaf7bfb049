# /// script
# requires-python = ">=3.11"
# dependencies = ["google-adk>=2.13,<3", "opentelemetry-exporter-otlp-proto-http>=1.30"]
# ///
"""An agent of Google ADK refunds an invoice; ADK's own spans go to an OTLP endpoint.

ADK leaves messages and arguments out of its spans unless it is asked to capture them.
"""

import asyncio
import os

os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

attempts: list[str] = []


def get_invoice(invoice_id: str) -> dict[str, str | float]:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


def issue_refund(order_id: str, amount: float) -> str:
    """Refunds an order."""
    attempts.append(order_id)
    if len(attempts) == 1:
        raise TimeoutError("the bank did not answer within 30 s")
    return f"refunded {amount} on {order_id}"


def tell(tool: object, args: object, tool_context: object, error: Exception) -> dict[str, str]:
    """Lets the model see what went wrong."""
    return {"error": f"{type(error).__name__}: {error}"}


async def main() -> None:
    """Runs the agent once."""
    tools = [get_invoice, issue_refund]
    runner = InMemoryRunner(Agent(name="refunds", model="gemini-2.0-flash", tools=tools, on_tool_error_callback=tell))
    events = await runner.run_debug("Refund invoice INV-7 in full.", session_id="customer-17", quiet=True)
    print(events[-1].content.parts[0].text)  # type: ignore[union-attr, index]


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
asyncio.run(main())
provider.shutdown()
