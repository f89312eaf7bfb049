"""Spans to steps and trajectories: runs agenttrace/steps/*.sql over the traces that have changed.

The conventions (collectors/conventions/*.sql) each map the spans they know; the numbered files do the rest in the order
of their names. All of it is set-based: a batch of traces is one pass, whatever their number. To plan a long query takes
longer than to look, so what few traces need stands between `-- if CONDITION` and `-- end if` in those files.
"""

import hashlib
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from agenttrace import sql_functions
from agenttrace.compact import is_short_of_memory, release
from agenttrace.config import Settings, ToolSettings
from agenttrace.errors import ConfigError
from agenttrace.guard import warn_once
from agenttrace.prices import ModelUsage, PriceTable

SETTLE = timedelta(minutes=10)
_BATCH_SPANS = 25_000
_BATCH_BYTES = 64 << 20
_BATCHES_AHEAD = 64
# Values of a trace that does not fit into memory with them, and of all others.
_SHORT_BYTES = 1 << 20
_ANY_BYTES = 2**63 - 1
_HEADER = re.compile(r"\A/\* \+\+\+\n(.*?)\n\+\+\+ \*/\n", re.DOTALL)
_IF = re.compile(r"^-- if (.+)\n((?s:.*?))^-- end if\n", re.MULTILINE)
_HEADER_KEYS = {"name", "rank", "detects", "where", "version", "references"}


@dataclass(frozen=True)
class Convention:
    """One mapping file: how a producer's spans become the columns of `steps`.

    Attributes:
        name: File name without `.sql`.
        rank: Order of recognition, the lowest first: a more specific convention before a more general one.
        where: Condition by which a span is this producer's; SQL over the columns of `spans` and `attribute_keys`, the
            keys in double quotes as one text.
        query: One SELECT over `candidates`, the spans of that condition that no earlier convention has claimed.
        extends: Convention of which this one is a dialect, or None. A dialect reads the spans of the one it extends
            as well.
    """

    name: str
    rank: int
    where: str
    query: str
    extends: str | None = None


@dataclass
class Plan:
    """One rebuild in several calls: it ends although spans come in faster than they are rebuilt.

    Attributes:
        left: How many traces are yet to be rebuilt of as many as were dirty at the first call; None before it.
        waiting: The next traces in the order of their times, as long as nothing has come in since `as_of`.
        is_whole: Whether these are all.
    """

    left: int | None = None
    waiting: pa.Table | None = None
    as_of: list[Any] | None = None
    is_whole: bool = False


def rebuild(
    con: duckdb.DuckDBPyConnection,
    *,
    settings: Settings | None = None,
    deadline: float | None = None,
    plan: Plan | None = None,
) -> int:
    """Rebuilds the steps and trajectories of dirty traces, each batch in one transaction.

    All traces are dirty where the store was built with other settings, or by another release.

    Args:
        con: Connection that may write.
        settings: The tools' lists and the prices apply; None for defaults.
        deadline: `time.monotonic()` after which no further batch begins, and traces stay dirty; None: to the end.
        plan: What several calls share that make one rebuild: so many traces as were dirty at the first are rebuilt.
            Where another process has since begun anew with settings of its own, it is left to that one: two of them
            would mark all traces in turn and never end.

    Returns:
        Number of traces rebuilt.

    Raises:
        ConfigError: The price file is wrong, or DuckDB cannot read a pattern of `tools.error_results`.
    """
    settings = settings or Settings()
    prices = PriceTable(settings.prices.path)
    plan = plan or Plan()
    if not _compare_settings(con, settings, marks=plan.left is None):
        plan.left = 0
        return 0
    if plan.left is None:
        plan.left = count_dirty(con)
    rebuilt = 0
    if plan.left:
        _prepare(con, settings.tools)
        for part in _parts(con, plan):
            if not plan.left:
                break
            if rebuilt and deadline is not None and time.monotonic() >= deadline:
                return rebuilt
            done = _rebuild_fitting(con, prices, part)
            rebuilt, plan.left = rebuilt + done, max(0, plan.left - done)
        else:
            # Those that have no spans; each batch has unmarked its own.
            con.execute("DELETE FROM dirty_traces")
            plan.left = 0
    con.execute("UPDATE trajectories SET complete = TRUE WHERE NOT complete AND last_arrival < ?", [_settled_before()])
    return rebuilt


def count_dirty(con: duckdb.DuckDBPyConnection) -> int:
    """Counts the traces of which spans have come that are not in their steps."""
    (count,) = con.execute("SELECT count(*) FROM dirty_traces").fetchone() or (0,)
    return int(count)


