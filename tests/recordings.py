"""Recordings of real frameworks (tests/traces) and what became of them, compared with the truth beside each.

Usage: recordings.py [FOLDER...]. A folder holds recordings, `<framework>/<scenario>.jsonl` and where content travels as
log records `.logs.jsonl`, with `<scenario>.expected.json` beside them; without one, the recordings of the tests are
compared. Prints a line per framework and what deviates; ends with 1 where anything does.
"""

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agenttrace import store as stores
from agenttrace.collectors.files import import_files

TRACES = Path(__file__).parent / "traces"

# A setting `"timeout": null` is none.
_TIMED_OUT = re.compile(r'timed?[ _-]?out(?!\\*"\s*:\s*null)', re.IGNORECASE)

Json = dict[str, Any]
Deviations = dict[str, Any]


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl") if path.stat().st_size)


def imported(paths: list[Path], db: Path) -> Path:
    result = import_files(paths, db)
    assert result.skipped_count == 0, result.skipped
    stores.refresh(db)
    return db


def query(db: Path, sql: str) -> list[Json]:
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
        # A coding agent's log records have no trace id of their own.
        traces = _trace_ids(spans) or {t["trace_id"] for t in trajectories if t["session_id"] in self._session_ids}
        self.steps = [step for step in steps if step["trace_id"] in traces]
        self.trajectories = [trajectory for trajectory in trajectories if trajectory["trace_id"] in traces]

    @property
    def source(self) -> str:
        return self.truth["source"]

    @property
    def _session_ids(self) -> set[str]:
        return {session for session in self.truth["session_ids"] if session}

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


def rebuilt(folders: list[Path], db: Path) -> tuple[list[Json], list[Json]]:
    """Steps and trajectories of all recordings of some folders, in one store."""
    imported([path for folder in folders for path in files_of(folder)], db)
    steps = query(db, "SELECT * FROM steps WHERE duplicate_of IS NULL ORDER BY start_time, step_index")
    return steps, query(db, "SELECT * FROM trajectories ORDER BY start_time")


def as_recorded_and_arranged(
    folder: Path, arrange: Callable[[list[str]], list[str]], scratch: Path
) -> tuple[list[list[Json]], list[list[Json]]]:
    """Steps and trajectories of a folder as it was recorded, and with the requests of each file arranged otherwise."""
    other = scratch / "other"
    other.mkdir()
    for path in files_of(folder):
        lines = arrange(path.read_text(encoding="utf-8").splitlines())
        (other / path.name).write_text("\n".join(lines), encoding="utf-8")
    queries = (
        "SELECT * FROM steps ORDER BY ALL",
        "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY ALL",
    )
    plain = imported(files_of(folder), scratch / "plain.duckdb")
    arranged = imported(files_of(other)[::-1], scratch / "other.duckdb")
    return [query(plain, sql) for sql in queries], [query(arranged, sql) for sql in queries]


def deviations_of(folder: Path, steps: list[Json], trajectories: list[Json]) -> dict[str, Deviations]:
    """What deviates from the truth, by scenario; all that is exact is left out."""
    recordings = {path.name: Recording(path, steps, trajectories) for path in sorted(folder.glob("*.expected.json"))}
    return {name: found for name, recording in recordings.items() if (found := recording.deviations())}


def main(roots: list[str]) -> int:
    """Prints the comparison; returns 1 where a recording deviates."""
    paths = sorted({path.parent for root in roots or [TRACES] for path in Path(root).glob("*/*.expected.json")})
    exact = total = 0
    for folder in paths:
        with tempfile.TemporaryDirectory() as scratch:
            found = deviations_of(folder, *rebuilt([folder], Path(scratch) / "agenttrace.duckdb"))
        count = len(list(folder.glob("*.expected.json")))
        total, exact = total + count, exact + count - len(found)
        sys.stdout.write(f"{folder.name:36} {count - len(found)} of {count}\n")
        for scenario, deviations in found.items():
            for name, (wanted, got) in deviations.items():
                sys.stdout.write(f"  {scenario}: {name}: wanted {wanted}, got {got}\n")
    sys.stdout.write(f"{exact} of {total} recordings exact\n")
    return int(exact < total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
