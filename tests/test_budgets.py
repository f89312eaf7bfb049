"""Which limits apply to which run, and the files of benchmark cases."""

import json
from pathlib import Path
from typing import Any

import pytest

from agenttrace.config import Budget
from agenttrace.errors import ConfigError
from agenttrace.evaluators import cases
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


def case_file(folder: Path, *lines: Any) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_cases(tmp_path: Path) -> None:
    path = case_file(
        tmp_path,
        {
            "case_id": "restock-rice",
            "user_input": "Order rice.",
            "acceptable_tool_sequences": [["check_stock", "place_order"]],
            "forbidden_tools": ["change_price"],
            "max_allowed_steps": 5,
            "expected_outcome": {"must_include": ["40"], "must_not_include": ["sorry"]},
        },
        "",
        {"case_id": "other"},
    )
    first, second = cases.table(path).to_pylist()
    assert first["must_include"] == ["40"]
    assert json.loads(first["acceptable_tool_sequences"]) == [["check_stock", "place_order"]]
    assert second["case_id"] == "other"
    assert cases.table(None).num_rows == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not a JSON object"),
        ("[]", "line 2: not a JSON object"),
        ({"user_input": "x"}, "line 2: case_id is None"),
        ({"case_id": "first"}, "line 2: a second case 'first'"),
        ({"case_id": "b", "max_steps": 1}, "line 2: unknown key 'max_steps'"),
        ({"case_id": "b", "forbiden_tools": []}, "did you mean 'forbidden_tools'?"),
        ({"case_id": "b", "max_allowed_steps": "five"}, "line 2: a value has the wrong type"),
        ({"case_id": "b", "expected_outcome": "good"}, "line 2: expected_outcome is 'good'"),
    ],
)
def test_a_wrong_case_is_named_by_its_line(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cases.read(case_file(tmp_path, {"case_id": "first"}, line))
    assert message in str(caught.value)


def test_a_missing_file_of_cases(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        cases.read(tmp_path / "nothing.jsonl")
