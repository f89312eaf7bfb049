"""Whole runs of real frameworks: what was recorded must become what happened, which stands beside each recording."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import TRACES, Json, as_recorded_and_arranged, deviations_of, rebuilt

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
    plain, arranged = as_recorded_and_arranged(TRACES / folder, arrange, tmp_path)
    assert all(plain)
    assert arranged == plain
