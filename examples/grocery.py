"""A shop agent that orders 40 bags of rice twice after its supplier timed out, and a twin that looks before it retries.

No network and no key, for the model is a script. Run it, then ask what happened:

    python examples/grocery.py
    agenttrace list
    agenttrace evaluate
"""

import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import agenttrace

REQUEST = "We are low on rice. Order 40 bags."
RICE: dict[str, Any] = {"item": "rice"}
ORDER: dict[str, Any] = {"item": "rice", "qty": 40}

# What the model answers, turn by turn: a tool to call, or the last words.
CARELESS = [("check_stock", RICE), ("place_order", ORDER), ("place_order", ORDER), "Done. 40 bags of rice are ordered."]
CAREFUL = [
    *(("check_stock", RICE), ("place_order", ORDER), ("check_open_orders", RICE)),
    "The supplier timed out, but the order of 40 bags did arrive there: it is open as PO-1.",
]


class Supplier:
    """Takes every order; its first confirmation is lost on the way back."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    @agenttrace.tool
    def check_stock(self, item: str) -> dict[str, Any]:
        """Says how many bags of an item are on the shelf."""
        return {"item": item, "bags": 6}

    @agenttrace.tool
    def check_open_orders(self, item: str) -> list[dict[str, Any]]:
        """Lists the open orders of an item."""
        return [order for order in self.orders if order["item"] == item]

    @agenttrace.tool(mutates=True)
    def place_order(self, item: str, qty: int) -> dict[str, Any]:
        """Orders bags of an item from the supplier."""
        self.orders.append({"order_id": f"PO-{len(self.orders) + 1}", "item": item, "qty": qty})
        if len(self.orders) == 1:
            raise TimeoutError("the supplier did not answer within 30 s")
        return self.orders[-1]


def converse(request: str, tools: list[Any], turns: Iterable[Any]) -> str:
    """An agent loop like any other: ask the model, run the tool that it asks for, until it answers in words."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    for number, turn in enumerate(turns):
        usage: dict[str, Any] = {"input_tokens": 400 + 150 * number, "output_tokens": 40}
        with agenttrace.model_call("gpt-4o-mini", provider="openai", messages=messages, tools=tools) as call:
            if isinstance(turn, str):
                call.record(output=turn, **usage)
                return turn
            name, arguments = turn
            requested = {"id": f"call_{number}", "name": name, "arguments": arguments}
            call.record(tool_calls=[requested], **usage)
        try:
            result = json.dumps({tool.__name__: tool for tool in tools}[name](**arguments))
        except TimeoutError as error:
            result = f"Error: {error}"
        messages.append({"role": "assistant", "tool_calls": [requested]})
        messages.append({"role": "tool", "tool_call_id": requested["id"], "content": result})
    raise ValueError("the script ends without an answer")


def restock(task_id: str, turns: Iterable[Any]) -> str:
    """One run of the shop agent, with the state of the world before and after."""
    supplier = Supplier()
    with agenttrace.run("shop", user_input=REQUEST, session_id=uuid4().hex, task_id=task_id) as run:
        run.state(initial={"open_orders": 0})
        answer = converse(REQUEST, [supplier.check_stock, supplier.check_open_orders, supplier.place_order], turns)
        run.state(final={"open_orders": len(supplier.orders)})
        run.respond(answer)
    return answer


def main() -> None:
    """Runs both agents."""
    print("careless:", restock("restock-careless", CARELESS))
    print("careful: ", restock("restock-careful", CAREFUL))


if __name__ == "__main__":
    agenttrace.configure()
    main()
