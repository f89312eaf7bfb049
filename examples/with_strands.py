# /// script
# requires-python = ">=3.11"
# dependencies = ["strands-agents[openai]>=1.20,<2", "opentelemetry-exporter-otlp-proto-http>=1.30"]
# ///
"""A Strands agent refunds an invoice; Strands' own spans go to an OTLP endpoint.

`trace_attributes` names the session on the agent's span.
"""

import os

from opentelemetry import trace
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.telemetry import StrandsTelemetry

attempts: list[str] = []


@tool
def get_invoice(invoice_id: str) -> dict[str, str | float]:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


@tool
def issue_refund(order_id: str, amount: float) -> str:
    """Refunds an order."""
    attempts.append(order_id)
    if len(attempts) == 1:
        raise TimeoutError("the bank did not answer within 30 s")
    return f"refunded {amount} on {order_id}"


StrandsTelemetry().setup_otlp_exporter()
client = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
agent = Agent(
    OpenAIModel(client_args=client, model_id="gpt-4o-mini"),
    name="refunds",
    tools=[get_invoice, issue_refund],
    trace_attributes={"session.id": "customer-17"},
    callback_handler=None,
)
print(agent("Refund invoice INV-7 in full."))
trace.get_tracer_provider().shutdown()  # type: ignore[attr-defined]
