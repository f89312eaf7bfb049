"""Whole runs of real frameworks: what was recorded must become what happened, which stands beside each recording."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenttrace import store as stores
from agenttrace.collectors.files import import_files

TRACES = Path(__file__).parent / "traces"
FOLDERS = sorted({path.parent.name for path in TRACES.glob("*/*.expected.json")})

# A setting `"timeout": null` is none.
_TIMED_OUT = re.compile(r'timed?[ _-]?out(?!\\*"\s*:\s*null)', re.IGNORECASE)

Json = dict[str, Any]
Deviations = dict[str, Any]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl") if path.stat().st_size)


def _imported(paths: list[Path], db: Path) -> Path:
    result = import_files(paths, db)
    assert result.skipped_count == 0, result.skipped
    stores.refresh(db)
    return db


def _query(db: Path, sql: str) -> list[Json]:
    with stores.open_store(db) as con:
        found = con.execute(sql)
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _spellings(value: str) -> set[str]:
    """A text as it may stand in a recording: escaped once or several times."""
    found, latest = {value}, {value}
    for _ in range(4):
        latest = {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in latest for ascii in (True, False)}
        found |= latest
    return found


def _shows(recording: str, value: str | None) -> bool:
    return value is not None and any(spelling in recording for spelling in _spellings(value))


def _canonical(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _trace_ids(recording: str) -> set[str]:
    return {
        span["traceId"].lower()
        for line in recording.splitlines()
        for resource in json.loads(line).get("resourceSpans", [])
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    }


class Recording:
    """One scenario of one folder: the truth, the text that was recorded, and the rows that it became."""

    def __init__(self, path: Path, steps: list[Json], trajectories: list[Json]) -> None:
        self.truth: Json = json.loads(path.read_text(encoding="utf-8"))
        stem = path.name.removesuffix(".expected.json")
        spans = path.with_name(f"{stem}.jsonl").read_text(encoding="utf-8")
        logs = path.with_name(f"{stem}.logs.jsonl")
        self.text = spans + (logs.read_text(encoding="utf-8") if logs.exists() else "")
        traces = _trace_ids(spans)
        self.steps = [step for step in steps if step["trace_id"] in traces]
        self.trajectories = [trajectory for trajectory in trajectories if trajectory["trace_id"] in traces]

    @property
    def source(self) -> str:
        return self.truth["source"]

    @property
    def shows_arguments(self) -> bool:
        values = [v for c in self.truth["executed_tool_calls"] for v in c["arguments"].values() if isinstance(v, str)]
        return "redacted" not in self.source and all(_shows(self.text, value) for value in values)

    @property
    def shows_time_outs(self) -> bool:
        # What the agent says later is no evidence of it.
        text = self.text
        for response in self.truth["final_responses"]:
            for spelling in sorted(_spellings(response or ""), key=len, reverse=True):
                text = text.replace(spelling, "") if spelling else text
        return bool(_TIMED_OUT.search(text))

    def deviations(self) -> Deviations:
        checks = (self._executed, self._requested, self._model_calls, self._final_responses, self._sessions)
        found = {name: pair for check in checks for name, pair in check().items() if pair[0] != pair[1]}
        return found if self.trajectories else found | {"trajectories": (self.truth["runs"], 0)}

    def _executed(self) -> Deviations:
        unseen = {
            f["tool"]
            for f in self.truth["findings"]
            if f.get("kind") == "unknown_tool" and not f.get("evidence_in_spans", True)
        }
        left_out = unseen | set(self.truth["framework_tools"])
        values = self.shows_arguments
        wanted = [
            (c["tool"], _canonical(c["arguments"]) if values else None, c["status"])
            for c in self.truth["executed_tool_calls"]
        ]
        if not self.shows_time_outs:
            wanted = [
                (tool, arguments, "error" if status == "timeout" else status) for tool, arguments, status in wanted
            ]
        got = [
            (step["tool_name"], _canonical(step["arguments"]) if values else None, step["status"])
            for step in self.steps
            if step["kind"] == "tool" and step["tool_ran"] is not False and step["tool_name"] not in left_out
        ]
        # Parallel calls may run in either order.
        if self.truth["scenario"].startswith(("s4", "s9")):
            wanted, got = sorted(wanted, key=str), sorted(got, key=str)
        return {"executed": (wanted, got)}

    def _requested(self) -> Deviations:
        requests = self.truth["requested_tool_calls"]
        has_content = (
            "nocontent" not in self.source
            and self.source != "anthropic-sdk-native"
            and not self.source.startswith("mcp-")
        )
        if not (
            has_content and self.shows_arguments and all(_shows(self.text, request["tool"]) for request in requests)
        ):
            return {}
        wanted = Counter((request["tool"], _canonical(request["arguments"])) for request in requests)
        calls = [found for step in self.steps for found in json.loads(step["requested_tool_calls"] or "[]")]
        return {"requested": (wanted, Counter((found["name"], _canonical(found["arguments"])) for found in calls))}

    def _model_calls(self) -> Deviations:
        if self.source.startswith("mcp-"):
            return {}
        totals = self.truth["totals"]
        found: Deviations = {
            "model_calls": (totals["model_calls"], sum(step["kind"] == "model" for step in self.steps))
        }
        observable = (self.truth["recorded"].get("observable") or {}).get("input_tokens_match", True) is not None
        for name in ("input_tokens", "output_tokens"):
            counts = [trajectory[name] for trajectory in self.trajectories]
            if totals["input_tokens"] is None:
                found[name] = ([None] * len(counts), counts)
            elif observable:
                found[name] = (totals[name], sum(count or 0 for count in counts))
        return found

    def _final_responses(self) -> Deviations:
        wanted = {
            response.strip() for response in self.truth["final_responses"] if response and _shows(self.text, response)
        }
        return {"final_responses": (wanted, wanted & {(t["final_response"] or "").strip() for t in self.trajectories})}

    def _sessions(self) -> Deviations:
        wanted = {session for session in self.truth["session_ids"] if session and _shows(self.text, session)}
        return {"sessions": (wanted, wanted & {trajectory["session_id"] for trajectory in self.trajectories})}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], list[Json]]:
    """Steps and trajectories of all recordings, in one store."""
    files = [path for folder in FOLDERS for path in _files(TRACES / folder)]
    db = _imported(files, tmp_path_factory.mktemp("recordings") / "agenttrace.duckdb")
    steps = _query(db, "SELECT * FROM steps WHERE duplicate_of IS NULL ORDER BY start_time, step_index")
    return steps, _query(db, "SELECT * FROM trajectories ORDER BY start_time")


@pytest.mark.xdist_group("recordings")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_recording_becomes_what_happened(folder: str, everything: tuple[list[Json], list[Json]]) -> None:
    paths = sorted((TRACES / folder).glob("*.expected.json"))
    recordings = {path.name: Recording(path, *everything) for path in paths}
    assert {name: bad for name, recording in recordings.items() if (bad := recording.deviations())} == {}


def _shuffled(lines: list[str]) -> list[str]:
    random.Random(7).shuffle(lines)
    return lines


def _twice(lines: list[str]) -> list[str]:
    return [line for line in lines for _ in range(2)]


def _children_first(lines: list[str]) -> list[str]:
    """One request per span, the last span first."""
    requests: list[str] = []
    for line in lines:
        for resource in json.loads(line).get("resourceSpans", []):
            for scope in resource["scopeSpans"]:
                requests += [
                    json.dumps({"resourceSpans": [resource | {"scopeSpans": [scope | {"spans": [span]}]}]})
                    for span in scope["spans"]
                ]
    return requests[::-1] or lines[::-1]


@pytest.mark.parametrize("arrange", [_shuffled, _twice, _children_first])
@pytest.mark.parametrize("folder", ["otel-openai-v2-events", "openinference-langchain-and-openai"])
def test_the_order_of_requests_makes_no_difference(
    folder: str, arrange: Callable[[list[str]], list[str]], tmp_path: Path
) -> None:
    paths = _files(TRACES / folder)
    queries = ("SELECT * FROM steps ORDER BY ALL", "SELECT * EXCLUDE (last_arrival) FROM trajectories ORDER BY ALL")
    db = _imported(paths, tmp_path / "plain.duckdb")
    expected = [_query(db, sql) for sql in queries]
    assert all(expected)
    other = tmp_path / "other"
    other.mkdir()
    for path in paths:
        lines = arrange(path.read_text(encoding="utf-8").splitlines())
        (other / path.name).write_text("\n".join(lines), encoding="utf-8")
    db = _imported(_files(other)[::-1], tmp_path / "other.duckdb")
    assert [_query(db, sql) for sql in queries] == expected
