"""What is hidden, what is left alone, and the key of the hashes."""

import os
import re
import stat
import threading
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from agenttrace.guard import guard
from agenttrace.redact import (
    HIDDEN,
    Redaction,
    configure_redaction,
    current_redaction,
    hash_key,
    may_hold_secrets,
    redact_defaults,
    set_key_folder,
)

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"

# The numbers are the networks' own test numbers.
SECRETS = [
    ("mail bob@example.com.", f"mail {HIDDEN}."),
    ("Bob <a.b+c@mail.example.co.uk>, hi", f"Bob <{HIDDEN}>, hi"),
    ("müller@bücher.example", HIDDEN),
    ("https://bob:pw@example.com/x", f"https://bob:{HIDDEN}@example.com/x"),
    ("call +1 415 555 2671 now", f"call {HIDDEN} now"),
    ("tel:+14155552671", f"tel:{HIDDEN}"),
    ("(415) 555-2671", HIDDEN),
    ("415-555-2671 or 415.555.2671", f"{HIDDEN} or {HIDDEN}"),
    ("+49 30 1234567", HIDDEN),
    ("+44 (0)20 7946 0958", HIDDEN),
    ("001 415 555 2671", HIDDEN),
    ("020 7946 0958", HIDDEN),
    ("0151-12345678", HIDDEN),
    ("06 12 34 56 78", HIDDEN),
    ("card 4111 1111 1111 1111 ok", f"card {HIDDEN} ok"),
    ("4111111111111111", HIDDEN),
    ("5555-5555-5555-4444", HIDDEN),
    ("3782 822463 10005", HIDDEN),
    ("6011111111111117", HIDDEN),
    ("Authorization: Bearer abc123def456", f"Authorization: Bearer {HIDDEN}"),
    ("bearer abcdefghijklmnopqrstuvwxyz", f"bearer {HIDDEN}"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", f"jwt {HIDDEN}"),
    ("key sk-proj-abcdefghijklmnop1234", f"key {HIDDEN}"),
    ("sk_live_abcdefghij1234", HIDDEN),
    ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", HIDDEN),
    ("xoxb-123456789012-abcdef", HIDDEN),
    ("AIza" + "a" * 35, HIDDEN),
    ("hf_" + "a" * 30, HIDDEN),
    (f"a {KEY} b", f"a {HIDDEN} b"),
    ("-----BEGIN PRIVATE KEY-----\nMII", HIDDEN),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----", HIDDEN),
]

INNOCENT = [
    "550e8400-e29b-41d4-a716-446655440000",
    "id 12345678-1234-1234-1234-123456789012",
    "2026-01-15",
    "2026-01-15 10:30:00",
    "2026-01-15T10:30:00.123456+00:00",
    "05-01-2026, 05/01/2026 12:30",
    "ORD-123456 and PO-4111111111111111",
    "12345678901",
    "4155552671",
    "0010000000000",
    "4111111111111112",
    "1700000000000",
    "1700000000000000000",
    "d41d8cd98f00b204e9800998ecf8427e",
    "lodash@4.17.21",
    "a@b",
    "192.168.100.100 10.0.0.1:8080",
    "123-4567890-1234567",
    "978-3-16-148410-0",
    "v0.12.345.6789",
    "3.14159265358979",
    "1 2 3 4 5 6 7 8 9 10",
    "task-17-abcdefghijklmnopqrstuvw",
    "risk-free-abcdefghijklmnopqrst",
    "bearer of bad news",
    "bearer certificates",
    "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
    "thorough enough",
]

EVIL = [
    *("a" * 10**5, "a@" * 50_000, "a." * 50_000 + "@", "@" * 10**5, "x@" + "a." * 50_000, "x@" + "a-" * 50_000),
    *("1 " * 50_000, "1" * 10**5, "(1" * 50_000, "0-11-" * 20_000, "4111 " * 20_000, "00 " * 40_000, "+" * 10**5),
    *("+1-" * 30_000, "123-" * 25_000, "(123) " * 16_000, "+1 (1" * 16_000, "0 " * 50_000, "12345678901234 " * 7000),
    *("-----BEGIN " * 10_000, "-----BEGIN PRIVATE KEY-----" * 4000, "-----BEGIN " + "A" * 10**5),
    *("bearer " * 15_000, "bearer " + "a" * 10**5, "Bearer " + " " * 10**5, "bearer" + "a" * 10**5),
    *("eyJ" * 30_000, "eyJ" + "a." * 50_000, "eyJaaaaaaaaaa." * 8000, "sk-" * 30_000, "SG." * 30_000, "gh" * 50_000),
]


@pytest.mark.parametrize(("text", "expected"), SECRETS)
def test_secrets_are_hidden(text: str, expected: str) -> None:
    assert redact_defaults(text) == expected
    assert may_hold_secrets(text)


@pytest.mark.parametrize("text", INNOCENT)
def test_identifiers_and_numbers_are_left_alone(text: str) -> None:
    assert redact_defaults(text) == text


@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    start = time.process_time()
    redact_defaults(text)
    # A quadratic pattern would take minutes on the longest of them.
    assert time.process_time() - start < 2


@hypothesis.given(
    strategies.lists(
        strategies.sampled_from([*(text for text, _ in SECRETS), *INNOCENT, "@", "sk-", "\n", "é", "Bearer ", "+49 "])
        | strategies.text(max_size=5),
        max_size=6,
    ).map(" ".join)
)
def test_the_cheap_look_never_misses_and_twice_is_once(text: str) -> None:
    hidden = redact_defaults(text)
    assert hidden == text or may_hold_secrets(text)
    assert redact_defaults(hidden) == hidden


def test_a_users_patterns_and_function_come_after_the_defaults() -> None:
    redaction = Redaction([r"ORD-\d+", re.compile("(?i)secret")], lambda text: text.replace("rice", "***"))
    assert redaction("ORD-17: bob@example.com wants SECRET rice") == f"{HIDDEN}: {HIDDEN} wants {HIDDEN} ***"


@pytest.mark.parametrize("answer", [RuntimeError, GeneratorExit, None, 3, b"x"])
def test_a_failing_redactor_hides_that_value(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> str:
        if isinstance(answer, type) and issubclass(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    monkeypatch.setattr(guard, "strict", False)
    assert Redaction(function=fail)("anything") == HIDDEN


def test_a_redactors_answer_is_made_fit_to_be_stored() -> None:
    assert Redaction(function=lambda _text: "a\ud800")("anything") == "a\\ud800"


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_redaction() is not None
    monkeypatch.setenv("AGENTTRACE_REDACT", "off")
    assert current_redaction() is None
    monkeypatch.setenv("AGENTTRACE_REDACT", "on")
    configure_redaction(["rice"])
    try:
        redaction = current_redaction()
        assert redaction is not None
        assert redaction("rice for bob@example.com") == f"{HIDDEN} for {HIDDEN}"
    finally:
        configure_redaction()


# --- the key


@pytest.fixture
def key_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AGENTTRACE_HASH_KEY", raising=False)
    monkeypatch.setattr("agenttrace.redact._State.key_folder", None)
    monkeypatch.setattr("agenttrace.redact._State.key", None)
    return tmp_path


def test_without_a_store_the_key_is_the_processs_own(key_folder: Path) -> None:
    assert hash_key() == hash_key()
    assert len(hash_key()) == 32
    assert not list(key_folder.iterdir())


def test_the_environment_goes_first(key_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_key_folder(key_folder)
    monkeypatch.setenv("AGENTTRACE_HASH_KEY", "mine")
    assert hash_key() == b"mine"
    assert not list(key_folder.iterdir())


def test_the_key_beside_the_store_is_made_once_and_private(key_folder: Path) -> None:
    set_key_folder(key_folder)
    first = hash_key()
    (file,) = key_folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    set_key_folder(key_folder)
    assert hash_key() == first == file.read_bytes()


def test_many_at_once_agree_on_one_key(key_folder: Path) -> None:
    keys: set[bytes] = set()
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        set_key_folder(key_folder)
        keys.add(hash_key())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 1
    assert [path.name for path in key_folder.iterdir()] == ["agenttrace.key"]


def test_a_folder_that_cannot_be_written_leaves_a_key_of_the_process(
    key_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "strict", False)
    blocked = key_folder / "file"
    blocked.touch()
    set_key_folder(blocked)
    assert len(hash_key()) == 32
    assert hash_key() == hash_key()
    assert os.listdir(key_folder) == ["file"]
