"""docs/evaluation.schema.json: what `--format json` writes, and nothing else, is valid by it."""

import copy
import json as stdlib_json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from jsonschema import Draft202012Validator, FormatChecker
from test_night_reports import EMPTY, JUDGED
from test_reports import CASES, EVALUATION, HOSTILE, NOTHING, UNRULED

from agenttrace.cli import main
from agenttrace.evaluators.reports import json
from agenttrace.evaluators.results import Evaluation

ROOT = Path(__file__).parent.parent
SCHEMA: dict[str, Any] = stdlib_json.loads((ROOT / "docs" / "evaluation.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=FormatChecker())
# Where each object of the schema is stored.
TABLES = {
    "run": "evaluation_runs",
    "finding": "findings",
    "measurement": "measurements",
    "not_evaluable": "not_evaluable",
    "fault": "faults",
}


def problems(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(stdlib_json.loads(text))]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("evaluation", [EVALUATION, CASES, UNRULED, NOTHING, JUDGED, EMPTY])
def test_what_is_written_is_valid(evaluation: Evaluation) -> None:
    assert problems(json.render(evaluation)) == []


def test_hostile_content_is_valid() -> None:
    found = stdlib_json.loads(json.render(HOSTILE))
    # Its verdicts on cases are shorter than those of an evaluation, and its state is none.
    found |= {"cases": []}
    found["findings"][0]["state"] = None
    assert problems(stdlib_json.dumps(found)) == []


def test_what_the_commands_write_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", str(tmp_path)])
    for command in ("evaluate", "nightly"):
        capsys.readouterr()
        main([command, "--db", str(tmp_path / "agenttrace-demo.duckdb"), "--format", "json"])
        assert problems(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("gate"),
        lambda found: found.update(more=1),
        lambda found: found.update(passed="yes"),
        lambda found: found["findings"][0].update(severity="fatal"),
        lambda found: found["findings"][0].pop("fingerprint"),
        lambda found: found["findings"][0].update(more=1),
        lambda found: found["measurements"][0].update(value="0.25"),
        lambda found: found["run"].update(started_at=1),
        lambda found: found["night"].update(seen=-1),
        lambda found: found["night"]["silent"].append(["cook"]),
        lambda found: found["night"]["resolved"][0].update(state="new"),
    ],
)
def test_what_is_changed_is_not(change: Callable[[dict[str, Any]], object]) -> None:
    found = copy.deepcopy(stdlib_json.loads(json.render(JUDGED)))
    change(found)
    assert problems(stdlib_json.dumps(found))


@pytest.mark.parametrize(("name", "table"), TABLES.items())
def test_its_words_are_those_of_the_tables(name: str, table: str) -> None:
    con = duckdb.connect()
    con.execute((ROOT / "agenttrace" / "schema.sql").read_text(encoding="utf-8"))
    rows = con.execute("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = ?", [table]).fetchall()
    comments = dict(rows)
    said = {key: value["description"] for key, value in SCHEMA["$defs"][name]["properties"].items()}
    assert said == {key: comments[key] for key in said}
