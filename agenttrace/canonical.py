"""The keyed hash that stands in for arguments which were hidden or cut, so that different ones stay different."""

import hashlib
import hmac
import unicodedata
from collections.abc import Mapping
from itertools import islice
from typing import Final, cast

import orjson

from agenttrace.encode import clean_text
from agenttrace.redact import Redactor, hash_key
from agenttrace.values import MAX_BYTES, Items, Label, Opened, Pairs, open_value

_MAX_PARTS: Final = 50_000
_MAX_DEPTH: Final = 60
# Characters of a text up to which composition and outer white space are made equal.
_LONG: Final = 1 << 20


class _TooLargeError(Exception):
    """More than a hash may take the time for."""


def arguments_hash(arguments: Mapping[str, object], *, without: str | None = None) -> str | None:
    """Hashes the canonical form of a call's arguments with the key of the store.

    Key order, 1 and 1.0, Unicode composition and outer white space make no difference.

    Args:
        arguments: The arguments as the tool received them.
        without: Argument that makes no difference: the idempotency key.

    Returns:
        64 hexadecimal digits; None for a value of more than 50,000 parts, or one that contains itself.
    """
    try:
        form = _Canonical().text({name: value for name, value in arguments.items() if name != without}, _MAX_DEPTH)
    except _TooLargeError:
        return None
    return keyed_hash(form)


def keyed_hash(text: str) -> str:
    """Returns the HMAC-SHA256 of a text in hexadecimal digits."""
    return hmac.digest(hash_key(), text.encode("utf-8", "surrogatepass"), "sha256").hex()


def kept_apart(value: object, redact: Redactor | None) -> str:
    """Returns an id or key as text; one with something to hide as its hash, for two of them must stay two."""
    text = clean_text(value)
    return text if redact is None or redact(text) == text else keyed_hash(text)


class _Canonical:
    def __init__(self) -> None:
        self._parts = 0

    def text(self, value: object, depth: int) -> str:
        self._parts += 1
        if self._parts > _MAX_PARTS or not depth:
            raise _TooLargeError
        opened = open_value(value)
        if type(opened) is str and len(opened) >= MAX_BYTES and issubclass(type(value), (bytes, bytearray, memoryview)):
            # Opened, it shows its beginning alone, and two of one size may differ behind it.
            return _digest(memoryview(cast("bytes", value)))
        if isinstance(opened, (Pairs, Items)) and self._parts + opened.length > _MAX_PARTS:
            raise _TooLargeError
        if isinstance(opened, Pairs):
            pairs = [(self.text(key, 3), self.text(part, depth - 1)) for key, part in islice(opened.pairs, _MAX_PARTS)]
            return "{" + ",".join(f"{key}:{part}" for key, part in sorted(pairs)) + "}"
        if isinstance(opened, Items):
            parts = [self.text(part, depth - 1) for part in islice(opened.items, _MAX_PARTS)]
            return "[" + ",".join(sorted(parts) if opened.is_set else parts) + "]"
        return _scalar(opened)


def _digest(data: memoryview) -> str:
    """Stands for what is too long to be compared but byte by byte."""
    return hashlib.sha256(data if data.contiguous else data.tobytes()).hexdigest()


def _scalar(value: Opened) -> str:
    if isinstance(value, str) and len(value) > _LONG:
        return _digest(memoryview(value.encode("utf-8", "surrogatepass")))
    if isinstance(value, str):
        text = str.__str__(value) if isinstance(value, Label) else unicodedata.normalize("NFC", value.strip())
        try:
            return orjson.dumps(text).decode()
        except TypeError:  # a lone surrogate
            return repr(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)
    return repr(value)
