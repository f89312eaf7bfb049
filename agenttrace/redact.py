"""Hides secrets and personal data in texts, and keeps the key of the hashes that stand in for what was hidden.

Every regular expression here takes linear time: quantifiers are possessive or bounded, and a look-behind admits one
start per run of characters. None runs before a cheap search has found a character that it needs.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, cast

from agenttrace import private
from agenttrace.guard import report

HIDDEN: Final = "[REDACTED]"
Redactor = Callable[[str], str]

# `git@github.com` is nobody's address; an apostrophe counts inside a name, not around one.
_EMAIL = re.compile(
    r"(?<![\w.%+\-])(?<!\w')(?!git@)(?:[\w.%+\-]|(?<=\w)'(?=\w))++@(?:[\w\-]++\.(?=\w))++[^\W\d_]{2,63}+"
)
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/?#@:\"'<>]{0,200}+:)[^\s/?#\"'<>]{1,200}(?=@)")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z)", re.DOTALL
)
# A token holds a digit or is long, or else "bearer certificates" would be one.
_BEARER = re.compile(r"((?i:\bbearer)[ \t]++)(?=[A-Za-z\-._~+/]{0,60}\d|[\w\-.~+/]{20})[\w\-.~+/]{8,}+=*+")
_JWT = re.compile(r"(?<![\w\-.])eyJ[\w\-]{8,}+\.[\w\-]{8,}+(?:\.[\w\-]*+){0,3}")
# The prefixes by which providers mark their keys, after their own documentation and gitleaks' rules, 2026-11. A key
# without one looks like any hash, and is none of these. `sk-` needs a digit: style sheets have such names, too.
_API_KEY = re.compile(
    r"(?<![A-Za-z0-9_\-])(?:"
    r"sk-(?=[A-Za-z_\-]{0,80}\d)[\w\-]{16,}+|[srp]k_(?:live|test)_\w{10,}+|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"
    r"|AIza[\w\-]{30,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+|glpat-[\w\-]{16,}+|xox[abeprs]-[\w\-]{10,}+"
    r"|hf_[A-Za-z0-9]{20,}+|SG\.[\w\-]{16,}+\.[\w\-]{16,}+|npm_[A-Za-z0-9]{30,}+|gsk_\w{20,}+|xai-[\w\-]{20,}+"
    r"|pplx-\w{20,}+|tvly-[\w\-]{20,}+|r8_\w{30,}+|lsv2_\w{20,}+|nvapi-[\w\-]{20,}+|ya29\.[\w\-.]{20,}+"
    r"|GOCSPX-[\w\-]{20,}+|xapp-[\w\-]{20,}+|whsec_\w{20,}+|pypi-[\w\-]{30,}+|dop_v1_\w{30,}+|shp(?:at|ss|ca|pa)_\w{20,}+"
    r"|hvs\.[\w\-]{20,}+|ATATT3[\w\-=]{20,}+|ntn_\w{30,}+|lin_api_\w{20,}+|dckr_pat_[\w\-]{20,}+|key-[0-9a-f]{32}(?!\w)"
    r"|\d{8,10}:AA[\w\-]{33}(?![\w\-]))"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}+|(?<=AccountKey=)[A-Za-z0-9+/]{40,}+=*+"
)
# Nearly all of them have a long tail; where there is none, one search tells so at once.
_TAIL = re.compile(r"[_\-.:][A-Za-z0-9_\-]{15}")
_MARKS_BEFORE_TAIL: Final = (
    *(
        "sk-",
        "k_live_",
        "k_test_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "hf_",
        "SG.",
        "npm_",
    ),
    *("gsk_", "xai-", "pplx-", "tvly-", "r8_", "lsv2_", "nvapi-", "ya29.", "GOCSPX-", "xapp-", "whsec_", "pypi-"),
    *("dop_v1_", "shpat_", "shpss_", "shpca_", "shppa_", "hvs.", "ntn_", "lin_api_", "dckr_pat_", "key-", ":AA"),
)
# What is set under a name that says so. In quotation marks it may be anything, as in JSON; else it holds a digit or, in
# a line of the environment, a letter, and is no expression, path or place-holder.
_NAMES = r"(?:password|passwd|secret|api[_\-]?key|(?:secret|access|private)[_\-]?key)"
_VALUE = r"[A-Za-z0-9!#%^*+_.~?@\-][^\s\"'`<>{}()\[\],;&|\\$]{5,500}+"
_QUOTED = re.compile(rf"((?i:{_NAMES})[\"']\s{{0,4}}[:=]\s{{0,4}}[\"'])[^\"']{{1,500}}+")
_ASSIGNED = re.compile(rf"((?i:{_NAMES})\s{{0,4}}[:=]\s{{0,4}}[\"']?)(?=[^\s\"']{{0,80}}\d){_VALUE}")
_ENVIRONMENT = re.compile(
    r"((?<![A-Za-z0-9_])[A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|(?:API|SECRET|ACCESS|PRIVATE|SIGNING|AUTH)_?KEY)=[\"']?)"
    rf"(?=[^\s\"']{{0,80}}[A-Za-z]){_VALUE}"
)
_KEY_NAME = re.compile(r"(?:api|secret|access|private|signing|auth)[_\-]?key")
_NAMED_SECRET = re.compile(rf"(?i:.{{0,60}}{_NAMES})")
# The scheme `Basic` is a name and a password in base64; others are one token.
_HEADER = re.compile(
    r"((?i:\bauthorization|\bx-api-key)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?i:(?:basic|token|apikey)[ \t]{1,4})?)"
    r"(?=[\w+/.~\-]{0,60}\d|[\w+/]{11,}=|(?<=[Bb]asic )[\w+/]{12})[\w+/.~\-]{12,}+=*+"
)
_CARD = re.compile(
    r"(?<![\w.\-])(?:\d{14,19}|\d{4}([ \-])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ \-])\d{6}\2\d{4,5})(?![\w\-]|\.\d)"
)
_PHONE = re.compile(
    r"(?<![\w.\-/+])(?<!\d:)(?:"
    r"(?:\+|00(?=[1-9]))\d{1,3}(?:[ .\-/]{0,2}\(\d{1,5}\))?(?:[ .\-/]?\d){5,12}"  # with a country code
    r"|(?:1[ .\-])?(?:\(\d{3}\)[ ]?|\d{3}([ .\-]))\d{3}(?:[ .\-])\d{4}"  # North America
    r"|\(0\d{1,5}\)[ ]?\d(?:[ \-/]?\d){4,9}"  # an area code in brackets
    r"|\(0\)[ ]?\d(?:[ \-/]?\d){6,10}|8[ ]?\(\d{3,5}\)[ ]?\d{1,3}(?:[ \-]\d{2,3}){2}"  # a trunk code apart; Russia
    r"|0[1-9]\d{0,3}([ \-/.])\d{2,8}(?:\2\d{2,8}){0,3}"  # national
    r")(?![\w\-]|[./]\d)"
)
_MAX_PHONE_DIGITS = 15
_DECIMAL = re.compile(r"\d+\.\d{1,2}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2})\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
# Length by country, in characters. Source: SWIFT, IBAN Registry, checked 2026-11.
_IBAN_LENGTHS: Final = dict(
    re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18FO18FR27GB22GE22GI23GL18"
        "GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MR27MT31MU30NL18NO15"
        "PK24PL28PS29PT25QA29RO24RS22SA24SC31SE24SI19SK24SM27ST25SV28TL23TN24TR26UA29VA22VG24XK20",
    )
)
# Searched for in all values; the class of ASCII takes two thirds of the time.
_DIGIT_RUN = re.compile(r"\d[\d ().\-/]{6}")
_ASCII_DIGIT_RUN = re.compile(r"[0-9][0-9 ().\-/]{6}")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.,+\-Z]*+)?")
# First digits and lengths of the card networks; ISO/IEC 7812, checked 2026-11.
_ISSUER = re.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)
_MIN_NATIONAL_DIGITS = 9


def redact_defaults(text: str) -> str:
    """Replaces what this module knows by `[REDACTED]`; docs/security.md says how well, kind by kind."""
    if _may_hold_api_key(text):
        text = _API_KEY.sub(HIDDEN, text)
    if "@" in text:
        if "://" in text:
            text = _URL_PASSWORD.sub(rf"\1{HIDDEN}", text)
        text = _EMAIL.sub(HIDDEN, text)
    if "-----BEGIN" in text:
        text = _PRIVATE_KEY.sub(HIDDEN, text)
    if "earer" in text or "EARER" in text:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if "eyJ" in text:
        text = _JWT.sub(HIDDEN, text)
    if _may_name_secret(text):
        for pattern in (_HEADER, _QUOTED, _ASSIGNED, _ENVIRONMENT):
            text = pattern.sub(rf"\1{HIDDEN}", text)
    if _has_digit_run(text):
        text = _CARD.sub(_hide_card, _IBAN.sub(_hide_iban, text))
        text = _PHONE.sub(_hide_phone, text)
    return text


def may_hold_secrets(text: str) -> bool:
    """Tells in one cheap pass whether `redact_defaults` could change a text; never a false no."""
    # Spelled out, for a loop over the marks costs five times as much, and this runs on every value.
    return (
        "@" in text
        or _has_digit_run(text)
        or "eyJ" in text
        or "earer" in text
        or "EARER" in text
        or "-----BEGIN" in text
        or _may_hold_api_key(text)
        or _may_name_secret(text)
    )


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret, whatever it looks like: `password`, `clientSecret`, `X-Api-Key`."""
    return _NAMED_SECRET.fullmatch(name) is not None