def _compare_settings(con: duckdb.DuckDBPyConnection, settings: Settings, *, marks: bool) -> bool:
    """Marks all traces where the store was built by another release, or with other settings than those given.

    Without `marks`, it only says whether it was built with these.

    Defaults change nothing: a command run in a folder without a configuration must not undo what another has set.
    """
    tools = settings.tools.model_dump_json(include={"mutating", "read_only", "idempotent", "error_results"})
    prices = settings.prices.path.read_bytes() if settings.prices.path else b""
    given = hashlib.sha256(b"\0".join((tools.encode(), prices))).hexdigest()[:16]
    found = con.execute("SELECT value FROM agenttrace_meta WHERE key = 'steps_built_with'").fetchone()
    if found and not prices and settings.tools == ToolSettings():
        given = found[0].rpartition(" ")[2]
    built_with = f"{release()} {given}"
    if found == (built_with,) or not marks:
        return found == (built_with,)
    con.execute("BEGIN")
    if found is not None:
        con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans")
    con.execute("DELETE FROM agenttrace_meta WHERE key = 'steps_built_with'")
    con.execute("INSERT INTO agenttrace_meta VALUES ('steps_built_with', ?)", [built_with])
    con.execute("COMMIT")
    return True


class _Waiting(NamedTuple):
    """A dirty trace, and the start times of its first and last span."""

    trace_id: str
    earliest: int
    latest: int


def _parts(con: duckdb.DuckDBPyConnection, plan: Plan) -> Iterator[list[_Waiting]]:
    """Returns some of the dirty traces after the other: memory is bounded by them, or by one trace."""
    if plan.waiting is not None and plan.as_of == _totals(con):
        _register(con, "waiting", plan.waiting)
        con.execute("DELETE FROM waiting WHERE trace_id NOT IN (FROM dirty_traces)")
    else:
        _look_ahead(con, plan)
    yield from _planned_parts(con)
    while not plan.is_whole:
        _look_ahead(con, plan)
        yield from _planned_parts(con)


def _look_ahead(con: duckdb.DuckDBPyConnection, plan: Plan) -> None:
    """Fills `waiting` with the next batches.

    It reads two columns of all spans, which in a large store takes a third of the time of a batch. So it is done for
    many batches at once, and what one call has found the next one takes over, unless spans have come in between.
    """
    con.execute(_step_files()["waiting.sql"], {"spans": _BATCH_SPANS, "batches": _BATCHES_AHEAD})
    ahead = con.sql("FROM waiting").to_arrow_table()
    plan.waiting, plan.as_of = ahead, _totals(con)
    plan.is_whole = len(ahead) in (0, count_dirty(con))


def _totals(con: duckdb.DuckDBPyConnection) -> list[Any]:
    """Returns what changes whenever spans come in."""
    return con.execute("SELECT value FROM agenttrace_meta WHERE key = 'totals'").fetchall()


def _planned_parts(con: duckdb.DuckDBPyConnection) -> Iterator[list[_Waiting]]:
    batches = con.execute(
        "SELECT batch, min(earliest), max(latest) FROM waiting GROUP BY batch ORDER BY batch"
    ).fetchall()
    for batch, earliest, latest in batches:
        _set(con, {"batch": batch, "batch_earliest": earliest, "batch_latest": latest, "batch_bytes": _BATCH_BYTES})
        try:
            con.execute(_step_files()["parts.sql"])
        except duckdb.Error as err:
            if not is_short_of_memory(err):
                raise
            # DuckDB reads 2,048 values at once. Whoever rebuilds them finds out which are too long.
            con.execute(
                "CREATE OR REPLACE TEMP TABLE parts AS SELECT trace_id, 0 AS part FROM waiting WHERE batch = ?", [batch]
            )
        rows = con.execute(
            "SELECT part, trace_id, earliest, latest FROM parts JOIN waiting USING (trace_id) ORDER BY ALL"
        ).fetchall()
        for _, part in groupby(rows, key=itemgetter(0)):
            yield [_Waiting(*row[1:]) for row in part]


