"""Opens what an import reads: a file or standard input, unpacked, with its format told by its first bytes."""

import gzip
import io
import os
import re
import sys
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from agenttrace.collectors.outcomes_csv import is_outcomes_header
from agenttrace.errors import DecodeError

ACCEPTED = (
    "accepted are OTLP JSON or protobuf, Jaeger and Tempo JSON, chat transcripts as JSON, and outcomes as CSV, "
    "each also as gzip"
)

_HEAD_BYTES = 64 << 10
_MAGIC = {
    b"\x1f\x8b": "gzip inside gzip",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "a SQLite database",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
    b"\xfd7zXZ": "an xz file; unpack it first",
    b"BZh": "a bzip2 file; unpack it first",
}

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


class Source(NamedTuple):
    """A stream that has been unpacked, and its first bytes, which the stream still holds."""

    name: str
    head: bytes
    stream: BinaryIO
    modified_ns: int


@contextmanager
def opened(name: str) -> Generator[Source]:
    """Opens a file or standard input, unpacks gzip, and reads the beginning."""
    if name == "-":
        with _source("standard input", sys.stdin.buffer) as source:
            yield source
    else:
        with Path(name).open("rb") as file, _source(name, file) as source:
            yield source


@contextmanager
def _source(name: str, file: BinaryIO) -> Generator[Source]:
    head = file.read(_HEAD_BYTES)
    stream = cast("BinaryIO", io.BufferedReader(_Rejoined(head, file)))
    if head.startswith(b"\x1f\x8b"):
        unpacked = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
        head = unpacked.read(_HEAD_BYTES)
        stream = cast("BinaryIO", io.BufferedReader(_Rejoined(head, unpacked)))
    try:
        modified_ns = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        modified_ns = time.time_ns()
    yield Source(name, head, stream, modified_ns)


class _Rejoined(io.RawIOBase):
    """A stream whose beginning has been read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        if self._head:
            chunk, self._head = self._head[:size], self._head[size:]
        else:
            chunk = self._rest.read(size)
        buffer[: len(chunk)] = chunk
        return len(chunk)


def form_of(head: bytes) -> str:
    """Names the format of a file by its beginning.

    Raises:
        DecodeError: It is empty, or none of ours; the message says what it is.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise DecodeError(f"is empty; {ACCEPTED}")
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise DecodeError(f"is {what}; {ACCEPTED}")
    if head[8:12] == b"DUCK":
        raise DecodeError("is a DuckDB file; if it is a store, name it with --db of another command")
    # Cells may quote what a tool said, control characters and all.
    if is_outcomes_header(text.partition(b"\n")[0].decode("utf-8", "replace").strip()):
        return "outcomes"
    # A protobuf request begins with 0a, which is a line break, and the length of an id in it is a control character.
    is_binary = _CONTROL.search(head) is not None
    is_protobuf = is_binary and head[:1] == b"\n"
    if text[:1] in (b"{", b"[") and not is_protobuf:
        return "json"
    if is_protobuf:
        return "protobuf"
    if is_binary and head[4:5] == b"\n":
        return "protobuf messages"
    if is_binary:
        raise DecodeError(f"is binary data of another kind (it begins with {head[:4].hex(' ')}); {ACCEPTED}")
    raise DecodeError(
        f"is text that is neither JSON nor outcomes (task_id, trial, passed or reward, source); {ACCEPTED}"
    )


def read_error(err: OSError | EOFError | zlib.error) -> str:
    """Says in a few words why a source cannot be read."""
    match err:
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "is a folder; name the files in it"
        case gzip.BadGzipFile() | EOFError() | zlib.error():
            return f"torn or corrupt gzip ({err}); what came before has been read"
        case _:
            return f"cannot be read: {err.strerror or err}"
