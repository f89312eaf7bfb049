# /// script
# requires-python = ">=3.11"
# dependencies = ["pydantic-ai-slim[openai]>=2.60,<3", "opentelemetry-exporter-otlp-proto-http>=1.30"]
# ///
"""A Pydantic AI agent refunds an invoice; its own instrumentation sends the spans to an OTLP endpoint.

A tool's failure goes back to the model as ModelRetry; the conversation's id groups the runs of a session.
"""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel

provider = TracerProvider(resource=Resource.create({"service.name": "refunds"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
Agent.instrument_all()

agent = Agent(OpenAIChatModel("gpt-4o-mini"), name="refunds", instructions="You refund invoices.", retries=2)
attempts: list[str] = []


@agent.tool_plain
def get_invoice(invoice_id: str) -> dict[str, str | float]:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


@agent.tool_plain
def issue_refund(order_id: str, amount: float) -> str:
    """Refunds an order."""
    attempts.append(order_id)
    try:
        if len(attempts) == 1:
            raise TimeoutError("the bank did not answer within 30 s")
    except TimeoutError as err:
        raise ModelRetry(f"TimeoutError: {err}") from err
    return f"refunded {amount} on {order_id}"


print(agent.run_sync("Refund invoice INV-7 in full.", conversation_id="customer-17").output)
provider.shutdown()
