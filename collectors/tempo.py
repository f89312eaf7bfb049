"""Tempo JSON -> span rows: answers of Tempo's query API, and what Grafana saves. Pure.

It is OTLP under other keys: `batches` for the groups, in old exports `instrumentationLibrarySpans` for their parts, the
whole within `trace` since the second version of the API. Ids are base64 and enums are names, as in protobuf's own JSON.
"""

from collections import Counter
from typing import Any, cast

from agenttrace.collectors.decode import Decoded
from agenttrace.collectors.decode_json import decode_json
from agenttrace.collectors.json_fields import Leniencies, Object

_GROUPS = ("batches", "resourceSpans", "resource_spans")
_MEMBERS = {"resource", "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"}
# OTLP forbids these; here they are the rule.
_USUAL = ("base64 ids", "enum names", "old or snake-case key names")


def is_tempo(document: Any) -> bool:
    """Says whether a parsed document is a trace as Tempo or Grafana writes it."""
    return _groups(document) is not None


def decode_tempo(document: Any, leniencies: Leniencies | None = None) -> Decoded:
    """Decodes one document.

    Args:
        document: What `is_tempo` recognises.
        leniencies: Counts from reading the document, which the result goes on counting.
    """
    before: Leniencies = Counter() if leniencies is None else leniencies
    decoded = decode_json({"resourceSpans": _groups(document)})
    for usual in _USUAL:
        del decoded.leniencies[usual]
    before.update(decoded.leniencies)
    decoded.leniencies = before
    return decoded


def _groups(document: Any) -> list[Any] | None:
    members = cast("Object", document) if isinstance(document, dict) else {}
    trace = members.get("trace")
    within = cast("Object", trace) if isinstance(trace, dict) else {}
    found = next((within[key] for key in _GROUPS if key in within), members.get("batches"))
    if not isinstance(found, list):
        return None
    groups = cast("list[Any]", found)
    return (
        groups if not groups or any(isinstance(group, dict) and _MEMBERS & group.keys() for group in groups) else None
    )
