"""The relation `claims`: what the assistant's texts say was done, by run."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from agenttrace.errors import ConfigError
from agenttrace.evaluators import tables
from agenttrace.evaluators.claims_grammar import Claim, find
from agenttrace.evaluators.claims_words import ToolWords, mutability_of, tool_words

SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("position", pa.int64()),
        ("source", pa.string()),
        ("tool_name", pa.string()),
        ("candidates", pa.list_(pa.string())),
        ("mutability", pa.string()),
        ("form", pa.string()),
        ("tense", pa.string()),
        ("polarity", pa.string()),
        ("quoted", pa.bool_()),
        ("by_agent", pa.bool_()),
        ("success", pa.bool_()),
        ("text", pa.string()),
        ("words", pa.list_(pa.string())),
    ]
)

_MAX_TOOLS = 500


class Vocabulary:
    """The tools that the texts of a run may speak of.

    Those offered or called in the run; where no offer was recorded, also those of its service anywhere.
    """

    def __init__(self, rows: Iterable[Sequence[Any]], configured: Callable[[str], str | None]) -> None:
        """Reads the tools.

        Args:
            rows: Rows of trajectory_id, service_name, tools as JSON list of {name, ...}, whether they were offered.
            configured: Tool to the mutability that the configuration gives it, or None.
        """
        self._runs: dict[str, set[str]] = defaultdict(set)
        self._offered: set[str] = set()
        self._services: dict[str | None, set[str]] = defaultdict(set)
        self._service_of: dict[str, str | None] = {}
        self._configured = configured
        for trajectory_id, service, tools, offered in rows:
            names = _names(tools)
            self._runs[trajectory_id].update(names)
            self._services[service].update(names)
            self._service_of[trajectory_id] = service
            if offered:
                self._offered.add(trajectory_id)

    # Texts come run by run, and a run may have as many tools as texts.
    @lru_cache(maxsize=1)  # noqa: B019 - as below
    def of(self, trajectory_id: str) -> tuple[tuple[ToolWords, ...], bool]:
        """Returns the tools of a run, and whether any identifier that is said to be called counts as a tool."""
        names = set(self._runs.get(trajectory_id, ()))
        recorded = trajectory_id in self._offered
        if not recorded:
            names |= self._services.get(self._service_of.get(trajectory_id), set())
        return self._words(frozenset(sorted(names)[:_MAX_TOOLS])), not recorded

    @lru_cache(maxsize=1024)  # noqa: B019 - one vocabulary lives as long as one slice is judged
    def _words(self, names: frozenset[str]) -> tuple[ToolWords, ...]:
        return tuple(tool_words(name, self._configured(name) or mutability_of(name)) for name in sorted(names))


def table(texts: Iterable[Sequence[Any]], vocabulary: Vocabulary, patterns: Mapping[str, Iterable[str]]) -> pa.Table:
    """Returns the relation `claims`.

    Args:
        texts: Rows of trajectory_id, trace_id, span_id, text, source (answer or thought).
        vocabulary: The tools of each run.
        patterns: Tool to regular expressions of the user's own that claim it.

    Raises:
        ConfigError: A pattern is no regular expression.
    """
    own = _compile(patterns)
    rows: list[tuple[Any, ...]] = []
    known: dict[tuple[str, Any], list[Claim]] = {}
    for trajectory_id, trace_id, span_id, text, source in texts:
        tools, any_name = vocabulary.of(trajectory_id)
        # Templates make the same text appear in thousands of runs.
        key = (text, (tools, any_name)) if len(text) < 300 else None
        found = known.get(key) if key else None
        if found is None:
            found = find(text, tools, any_name=any_name) + _of_patterns(text, own)
            if key and len(known) < 50_000:
                known[key] = found
        mutability = {tool.name: tool.mutability for tool in tools}
        rows.extend(
            (trajectory_id, trace_id, span_id, position, source, *_row(claim, mutability))
            for position, claim in enumerate(found, start=1)
        )
    return tables.table(rows, SCHEMA)


def _row(claim: Claim, mutability: Mapping[str, str | None]) -> tuple[Any, ...]:
    name = claim.tool_name
    return (
        name,
        list(claim.candidates),
        mutability.get(name) or mutability_of(name) if name else None,
        claim.form,
        claim.tense,
        claim.polarity,
        claim.quoted,
        claim.by_agent,
        claim.success,
        claim.text,
        list(claim.words),
    )


def _compile(patterns: Mapping[str, Iterable[str]]) -> list[tuple[str, re.Pattern[str]]]:
    compiled: list[tuple[str, re.Pattern[str]]] = []
    for tool, expressions in patterns.items():
        for expression in expressions:
            try:
                compiled.append((tool, re.compile(expression, re.IGNORECASE)))
            except re.error as error:
                place = f"evaluators.tool_hallucination.claim_patterns.{tool}"
                raise ConfigError(f"{place}: {expression!r} is no regular expression: {error}") from error
    return compiled


def _of_patterns(text: str, patterns: Iterable[tuple[str, re.Pattern[str]]]) -> list[Claim]:
    return [
        Claim(tool, (tool,), "pattern", "past", "positive", False, True, True, match[0][:600])
        for tool, pattern in patterns
        if (match := pattern.search(text))
    ]


@lru_cache(maxsize=4096)
def _names(tools: str) -> frozenset[str]:
    try:
        values = json.loads(tools)
    except (ValueError, RecursionError):
        return frozenset()
    entries = cast(list[object], values) if isinstance(values, list) else []
    names = [cast(dict[str, object], entry).get("name") for entry in entries if isinstance(entry, dict)]
    return frozenset(name for name in names if isinstance(name, str) and 0 < len(name) <= 200)
