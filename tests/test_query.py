"""`agenttrace sql` and `agenttrace schema`."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from agenttrace import query, rows
from agenttrace.errors import UsageError
from agenttrace.store import open_store

Fill = Callable[..., Path]


def run(store: Path, sql: str, form: str, output: Path | None = None) -> None:
    with open_store(store, locked=True) as connection:
        rows.write(query.relation(connection, sql), form, output)


@pytest.fixture
def printed(fill_store: Fill, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    store = fill_store()

    def printed(sql: str, form: str = "json") -> str:
        run(store, sql, form)
        return capsys.readouterr().out

    return printed


def test_json_is_strict_and_keeps_types(printed: Callable[..., str]):
    text = printed(
        "SELECT 1 AS i, 170141183460469231731687303715884105727 AS huge, 1.5::DOUBLE AS d, 1.50::DECIMAL(4,2) AS dec,"
        " true AS b, NULL AS n, '' AS e, 'nan'::DOUBLE AS nan, 'inf'::DOUBLE AS inf, [1, NULL] AS list,"
        " {'a': 'x', 'bad': 'nan'::DOUBLE} AS struct, MAP {'k': 1} AS map, '{\"a\": [1.0, 1e999]}'::JSON AS json,"
        " TIMESTAMPTZ '2026-01-31 18:00:00+00' AS time, '\\xAA'::BLOB AS blob, sum(2) AS total"
    )
    (row,) = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    assert row == {
        "i": 1,
        "huge": 2**127 - 1,
        "d": 1.5,
        "dec": 1.5,
        "b": True,
        "n": None,
        "e": "",
        "nan": None,
        "inf": None,
        "list": [1, None],
        "struct": {"a": "x", "bad": None},
        "map": {"k": 1},
        "json": {"a": [1.0, None]},
        "time": "2026-01-31 18:00:00+00",
        "blob": "\\xAA",
        "total": 2,
    }


def test_json_of_no_rows_is_an_empty_list(printed: Callable[..., str]):
    assert json.loads(printed("SELECT 1 AS a WHERE false")) == []


def test_json_text_that_is_none_stays_text(printed: Callable[..., str]):
    deep = "[" * 100_000
    assert json.loads(printed("SELECT 'NaN'::JSON AS a"))[0]["a"] is None
    assert json.loads(printed(f"SELECT '{deep[:400]}1{']' * 400}'::JSON AS a"))


def test_many_batches_are_one_list(printed: Callable[..., str]):
    assert json.loads(printed("SELECT range AS i FROM range(5000)")) == [{"i": i} for i in range(5000)]


def test_repeated_column_names_lose_nothing(printed: Callable[..., str]):
    assert json.loads(printed("SELECT 1 AS a, 2 AS a")) == [{"a": 1, "a_1": 2}]


def test_csv_tells_null_from_empty_text(printed: Callable[..., str]):
    text = printed("SELECT NULL AS a, '' AS b, 'x,\"y\"' AS c, E'two\\nlines' AS d, ' blank ' AS e", "csv")
    assert text == 'a,b,c,d,e\n,"","x,""y""","two\nlines"," blank "\n'
    assert next(csv.DictReader(io.StringIO(text)))["c"] == 'x,"y"'


def test_table_tells_null_from_empty_text_and_is_inert(printed: Callable[..., str]):
    text = printed("SELECT NULL AS a, '' AS b, chr(27) || '[2J' AS c, 12 AS d", "table")
    assert text == "a     b  c         d\nNULL     \\x1b[2J  12\n"


def test_long_table_is_cut_and_says_so(fill_store: Fill, capsys: pytest.CaptureFixture[str]):
    run(fill_store(), "SELECT range AS i FROM range(1001)", "table")
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1001
    assert "Only the first 1,000 rows" in captured.err


def test_rows_keep_the_order_of_the_query(printed: Callable[..., str]):
    assert printed("SELECT range AS i FROM range(3) ORDER BY i DESC", "csv") == "i\n2\n1\n0\n"


