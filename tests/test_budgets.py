"""Which limits apply to which run."""

import pytest

from agenttrace.config import Budget
from agenttrace.evaluators.budgets import limits

SETTINGS = {
    "task:restock-*": Budget(max_tool_calls=5),
    "default": Budget(max_tool_calls=8, max_cost_usd=0.08),
    "agent:shop": Budget(max_tool_calls=6, max_tokens=100),
    "task:restock-rice*": Budget(max_tool_calls=4),
    "task:restock-rice": Budget(max_tool_calls=3),
}


@pytest.mark.parametrize(
    ("agent", "task", "calls", "source"),
    [
        (None, None, 8, "default"),
        ("shop", None, 6, "agent:shop"),
        ("Shop", None, 8, "default"),
        ("shop", "restock-beans", 5, "task:restock-*"),
        ("shop", "restock-rice-1", 4, "task:restock-rice*"),
        ("shop", "restock-rice", 3, "task:restock-rice"),
        ("desk", "answer", 8, "default"),
    ],
)
def test_the_most_specific_limit_applies(agent: str | None, task: str | None, calls: int, source: str) -> None:
    assert limits(SETTINGS, agent, task)["max_tool_calls"] == (calls, source)


def test_each_limit_comes_from_where_it_is_set() -> None:
    assert limits(SETTINGS, "shop", "restock-rice") == {
        "max_tool_calls": (3.0, "task:restock-rice"),
        "max_tokens": (100.0, "agent:shop"),
        "max_cost_usd": (0.08, "default"),
    }
    assert limits({}, "shop", None) == {}
