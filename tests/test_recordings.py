"""Whole runs of real frameworks: what was recorded must become what happened, which stands beside each recording."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import TRACES, Json, deviations_of, files_of, imported, query, rebuilt

FOLDERS = sorted({path.parent.name for path in TRACES.glob("*/*.expected.json")})


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], list[Json]]:
    """Steps and trajectories of all recordings, in one store."""
    folders = [TRACES / folder for folder in FOLDERS]
    return rebuilt(folders, tmp_path_factory.mktemp("recordings") / "agenttrace.duckdb")


@pytest.mark.xdist_group("recordings")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_recording_becomes_what_happened(folder: str, everything: tuple[list[Json], list[Json]]) -> None:
    assert deviations_of(TRACES / folder, *everything) == {}


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
    paths = files_of(TRACES / folder)
    queries = ("SELECT * FROM steps ORDER BY ALL", "SELECT * EXCLUDE (last_arrival) FROM trajectories ORDER BY ALL")
    db = imported(paths, tmp_path / "plain.duckdb")
    expected = [query(db, sql) for sql in queries]
    assert all(expected)
    other = tmp_path / "other"
    other.mkdir()
    for path in paths:
        lines = arrange(path.read_text(encoding="utf-8").splitlines())
        (other / path.name).write_text("\n".join(lines), encoding="utf-8")
    db = imported(files_of(other)[::-1], tmp_path / "other.duckdb")
    assert [query(db, sql) for sql in queries] == expected