def find_secrets(text: str) -> list[tuple[str, str]]:
    """Finds what `redact_defaults` hides and nobody may read; e-mail addresses and phone numbers are no secrets.

    Returns:
        (kind, value), each value once; kinds are private_key, bearer_token, api_key and card_number.
    """
    found: list[tuple[str, str]] = []
    if "-----BEGIN" in text:
        found += [("private_key", match[0]) for match in _PRIVATE_KEY.finditer(text)]
    if "earer" in text or "EARER" in text:
        found += [("bearer_token", match[0].removeprefix(match[1])) for match in _BEARER.finditer(text)]
    if "eyJ" in text:
        found += [("bearer_token", match[0]) for match in _JWT.finditer(text)]
    if _may_hold_api_key(text):
        found += [("api_key", match[0]) for match in _API_KEY.finditer(text)]
    if _has_digit_run(text):
        found += [("card_number", match[0]) for match in _CARD.finditer(text) if _hide_card(match) == HIDDEN]
    return list(dict.fromkeys(found))


def _may_hold_api_key(text: str) -> bool:
    return (
        "AKIA" in text
        or "ASIA" in text
        or "AIza" in text
        or "xox" in text
        or "ATATT3" in text
        or "hooks.slack." in text
        or "AccountKey=" in text
        or (_TAIL.search(text) is not None and any(mark in text for mark in _MARKS_BEFORE_TAIL))
    )


