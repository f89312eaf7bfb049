"""Every evaluator file against its golden cases, `evaluators/<name>.toml`; the form is in style.md, section 2.

A file may have `[defaults.<relation>]`: values of the columns that its rows leave out. A time may be written as
"10:00:05". A run that a case does not describe has the ids of its steps, the defaults, and is otherwise NULL.
"""

import json
import random
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from agenttrace.evaluators import catalog, prepare

GOLDEN = Path(__file__).parent / "evaluators"
CATALOGUE = catalog.load()
PREPARED = {name: schema for name, (schema, _) in prepare.PREPARED.items()}


@cache
def golden(name: str) -> dict[str, Any]:
    return tomllib.loads((GOLDEN / f"{name}.toml").read_text(encoding="utf-8"))


ALL = [
    pytest.param(name, case, id=f"{name}-{case['name']}", marks=pytest.mark.xdist_group(name))
    for name in CATALOGUE
    if (GOLDEN / f"{name}.toml").exists()
    for case in golden(name)["case"]
]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        create_store(con)
        create_relations(con)
        yield con


def create_store(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE SCHEMA stored; USE stored")
    con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
    con.execute("USE memory.main")


@pytest.fixture
def relations(connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Empty relations with the real columns; what a test puts into them goes with its transaction."""
    connection.execute("BEGIN")
    yield connection
    connection.execute("ROLLBACK")


def create_relations(con: duckdb.DuckDBPyConnection) -> None:
    """Creates empty relations where the connection stands; the store's own tables are in memory.stored."""
    for name in ("steps", "trajectories", "outcomes"):
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM memory.stored.{name} LIMIT 0")
    con.execute((resources.files("agenttrace.evaluators.relations") / "tool_role.sql").read_text(encoding="utf-8"))
    for name, schema in PREPARED.items():
        con.register("empty", schema.empty_table())
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM empty")
        con.unregister("empty")


def completed(case: dict[str, Any], defaults: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a case with the columns that they leave out, and the runs that it does not describe."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in catalog.RELATIONS:
        given = {} if name == "cases" else {"trajectory_id": "r1"}
        if name in ("steps", "trajectories"):
            given["trace_id"] = "t1"
        rows[name] = [given | defaults.get(name, {}) | row for row in case.get(name, [])]
    known = {row["trajectory_id"] for row in rows["trajectories"]}
    for row in rows["steps"]:
        if row["trajectory_id"] not in known:
            known.add(row["trajectory_id"])
            own = {"trajectory_id": row["trajectory_id"], "trace_id": row["trace_id"]}
            rows["trajectories"].append(defaults.get("trajectories", {}) | own)
    return rows


# Of a statement that fills a relation.
_ROWS = 100


def fill(con: duckdb.DuckDBPyConnection, rows: dict[str, list[dict[str, Any]]], order: int = 0) -> None:
    """Puts rows into the relations; `order` other than 0 shuffles them."""
    for name, lines in rows.items():
        columns = {str(column[0]): str(column[1]) for column in con.execute(f"DESCRIBE {name}").fetchall()}
        if order:
            lines = random.Random(order).sample(lines, len(lines))
        given = list(dict.fromkeys(column for line in lines for column in line))
        assert columns.keys() >= set(given), f"{name} has no column {set(given) - columns.keys()}"
        # Many rows in a statement, whose columns have no defaults: one for each row takes four times as long.
        for start in range(0, len(lines), _ROWS):
            part = lines[start : start + _ROWS]
            values = [value_of(line.get(column, "NULL"), columns[column]) for line in part for column in given]
            marks = ", ".join([f"({', '.join('?' * len(given))})"] * len(part))
            con.execute(f"INSERT INTO {name} ({', '.join(given)}) VALUES {marks}", values)


def value_of(value: Any, sql_type: str) -> Any:
    if value == "NULL":
        return None
    if sql_type == "JSON" and not isinstance(value, str):
        return json.dumps(value)
    if sql_type.startswith("TIMESTAMP") and re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?", str(value)):
        return f"2026-01-01 {value}+00"
    return value


def answer(
    con: duckdb.DuckDBPyConnection, name: str, params: dict[str, Any], query: str | None = None
) -> list[dict[str, Any]]:
    """The rows of an evaluator; `query` runs in the place of its own."""
    evaluator = CATALOGUE[name]
    values = evaluator.values(params, {})
    query = query or evaluator.query
    cursor = con.execute(query, values) if values else con.execute(query)
    columns = [column[0] for column in cursor.description or []]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.parametrize(("name", "case"), ALL)
def test_golden_case(
    relations: duckdb.DuckDBPyConnection, answers: dict[str, list[dict[str, Any]]], name: str, case: dict[str, Any]
) -> None:
    params = case.get("params", {})
    if CATALOGUE[name].scope != "summary":
        # One query for all cases of equal parameters: most of the time goes into planning.
        key = json.dumps([name, params], sort_keys=True)
        if key not in answers:
            cases = [other for other in golden(name)["case"] if other.get("params", {}) == params]
            fill(relations, together({**golden(name), "case": cases}))
            answers[key] = answer(relations, name, params)
        begin = f"{case['name']}/"
        own = [row for row in answers[key] if str(row["trajectory_id"]).startswith(begin)]
        try:
            check([{column: without(value, begin) for column, value in row.items()} for row in own], case["expect"])
        except AssertionError:
            # A message may show the beginning of an id, which is the case's own only where the case is alone.
            relations.execute("ROLLBACK; BEGIN")
        else:
            return
    fill(relations, completed(case, golden(name).get("defaults", {})))
    check(answer(relations, name, params), case["expect"])


@pytest.fixture(scope="module")
def answers() -> dict[str, list[dict[str, Any]]]:
    """Rows by evaluator and parameters, over all golden cases that share them."""
    return {}


def without(value: Any, begin: str) -> Any:
    if isinstance(value, list):
        return [without(part, begin) for part in value]
    return value.replace(begin, "") if isinstance(value, str) else value


def check(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Asserts that the rows found are those wanted, in any order, by the columns that these name."""
    assert len(found) == len(wanted), found
    left = list(found)
    for row in wanted:
        hit = next((other for other in left if all(same(other[key], value) for key, value in row.items())), None)
        assert hit is not None, f"no row like {row} in {[{key: other[key] for key in row} for other in left]}"
        left.remove(hit)


def same(found: Any, wanted: Any) -> bool:
    """Messages may be given in part, as a text that they hold; "NULL" is no value; numbers to ten digits."""
    if wanted == "NULL":
        return found is None
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        return found == pytest.approx(wanted, rel=1e-10)
    if isinstance(wanted, dict):
        return json.loads(found) == wanted
    if isinstance(wanted, str) and wanted.startswith("~"):
        return wanted[1:] in found
    return bool(found == wanted)


@pytest.mark.parametrize("name", CATALOGUE)
def test_answers_do_not_depend_on_order_or_threads(relations: duckdb.DuckDBPyConnection, name: str) -> None:
    file = golden(name)
    answers: set[str] = set()
    for order, threads in ((0, 1), (1, 4), (2, 4)):
        relations.execute(f"SET threads = {threads}")
        for relation in catalog.RELATIONS:
            relations.execute(f"DELETE FROM {relation}")
        fill(relations, together(file), order)
        answers.add(repr(answer(relations, name, {})))
    relations.execute("RESET threads")
    assert len(answers) == 1


# Neighbours in the golden file come into different parts.
_PARTS = 2


@pytest.mark.parametrize("name", [name for name in CATALOGUE if CATALOGUE[name].scope != "summary"])
def test_runs_of_different_sessions_do_not_touch_each_other(relations: duckdb.DuckDBPyConnection, name: str) -> None:
    file = golden(name)
    fill(relations, together(file))
    everything = sorted(repr(sorted(row.items())) for row in answer(relations, name, {}))
    apart: list[str] = []
    for first in range(_PARTS):
        for relation in catalog.RELATIONS:
            relations.execute(f"DELETE FROM {relation}")
        fill(relations, together({**file, "case": file["case"][first::_PARTS]}))
        apart += [repr(sorted(row.items())) for row in answer(relations, name, {})]
    assert everything == sorted(apart)


def together(file: dict[str, Any]) -> dict[str, Any]:
    """All cases as one store, whatever their parameters: ids of runs, traces, sessions and tasks made different."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for case in file["case"]:
        for relation, lines in completed(case, file.get("defaults", {})).items():
            for row in lines:
                for key in ("trajectory_id", "trace_id", "session_id", "service_name", "task_id", "case_id"):
                    if row.get(key) is not None:
                        row[key] = f"{case['name']}/{row[key]}"
                rows.setdefault(relation, []).append(row)
    return rows


def respelled(value: Any, chance: random.Random) -> Any:
    """An equal value in another spelling: keys in another order, 1 as 1.0, accents taken apart, white space outside."""
    if isinstance(value, dict):
        return {key: respelled(value[key], chance) for key in chance.sample(list(value), len(value))}
    if isinstance(value, list):
        return [respelled(part, chance) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return chance.choice([value, float(value)])
    if isinstance(value, str):
        return chance.choice(["", " ", "\n"]) + unicodedata.normalize(chance.choice(["NFC", "NFD"]), value)
    return value


def some_arguments(chance: random.Random, depth: int = 0) -> Any:
    leaves = [
        None,
        True,
        0,
        7,
        -3,
        10**15,
        2**60,
        10**25,
        1.5,
        1e22,
        "rice",
        "café",
        "",
        "40",
        "a{b",
        "[",
        "null",
        "1e3",
    ]
    if depth == 2 or chance.random() < 0.6:
        return chance.choice(leaves)
    if chance.random() < 0.5:
        return [some_arguments(chance, depth + 1) for _ in range(chance.randrange(3))]
    keys = chance.sample(["a", "b", "c.d", "e f", 'g"h', "ö"], chance.randrange(1, 4))
    return {key: some_arguments(chance, depth + 1) for key in keys}


def test_arguments_are_equal_in_every_spelling(relations: duckdb.DuckDBPyConnection) -> None:
    chance = random.Random(1)
    steps: list[dict[str, Any]] = []
    for number in range(150):
        first = {"first": some_arguments(chance), "second": some_arguments(chance)}
        for index, arguments in enumerate((first, respelled(first, chance))):
            steps.append(
                {"span_id": str(index), "step_index": index, "kind": "tool", "tool_name": "place", "status": "ok"}
                | {
                    "effect": "yes",
                    "mutability": "mutating",
                    "trajectory_id": f"r{number}",
                    "arguments": json.dumps(arguments),
                }
            )
    fill(relations, completed({"steps": steps}, {"trajectories": {"session_id": "s"}, "steps": {"session_id": "s"}}))
    relations.execute("UPDATE trajectories SET session_id = trajectory_id")
    found = {row["trajectory_id"] for row in answer(relations, "duplicate_mutations", {}) if row["kind"] == "confirmed"}
    assert found == {f"r{number}" for number in range(150)}


def test_a_long_observation_is_known_by_its_beginning(relations: duckdb.DuckDBPyConnection) -> None:
    call = {"kind": "tool", "tool_name": "place_order", "status": "ok", "effect": "yes", "mutability": "mutating"}
    steps = [
        call
        | {"span_id": str(index), "step_index": index, "arguments": {"item": "rice"}, "observation": [text] * 25_000}
        for index, text in enumerate(
            ["ORDER-77 was placed, and rice is on its way.", "ORDER-77 was placed; rice is on its way."]
        )
    ]
    fill(relations, completed({"steps": steps}, {"trajectories": {"session_id": "s", "tool_call_count": 2}}))
    assert [row["kind"] for row in answer(relations, "duplicate_mutations", {})] == ["replayed"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_header_tells_the_truth(relations: duckdb.DuckDBPyConnection, name: str) -> None:
    evaluator = CATALOGUE[name]
    values = evaluator.values({}, {})
    described = (
        relations.execute(f"DESCRIBE {evaluator.query}", values)
        if values
        else relations.execute(f"DESCRIBE {evaluator.query}")
    )
    assert [row[0] for row in described.fetchall()] == list(evaluator.columns)
    code = re.sub(r"'(?:[^']|'')*'|--[^\n]*", "", evaluator.query)
    assert set(re.findall(r"\$([a-z_]+)", code)) == set(evaluator.params)
    used = {relation for relation in catalog.RELATIONS if re.search(rf"\b(?:FROM|JOIN)\s+{relation}\b", code)}
    assert used == set(evaluator.reads)
    assert re.search(r"^ORDER BY [^\n]*\s*\Z", code, re.MULTILINE), "the result has no order"
    assert not re.search(
        r"\b(?:now|today|current_date|current_timestamp|random|uuid|gen_random_uuid)\b\s*\(?", code, re.IGNORECASE
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_empty_store_gives_no_findings(relations: duckdb.DuckDBPyConnection, name: str) -> None:
    rows = answer(relations, name, {})
    assert rows == [] if CATALOGUE[name].returns == "findings" else all(row["value"] is None for row in rows)


@pytest.mark.parametrize("name", CATALOGUE)
def test_enough_cases(name: str) -> None:
    names = [case["name"] for case in golden(name)["case"]]
    assert len(set(names)) == len(names)
    if CATALOGUE[name].returns == "measurements":
        assert all(case_name.startswith(("value_", "null_")) for case_name in names)
        assert sum(case_name.startswith("value_") for case_name in names) >= 3
        assert any(case_name.startswith("null_") for case_name in names)
        return
    assert all(case_name.startswith(("fail_", "pass_", "blind_")) for case_name in names)
    assert sum(case_name.startswith("fail_") for case_name in names) >= 3
    assert sum(case_name.startswith("pass_") for case_name in names) >= 5
    for case in golden(name)["case"]:
        kinds = {row.get("kind") for row in case["expect"]}
        assert case["why"].strip()
        if case["name"].startswith("fail_"):
            assert kinds - {"not_evaluable"}, case["name"]
        if case["name"].startswith("blind_"):
            assert kinds == {"not_evaluable"}, case["name"]


def test_files_and_golden_files_match() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.toml")) == sorted(CATALOGUE)


def test_prepared_relations_have_columns_of_one_kind() -> None:
    assert all(isinstance(schema, pa.Schema) for schema in PREPARED.values())
