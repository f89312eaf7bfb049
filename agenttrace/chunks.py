"""Collects what a generator yields: text chunks joined, others a list, within the size limit of one result."""

import time
from typing import Final

import orjson

from agenttrace.encode import LIMIT_BYTES, Encoded, encode
from agenttrace.guard import report
from agenttrace.redact import Redactor

_MAX_ITEMS: Final = 5000


class Chunks:
    """What was yielded so far; a consumer may change or drop a chunk afterwards, so none is kept as an object."""

    def __init__(self, redact: Redactor | None) -> None:
        self.count = 0
        self.time_to_first_s: float | None = None
        self._started = time.monotonic()
        self._redact = redact
        self._texts: list[str] = []
        self._items: list[str] = []
        self._all_text = True
        self._size = 0
        self._left_out = 0
        self._redacted = False

    def add(self, chunk: object) -> None:
        """Takes one chunk; beyond the limit it is only counted."""
        try:
            if not self.count:
                self.time_to_first_s = time.monotonic() - self._started
            self.count += 1
            if self._all_text and type(chunk) is str:
                # A little more than the limit, so that the encoder sees that something must be cut.
                if self._size <= LIMIT_BYTES:
                    self._texts.append(chunk[: LIMIT_BYTES + 1])
                self._size += len(chunk)
            else:
                self._add_other(chunk)
        except BaseException as error:
            report("record a chunk", error)

    def _add_other(self, chunk: object) -> None:
        if self._all_text:
            self._all_text, self._size = False, 0
            for text in self._texts:
                self._add_item(text)
        self._add_item(chunk)

    def _add_item(self, chunk: object) -> None:
        room = LIMIT_BYTES - self._size
        encoded = encode(chunk, limit_bytes=max(room, 0), redact=self._redact) if not self._left_out else None
        if encoded is None or len(encoded.text) > room or len(self._items) >= _MAX_ITEMS:
            self._left_out += 1
            return
        self._redacted |= encoded.redacted
        self._size += len(encoded.text) + 1
        self._items.append(encoded.text)

    @property
    def text(self) -> str | None:
        """The chunks joined where all are text, else None."""
        return "".join(self._texts) if self._all_text else None

    def encoded(self) -> Encoded:
        """Returns the observation as JSON."""
        if self._all_text:
            encoded = encode("".join(self._texts), redact=self._redact)
            size = self._size + 2
            return encoded if encoded.original_bytes >= size else encoded._replace(original_bytes=size)
        items = list(self._items)
        if self._left_out:
            items.append(orjson.dumps(f"[+{self._left_out} items]").decode())
        text = f"[{','.join(items)}]"
        return Encoded(text, len(text), cut=self._left_out > 0, redacted=self._redacted)
