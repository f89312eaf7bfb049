"""Finds in a text where it says that a tool was used or that its effect happened. English; pure; bounded.

Naming a tool is no claim: plans, offers, questions, conditionals, negations, quotations and reports of what others did
are either not matched at all, or come out marked, so that a reader of the relation sees why they do not count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from agenttrace.evaluators.claims_patterns import any_name as any_name_patterns
from agenttrace.evaluators.claims_patterns import patterns as patterns_of
from agenttrace.evaluators.claims_patterns import trigger as trigger_of
from agenttrace.evaluators.claims_words import ToolWords, lists

# What is longer is cut: a text of a hostile trace must not cost more than a book's page.
_MAX_TEXT = 20_000
_MAX_SENTENCE = 600
_MAX_CLAIMS = 50

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE_END = re.compile("(?<=[.!?])[\"'\u201d\u2019)*]*\\s+|\\n+")
_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s+")
_MARKUP = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_QUOTED = re.compile(
    "\"[^\"]{3,}\"|\u201c[^\u201d]{3,}\u201d|\u00ab[^\u00bb]{3,}\u00bb|(?<!\\w)['\u2018][^'\u2019]{12,}['\u2019](?!\\w)"
)
_CLAUSE_END = re.compile("[,;:\u2014\u2013]|\\b(?:and|but|so|yet|while|because|although|though)\\b")
_RESULT_LABEL = r"(?:Observation|Tool (?:Result|Output|Response)|Function (?:Result|Output|Response))"
_RESULT = re.compile(
    rf"^[ \t]*(?:\*\*)?{_RESULT_LABEL}(?:\*\*)?[ \t]*:(?:\*\*)?[ \t]*"
    r"(?P<a>[^\n]+(?:\n(?!\n|[ \t]*(?:Thought|Action|Final Answer|Observation)\b)[^\n]+)*)"
    r"|<(?P<tag>tool_response|tool_result|function_results?|observation)>(?P<b>.{3,2000}?)(?:</(?P=tag)>|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# Forms that say that something happened, not only that a tool was called.
_EFFECTS = ("effect", "verb")
# "I said I issued the refund, but I did not."
_TAKEN_BACK = re.compile(
    r"\bbut (?:in fact |actually )?(?:i|we|it|that|this) (?:actually )?"
    r"(?:never did|(?:did|have|had|has|was)(?:n't| not))(?: actually| really)?\s*(?:[.,;!)]|$)"
)
_FINITE = re.compile(r"\b(?:is|are|was|were|will|can|may|must|should|has|have|had)\b")


@dataclass(frozen=True)
class Claim:
    """One place of a text.

    Attributes:
        tool_name: The tool it speaks of; None for a made-up result.
        candidates: Tools whose execution makes it true, `tool_name` among them.
        form: literal (the tool's name), effect (verb and object), verb (a common verb that is the whole name),
            result (a tool result written by the model), pattern.
        tense: past; or state, conditional, question, which do not count.
        polarity: positive or negative.
        quoted: In quotation marks, or what somebody else is reported to have said.
        by_agent: The writer says that it did it itself; False for "the refund has been issued".
        success: It says that the call worked, not only that there was one.
        text: The sentence.
        words: Words that an observation holds if it tells the same, for claims in the passive.
    """

    tool_name: str | None
    candidates: tuple[str, ...]
    form: str
    tense: str
    polarity: str
    quoted: bool
    by_agent: bool
    success: bool
    text: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Match:
    tool: str
    form: str
    start: int
    end: int
    by_agent: bool
    words: tuple[str, ...]
    tense: str = "past"


def find(text: str, tools: Sequence[ToolWords], *, any_name: bool) -> list[Claim]:
    """Finds the claims of a text.

    Args:
        text: What the assistant wrote.
        tools: Tools that it may speak of.
        any_name: Also take any identifier that is the object of called, ran, used, invoked or executed; for runs whose
            tools were not recorded.

    Returns:
        Claims in the order of the text, at most 50.
    """
    text = text[:_MAX_TEXT]
    found = list(_results(text))
    by_name = {tool.name: tool for tool in tools}
    trigger = trigger_of(tuple(tools), any_name)
    for sentence in _sentences(_FENCE.sub(" ", text)):
        # Most sentences hold none of the words; one search over all tools is much cheaper than one each.
        if not trigger.search(sentence.lower()):
            continue
        matches = list(_matches(sentence, tools, any_name))
        if matches:
            found += _claims(sentence, matches, by_name)
        if len(found) >= _MAX_CLAIMS:
            break
    return found[:_MAX_CLAIMS]


def _results(text: str) -> Iterator[Claim]:
    for match in _RESULT.finditer(text):
        content = (match["a"] or match["b"] or "").strip()
        if len(content) >= 3:
            yield Claim(None, (), "result", "past", "positive", False, True, True, content[:_MAX_SENTENCE])


def _sentences(text: str) -> Iterator[str]:
    for line in _SENTENCE_END.split(_MARKUP.sub("", text)):
        line = line.strip().replace("\u2019", "'")
        if line and not line.startswith(">"):
            yield line[:_MAX_SENTENCE]


def _matches(sentence: str, tools: Sequence[ToolWords], any_name: bool) -> Iterator[_Match]:
    lowered = sentence.lower()
    for tool in tools:
        patterns = patterns_of(tool)
        if not patterns.trigger.search(lowered):
            continue
        for pattern, form, by_agent in patterns.ways:
            for match in pattern.finditer(lowered):
                if not _fits(tool, match, lowered):
                    continue
                yield _Match(
                    tool.name, form, match.start(), match.end(), by_agent, patterns.words, _tense(tool, match, lowered)
                )
    if any_name:
        for pattern in any_name_patterns():
            for match in pattern.finditer(sentence):
                yield _Match(match["name"], "literal", match.start(), match.end(), True, ())


def _claims(sentence: str, matches: Sequence[_Match], tools: dict[str, ToolWords]) -> Iterator[Claim]:
    """One claim per place: matches that overlap speak of the same act."""
    lowered = sentence.lower()
    place: list[_Match] = []
    for match in [*sorted(matches, key=lambda m: (m.start, m.end, m.tool)), None]:
        if place and (match is None or match.start >= max(m.end for m in place)):
            yield _claim(sentence, lowered, place, tools)
            place = []
        if match is not None:
            place.append(match)


def _claim(sentence: str, lowered: str, place: list[_Match], tools: dict[str, ToolWords]) -> Claim:
    best = min(place, key=lambda m: (m.form != "literal", not m.by_agent, m.start - m.end, m.tool))
    candidates = {m.tool for m in place if m.form == "literal"} or {m.tool for m in place}
    if best.form in _EFFECTS:
        candidates |= {other for name in list(candidates) for other in tools if _same_act(tools[name], tools[other])}
    before = lowered[: best.start]
    clause = _last_clause(before)
    matched = lowered[best.start : best.end]
    return Claim(
        tool_name=best.tool,
        candidates=tuple(sorted(candidates)),
        form=best.form,
        tense=_final_tense(best, sentence, lowered, before),
        polarity="negative" if _negative(clause, matched, lowered[best.end :]) else "positive",
        quoted=_in_quotes(sentence, best.start) or _has("told", before),
        by_agent=best.by_agent,
        success=best.form in _EFFECTS and not _has("failing", lowered),
        text=sentence,
        words=best.words,
    )


def _final_tense(best: _Match, sentence: str, lowered: str, before: str) -> str:
    if sentence.rstrip("\"'\u201d\u2019)* ").endswith("?"):
        return "question"
    if _has("conditions", before):
        return "conditional"
    if not best.by_agent and (
        _has("historic", lowered)
        or _has("read_somewhere", before)
        or re.search(r"\bon \d|\b\d{4}-\d\d-\d\d", lowered[best.end :])
    ):
        return "state"
    if best.by_agent and _has("told", before):
        return "state"
    return best.tense


def _negative(clause: str, matched: str, after: str) -> bool:
    said = _has("negations", clause[-60:]) or _has("negations", matched) or "n't" in clause[-30:] + matched
    return said or _TAKEN_BACK.search(after) is not None


def _fits(tool: ToolWords, match: re.Match[str], sentence: str) -> bool:
    """Whether verb and object belong together: nothing between them or behind the object makes another thing of it."""
    groups = match.groupdict()
    following = re.match(r"[\s\"'`*]*([a-z]+)", sentence[match.end() :])
    if groups.get("object") and following and following[1] in lists()["words"]["compounds"] and not groups.get("aux"):
        return False
    if groups.get("bare") is not None and not _is_told_bare(tool, match, sentence):
        return False
    if groups.get("chained"):
        return _is_chained(sentence[: match.start()])
    if groups.get("aux") in ("is", "are") and (_has("habitual", sentence) or _is_sorted(match, sentence)):
        return False
    return not groups.get("aux") or not re.match(r"\s+by (?!me\b|us\b|our\b)", sentence[match.end() :])


def _is_sorted(match: re.Match[str], sentence: str) -> bool:
    """Whether "ordered" tells of a sequence: "the list is ordered by date"."""
    following = re.match(r"\s+(?:by|in|alphabetically|from (?:high|low|new|old))", sentence[match.end() :])
    return match["verb"] == "ordered" and following is not None


def _is_told_bare(tool: ToolWords, match: re.Match[str], sentence: str) -> bool:
    """Whether a participle at the start is the verb; "Issued refunds are shown below", "Updated flights:" are nouns."""
    if sentence.startswith("#") or _FINITE.search(_clause_after(sentence, match.end())):
        return False
    points = re.search(r"\b(?:the|your|a|an|this|that|both|all)\b|\d", match[0])
    return tool.mutability == "mutating" or points is not None


def _tense(tool: ToolWords, match: re.Match[str], sentence: str) -> str:
    """A bare "was made" tells what is; "has been made" and "was successfully made" tell what was done."""
    groups = match.groupdict()
    if groups.get("aux") in ("was", "were") and "successfully" not in sentence:
        own = "|".join(filter(None, (tool.past, tool.noun_past)))
        if not re.fullmatch(own, groups["verb"]) or tool.verb in ("create", "make"):
            return "state"
    if groups.get("aux") and re.search(
        r"\b(?:since|as|because|previous|prior|existing|original|old|last|past)\b", sentence
    ):
        return "state"
    return "past"


def _is_chained(before: str) -> bool:
    """Whether a verb without subject goes on with "I ..." or "we ..." of the same sentence."""
    start = max((m.end() for m in re.finditer(r"\b(?:i|we)(?:'ve)?\b", before)), default=None)
    if start is None:
        return False
    between = before[start:]
    return not (
        _has("others", between)
        or _has("blocking", between)
        or _has("negations", between)
        or _has("conditions", between)
        or "n't" in between
        or "'ll" in between
        or "'d" in between
    )


def _same_act(one: ToolWords, other: ToolWords) -> bool:
    if one.noun is None or one.noun != other.noun:
        return False
    if one.verb == other.verb:
        return True
    if one.mutability in ("mutating", "read_only"):
        return other.mutability in (one.mutability, None)
    return any(one.verb in group and other.verb in group for group in lists()["verbs"]["synonyms"])


def _last_clause(text: str) -> str:
    ends = [match.end() for match in _CLAUSE_END.finditer(text)]
    return text[ends[-1] :] if ends else text


def _clause_after(text: str, start: int) -> str:
    end = _CLAUSE_END.search(text, start)
    return text[start : end.start()] if end else text[start:]


def _in_quotes(sentence: str, place: int) -> bool:
    return any(match.start() <= place < match.end() for match in _QUOTED.finditer(sentence))


def _has(name: str, text: str) -> bool:
    return _any_of(name).search(text) is not None


@lru_cache(maxsize=64)
def _any_of(name: str) -> re.Pattern[str]:
    entries = sorted(lists()["words"][name], key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, entries))})\b")
