"""Evaluator files: what a header must say, and what is said of one that does not."""

from datetime import date
from pathlib import Path

import pytest

from agenttrace.errors import ConfigError
from agenttrace.evaluators import catalog

HEADER = """/* +++
name       = "mine"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Did it?"
reads      = ["steps"]
limits     = "none known"
references = ["a paper"]

[params.tools]
type    = "VARCHAR[]"
default = []
help    = "Tools."

[params.limit]
type    = "DOUBLE"
help    = "Limit."

[params.synonyms]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Synonyms."

[params.schemas]
type    = "JSON"
default = {}
help    = "Schemas."

[columns]
trajectory_id = "run"
trace_id      = "trace"
span_id       = "step"
kind          = "kind"
severity      = "warning"
message       = "sentence"
+++ */
SELECT 1
"""


def file(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.sql"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_four_evaluators_are_there() -> None:
    known = catalog.load()
    assert {"budget_overruns", "cost_percentiles", "duplicate_mutations", "tool_hallucination"} <= set(known)
    assert list(known) == sorted(known)
    for evaluator in known.values():
        assert evaluator.limits
        assert evaluator.references


def test_a_users_folder_joins(tmp_path: Path) -> None:
    file(tmp_path, HEADER)
    mine = catalog.load([tmp_path])["mine"]
    assert mine.query == "SELECT 1\n"
    assert mine.params["tools"].default == []
    assert mine.reads == ("steps",)


def test_version_is_the_text(tmp_path: Path) -> None:
    first = catalog.read(file(tmp_path, HEADER)).version
    assert catalog.read(file(tmp_path, HEADER)).version == first
    assert catalog.read(file(tmp_path, HEADER + "-- more\n")).version != first


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.sql"
    path.write_bytes(HEADER.replace("\n", "\r\n").encode())
    assert catalog.read(path).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/* +++", "/*", "no header"),
        ('limits     = "none known"\n', "", "header key 'limits' is missing"),
        ("limits ", "limit ", "unknown header key 'limit'; did you mean 'limits'?"),
        (
            '"warning"\nquestion',
            '"fatal"\nquestion',
            "header key 'severity' is 'fatal'; expected 'error', 'warning' or 'note'",
        ),
        ('severity   = "warning"\n', "", "header key 'severity' is missing"),
        ('"findings"', '"measurements"', "header key 'severity' is only for evaluators that return findings"),
        ('"trajectory"', '"trace"', "header key 'scope' is 'trace'; expected 'trajectory', 'session' or 'summary'"),
        ('"mine"', '"yours"', "header key 'name' is 'yours'; expected 'mine'"),
        ('"Did it?"', '"It did."', "expected one sentence with a question mark"),
        ('["steps"]', '["spans"]', "header key 'reads' is 'spans'"),
        ('["a paper"]', '"a paper"', "expected a list of texts"),
        ("default = []", 'default = ["a", 1]', "header key 'params.tools.default'"),
        ('help    = "Tools."', "", "header key 'params.tools.help' is None"),
        ("[params.limit]", "[params.limit]\nunit = 1", "unknown header key 'params.limit.unit'"),
        ("trace_id      =", "trace         =", "findings begin with trajectory_id, trace_id, span_id"),
        ("+++\nname", "+++\nname name", "not valid TOML"),
    ],
)
def test_a_wrong_header_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in HEADER
    path = file(tmp_path, HEADER.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        catalog.read(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_name_exists_once(tmp_path: Path) -> None:
    file(tmp_path, HEADER.replace('"mine"', '"budget_overruns"'), "budget_overruns")
    with pytest.raises(ConfigError, match="'budget_overruns' exists already"):
        catalog.load([tmp_path])


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        catalog.load([tmp_path / "nothing"])


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8"):
        catalog.load([tmp_path])


def test_parameters_come_from_configuration_then_shared_then_default(tmp_path: Path) -> None:
    mine = catalog.read(file(tmp_path, HEADER))
    values = mine.values({"limit": 3, "schemas": {"a": {"since": date(2026, 1, 1)}}}, {"tools": ["a"], "unused": 1})
    assert values["limit"].object == 3.0
    assert values["schemas"].object == '{"a": {"since": "2026-01-01"}}'
    assert values["tools"].object == ["a"]
    assert mine.values({}, {})["limit"].object is None


@pytest.mark.parametrize(
    ("configured", "message"),
    [
        ({"tool": ["a"]}, "evaluators.mine: unknown key 'tool'; did you mean 'tools'?"),
        ({"tools": "a"}, "evaluators.mine.tools is 'a'; expected VARCHAR[]: Tools."),
        ({"limit": True}, "evaluators.mine.limit is True; expected DOUBLE"),
        ({"synonyms": {"a": "b"}}, "evaluators.mine.synonyms is {'a': 'b'}; expected MAP(VARCHAR, VARCHAR[])"),
        ({"schemas": ["a"]}, "evaluators.mine.schemas is ['a']; expected JSON: Schemas."),
    ],
)
def test_a_wrong_parameter_is_named(tmp_path: Path, configured: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        catalog.read(file(tmp_path, HEADER)).values(configured, {})
    assert message in str(caught.value)