def _rebuild_fitting(con: duckdb.DuckDBPyConnection, prices: PriceTable, traces: Sequence[_Waiting]) -> int:
    """Rebuilds traces; where memory is too small, in smaller parts, then without their long values, then not at all."""
    if _try_part(con, prices, traces, _ANY_BYTES):
        return len(traces)
    if len(traces) > 1:
        half = len(traces) // 2
        return sum(_rebuild_fitting(con, prices, part) for part in (traces[:half], traces[half:]))
    trace_id = traces[0].trace_id
    went = "its spans over 1 MiB went in without attributes"
    if not _try_part(con, prices, traces, _SHORT_BYTES):
        went = "it is left out"
        for table in ("dirty_traces", "steps", "trajectories"):
            con.execute(f"DELETE FROM {table} WHERE trace_id = ?", [trace_id])  # noqa: S608
    warn_once(f"too large {trace_id}", "trace %s: does not fit into memory; %s", trace_id, went)
    # For all later commands to say; the next rebuild of the trace takes it away.
    key = f"too_large {trace_id}"
    con.execute("DELETE FROM agenttrace_meta WHERE key = ?", [key])
    con.execute("INSERT INTO agenttrace_meta VALUES (?, '1')", [key])
    return 1


def _try_part(con: duckdb.DuckDBPyConnection, prices: PriceTable, traces: Sequence[_Waiting], longest: int) -> bool:
    """Rebuilds traces, with values up to a length; False where they do not fit into memory."""
    window = {"batch_earliest": min(t.earliest for t in traces), "batch_latest": max(t.latest for t in traces)}
    _set(con, window | {"longest": longest})
    _register(con, "scope", _string_table(["trace_id"], [(t.trace_id,) for t in traces]))
    try:
        _rebuild_part(con, prices)
    except (duckdb.Error, MemoryError) as err:
        if not is_short_of_memory(err):
            raise
        return False
    return True


def _rebuild_part(con: duckdb.DuckDBPyConnection, prices: PriceTable) -> None:
    """Rebuilds the traces in `scope` in one transaction."""
    con.execute("BEGIN")
    try:
        files = _step_files()
        _run(con, files["02_scope.sql"])
        for convention in _present(con):
            _map(con, convention)
        for name in sorted(name for name in files if "03" <= name < "99"):
            if name == "08_steps.sql":
                _price(con, prices)
            _run(con, files[name])
        con.execute("COMMIT")
    except BaseException:
        # A commit that failed has ended the transaction already.
        with suppress(duckdb.Error):
            con.execute("ROLLBACK")
        raise


def _present(con: duckdb.DuckDBPyConnection) -> list[Convention]:
    """Returns the conventions of which the batch holds spans."""
    looks = ", ".join(f"bool_or(\n{convention.where}\n)" for convention in conventions())
    met = con.execute(f"SELECT {looks} FROM span_in").fetchone() or ()  # noqa: S608 - our own
    return [convention for convention, is_met in zip(conventions(), met, strict=True) if is_met]


def _map(con: duckdb.DuckDBPyConnection, convention: Convention) -> None:
    """Lets one convention read the spans that are left to it.

    A dialect of another convention says only what is different: what it leaves NULL stays as the general one read it.
    """
    others = f"(FROM mapped WHERE convention <> '{convention.extends}')" if convention.extends else "mapped"
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW candidates AS SELECT * FROM span_in ANTI JOIN {others}"  # noqa: S608 - our own
        f" USING (trace_id, span_id) WHERE ({convention.where}\n)"
    )
    if convention.extends is None:
        con.execute(f"INSERT INTO mapped BY NAME {convention.query}")
        return
    con.execute(f"CREATE OR REPLACE TEMP TABLE dialect AS {convention.query}")
    con.execute("INSERT INTO mapped BY NAME SELECT * FROM dialect ANTI JOIN mapped USING (trace_id, span_id)")
    said = [row[0] for row in con.execute("DESCRIBE dialect").fetchall() if row[0] not in ("trace_id", "span_id")]
    changes = ", ".join(f"{column} = coalesce(dialect.{column}, mapped.{column})" for column in said)
    con.execute(
        f"UPDATE mapped SET {changes} FROM dialect"  # noqa: S608 - columns of our own file
        " WHERE mapped.trace_id = dialect.trace_id AND mapped.span_id = dialect.span_id"
    )


def _price(con: duckdb.DuckDBPyConnection, prices: PriceTable) -> None:
    rows = con.execute(
        "SELECT trace_id, span_id, lower(provider), nullif(model, 'unknown'), input_tokens, output_tokens,"
        " cached_input_tokens, cache_write_tokens, utc_time(started)"
        " FROM counted WHERE cost_usd IS NULL AND counts AND model IS NOT NULL"
    ).fetchall()
    costs = [prices.cost_usd(ModelUsage(*row[2:])) for row in rows]
    table = pa.table(
        {
            "trace_id": pa.array([row[0] for row in rows], pa.string()),
            "span_id": pa.array([row[1] for row in rows], pa.string()),
            "cost_usd": pa.array(costs, pa.float64()),
        }
    )
    _register(con, "priced", table)


