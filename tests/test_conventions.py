"""Golden cases of collectors/conventions/*.sql: what producers write, and the steps that it must become.

A case of tests/conventions/NAME.toml has `name`, `why`, `spans`, optionally `logs`, and `expect`:

- a span has `attributes`, and any column of `spans`; `parent` is the number of another span (from 1). Lists and tables
  in `events` and `resource_attributes` become JSON. Its id is its number.
- a log record has `span` (number), `event_name`, `body`, `attributes`.
- `expect` names for each `span` (a number, or "1#1" for a step made from messages; by default its place in the list)
  the columns of `steps` that are compared; JSON columns as values. `convention` is the file's unless stated.
- `trajectory` names columns of the only trajectory.
- `absent` says that the convention must leave its spans alone.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from span_trees import MS, START_NS, Json, Run, insert, make_log, make_row, open_memory, runs

from agenttrace.rebuild import conventions, rebuild
from agenttrace.spans import LogRow, SpanRow

GOLDEN = Path(__file__).parent / "conventions"
JSON_COLUMNS = {
    *("arguments", "observation", "input_messages", "output_messages", "requested_tool_calls", "offered_tools"),
    *("initial_state", "final_state"),
}


def _cases(name: str) -> list[Json]:
    return tomllib.loads((GOLDEN / f"{name}.toml").read_text(encoding="utf-8"))["case"]


# A convention without golden cases, and the reverse, fail in test_repo.py.
CASES = {
    f"{path.stem}: {case['name']}": (path.stem, case)
    for path in sorted(GOLDEN.glob("*.toml"))
    for case in _cases(path.stem)
}


def _rows(trace_id: str, case: Json) -> tuple[list[SpanRow], list[LogRow]]:
    spans: list[SpanRow] = []
    for number, span in enumerate(case["spans"], start=1):
        fields = dict(span)
        attributes, parent = fields.pop("attributes", {}), fields.pop("parent", None)
        own = [fields.pop(key, default) for key, default in (("span_id", f"{number:016x}"), ("name", "span"))]
        row = make_row(trace_id, own[0], parent and f"{parent:016x}", own[1], attributes, START_NS + number * MS)
        fields = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in fields.items()}
        spans.append(row._replace(**fields))
    logs = [
        make_log(
            trace_id,
            f"{log['span']:016x}",
            log["event_name"],
            body=log.get("body"),
            attributes=log.get("attributes"),
            at=number,
        )
        for number, log in enumerate(case.get("logs", []))
    ]
    return spans, logs


@pytest.fixture(scope="module")
def rebuilt_cases() -> dict[str, Run]:
    con = open_memory()
    spans: list[SpanRow] = []
    for number, (_, case) in enumerate(CASES.values()):
        rows, logs = _rows(f"{number + 1:032x}", case)
        insert(con, rows, logs)
        spans += rows
    rebuild(con)
    return dict(zip(CASES, runs(con, spans).values(), strict=True))


def _comparable(column: str, value: Any) -> Any:
    return json.loads(value) if column in JSON_COLUMNS and isinstance(value, str) else value


def _picked(row: Json, wanted: Json) -> tuple[Json, Json]:
    """The columns that a case names, as found and as wanted; an empty text means NULL, which TOML lacks."""
    found = {column: _comparable(column, row[column]) for column in wanted}
    return found, {column: None if value == "" else _comparable(column, value) for column, value in wanted.items()}


# One worker rebuilds them all.
@pytest.mark.xdist_group("conventions")
@pytest.mark.parametrize("name", CASES)
def test_golden_case(name: str, rebuilt_cases: dict[str, Run]) -> None:
    convention, case = CASES[name]
    run = rebuilt_cases[name]
    steps = {step["span_id"].lstrip("0"): step for step in run.steps}
    if case.get("absent"):
        assert convention not in {step["convention"] for step in run.steps}
    for place, expected in enumerate(case["expect"], start=1):
        wanted = {"convention": convention, **expected}
        if case.get("absent"):
            wanted.pop("convention")
        key = wanted.pop("span", place)
        found, wanted = _picked(steps[f"{key:x}" if isinstance(key, int) else key], wanted)
        assert found == wanted
    if "trajectory" in case:
        found, wanted = _picked(run.trajectory, case["trajectory"])
        assert found == wanted


def test_conventions_are_tried_from_the_specific_to_the_general() -> None:
    names = [convention.name for convention in conventions()]
    assert names.index("openinference") < names.index("gen_ai")
    assert len(set(names)) == len(names)
