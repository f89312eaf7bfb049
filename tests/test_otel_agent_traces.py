"""Agent telemetry recorded or made by others, against what its authors say happened (tests/data/otel_agent_traces).

Tool calls with arguments and failures, tokens, what the user said and what the agent answered.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import Json, imported, query

DATA = Path(__file__).parent / "data" / "otel_agent_traces"
TRUTHS: dict[str, Json] = {
    truth["fixture"]: truth
    for truth in (json.loads(line) for line in (DATA / "truth.jsonl").read_text(encoding="utf-8").splitlines())
}
# Where we read otherwise than the authors, and why.
OTHERWISE: dict[str, Json] = json.loads((DATA / "otherwise.json").read_text(encoding="utf-8"))
Call = tuple[str, str, bool]


def _calls(calls: list[tuple[str, Any, bool]]) -> list[Call]:
    return sorted((name, json.dumps(arguments, sort_keys=True), failed) for name, arguments, failed in calls)


def _wanted(turns: list[Json]) -> Json:
    calls = [(call["name"], call["args"], call["is_error"]) for turn in turns for call in turn["tool_calls"]]
    return {
        "calls": _calls(calls),
        "input_tokens": sum(turn["tokens"]["input"] for turn in turns),
        "output_tokens": sum(turn["tokens"]["output"] for turn in turns),
        "user_inputs": sorted(str(turn["user_text"]) for turn in turns),
        "final_responses": sorted(str(turn["final_text"]) for turn in turns),
    }


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], list[Json]]:
    db = imported([DATA / "traces.jsonl.gz"], tmp_path_factory.mktemp("others") / "agenttrace.duckdb")
    steps = query(db, "SELECT * FROM steps WHERE kind = 'tool' AND duplicate_of IS NULL")
    return steps, query(db, "SELECT * FROM trajectories")


@pytest.mark.xdist_group("otel_agent_traces")
@pytest.mark.parametrize("fixture", TRUTHS)
def test_what_others_recorded_reads_as_they_say(fixture: str, rebuilt: tuple[list[Json], list[Json]]) -> None:
    truth = TRUTHS[fixture]
    steps, runs = ([row for row in rows if row["trace_id"] in truth["trace_ids"]] for rows in rebuilt)
    calls = [(step["tool_name"], json.loads(step["arguments"] or "null"), step["status"] != "ok") for step in steps]
    found = {
        "calls": _calls(calls),
        "input_tokens": sum(run["input_tokens"] or 0 for run in runs),
        "output_tokens": sum(run["output_tokens"] or 0 for run in runs),
        "user_inputs": sorted(str(run["user_input"]) for run in runs),
        "final_responses": sorted(str(run["final_response"]) for run in runs),
    }
    ours = {key: value for key, value in OTHERWISE.get(fixture, {}).items() if key != "why"}
    if "calls" in ours:
        ours["calls"] = _calls(ours["calls"])
    assert found == _wanted(truth["turns"]) | ours
