"""Takes away each condition of each evaluator's SQL, one at a time: a golden case must fail.

    python tests/mutants.py [EVALUATOR ...]

DuckDB parses the query to JSON and turns the changed JSON back to SQL. A condition is an operand of AND or OR, a whole
WHERE, HAVING, QUALIFY, FILTER or join condition, a branch of CASE, a SEMI or ANTI JOIN, the predicate of list_filter.
A change that DuckDB refuses to bind is none. One that does not end on the few rows of a case within PATIENCE_SECONDS,
as a join without its condition may, fails that case: it would be noticed. A condition that can have no golden case,
because it only saves time, stands in the golden file with the reason; one that is listed there and has a golden case,
or is gone, is a fault too:

    [[equivalent]]
    condition = "calls: (s.kind = 'tool')"
    why       = "Only tool steps have the columns that are asked for below; it saves a scan."

Exit code 1 where a condition is held by nothing, or listed wrongly.
"""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import chain
from multiprocessing import get_context
from threading import Timer
from typing import Any

import duckdb
import test_evaluators as evaluators

WORKERS = 2
PATIENCE_SECONDS = 3
"""An evaluator answers in a tenth of a second."""
TOGETHER = 24
"""Cases in one store: more are fewer queries, but what should be a join may become the product of all rows."""
TRUE = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": {"kind": "BOOLEAN", "text": "true"}}

Change = tuple[str, Any, Any, Any, Any]
"""Words before the condition, the condition, and what to put where: holder, key, new value."""


class Parser:
    """SQL to JSON and back, by DuckDB itself."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.of_expression = self.parsed("SELECT 1")
        self.of_table = self.parsed("SELECT * FROM rows")

    def parsed(self, query: str) -> Any:
        tree = json.loads(self._one("SELECT json_serialize_sql(?)", query))
        assert not tree["error"], tree
        return tree

    def text(self, tree: Any) -> str:
        return self._one("SELECT json_deserialize_sql(?)", json.dumps(tree))

    def condition(self, node: Any) -> str:
        return " ".join((self.join(node) if node["type"] == "JOIN" else self.expression(node)).split())

    def expression(self, node: Any) -> str:
        self.of_expression["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
        return self.text(self.of_expression).removeprefix("SELECT ")

    def join(self, node: Any) -> str:
        """The join without its left side."""
        rows = self.of_table["statements"][0]["node"]["from_table"]
        tree = json.loads(json.dumps(self.of_table))
        tree["statements"][0]["node"]["from_table"] = {**node, "left": rows}
        return self.text(tree).removeprefix("SELECT * FROM (rows ").removesuffix(")")

    def _one(self, query: str, value: str) -> str:
        row = self.con.execute(query, [value]).fetchone()
        assert row is not None
        return str(row[0])


def changes(holder: Any, key: Any, part: str = "result") -> Iterator[Change]:
    """All changes at and below holder[key]; `part` is the CTE."""
    node = holder[key]
    if isinstance(node, list):
        for index in range(len(node)):
            yield from changes(node, index, part)
    elif isinstance(node, dict):
        for words, *change in own_changes(holder, key):
            yield f"{part}: {words}", *change
        for name in node:
            if name == "cte_map":
                for entry in node[name]["map"]:
                    yield from changes(entry, "value", entry["key"])
            else:
                yield from changes(node, name, part)


def own_changes(holder: Any, key: Any) -> Iterator[Change]:
    node = holder[key]
    kind = node.get("class") or node.get("type")
    if kind == "CONJUNCTION":
        for index, operand in enumerate(node["children"]):
            rest = without(node["children"], index)
            left = {**node, "children": rest} if len(rest) > 1 else {**rest[0], "alias": node["alias"]}
            yield "", operand, holder, key, left
    elif kind == "CASE":
        branches = node["case_checks"]
        for index, branch in enumerate(branches):
            rest = without(branches, index)
            left = {**node, "case_checks": rest} if rest else {**node["else_expr"], "alias": node["alias"]}
            yield "WHEN ", branch["when_expr"], holder, key, left
        if len(branches) == 1:
            yield (
                "ELSE of ",
                branches[0]["when_expr"],
                holder,
                key,
                {**branches[0]["then_expr"], "alias": node["alias"]},
            )
    elif kind == "FUNCTION" and node["function_name"] == "list_filter":
        values, predicate = (argument["expression"] for argument in node["arguments"])
        yield "", predicate, holder, key, {**values, "alias": node["alias"]}
    elif kind == "JOIN" and node["join_type"] in ("SEMI", "ANTI"):
        yield "", node, holder, key, node["left"]
    elif kind == "JOIN" and is_single(node["condition"]):
        yield "", node["condition"], node, "condition", TRUE
    for clause in ("where_clause", "having", "qualify", "filter", "filter_expr"):
        if is_single(node.get(clause)):
            yield "", node[clause], node, clause, None


def without(items: list[Any], index: int) -> list[Any]:
    return items[:index] + items[index + 1 :]


def is_single(condition: Any) -> bool:
    """Whether there is a condition that is no AND: the operands of an AND are taken away one by one."""
    return condition is not None and condition["type"] != "CONJUNCTION_AND"


def mutants(parser: Parser, name: str) -> Iterator[tuple[int, str, str]]:
    """Line in the evaluator's file, condition, and the query without it."""
    evaluator = evaluators.CATALOGUE[name]
    text = evaluator.path.read_text(encoding="utf-8")
    start = len(text) - len(evaluator.query)
    tree = parser.parsed(evaluator.query)
    for words, condition, holder, key, value in changes(tree, "statements"):
        before, holder[key] = holder[key], value
        query = parser.text(tree)
        holder[key] = before
        line = text.count("\n", 0, start + condition["query_location"]) + 1
        yield line, words + parser.condition(condition), query


