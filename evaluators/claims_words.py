"""The words in a tool's name, and how English says in the past tense that the tool was used."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

_VOWELS = "aeiou"


@dataclass(frozen=True)
class ToolWords:
    """How texts may speak of one tool.

    Attributes:
        name: As offered or called.
        verb: Base form of the verb in the name; None where it has none that is known.
        noun: Base form of what the verb acts upon, the last word of it; None where the name is a verb alone.
        past: Regular expression of the verb's past forms, of the verb alone.
        object: Regular expression of the noun in singular and plural; None without noun.
        noun_past: Past forms of the noun's own verb ("refunded" for `issue_refund`); None where it has none.
        mutability: mutating, idempotent, read_only or None.
    """

    name: str
    verb: str | None
    noun: str | None
    past: str | None
    object: str | None
    noun_past: str | None
    mutability: str | None

    @property
    def changes(self) -> bool:
        """Whether the tool is known to change something."""
        return self.mutability in ("mutating", "idempotent")


@cache
def lists() -> dict[str, Any]:
    """Returns the tables of claims.toml."""
    text = (resources.files("agenttrace.evaluators") / "claims.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def words(name: str) -> list[str]:
    """Returns the words of a tool's name: place_order, place-order, placeOrder, orders.place."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return [word for word in re.split(r"[^a-z0-9]+", split.lower()) if word]


def mutability_of(name: str) -> str | None:
    """Returns what the verb in a tool's name says, by the same closed lists as `steps.mutability`."""
    verbs = _verbs()
    parts = words(name)
    verb = next((word for word in parts if word in verbs["known"]), None)
    if verb in verbs["nouns"] and parts[-1] in verbs["reading_ends"]:
        return "read_only"
    return next((kind for kind in ("mutating", "idempotent", "read_only") if verb in verbs[kind]), None)


@lru_cache(maxsize=4096)
def tool_words(name: str, mutability: str | None) -> ToolWords:
    """Returns how texts may speak of a tool."""
    parts = words(name)
    known = _verbs()["known"]
    place = next((i for i, word in enumerate(parts) if word in known), None)
    if place is None:
        return ToolWords(name, None, None, None, None, None, mutability)
    verb = parts[place]
    nouns = _object_of(parts[place + 1 :]) or _object_of(parts[:place])
    noun = singular(nouns[-1]) if nouns else None
    own_verb = lists()["verb_of_noun"].get(noun) if noun and verb in lists()["verbs"]["light"] else None
    return ToolWords(
        name=name,
        verb=verb,
        noun=noun,
        past=past(verb),
        object=_plural(noun) if noun else None,
        noun_past=past(own_verb) if own_verb else None,
        mutability=mutability,
    )


def past(verb: str) -> str:
    """Returns a regular expression of the past forms: cancel gives cancell?ed."""
    forms = lists()["irregular"].get(verb)
    if forms:
        return "|".join(forms)
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        return f"{verb[:-1]}ied"
    if len(verb) > 2 and verb[-1] not in _VOWELS + "wxy" and verb[-2] in _VOWELS and verb[-3] not in _VOWELS:
        return f"{verb}{verb[-1]}?ed"
    return f"{verb}ed"


def singular(noun: str) -> str:
    """Returns the singular of a regular noun; others come back as they are."""
    if noun.endswith("ies") and len(noun) > 4:
        return f"{noun[:-3]}y"
    if noun.endswith(("sses", "xes", "ches", "shes")):
        return noun[:-2]
    if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) and len(noun) > 3:
        return noun[:-1]
    return noun


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{re.escape(noun[:-1])}(?:y|ies)"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{re.escape(noun)}(?:es)?"
    return f"{re.escape(noun)}s?"


def _object_of(parts: list[str]) -> list[str]:
    """The words of the object: up to a preposition, without words that carry no meaning."""
    small, prepositions = lists()["words"]["small"], lists()["words"]["prepositions"]
    end = next((i for i, word in enumerate(parts) if word in prepositions and i > 0), len(parts))
    return [word for word in parts[:end] if word not in small and not word.isdigit()]


@cache
def _verbs() -> dict[str, frozenset[str]]:
    text = (resources.files("agenttrace") / "vocabulary.toml").read_text(encoding="utf-8")
    verbs: dict[str, list[str]] = tomllib.loads(text)["verbs"]
    found = {name: frozenset(entries) for name, entries in verbs.items()}
    return found | {
        "known": found["mutating"] | found["idempotent"] | found["read_only"] | {"make", "do", "process", "initiate"}
    }
