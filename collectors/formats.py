"""The formats of trace files that are JSON; each is a module that recognises its documents and decodes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agenttrace.collectors.decode import Decoded
from agenttrace.collectors.decode_json import decode_json, is_otlp
from agenttrace.collectors.jaeger import decode_jaeger, is_jaeger
from agenttrace.collectors.json_fields import Leniencies
from agenttrace.collectors.tempo import decode_tempo, is_tempo


class Format(NamedTuple):
    """One format.

    Attributes:
        title: Its name in messages.
        recognises: Says whether a parsed document is of this format, by its keys.
        decode: Makes rows of a document that is; goes on with counts of leniencies. Raises DecodeError.
    """

    title: str
    recognises: Callable[[Any], bool]
    decode: Callable[[Any, Leniencies | None], Decoded]


FORMATS = {
    "otlp": Format("OTLP", is_otlp, decode_json),
    "jaeger": Format("Jaeger JSON", is_jaeger, decode_jaeger),
    "tempo": Format("Tempo JSON", is_tempo, decode_tempo),
}


def format_of(document: Any) -> str | None:
    """Names the format of a parsed document; None for another, such as a transcript."""
    return next((name for name, form in FORMATS.items() if form.recognises(document)), None)