class Cases:
    """The golden cases of one evaluator, each in a schema of its own; those with equal parameters also in one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.con = duckdb.connect(config={"threads": 1})
        self.con.execute("SET enable_progress_bar = false")
        evaluators.create_store(self.con)
        file = evaluators.golden(name)
        self.cases = {case["name"]: case for case in file["case"]}
        groups: dict[str, list[Any]] = {}
        for case in file["case"]:
            self._store(case["name"], evaluators.completed(case, file.get("defaults", {})))
            groups.setdefault(json.dumps(case.get("params", {}), sort_keys=True), []).append(case)
        parts = [
            group[first : first + TOGETHER] for group in groups.values() for first in range(0, len(group), TOGETHER)
        ]
        self.groups = {f"group {index}": part for index, part in enumerate(parts)}
        for schema, cases in self.groups.items():
            self._store(schema, evaluators.together({**file, "case": cases}))
        # In one store, messages that show an id differ, and percentiles are of all: such cases are asked alone.
        self.alone = set(self._suspects(None))

    def _store(self, schema: str, rows: Any) -> None:
        self.con.execute(f'CREATE SCHEMA "{schema}"; USE memory."{schema}"')
        evaluators.create_relations(self.con)
        evaluators.fill(self.con, rows)

    def failing(self, query: str) -> str | None:
        """The first case that fails with this query.

        Raises:
            duckdb.BinderException: DuckDB refuses the query.
        """
        suspects = chain(self._suspects(query), self.alone)
        return next((case for case in suspects if self._fails(case, query)), None)

    def _suspects(self, query: str | None) -> Iterator[str]:
        """Cases that fail among the others of their parameters: one query tells of many."""
        for schema, cases in list(self.groups.items()):
            try:
                rows = self._answer(schema, cases[0], query)
            except duckdb.BinderException:
                raise
            except duckdb.Error:
                yield from (case["name"] for case in cases)
                continue
            for case in cases:
                begin = case["name"] + "/"
                own = [row for row in rows if str(row.get("trajectory_id")).startswith(begin)]
                if not holds([{key: bare(value, begin) for key, value in row.items()} for row in own], case):
                    # Cases that hold one condition mostly hold the next one too.
                    self.groups = {schema: cases, **self.groups}
                    yield case["name"]

    def _fails(self, case: str, query: str) -> bool:
        try:
            return not holds(self._answer(case, self.cases[case], query), self.cases[case])
        except duckdb.BinderException:
            raise
        except duckdb.Error:
            return True

    def _answer(self, schema: str, case: Any, query: str | None) -> list[dict[str, Any]]:
        """The rows of a query.

        Raises:
            duckdb.InterruptException: It took longer than PATIENCE_SECONDS.
        """
        self.con.execute(f'USE memory."{schema}"')
        alarm = Timer(PATIENCE_SECONDS, self.con.interrupt)
        alarm.start()
        try:
            return evaluators.answer(self.con, self.name, case.get("params", {}), query)
        finally:
            alarm.cancel()


def bare(value: Any, begin: str) -> Any:
    return value.removeprefix(begin) if isinstance(value, str) else value


def holds(rows: list[dict[str, Any]], case: Any) -> bool:
    try:
        evaluators.check(rows, case["expect"])
    except (AssertionError, TypeError, ValueError):
        return False
    return True


@cache
def cases_of(name: str) -> Cases:
    return Cases(name)


def failing(name: str, query: str) -> str | None:
    """The case that fails, None where all hold, "" where the query is none."""
    try:
        return cases_of(name).failing(query)
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return ""


def examine(pool: ProcessPoolExecutor, parser: Parser, name: str) -> bool:
    """Prints what is wrong with one evaluator; whether nothing is."""
    begun = time.monotonic()
    broken = pool.submit(failing, name, parser.text(parser.parsed(evaluators.CATALOGUE[name].query))).result()
    if broken is not None:
        print(f"{name}: golden case {broken!r} fails before anything is taken away", flush=True)
        return False
    tried = [(line, condition, pool.submit(failing, name, query)) for line, condition, query in mutants(parser, name)]
    results = [(line, condition, future.result()) for line, condition, future in tried]
    declared = {row["condition"] for row in evaluators.golden(name).get("equivalent", [])}
    survivors = [(line, condition) for line, condition, case in results if case is None]
    surviving = {condition for _, condition in survivors}
    killed = sum(bool(case) for *_, case in results)
    print(
        f"{name}: {killed + len(survivors)} conditions, {killed} held by a golden case, "
        f"{len(declared & surviving)} declared, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    faults = [f"line {line}: no golden case holds {words}" for line, words in survivors if words not in declared]
    faults += [f"declared, but held by a golden case or gone: {words}" for words in sorted(declared - surviving)]
    for fault in faults:
        print(f"  {fault}", flush=True)
    return not faults


def main(names: list[str]) -> int:
    parser = Parser()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        faultless = [examine(pool, parser, name) for name in names or evaluators.CATALOGUE]
    return 0 if all(faultless) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
