"""Text on its way to a terminal, and files that are whole or absent."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agenttrace import terminal
from agenttrace.errors import UsageError


@given(st.text(st.characters(codec=None)))
def test_inert_text_holds_nothing_that_acts(text: str):
    shown = terminal.inert(text)
    assert not [character for character in shown if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\ufeff")
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 日本, 👩‍👩‍👧", "plain, größer, 日本, 👩‍👩‍👧"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[31m\x9b\x7f\x00", "\\x1b[31m\\x9b\\x7f\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_inert_writes_out_what_acts_and_keeps_the_rest(text: str, shown: str):
    assert terminal.inert(text) == shown


def test_inert_lines_keeps_line_feeds_only():
    assert terminal.inert_lines("a\r\nb\x1b") == "a\\r\nb\\x1b"


@given(st.text(max_size=40), st.integers(2, 30))
def test_cut_text_fits(text: str, width: int):
    assert cell_len(terminal.cut(text, width)) <= width


def test_cut_says_that_something_is_missing():
    assert terminal.cut("abcdef", 6) == "abcdef"
    assert terminal.cut("abcdefg", 6) == "abcde…"
    # Wide characters take two cells.
    assert terminal.cut("日本日本", 6) == "日本…"


def test_table_aligns_by_cells_without_trailing_blanks():
    text = terminal.table(("NAME", "N"), [("日本", "1"), ("abc", "20")], right=frozenset({1}))
    assert text.split("\n") == ["NAME   N", "日本   1", "abc   20"]


def test_table_pads_for_no_giant_cell():
    lines = terminal.table(("A", "B"), [("x" * 500, "1"), ("y", "2")]).split("\n")
    assert lines[1] == "x" * 500 + "  1"
    assert len(lines[2]) < 70


@pytest.mark.parametrize("fit", [40, 60, 80])
def test_fitted_table_stays_within_the_terminal(fit: int):
    rows = [("short", "long " * 30, "日" * 50), ("x" * 90, "", "z")]
    lines = terminal.table(("ONE", "TWO", "THREE"), rows, fit=fit).split("\n")
    assert len(lines) == 3
    assert all(cell_len(line) <= fit for line in lines)


def test_table_of_too_many_columns_becomes_blocks():
    header = [f"column_{i}" for i in range(20)]
    text = terminal.table(header, [["value"] * 20] * 2, fit=60)
    blocks = text.split("\n\n")
    assert len(blocks) == 2
    assert blocks[0].split("\n")[3] == "column_3   value"


def test_whole_file_appears_at_the_end_only(tmp_path: Path):
    path = tmp_path / "out.txt"
    with terminal.whole_file(path) as part:
        part.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_failure_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def write_half() -> None:
        with terminal.whole_file(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_device_is_written_in_place():
    with terminal.whole_file(Path(os.devnull)) as part:
        part.write_text("gone")
    assert not Path(os.devnull).is_file()


def test_path_that_cannot_be_written_is_named(tmp_path: Path):
    def write() -> None:
        with terminal.whole_file(tmp_path / "no" / "folder.txt") as part:
            part.write_text("x")

    with pytest.raises(UsageError, match=r"folder\.txt: cannot be written"):
        write()
