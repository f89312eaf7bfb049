"""`agenttrace redact`: hides secrets and personal data in what a store holds already, in every byte of it."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import orjson

from agenttrace.canonical import arguments_hash, kept_apart
from agenttrace.connect import Connection
from agenttrace.errors import UsageError
from agenttrace.query import described_store
from agenttrace.redact import HIDDEN, Redaction, is_secret_name, may_hold_secrets, set_key_folder
from agenttrace.rewrite import Rewritten, Selects, rewrite
from agenttrace.semconv import ARGUMENTS_HASH, IDEMPOTENCY_KEY, TOOL_ARGUMENTS
from agenttrace.store import open_store

# Made anew from the spans.
_REBUILT = ("steps", "trajectories")
_UNTOUCHED = (*_REBUILT, "agenttrace_meta", "segments", "dirty_traces", "settled_traces")
# Ids that we have made, and words of closed lists.
_OURS = ("trace_id", "span_id", "parent_span_id", "run_id", "trajectory_id", "finding_id", "fingerprint", "config_hash")
# Whose run it is, and which, in every convention: of two that hold something to hide there must stay two.
_ID = re.compile(
    r"(?:.*[._])?(?:session|conversation|thread|user|enduser|tenant|account|task|idempotency)(?:[._]?(?:id|key))?"
)
# A text in JSON, and what makes it a key.
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?+')
_SHORT = 256
_MAX_KNOWN = 65_536


class _Hiding:
    """Hides in texts, and in the texts of what is JSON; numbers and the shape of it stay as they are."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._redaction = Redaction(patterns)
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Returns a text with what is to hide hidden."""
        if self._redaction.is_default and not may_hold_secrets(text):
            return text
        if len(text) > _SHORT:
            return self._hidden(text)
        if (known := self._known.get(text)) is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[text] = self._hidden(text)
        return known

    def id(self, text: str) -> str:
        """Returns an id, or the hash of one that has something to hide."""
        return kept_apart(text, self._redaction)

    def attributes(self, text: str) -> str:
        """Returns a span's attributes; arguments in which something is hidden keep the hash of their originals."""
        hidden = self.text(text)
        if hidden == text or TOOL_ARGUMENTS not in text or ARGUMENTS_HASH in text:
            return hidden
        hashed = self._arguments_hash(orjson.loads(text))
        return hidden if hashed is None else f'{hidden[:-1]},"{ARGUMENTS_HASH}":"{hashed}"}}'

    def _arguments_hash(self, attributes: dict[str, Any]) -> str | None:
        try:
            stated = attributes[TOOL_ARGUMENTS]
            arguments: Any = json.loads(stated) if isinstance(stated, str) else stated
        except (KeyError, ValueError, RecursionError):
            return None
        if not isinstance(arguments, dict) or (isinstance(stated, str) and self.text(stated) == stated):
            return None
        found = cast("dict[str, object]", arguments)
        key = attributes.get(IDEMPOTENCY_KEY)
        without = next((name for name, value in found.items() if key is not None and value == key), None)
        return arguments_hash(found, without=without)

    def _hidden(self, text: str) -> str:
        if text[:1] in ("{", "[", '"') and _is_json(text):
            return "".join(self._parts(text))
        return self._redaction(text)

    def _parts(self, text: str) -> Iterator[str]:
        end, key = 0, ""
        for match in _TEXT.finditer(text):
            between = text[end : match.start()]
            yield between
            if between.strip():
                key = ""
            end = match.end()
            colon = match[1] or ""
            written = match[0][: len(match[0]) - len(colon)]
            said = str(json.loads(written))
            hidden = self.text(said) if colon else self._value(key, said)
            # Another way to write the same text is no change.
            yield (written if hidden == said else json.dumps(hidden, ensure_ascii=False)) + colon
            key = said if colon else ""
        yield text[end:]

    def _value(self, key: str, text: str) -> str:
        if key and text and is_secret_name(key):
            return HIDDEN
        # What has words is content, as of a tool's argument `task` or a chat's `user`.
        is_id = key and _ID.fullmatch(key) and (key.endswith(("id", "key")) or not re.search(r"\s", text))
        return self.id(text) if is_id else self.text(text)


