"""Redaction measured on labelled texts, fields that are secrets by their name, and the time that it takes."""

import json
import runpy
import time
from pathlib import Path
from typing import Any

import pytest

from agenttrace.encode import encode
from agenttrace.redact import HIDDEN, Redaction, is_secret_name, may_hold_secrets, redact_defaults

ROOT = Path(__file__).parents[1]

# Secrets of tests/data/redaction that may be left, by kind: those that look like any number or word. A kind that is
# not named here must be hidden in every text.
LEFT = {
    "email": 2,
    "phone": 8,
    "card": 2,
    "api_key": 6,
    "bearer": 1,
    "private_key": 1,
    "url_password": 1,
    "password": 5,
    "ssn": 2,
}


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks"))
        return runpy.run_path(str(ROOT / "benchmarks" / "redaction.py"))


def test_labelled_secrets_are_hidden_and_innocent_texts_are_not(benchmark: dict[str, Any]) -> None:
    found = benchmark["counts"]()
    left = {kind: count.total - count.hidden for kind, count in found["secrets"].items()}
    assert {kind: number for kind, number in left.items() if number > LEFT.get(kind, 0)} == {}
    # Six drawn numbers, of which five look like a French phone number.
    assert {kind: count.hidden for kind, count in found["innocent"].items() if count.hidden} == {"prose": 1}
    assert sum(count.total for count in found["secrets"].values()) > 250
    assert sum(count.total for count in found["innocent"].values()) > 330


def test_the_cheap_look_misses_no_labelled_text_and_twice_is_once(benchmark: dict[str, Any]) -> None:
    for name in ("secrets", "innocent"):
        for text in benchmark["texts"](name):
            plain = text["text"].replace("⟦", "").replace("⟧", "")
            hidden = redact_defaults(plain)
            assert hidden == plain or may_hold_secrets(plain), plain
            assert redact_defaults(hidden) == hidden


def test_the_page_on_security_has_these_figures(benchmark: dict[str, Any]) -> None:
    assert benchmark["markdown"]() in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "db_password",
        "clientSecret",
        "client_secret",
        "apiKey",
        "X-Api-Key",
        "aws_secret_access_key",
    ],
)
def test_a_field_that_is_named_a_secret_is_hidden_whatever_it_holds(name: str) -> None:
    for value in ("rosebud", 'quo"ted', "1234", "two words"):
        encoded = encode({"user": "ada", name: value, "more": [{name: value}]}, redact=Redaction())
        assert json.loads(encoded.text) == {"user": "ada", name: HIDDEN, "more": [{name: HIDDEN}]}
        assert encoded.redacted
        assert encoded.original_bytes > 0
    # Nothing was set, or it is no text.
    for value in ("", None, True, {"min": 8}):
        assert not encode({name: value}, redact=Redaction()).redacted


@pytest.mark.parametrize(
    "name", ["token", "next_page_token", "key", "monkey", "secretary", "passwords", "password_hint", "pwd"]
)
def test_other_fields_are_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert not encode({name: "rosebud"}, redact=Redaction()).redacted


EVIL = [
    *("password=" * 10_000, "secret='" * 10_000, "api_key:" * 10_000, "A_" * 50_000 + "TOKEN=x", "TOKEN=" * 20_000),
    *(
        "password='" + "a" * 10**5,
        "authorization: " * 6_000,
        "authorization:" + " " * 10**5,
        "x-api-key: " + "a." * 50_000,
    ),
    *("://" * 30_000 + "@", "://a:" * 20_000 + "@", "://" + "a" * 10**5 + ":b@", "x://a:" + "b" * 10**5 + "@"),
    *("DE89 " * 20_000, "AB12" * 25_000, "AB12 3456 " * 10_000, "1 00 " * 20_000, "(0)" * 30_000, "8 (495) " * 12_000),
    *(
        "sk-" + "a-" * 50_000,
        "sk-aaaaaaaaaaaaaaaaaaaa " * 4_000,
        "ATATT3" + "=" * 10**5,
        "1:AA" * 25_000,
        "a'" * 50_000 + "@b.co",
    ),
    *("hooks.slack.com/services/" * 4_000, "AccountKey=" * 9_000, "ya29." * 20_000, "_aaaaaaaaaaaaaaa" * 6_000),
]


@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    start = time.process_time()
    redact_defaults(text)
    # A quadratic pattern would take minutes on the longest of them.
    assert time.process_time() - start < 2
