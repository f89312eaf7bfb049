# /// script
# requires-python = ">=3.11"
# dependencies = ["crewai>=1.15,<2", "opentelemetry-exporter-otlp-proto-http>=1.30"]
# ///
"""A CrewAI agent refunds an invoice; CrewAI's own spans of the run go to an OTLP endpoint.

`telemetry_session` records what runs inside it. The attribute names the conversation.
"""

import os
import uuid

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"  # CrewAI's own statistics, which are no part of the trace

from crewai import LLM, Agent, Crew, Task
from crewai.telemetry.tracing.session import telemetry_session
from crewai.tools import tool
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

refunds: list[str] = []


@tool("get_invoice")
def get_invoice(invoice_id: str) -> dict:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


@tool("issue_refund")
def issue_refund(order_id: str, amount: float) -> dict:
    """Refunds an amount of money on an order."""
    refunds.append(order_id)
    if len(refunds) == 1:
        raise TimeoutError("the bank did not answer within 30 s")
    return {"refund_id": f"R-{len(refunds)}", "order_id": order_id, "amount": amount}


agent = Agent(
    role="refunds",
    goal="Do what the customer asks.",
    backstory="You handle refunds. Use the tools.",
    tools=[get_invoice, issue_refund],
    llm=LLM(model="openai/gpt-4o-mini", base_url=os.environ["OPENAI_BASE_URL"]),
)
task = Task(description="Refund invoice INV-7 in full.", expected_output="What was refunded.", agent=agent)
attributes = {"gen_ai.conversation.id": "customer-17"}
with telemetry_session(str(uuid.uuid4()), "refunds", [OTLPSpanExporter()], attributes=attributes):
    print(Crew(agents=[agent], tasks=[task]).kickoff().raw)