def _is_json(text: str) -> bool:
    # The second one takes numbers of any size, and NaN.
    for parse in (orjson.loads, json.loads):
        with suppress(ValueError, RecursionError):
            parse(text)
            return True
    return False


def count(db: Path, patterns: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Says in how many rows of each table something would be hidden, and how many there are; nothing is changed.

    Args:
        db: The store, with all that has arrived.
        patterns: Regular expressions of what to hide besides the defaults.

    Raises:
        UsageError: A pattern is no regular expression.
        StoreError: The store cannot be read.
    """
    hiding = _hiding(patterns)
    set_key_folder(db.parent)
    with open_store(db) as con:
        _teach(con, hiding)
        return {table: _changed(con, table, calls) for table, calls in _calls().items()}


def redact(db: Path, patterns: Iterable[str]) -> Rewritten:
    """Hides it, and writes the store anew; the next refresh makes the steps of all runs anew.

    Raises:
        UsageError: A pattern is no regular expression.
        StoreError: Somebody has the store, the disk is full, or the store cannot be written; it is as it was.
    """
    hiding = _hiding(patterns)
    set_key_folder(db.parent)

    def select(con: Connection) -> Selects:
        _teach(con, hiding)
        queries: dict[str, str] = {}
        for table, calls in _calls().items():
            changes = ", ".join(f"{call} AS {column}" for column, call in calls.items())
            queries[table] = f"SELECT * REPLACE ({changes}) FROM store.{table}"  # noqa: S608 - names of ours
        traces = "SELECT trace_id FROM store.spans UNION SELECT trace_id FROM store.log_records"
        return queries | {"dirty_traces": traces} | {table: f"FROM store.{table} WHERE FALSE" for table in _REBUILT}

    return rewrite(db, select)


def _hiding(patterns: Iterable[str]) -> _Hiding:
    checked = list(patterns)
    for pattern in checked:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"redact: --pattern {pattern!r} is no regular expression: {error}") from error
    return _Hiding(checked)


def _teach(con: Connection, hiding: _Hiding) -> None:
    for name, function in (("hidden", hiding.text), ("hidden_id", hiding.id), ("hidden_attributes", hiding.attributes)):
        con.create_function(name, function, ["VARCHAR"], "VARCHAR")  # pyright: ignore[reportArgumentType]


def _calls() -> dict[str, dict[str, str]]:
    """Returns by table and column what hides in it."""
    found: dict[str, dict[str, str]] = {}
    # Tables of other programs in the file stay as they are, so the columns are those of our own schema.
    with described_store(None) as ours:
        columns = ours.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns()"
            " SEMI JOIN duckdb_tables() USING (table_oid)"
            " WHERE data_type IN ('VARCHAR', 'JSON') ORDER BY table_oid, column_index"
        ).fetchall()
    for table, column, kind in columns:
        if table not in _UNTOUCHED and column not in _OURS:
            is_span = (table, column) == ("spans", "attributes")
            call = "hidden_attributes" if is_span else "hidden_id" if _ID.fullmatch(column) else "hidden"
            found.setdefault(table, {})[column] = f"{call}({column}::VARCHAR)::{kind}"
    return found


def _changed(con: Connection, table: str, calls: dict[str, str]) -> tuple[int, int]:
    changed = " OR ".join(f"{name}::VARCHAR IS DISTINCT FROM {call}::VARCHAR" for name, call in calls.items())
    return con.execute(f"SELECT count(*) FILTER ({changed}), count(*) FROM {table}").fetchall()[0]  # noqa: S608 - names of ours