def _may_name_secret(text: str) -> bool:
    text = text.lower()
    return (
        "passw" in text
        or "secret" in text
        or "authorization" in text
        or "token=" in text
        or ("key" in text and _KEY_NAME.search(text) is not None)
    )


def _has_digit_run(text: str) -> bool:
    return (_ASCII_DIGIT_RUN if text.isascii() else _DIGIT_RUN).search(text) is not None


def _hide_iban(match: re.Match[str]) -> str:
    """Checks length and remainder. Source: ISO 13616, ISO/IEC 7064 MOD 97-10."""
    text = match[0].replace(" ", "")
    number = "".join(str(int(character, 36)) for character in text[4:] + text[:4])
    return HIDDEN if str(len(text)) == _IBAN_LENGTHS.get(match[1]) and int(number) % 97 == 1 else match[0]


def _hide_card(match: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", match[0])
    return HIDDEN if _ISSUER.fullmatch(digits) and _passes_luhn(digits) else match[0]


def _passes_luhn(digits: str) -> bool:
    """Checks the last digit. Source: ISO/IEC 7812-1, annex B."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _hide_phone(match: re.Match[str]) -> str:
    found = match[0]
    digits = sum(character.isdigit() for character in found)
    is_date = _ISO_DATE.fullmatch(found) is not None
    is_short = found.startswith("0") and not found.startswith("00") and digits < _MIN_NATIONAL_DIGITS
    # Digits alone are an id.
    is_other = is_date or found.isdecimal() or _DECIMAL.fullmatch(found) is not None
    return found if is_other or is_short or digits > _MAX_PHONE_DIGITS else HIDDEN


class Redaction:
    """What is hidden: the defaults, then a user's patterns, then a user's function."""

    def __init__(self, patterns: Iterable[str | re.Pattern[str]] = (), function: Redactor | None = None) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._function = function
        self.is_default = not self._patterns and function is None

    def __call__(self, text: str) -> str:
        """Returns the text with its secrets hidden; all of it is hidden where that fails."""
        try:
            text = redact_defaults(text)
            for pattern in self._patterns:
                text = pattern.sub(HIDDEN, text)
            return text if self._function is None else _as_text(self._function(text))
        except BaseException as error:
            report("redact a value", error)
            return HIDDEN


def _as_text(answer: object) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"the redactor returned {type(answer).__qualname__}; expected str")
    return str.encode(answer, "utf-8", "backslashreplace").decode()


# Looked at in every call, where `os.environ.get` of an absent name costs as much as encoding the arguments, for it
# raises and catches a KeyError. The mapping behind it, of encoded names, is the same in every CPython since 3.0.
_environment: dict[Any, Any] = getattr(os.environ, "_data", cast("dict[Any, Any]", os.environ))
_SWITCH, _OFF = (os.fsencode(text) if hasattr(os.environ, "_data") else text for text in ("AGENTTRACE_REDACT", "off"))


# Longer than it takes to make a key.
_DRAFT_S = 60.0


class _State:
    """Settings of this process."""

    redaction = Redaction()
    key_folder: Path | None = None
    key: bytes | None = None
    # A signal handler may need the key while it is being read.
    lock = RLock()


def _renew_lock() -> None:
    _State.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def configure_redaction(patterns: Iterable[str | re.Pattern[str]] = (), *, function: Redactor | None = None) -> None:
    """Adds patterns and a function to the default redaction, in place of those that an earlier call added."""
    _State.redaction = Redaction(patterns, function)


def current_redaction() -> Redaction | None:
    """Returns what hides secrets, or None where AGENTTRACE_REDACT is `off`."""
    return None if _environment.get(_SWITCH) == _OFF else _State.redaction


def set_key_folder(folder: Path) -> None:
    """Says where the key of the hashes is kept: the folder of the store."""
    with _State.lock:
        _State.key_folder = folder
        _State.key = None


def hash_key() -> bytes:
    """Returns the key of `arguments_hash`: AGENTTRACE_HASH_KEY, else the file beside the store, else a random one.

    Without a store no file is written, and hashes of two processes do not compare.
    """
    given = os.environ.get("AGENTTRACE_HASH_KEY")
    if given:
        return given.encode("utf-8", "surrogateescape")
    with _State.lock:
        if _State.key is None:
            _State.key = _stored_key(_State.key_folder)
        return _State.key


def _stored_key(folder: Path | None) -> bytes:
    if folder is not None:
        try:
            return _read_or_make_key(folder / "agenttrace.key")
        except OSError as error:
            report(f"keep the hash key in {folder}", error)
    return secrets.token_bytes(32)


def _read_or_make_key(path: Path) -> bytes:
    """Reads the key, or writes a new one such that no other process ever sees half of it."""
    for left in path.parent.glob(f"{path.name}.{'[0-9a-f]' * 16}"):
        # A kill has left it, where it is old; the other is being made.
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > _DRAFT_S:
                left.unlink()
    with suppress(FileNotFoundError):
        return _read_key(path)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(private.create(draft), "wb") as file:
            file.write(secrets.token_hex(32).encode())
        # A link fails where another process was first, and then its key is the key.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    key = private.read(path)
    if not key:
        raise OSError(f"{path}: is empty; delete it, and a new key is made")
    # Whoever knows the key can find out what was hidden, by trying e-mail addresses and card numbers.
    if private.is_planted(path):
        raise OSError(f"{path}: another user has put it there, where anybody may")
    return key
