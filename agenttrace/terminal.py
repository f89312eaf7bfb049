"""Results on their way out: made inert, aligned, written to a reader that may have left, or to a file that is whole."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from agenttrace import private
from agenttrace.errors import UsageError

# Escape codes, other control characters, line separators, marks that reorder or hide text, invisible tag characters,
# lone surrogates: a trace may hold any of them, and none may reach a terminal, where they move the cursor, forge
# lines, or set the clipboard. ZWJ and variation selectors stay: emoji need them.
_HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# A cell longer than this is not padded for, so that one long JSON text does not push every other row apart.
_PAD_LIMIT = 60
_NARROWEST = 6
_GAP = "  "
_INDENT = 4

_STYLES = {
    r"^ *(error|fail|FAILED)\b": "bold red",
    r"^ *(warning|warn)\b": "bold yellow",
    r"^ *(note)\b": "bold cyan",
    r"^ *(ok|PASSED)\b": "bold green",
    r"^ *(NOT EVALUABLE)\b": "bold magenta",
}


def inert(text: str) -> str:
    r"""Returns the text with every control or invisible character written out, as \n, \x1b or \u202e."""
    return _HOSTILE.sub(_written_out, text)


def inert_lines(text: str) -> str:
    """As `inert`, but line feeds stay."""
    return "\n".join(inert(line) for line in text.split("\n"))


def _written_out(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, width: int) -> str:
    """Returns one inert line of at most `width` terminal cells; an ellipsis says that something is missing."""
    # Whatever does not fit by count of characters cannot fit by cells: a megabyte is not escaped for ten cells.
    line = inert(text[: width + 1])
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)).rstrip() + "…"


def wrapped(line: str, width: int) -> Iterator[str]:
    """Yields an inert line as lines of at most `width` terminal cells; those after the first are indented."""
    if cell_len(line) <= width:
        yield line
        return
    indent = " " * _INDENT
    for number, part in enumerate(Text(line).wrap(_console(), max(width - _INDENT, 1))):
        yield (indent if number else "") + part.plain.rstrip()


def width() -> int | None:
    """Columns of the terminal; None where standard output is none, and nothing needs to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def out(text: str, *, styled: bool = False) -> bool:
    """Writes to standard output, which is for results.

    Args:
        text: What to write; a line feed is added.
        styled: Whether leading words such as `error` get a colour, on a terminal that wants colours.

    Returns:
        False once the reader has closed the pipe (`| head`), so that a long listing can stop.
    """
    try:
        if styled and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            _console().print(_coloured(text), soft_wrap=True)
        else:
            sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return False
    return True


def note(text: str) -> None:
    """Writes to standard error, which is for progress, hints and errors."""
    try:
        sys.stderr.write(inert_lines(text) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _silence(sys.stderr)


def check_target(path: Path) -> None:
    """Refuses a file to write that cannot be made, or that is a database: a report over a store would be its end.

    Raises:
        UsageError: It is one of these.
    """
    head = b""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(12)
    if head[8:] == b"DUCK":
        raise UsageError(f"{path}: is a DuckDB database. Name another file to write to.")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}.")


@contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """Gives a path to write to; the file appears under its own name when the block ends well, and not at all otherwise.

    Raises:
        UsageError: The file cannot be written.
    """
    check_target(path)
    # A device or pipe (/dev/stdout) must be written in place: a rename would put a file over it.
    in_place = path.exists() and not path.is_file()
    if in_place and private.is_planted(path):
        raise UsageError(f"{path}: another user has put it there, to read what is written. Name another file.")
    part = path if in_place else path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        if not in_place:
            os.close(private.create(part))
            private.follow(part, path)
        yield part
        if not in_place:
            part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if not in_place:
            part.unlink(missing_ok=True)


@contextmanager
def progress(doing: str) -> Generator[Callable[[str], None]]:
    """Gives a function that shows how far a long task is, on standard error and only if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status(Text(doing)) as status:
        yield lambda text: status.update(Text(f"{doing} {inert(text)}"))


def _console() -> Console:
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def _coloured(text: str) -> Text:
    coloured = Text(text)
    for pattern, style in _STYLES.items():
        coloured.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    return coloured


def _silence(stream: TextIO) -> None:
    # The interpreter flushes at exit, and would complain about the closed pipe once more.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, fit: int | None = None, right: frozenset[int] = frozenset()
) -> str:
    """Returns aligned columns.

    Args:
        header: Name of each column.
        rows: Cells as text, already in the form to show; made inert here.
        fit: Width to fit into, by cutting the widest columns; where even narrow columns do not fit, each row becomes
            a block of `name  value` lines. None cuts nothing.
        right: Columns to align right.
    """
    cells = [[inert(cell) for cell in row] for row in (header, *rows)]
    widths = [max(min(cell_len(row[i]), _PAD_LIMIT) for row in cells) for i in range(len(header))]
    if fit is not None:
        room = fit - len(_GAP) * (len(header) - 1)
        if sum(min(w, _NARROWEST) for w in widths) > room:
            return _blocks(cells, fit)
        widths = _narrowed(widths, room)
    return "\n".join(_line(row, widths, right, cutting=fit is not None) for row in cells)


def _narrowed(widths: list[int], room: int) -> list[int]:
    while sum(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int], *, cutting: bool) -> str:
    parts: list[str] = []
    for index, (cell, size) in enumerate(zip(row, widths, strict=True)):
        text = cut(cell, size) if cutting else cell
        padding = " " * max(size - cell_len(text), 0)
        parts.append(padding + text if index in right else text + padding)
    return _GAP.join(parts).rstrip()


def _blocks(cells: list[list[str]], fit: int) -> str:
    header, *rows = cells
    name_width = min(max(cell_len(name) for name in header), fit // 3)
    blocks = [
        "\n".join(
            _line((name, cell), (name_width, fit - name_width - 2), frozenset(), cutting=True) for name, cell in pairs
        )
        for pairs in (zip(header, row, strict=True) for row in rows)
    ]
    return "\n\n".join(blocks)