def test_parquet_holds_what_other_engines_read(fill_store: Fill, tmp_path: Path):
    path = tmp_path / "out.parquet"
    run(
        fill_store(),
        "SELECT TIMESTAMP_NS '2026-01-31 18:00:00.123456789' AS ns, 18446744073709551615::UBIGINT AS u, sum(1) AS s,"
        ' \'{}\'::JSON AS j, 1 AS "a""b", 2 AS x, 3 AS x',
        "parquet",
        path,
    )
    table = pq.read_table(path)
    assert [str(kind) for kind in table.schema.types[:4]] == [
        "timestamp[us]",
        "decimal128(20, 0)",
        "decimal128(38, 0)",
        "string",
    ]
    assert table.schema.names == ["ns", "u", "s", "j", 'a"b', "x", "x_1"]
    assert int(table["u"][0].as_py()) == 2**64 - 1


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_output_goes_to_a_file(fill_store: Fill, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "out"
    run(fill_store(), "SELECT range AS i FROM range(2000)", form, path)
    assert len(path.read_text().splitlines()) == 2001
    assert capsys.readouterr().out == ""


def test_query_that_fails_half_way_leaves_no_file(fill_store: Fill, tmp_path: Path):
    path = tmp_path / "out.csv"
    with pytest.raises(UsageError, match="Could not convert string"):
        run(fill_store(), "SELECT (CASE WHEN range < 99999 THEN '1' ELSE 'x' END)::INT FROM range(100000)", "csv", path)
    assert list(tmp_path.glob("*out*")) == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT)",
        "CREATE TEMP TABLE t (a INT)",
        "INSERT INTO spans (trace_id) VALUES ('x')",
        "DELETE FROM spans",
        "DROP TABLE spans",
        "ATTACH ':memory:' AS m",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET VARIABLE x = 1",
        "BEGIN",
        "CHECKPOINT",
        "VACUUM",
        "EXPORT DATABASE '/tmp/x'",
        "COPY spans TO '/tmp/x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM sql",
    ],
)
def test_query_that_writes_or_reaches_out_is_refused(fill_store: Fill, sql: str):
    with pytest.raises(UsageError) as caught:
        run(fill_store(), sql, "json")
    assert str(caught.value).startswith("sql: ")
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELCT 1", "syntax error"),
        ("SELECT nope FROM spans", 'Referenced column "nope" not found'),
        ("SELECT $x", "the query needs $x; give it with --param x=VALUE"),
    ],
)
def test_wrong_query_is_explained_in_two_lines(fill_store: Fill, sql: str, message: str):
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        run(fill_store(), sql, "json")
    assert len(str(caught.value).splitlines()) <= 2
    assert "LINE 1" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE spans",
        "SHOW TABLES",
        "SUMMARIZE steps",
        "EXPLAIN SELECT 1",
        "/* why */ EXPLAIN -- slow?\n (ANALYZE, FORMAT json) SELECT 1",
        "EXPLAIN ANALYZE (SELECT 1)",
        "EXPLAIN SELECT 'größer' AS \"größe\" /* größe */",
        "FROM steps",
        "WITH a AS (SELECT 1) FROM a",
        "VALUES (1)",
        "PRAGMA database_list",
        "SELECT 1 -- comment\n;",
    ],
)
def test_every_reading_statement_is_taken(printed: Callable[..., str], sql: str):
    assert isinstance(json.loads(printed(sql)), list)


def test_schema_describes_every_column():
    text = query.schema(None)
    for name in ("spans", "steps", "trajectories", "findings", "measurements", "not_evaluable", "outcomes"):
        assert f"\n{name}: " in f"\n{text}"
    assert "None" not in text


def test_schema_of_one_table():
    text = query.schema("findings")
    assert text.startswith("findings: One row per (evaluation run, fault).\n  finding_id ")
    assert "trajectories:" not in text


def test_schema_of_a_store_shows_the_users_own_tables(fill_store: Fill):
    store = fill_store()
    with duckdb.connect(store) as connection:
        connection.execute("CREATE TABLE mine (a INTEGER)")
    assert query.schema("mine", store) == "mine:\n  a  INTEGER"


def test_schema_of_unknown_table_names_the_nearest():
    with pytest.raises(UsageError, match="no table 'finding'; did you mean findings"):
        query.schema("finding")
