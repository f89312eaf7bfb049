"""The sentences that claim a tool, as regular expressions built from the words of its name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from agenttrace.evaluators.claims_words import ToolWords, lists


@dataclass(frozen=True)
class Patterns:
    """What to look for in a sentence, in lower case.

    Attributes:
        trigger: Cheap; where it finds nothing, none of the ways does.
        written: The ways as texts.
        words: Past forms of the verbs.
    """

    trigger: re.Pattern[str]
    written: "tuple[Way, ...]"
    words: tuple[str, ...]

    @cached_property
    def ways(self) -> tuple[tuple[re.Pattern[str], str, bool], ...]:
        """Regular expression, form of the claim, whether the writer says that it did it itself.

        Groups: `verb`, `object`, `aux` (passive), `bare` (no subject), `chained` (the subject stands earlier in the
        sentence). To compile them takes longer than all else, and most tools are never spoken of.
        """
        return tuple((re.compile(pattern), form, by_agent) for pattern, form, by_agent in self.written)


def _adverbs() -> str:
    words = lists()["words"]
    doubting = "|".join(words["doubting"])
    return rf"(?:(?:{'|'.join(words['adverbs'])}|(?!(?:{doubting})\b)[a-z]+ly)\s+){{0,3}}"


# "Had I placed the order" is a condition.
_SUBJECT = r"(?<![a-z0-9_])(?<!\bhad )(?:i|we)(?:'ve|\s+have|\s+had)?\s+"
_PERFECT = r"(?<![a-z0-9_])(?:i|we)(?:'ve|\s+have)\s+"
# The beginning of a sentence, behind "Done:" and the like.
_OPENING = "done|ok|okay|great|good news|all set|success|sure|certainly|update|yes|perfect|thanks|thank you"
_START = rf"(?:^(?:[^a-z0-9]*|(?:{_OPENING})[^a-z0-9]+)|(?:\bdone|\bok|\bsuccess)[:.,!]+\s+)"
_CHAIN = r"(?P<chained>(?:\band|\bthen|,|\bso)\s+(?:then\s+|also\s+|finally\s+)?)"


# As in shop-place_order and mcp__shop__placeOrder; place-order is one name.
_OWN_NAME = re.compile(r"(?:__|[-./:])([A-Za-z0-9]+(?:_[A-Za-z0-9]+)+|[A-Za-z][a-z0-9]*(?:[A-Z][a-z0-9]+)+)$")

Way = tuple[str, str, bool]


@lru_cache(maxsize=4096)
def patterns(tool: ToolWords) -> Patterns:
    """Returns the ways to claim one tool."""
    verbs: list[str] = []
    ways = list(_literal(tool.name))
    if tool.past and tool.object:
        done = _past_with_object(tool, tool.past)
        ways += _with_object(tool, tool.object, done)
        verbs.append(done)
    if tool.past and tool.object and tool.mutability == "mutating":
        ways += _with_id(tool.past)
    own = tool.noun_past or (tool.past if tool.object is None and tool.changes else None)
    if own:
        ways += _alone(own, "verb" if tool.verb in lists()["verbs"]["of_texts"] and not tool.noun_past else "effect")
        verbs.append(own)
    names = [*(re.escape(name.lower()) for name in _names(tool.name)), _spaced(tool.name)]
    trigger = re.compile("|".join([*names, *(rf"\b(?:{verb})\b" for verb in verbs)]))
    return Patterns(trigger, tuple(ways), tuple(word for verb in verbs for word in verb.split("|")))


def _past_with_object(tool: ToolWords, past: str) -> str:
    """Past forms that count with the object: "processed" alone says nothing, "processed the refund" does."""
    return "|".join([past, *lists()["verbs"]["generic_past"]]) if tool.mutability == "mutating" else past


def _with_object(tool: ToolWords, noun: str, past: str) -> Iterator[Way]:
    """As in "I issued the refund", "the refund has been issued", "your refund is issued"."""
    subject = _PERFECT if tool.verb in lists()["verbs"]["ambiguous"] else _SUBJECT
    adverbs, verb, thing = _adverbs(), rf"(?P<verb>{past})", rf"(?P<object>{noun})\b"
    gap = rf"\s+(?:to you\s+)?{_gap(6)}"
    been = rf"\s+{adverbs}(?:been\s+)?{adverbs}{verb}\b"
    yield rf"{subject}{adverbs}{verb}{gap}{thing}", "effect", True
    yield rf"{_CHAIN}{verb}{gap}{thing}", "effect", True
    yield rf"{_START}(?P<bare>){adverbs}{verb}{gap}{thing}", "effect", True
    yield rf"\b{thing}{_after_object(8)}\s+(?P<aux>has|have|had|was|were){been}", "effect", False
    if tool.changes:
        # A whole sentence, "Refund issued!"; an entry of a list may be a step of a plan or of a parcel's way.
        yield (
            rf"^(?:(?:{_OPENING})[^a-z0-9]+|[^a-z0-9*#•-]*){thing}\s+{adverbs}{verb}(?:\s+successfully)?\s*[.!]",
            "effect",
            False,
        )
        # In the present tense only of a definite thing: "a refund is issued" tells what is usual.
        definite = rf"\b(?:your|the|this|both|these|my|our)\s+{_gap(3)}{thing}{_after_object(4)}"
        yield rf"{definite}\s+(?P<aux>is|are)\s+{adverbs}{verb}\b", "effect", False


def _with_id(past: str) -> Iterator[Way]:
    """As in "Placed: PO-1001", "PO-1002 is placed": the id stands for the object."""
    adverbs, verb = _adverbs(), rf"(?P<verb>{past})"
    passive = rf"\s+(?P<aux>has|have|was|were|is|are)\s+{adverbs}(?:been\s+)?{adverbs}{verb}\b"
    yield rf"{_START}(?P<bare>){verb}\s*:?\s+[a-z]+[-_#]?\d+", "effect", True
    yield rf"\b[a-z]+[-_#]\d+{passive}", "effect", False


def _alone(past: str, form: str) -> Iterator[Way]:
    """As in "I refunded 40.5", "129.50 EUR refunded", "both ordered", "it has been refunded"."""
    adverbs, verb = _adverbs(), rf"(?P<verb>{past})\b"
    # "I updated my plan": what is the writer's own is nothing that a tool changed.
    mine = r"(?!\s+my\b)"
    passive = rf"\s+(?P<aux>has|have|was|were|is|are)\s+{adverbs}(?:been\s+)?{adverbs}{verb}"
    yield rf"{_SUBJECT}{adverbs}{verb}{mine}", form, True
    yield rf"{_CHAIN}{verb}{mine}", form, True
    yield rf"{_START}(?P<bare>){adverbs}{verb}", form, True
    yield rf"{_START}(?P<bare>)(?:both|all|[^a-z]*\d[^a-z]*(?:[a-z]{{3}})?)\s+{verb}", form, True
    # From the beginning of the word: "nothing was ordered" must show that it is negative.
    yield rf"(?<!\S)\S{{0,80}}[a-z0-9)%]{passive}", form, False


def _gap(limit: int) -> str:
    """Up to `limit` words between verb and object, or object and verb, that leave them together."""
    stop = "|".join([*lists()["words"]["parting"], *lists()["words"]["unreal"]])
    return rf"(?:(?!(?:{stop})\b)[a-z0-9'\"`#$€£%./_-]+\s+){{0,{limit}}}?"


def _after_object(limit: int) -> str:
    """Words between an object and its auxiliary: an id, "for order 7", but no relative clause."""
    stop = "|".join(lists()["words"]["clause_words"])
    return rf"(?:\s+(?!(?:{stop})\b)[^\s,;:!?]+){{0,{limit}}}?"


@lru_cache(maxsize=1024)
def trigger(tools: tuple[ToolWords, ...], with_any_name: bool) -> re.Pattern[str]:
    """Returns what a sentence must hold to be worth a closer look for any of the tools."""
    parts = [patterns(tool).trigger.pattern for tool in tools]
    if with_any_name:
        parts.append(rf"\b(?:{'|'.join(lists()['verbs']['calling'])})\b")
    return re.compile("|".join(parts) or r"(?!)")


def _spaced(name: str) -> str:
    return r"[\s_-]+".join(map(re.escape, re.split(r"[_\-.]+", name.lower())))


def _literal(name: str) -> Iterator[Way]:
    """As in "I called issue_refund", "issue_refund was called", "issue_refund returned RF-1"."""
    mention, adverbs = _mention(name), _adverbs()
    calling = "|".join(lists()["verbs"]["calling"])
    answering = "|".join(lists()["verbs"]["answering"])
    article = r"(?:the\s+|a\s+|an\s+|your\s+|our\s+|my\s+)?(?:(?:tool|function|action|api)\s+)?"
    passive = r"\s+(?:was|were|has\s+been|have\s+been|got)\s+"
    yield rf"{_SUBJECT}{adverbs}(?:made\s+a\s+call\s+to|{calling})\s+{article}{mention}", "literal", True
    yield rf"{_CHAIN}(?:{calling})\s+{article}{mention}", "literal", True
    yield rf"{_START}{adverbs}(?:called|ran|invoked|executed|triggered)\s+{article}{mention}", "literal", True
    yield rf"(?<![a-z0-9_]){mention}{passive}{adverbs}(?:{calling}|completed)\b", "literal", False
    yield rf"(?<![a-z0-9_]){mention}\s+{adverbs}(?:{answering})\b", "literal", False


def _names(name: str) -> list[str]:
    """The name, and what texts say for it: without the plugin or server in front, where the rest is an identifier."""
    own = _OWN_NAME.search(name)
    return [name, own[1]] if own else [name]


def _mention(name: str) -> str:
    """The name in a text: an identifier stands for itself, a plain word needs a mark that a tool is meant."""
    lowered, spaced = "|".join(re.escape(said.lower()) for said in _names(name)), _spaced(name)
    arguments, noun = r"(?:\([^)]*\))?", r"(?:tool|function|action|api|call|endpoint)"
    if re.search(r"[^A-Za-z]|[a-z][A-Z]", name):
        literal = rf"[`'\"]?(?:{lowered})(?![a-z0-9_]){arguments}[`'\"]?(?:\s+{noun})?"
        return rf"(?:{literal}|[`'\"]?{spaced}[`'\"]?\s+{noun})"
    return rf"(?:`{lowered}{arguments}`|{lowered}\([^)]*\)|[`'\"]?{lowered}[`'\"]?\s+(?:tool|function))"


@lru_cache(maxsize=1)
def any_name() -> tuple[re.Pattern[str], ...]:
    """Returns the ways to claim a tool that is not known, by an identifier: group `name`; case counts."""
    calling = "|".join(lists()["verbs"]["calling"])
    name = r"(?P<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)"
    mention = rf"(?:the\s+)?(?:(?:tool|function)\s+)?[`'\"]?{name}[`'\"]?(?![A-Za-z0-9_./-])"
    subject = rf"(?<!\w)(?:[Ii]|[Ww]e)(?:'ve|\s+have|\s+had)?\s+{_adverbs()}"
    return (
        re.compile(rf"{subject}(?:{calling})\s+{mention}"),
        re.compile(rf"^\W*(?:[Cc]alled|[Rr]an|[Ii]nvoked|[Ee]xecuted)\s+{mention}"),
    )