def _register(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    con.register("incoming", table)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming")  # noqa: S608 - a name of ours
    con.unregister("incoming")


def _prepare(con: duckdb.DuckDBPyConnection, tools: ToolSettings) -> None:
    """Sets what the SQL files read: macros, the closed lists, the user's rules."""
    con.execute("SET enable_progress_bar = false")
    # Below 64 rows that it expects, DuckDB compares each with each; estimates are wrong here.
    con.execute("SET asof_loop_join_threshold = 0")
    sql_functions.register(con)
    _run(con, _step_files()["01_macros.sql"])
    _set(con, _variables() | {"settled_before": _settled_before()})
    lists = [
        (glob, mutability)
        for mutability, globs in (
            ("mutating", tools.mutating),
            ("read_only", tools.read_only),
            ("idempotent", tools.idempotent),
        )
        for glob in globs
    ]
    _register(con, "tool_lists", _string_table(["tool", "mutability"], lists))
    for glob, rule in tools.error_results.items():
        _check_pattern(con, glob, rule)
    rules = [
        (glob, str(rule is False).lower(), rule if isinstance(rule, str) else None)
        for glob, rule in tools.error_results.items()
    ]
    _register(con, "tool_rules", _string_table(["tool", "off", "pattern"], rules))
    con.execute("ALTER TABLE tool_rules ALTER off TYPE BOOLEAN")


def _set(con: duckdb.DuckDBPyConnection, variables: Mapping[str, Any]) -> None:
    for name, value in variables.items():
        con.execute(f"SET VARIABLE {name} = $value", {"value": value})


def _check_pattern(con: duckdb.DuckDBPyConnection, glob: str, rule: bool | str) -> None:
    # Python's expressions have what RE2's lack: look-around and back-references.
    try:
        con.execute("SELECT regexp_matches('', ?)", [str(rule)]).fetchall()
    except duckdb.InvalidInputException as err:
        raise ConfigError(f"tools.error_results.{glob}: {rule!r} is no regular expression of RE2: {err}") from err


def _string_table(names: Sequence[str], rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})


def _settled_before() -> datetime:
    return datetime.now(UTC) - SETTLE


@cache
def _variables() -> dict[str, Any]:
    """Reads vocabulary.toml: `timeout_types`, `timeout_pattern`, ..., `mutating_verbs`, `verbs`, ..."""
    text = (resources.files("agenttrace") / "vocabulary.toml").read_text(encoding="utf-8")
    lists = tomllib.loads(text)
    verbs = lists.pop("verbs")
    variables = {f"{section}_{key}": value for section, entries in lists.items() for key, value in entries.items()}
    for name in ("mutating", "idempotent", "read_only"):
        variables[f"{name}_verbs"] = verbs[name]
    variables["verbs"] = verbs["mutating"] + verbs["idempotent"] + verbs["read_only"]
    return variables | {"verb_nouns": verbs["nouns"], "reading_ends": verbs["reading_ends"]}


@cache
def _step_files() -> dict[str, str]:
    folder = resources.files("agenttrace.steps")
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}


@cache
def conventions() -> tuple[Convention, ...]:
    """Reads the folder of mappings, in the order of recognition.

    Raises:
        ConfigError: A file has no header, or a header with missing or unknown keys.
    """
    folder = resources.files("agenttrace.collectors.conventions")
    files = sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".sql")
    )
    found = (_parse_convention(name, text) for name, text in files)
    return tuple(sorted(found, key=lambda c: (c.extends is not None, c.rank, c.name)))


def _parse_convention(file_name: str, text: str) -> Convention:
    found = _HEADER.match(text)
    header = tomllib.loads(found.group(1)) if found else {}
    if not found or set(header) - {"extends"} != _HEADER_KEYS or header["name"] != file_name.removesuffix(".sql"):
        raise ConfigError(
            f"{file_name}: a convention begins with a header of {', '.join(sorted(_HEADER_KEYS))}; name is the file's."
        )
    return Convention(header["name"], header["rank"], header["where"], text[found.end() :], header.get("extends"))


def _run(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Runs a file's statements, and those of a block only where its condition holds."""
    texts = iter(_IF.split(sql))
    con.execute(next(texts))
    for condition, block, text in zip(texts, texts, texts, strict=True):
        if con.execute(f"SELECT 1 WHERE {condition}").fetchone():
            con.execute(block)
        if text.strip():
            con.execute(text)
