# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "openai-agents>=0.24,<0.30",
#     "openinference-instrumentation-openai-agents>=2.6,<3",
#     "opentelemetry-exporter-otlp-proto-http>=1.45,<2",
# ]
# ///
"""An agent of the OpenAI Agents SDK, traced by OpenInference's instrumentor and sent over OTLP.

Its bank pays, then does not answer in time; the model sees the error, and asks for the same refund again.
"""

from agents import Agent, RunContextWrapper, Runner, function_tool
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "refunds"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
paid: list[str] = []


def tell_model(context: RunContextWrapper[None], error: Exception) -> str:
    """Says what went wrong, which the SDK keeps from the model by default."""
    return f"{type(error).__name__}: {error}"


@function_tool(failure_error_function=tell_model)
def get_invoice(invoice_id: str) -> dict[str, object]:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


@function_tool(failure_error_function=tell_model)
def issue_refund(order_id: str, amount: float) -> str:
    """Pays an amount back on an order."""
    paid.append(order_id)
    if len(paid) == 1:
        raise TimeoutError("the bank did not answer within 30 s")
    return f"{amount} paid back on order {order_id}"


tools = [get_invoice, issue_refund]
agent = Agent(name="refunds", instructions="You refund invoices.", model="gpt-4o-mini", tools=tools)
with using_session("customer-17"):
    result = Runner.run_sync(agent, "Refund invoice INV-7 in full.")
print(result.final_output)
provider.shutdown()
