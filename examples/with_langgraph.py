# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "langgraph>=1.2,<2",
#     "langchain-openai>=1.7,<2",
#     "openinference-instrumentation-langchain>=0.1.80,<0.2",
#     "opentelemetry-exporter-otlp-proto-http>=1.45,<2",
# ]
# ///
"""A LangGraph agent, traced by OpenInference's LangChain instrumentor and sent over OTLP.

Its bank pays, then does not answer in time; the model sees the error, and asks for the same refund again.
"""

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "refunds"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
LangChainInstrumentor().instrument(tracer_provider=provider)
paid: list[str] = []


def get_invoice(invoice_id: str) -> dict[str, object]:
    """Reads an invoice."""
    return {"invoice_id": invoice_id, "order_id": "A-12", "amount": 30.0}


def issue_refund(order_id: str, amount: float) -> str:
    """Pays an amount back on an order."""
    paid.append(order_id)
    if len(paid) == 1:
        raise TimeoutError("the bank did not answer within 30 s")
    return f"{amount} paid back on order {order_id}"


tools = [get_invoice, issue_refund]
model = ChatOpenAI(model="gpt-4o-mini").bind_tools(tools)
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
agent = graph.compile(checkpointer=InMemorySaver(), name="refunds")
answer = agent.invoke(
    {"messages": [("user", "Refund invoice INV-7 in full.")]}, {"configurable": {"thread_id": "customer-17"}}
)
print(answer["messages"][-1].content)
provider.shutdown()
