"""A refund agent over ten bookings, six of them refundable, and why a check of its last words is not enough.

Right is: refunded *and* refundable, or escalated *and* not. All ten runs are right by the state of the world before and
after; a check that looks for a refund in the last text passes six. Two more runs have known faults: one claims a refund
that it never issued, one asks for the balance until its budget is gone.

    python examples/refunds.py
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import agenttrace
from agenttrace.evaluators.statistics import pass_at_k
from agenttrace.examples.grocery import converse

SEEDS = range(10)
REFUNDABLE = {0, 1, 3, 4, 6, 8}


class Airline:
    """One booking and what has become of it."""

    def __init__(self, seed: int) -> None:
        self.pnr = f"QX7T{seed}A"
        self.state = {"refundable": seed in REFUNDABLE, "refunded": False, "escalated": False}

    @agenttrace.tool
    def verify_pnr(self, pnr: str) -> dict[str, Any]:
        """Says whether a booking exists."""
        return {"pnr": pnr, "valid": pnr == self.pnr}

    @agenttrace.tool
    def check_balance(self, pnr: str) -> dict[str, Any]:
        """Says how much of a booking can be paid back."""
        return {"pnr": pnr, "refundable_usd": 180 if self.state["refundable"] else 0}

    @agenttrace.tool(mutates=True)
    def issue_refund(self, pnr: str, amount_usd: int) -> dict[str, Any]:
        """Pays back a booking."""
        self.state["refunded"] = True
        return {"refund_id": f"RF-{pnr}", "amount_usd": amount_usd}

    @agenttrace.tool(mutates=True)
    def escalate(self, pnr: str) -> dict[str, Any]:
        """Hands a booking to a colleague."""
        self.state["escalated"] = True
        return {"case_id": f"CS-{pnr}"}


def sound(airline: Airline) -> Iterator[Any]:
    """The agent as it should be."""
    pnr = {"pnr": airline.pnr}
    yield "verify_pnr", pnr
    yield "check_balance", pnr
    if airline.state["refundable"]:
        yield "issue_refund", {**pnr, "amount_usd": 180}
        yield "The refund of 180 USD has been issued."
    else:
        yield "escalate", pnr
        yield "This fare cannot be paid back by me. A colleague will look at your case."


def hasty(airline: Airline) -> Iterator[Any]:
    """Says that it paid, and did not."""
    yield "verify_pnr", {"pnr": airline.pnr}
    yield "I issued the refund of 180 USD."


def dithering(airline: Airline) -> Iterator[Any]:
    """Asks for the same balance until its budget is gone."""
    yield "verify_pnr", {"pnr": airline.pnr}
    for _ in range(6):
        yield "check_balance", {"pnr": airline.pnr}
    yield "I am still looking into it."


def refund(task_id: str, seed: int, model: Callable[[Airline], Iterator[Any]]) -> tuple[bool, bool]:
    """One run: whether its outcome is right, and whether a check of its last text alone would pass it."""
    airline = Airline(seed)
    initial, tools = (
        dict(airline.state),
        [airline.verify_pnr, airline.check_balance, airline.issue_refund, airline.escalate],
    )
    request = f"Please refund booking {airline.pnr}."
    with agenttrace.run("refunds", user_input=request, session_id=uuid4().hex, task_id=task_id, trial=seed) as run:
        run.state(initial=initial)
        answer = converse(request, tools, model(airline))
        run.state(final=airline.state)
        run.respond(answer)
    right = airline.state["refunded"] == initial["refundable"] and airline.state["escalated"] != initial["refundable"]
    agenttrace.outcome(task_id=task_id, trial=seed, source="checker", passed=right)
    return right, "has been issued" in answer


def main() -> None:
    """Runs the ten bookings and the two faulty agents."""
    verdicts = [refund("refund", seed, sound) for seed in SEEDS]
    right, naive = (sum(column) for column in zip(*verdicts, strict=True))
    print(f"right by the outcome: {right} of {len(SEEDS)}")
    print(f"right by the last text: {naive} of {len(SEEDS)} (pass@3 = {pass_at_k(naive, len(SEEDS), 3):.4f})")
    refund("refund-hasty", 0, hasty)
    refund("refund-dithering", 0, dithering)


if __name__ == "__main__":
    agenttrace.configure()
    main()
