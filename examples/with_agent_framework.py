# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "agent-framework-core>=1.23,<2",
#     "agent-framework-openai>=1.17,<2",
#     "opentelemetry-exporter-otlp-proto-http>=1.30",
# ]
# ///
"""An agent of Microsoft Agent Framework refunds an invoice; the framework's own spans and log records go to OTLP.

The framework exports no session: the application names it on a span around the run.
"""

import asyncio
import os

os.environ.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")

from agent_framework import Agent
from agent_framework.observability import configure_otel_providers
from agent_framework.openai import OpenAIChatClient
from opentelemetry import _logs, trace

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


async def main() -> None:
    """Runs the agent once."""
    configure_otel_providers(service_name="refunds", enable_sensitive_data=True)
    # By default the model is told that a function failed, not why.
    client = OpenAIChatClient(model="gpt-4o-mini", function_invocation_configuration={"include_detailed_errors": True})
    agent = Agent(client, "You refund invoices.", name="refunds", tools=[get_invoice, issue_refund])
    with trace.get_tracer("refunds").start_as_current_span("request", attributes={"session.id": "customer-17"}):
        print(await agent.run("Refund invoice INV-7 in full."))
    trace.get_tracer_provider().shutdown()  # type: ignore[attr-defined]
    _logs.get_logger_provider().shutdown()  # type: ignore[attr-defined]


asyncio.run(main())
