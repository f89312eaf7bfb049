"""A stream of lines -> JSON documents: JSON lines, one document over many lines, or documents one after the other.

A line that is a document by itself is parsed and forgotten, so that memory is bounded by the longest line. Only where
that fails is it looked at bracket by bracket, to tell a document over many lines from a torn one.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from agenttrace.collectors.json_fields import load_json
from agenttrace.errors import DecodeError

MAX_DOCUMENT_BYTES = 512 << 20

_SKIP_BYTES = 1 << 20
_BLANK = b" \t\r\n,\xef\xbb\xbf"
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]')
# Inside another document seldom a line begins like this: what is printed over several lines indents its objects.
_RECORD_BEGINS = re.compile(rb'\s*\{\s*"resource_?(?:Spans|Logs|spans|logs)"|\{\s*"')
_OTLP_KEYS = (b'"resourceSpans"', b'"resourceLogs"')
_FIRST_KEY_BYTES = 4096
_FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')


class Document(NamedTuple):
    """One parsed document, and the line where it begins."""

    line: int
    value: Any


class BadDocument(NamedTuple):
    """What is no document: the line where it begins, and why."""

    line: int
    reason: str


def json_documents(stream: BinaryIO, leniencies: Counter[str]) -> Iterator[Document | BadDocument]:
    """Yields what a stream holds, in order; what cannot be read is reported once, and reading goes on behind it."""
    splitter = _Splitter(leniencies)
    for number, line in _lines(stream):
        if line is None:
            yield splitter.too_long(number)
        else:
            yield from splitter.take(number, line)
    yield from splitter.end()


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yields number and text of each line; None for one that is too long to be held."""
    number = 0
    while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        if len(line) <= MAX_DOCUMENT_BYTES:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_SKIP_BYTES)
        yield number, None


class _Splitter:
    """Cuts a stream of lines at the places where all brackets are closed."""

    def __init__(self, leniencies: Counter[str]) -> None:
        self._leniencies = leniencies
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._first_line = 0
        self._depth = 0
        # After a bad part, what does not begin a document belongs to it and is not reported again.
        self._in_bad = False

    def take(self, number: int, line: bytes) -> Iterator[Document | BadDocument]:
        alone = self._alone(number, line)
        if alone is not None:
            if self._begun:
                yield self._bad(self._first_line, "the document that begins here does not end")
            self._in_bad = False
            yield alone
            return
        rest = line if self._begun else line.strip(_BLANK)
        while rest:
            if not self._begun:
                self._first_line = number
                if rest[:1] not in b"{[":
                    if not self._in_bad:
                        yield self._bad(number, self._reason(rest))
                    return
            end = self._scan(rest)
            if self._depth < 0:
                yield self._bad(self._first_line, self._reason(rest))
                return
            self._begun.append(rest[:end])
            self._begun_bytes += end
            rest = rest[end:]
            if self._begun_bytes > MAX_DOCUMENT_BYTES:
                yield self.too_long(number)
            elif self._depth == 0:
                yield self._finish()
                rest = rest.strip(_BLANK)

    def too_long(self, number: int) -> BadDocument:
        """Gives up the document that this line belongs to."""
        line = self._first_line if self._begun else number
        return self._bad(line, f"longer than {MAX_DOCUMENT_BYTES >> 20} MiB")

    def end(self) -> Iterator[Document | BadDocument]:
        if not self._begun:
            return
        lines, first = self._begun, self._first_line
        yield self._bad(first, "the document that begins here does not end")
        # What follows a torn beginning may be whole.
        for number, line in enumerate(lines[1:], first + 1):
            if _RECORD_BEGINS.match(line) and (found := self._alone(number, line.strip(_BLANK))) is not None:
                yield found

    def _alone(self, number: int, line: bytes) -> Document | None:
        """Parses a line that is a document by itself."""
        if self._begun and (self._begun[0][:1] == b"[" or not _RECORD_BEGINS.match(line) or self._is_member(line)):
            return None
        try:
            return (
                Document(number, load_json(line, self._leniencies)) if line.strip(_BLANK)[:1] in (b"{", b"[") else None
            )
        except DecodeError:
            return None

    def _is_member(self, line: bytes) -> bool:
        """Says whether a line may be an object within the document that has begun: it begins with another key."""
        # A first line of a hundred megabytes is not copied for each line that follows.
        begun = b"".join(part[:_FIRST_KEY_BYTES] for part in self._begun[:2])
        first, own = (_FIRST_KEY.match(text) for text in (begun, line))
        return first is not None and own is not None and own[1] not in (first[1], *_OTLP_KEYS)

    def _scan(self, text: bytes) -> int:
        """Follows the brackets; returns where the document ends, else the end of the text. Depth -1: torn."""
        for match in _STRING_OR_BRACKET.finditer(text):
            token = match.group()
            if token == b'"':
                # A string does not go over the end of a line.
                self._depth = -1
                return len(text)
            if token in b"{[":
                self._depth += 1
            elif token in b"}]":
                self._depth -= 1
                if self._depth <= 0:
                    return match.end()
        return len(text)

    def _finish(self) -> Document | BadDocument:
        text = b"".join(self._begun)
        line = self._first_line
        try:
            value = load_json(text, self._leniencies)
        except DecodeError as err:
            return self._bad(line, str(err))
        self._reset()
        self._in_bad = False
        return Document(line, value)

    def _bad(self, line: int, reason: str) -> BadDocument:
        self._reset()
        self._in_bad = True
        return BadDocument(line, reason)

    def _reset(self) -> None:
        self._begun = []
        self._begun_bytes = 0
        self._depth = 0

    def _reason(self, text: bytes) -> str:
        try:
            load_json(text)
        except DecodeError as err:
            return str(err)
        return "not JSON: a bare value"
