"""How much of what should be hidden is hidden, and what is hidden by mistake, kind by kind, in tests/data/redaction.

A secret counts as hidden where nothing of it is left; a text, as hidden by mistake, where any of it has gone.

Run: `python benchmarks/redaction.py`.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ratios import report

from agenttrace.redact import HIDDEN, redact_defaults

DATA = Path(__file__).parent.parent / "tests" / "data" / "redaction"
MARKED = re.compile("⟦(.*?)⟧", re.DOTALL)


class Count(NamedTuple):
    """Of `total` secrets or texts of a kind, `hidden` were hidden; of those written after the patterns, the same."""

    hidden: int
    total: int
    held_out_hidden: int
    held_out_total: int


def main() -> bool:
    """Prints both tables, those of docs/security.md too, and the texts that came out wrong."""
    print(markdown())
    for line in wrong():
        print(line)
    tables: dict[str, list[dict[str, float | str]]] = {
        name: [{"kind": kind, **count._asdict()} for kind, count in found.items()] for name, found in counts().items()
    }
    return report("redaction", tables)


def texts(name: str) -> list[dict[str, Any]]:
    """Reads `secrets` or `innocent`."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line.replace("¦", "")) for line in lines]


def counts() -> dict[str, dict[str, Count]]:
    """Counts what is hidden, by kind, in `secrets` and in `innocent` texts."""
    found: dict[str, dict[str, Count]] = {}
    for name in ("secrets", "innocent"):
        kinds = found.setdefault(name, {})
        for text in texts(name):
            hidden, total = _hidden(text["text"]) if name == "secrets" else (_changes(text["text"]), 1)
            before = kinds.get(text["kind"], Count(0, 0, 0, 0))
            more = (hidden, total, hidden * text["held_out"], total * text["held_out"])
            kinds[text["kind"]] = Count(*map(sum, zip(before, more, strict=True)))
    return found


def wrong() -> Iterator[str]:
    """Yields the texts in which something is left, or hidden by mistake."""
    for text in texts("secrets"):
        hidden, total = _hidden(text["text"])
        if hidden < total:
            yield f"left: {text['kind']}: {text['text']!r}"
    for text in texts("innocent"):
        if _changes(text["text"]):
            yield f"hidden by mistake: {text['kind']}: {redact_defaults(text['text'])!r}"


def markdown() -> str:
    """Returns both tables as docs/security.md has them."""
    found = counts()
    lines = ["| kind | hidden | of them held out |", "| --- | --- | --- |"]
    lines += [f"| {kind} | {_share(*count[:2])} | {_share(*count[2:])} |" for kind, count in found["secrets"].items()]
    lines += ["", "| innocent texts | hidden by mistake | of them held out |", "| --- | --- | --- |"]
    lines += [
        f"| {kind} | {count.hidden} of {count.total} | {count.held_out_hidden} of {count.held_out_total} |"
        for kind, count in found["innocent"].items()
    ]
    return "\n".join(lines)


def _share(hidden: int, total: int) -> str:
    return f"{hidden} of {total} ({100 * hidden / total:.0f} %)" if total else "-"


def _hidden(marked: str) -> tuple[int, int]:
    """How many of a text's secrets have gone, and how many there are."""
    shown = redact_defaults(MARKED.sub(r"\1", marked))
    around = MARKED.sub(HIDDEN, marked)
    secrets = MARKED.findall(marked)
    return sum(not _is_left(secret, shown, around) for secret in secrets), len(secrets)


def _is_left(secret: str, shown: str, around: str) -> bool:
    """Whether six characters of it, or all of a shorter one, are left more often than the text around it has them."""
    parts = [secret[start : start + 6] for start in range(max(1, len(secret) - 5))]
    return any(shown.count(part) > around.count(part) for part in parts)


def _changes(text: str) -> bool:
    return redact_defaults(text) != text


if __name__ == "__main__":
    sys.exit(not main())
