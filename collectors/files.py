"""Files -> spool: OTLP as JSON or protobuf, JSON of Jaeger and Tempo, chat transcripts, outcomes as CSV; gzip of any.

A file is read as a stream. What cannot be read is reported with its place and skipped, and the rest lands. An import
brings whole traces of the past, so its segments are settled.
"""

import io
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from agenttrace.collectors.batches import Batches, size_of
from agenttrace.collectors.decode import Decoded, decode_logs_protobuf, decode_traces_protobuf, json_text
from agenttrace.collectors.formats import FORMATS, format_of
from agenttrace.collectors.json_documents import MAX_DOCUMENT_BYTES, BadDocument, json_documents
from agenttrace.collectors.json_fields import describe
from agenttrace.collectors.outcomes_csv import read_outcomes
from agenttrace.collectors.sources import ACCEPTED, Source, form_of, opened, read_error
from agenttrace.collectors.transcripts import TranscriptReader, is_conversation
from agenttrace.collectors.wire import TooManyPartsError
from agenttrace.errors import DecodeError
from agenttrace.spans import LogRow, SpanRow

MAX_PROBLEMS = 1_000

_TASK_ID = "agenttrace.task.id"
_TRIAL = "agenttrace.trial"
_OTHER_SIGNALS = ("resourceMetrics", "resourceProfiles")
_TITLES = {
    **{name: form.title for name, form in FORMATS.items()},
    "transcripts": "chat transcripts",
    "outcomes": "outcomes as CSV",
}

Progress = Callable[[str, int], None]

_Row = TypeVar("_Row", SpanRow, LogRow)


class _OtherFormatError(DecodeError):
    """The file is not what `--format` says; nothing more of it is read."""


class Problem(NamedTuple):
    """What was skipped: the place, as FILE or FILE:LINE, and the reason."""

    place: str
    message: str


@dataclass
class ImportResult:
    """What an import brought.

    Attributes:
        files: Files of which something was read.
        spans: Span records read; one that the store has is not stored again.
        logs: Log records of spans read.
        transcripts: Chat transcripts read; each has become spans.
        outcomes: Outcomes read, also those that stand in transcripts.
        traces: Different traces among the spans.
        skipped: What was skipped, at most MAX_PROBLEMS of it.
        skipped_count: All that was skipped.
        logs_without_span: Log records that belong to no span; they are left out.
        other_signals: Requests with metrics or profiles; they are left out.
        leniencies: What was taken although OTLP forbids it, and how often.
    """

    files: int = 0
    spans: int = 0
    logs: int = 0
    transcripts: int = 0
    outcomes: int = 0
    traces: int = 0
    skipped: list[Problem] = field(default_factory=list[Problem])
    skipped_count: int = 0
    logs_without_span: int = 0
    other_signals: int = 0
    leniencies: Counter[str] = field(default_factory=Counter[str])

    def read_count(self) -> int:
        """Counts all that was read, also what was left out."""
        return self.spans + self.logs + self.outcomes + self.logs_without_span + self.other_signals

    def skip(self, place: str, message: str) -> None:
        """Counts something skipped."""
        self.skipped_count += 1
        if len(self.skipped) < MAX_PROBLEMS:
            self.skipped.append(Problem(place, message))


def import_files(
    paths: Sequence[str | Path],
    db: Path,
    *,
    task_id: str | None = None,
    trial: int | None = None,
    messages_key: str | None = None,
    form: str | None = None,
    progress: Progress | None = None,
) -> ImportResult:
    """Reads files into the spool of a store; `store.refresh` then brings them into the store.

    Args:
        paths: Files; "-" is standard input.
        db: The store.
        task_id: Task of records that name none.
        trial: Trial of records that name none.
        messages_key: Where transcripts hold their messages; None for `messages` or `traj`.
        form: What the files must be; None for what each document is by its content.
        progress: Called with the name of a file and the rows read so far, in all files.

    Raises:
        SpoolError: The spool cannot be written; what was written before stays.
    """
    return _Import(db, task_id, trial, messages_key, form, progress).run(paths)


class _Import:
    def __init__(
        self,
        db: Path,
        task_id: str | None,
        trial: int | None,
        messages_key: str | None,
        form: str | None,
        progress: Progress | None,
    ) -> None:
        self._batches = Batches(db)
        self._task_id = task_id
        self._trial = trial
        self._messages_key = messages_key
        self._form = form
        self._tag = _Tag({_TASK_ID: task_id, _TRIAL: trial})
        self._progress = progress
        self._traces: set[int] = set()
        self._result = ImportResult()

    def run(self, paths: Sequence[str | Path]) -> ImportResult:
        for path in paths:
            self._read(str(path))
        self._batches.flush()
        self._result.traces = len(self._traces)
        return self._result

    def _read(self, name: str) -> None:
        result = self._result
        before = result.read_count()
        try:
            with opened(name) as source:
                self._read_source(source)
        except (OSError, EOFError, zlib.error) as err:
            result.skip(name, read_error(err))
        except DecodeError as err:
            result.skip(name, str(err))
        result.files += result.read_count() > before

    def _read_source(self, source: Source) -> None:
        form = form_of(source.head)
        if form == "json":
            self._expect("JSON", *FORMATS, "transcripts")
            self._read_json(source)
            return
        self._expect(*(("outcomes as CSV", "outcomes") if form == "outcomes" else ("OTLP as protobuf", "otlp")))
        if form == "outcomes":
            self._read_outcomes(source)
        elif form == "protobuf messages":
            self._read_messages(source)
        else:
            self._read_protobuf(source)

    def _read_json(self, source: Source) -> None:
        transcripts = TranscriptReader(
            source.modified_ns, self._messages_key, self._task_id, self._trial, self._result.leniencies
        )
        for found in json_documents(source.stream, self._result.leniencies):
            place = f"{source.name}:{found.line}"
            if isinstance(found, BadDocument):
                self._result.skip(place, found.reason)
                continue
            try:
                self._take_documents(source, place, found.value, transcripts)
            except _OtherFormatError:
                raise
            except DecodeError as err:
                self._result.skip(place, str(err))

    def _expect(self, found: str, *possible: str) -> None:
        if self._form is not None and self._form not in possible:
            raise _OtherFormatError(
                f"is {found}, not {_TITLES[self._form]}; leave --format out, or name what the file is"
            )

    def _take_documents(self, source: Source, place: str, document: Any, reader: TranscriptReader) -> None:
        items = cast("list[Any]", document) if isinstance(document, list) else []
        if not items or is_conversation(document) or all(map(FORMATS["otlp"].recognises, items)):
            self._take_document(source, place, document, reader)
            return
        for index, item in enumerate(items):
            try:
                self._take_document(source, f"{place}[{index}]", item, reader)
            except _OtherFormatError:
                raise
            except DecodeError as err:
                self._result.skip(f"{place}[{index}]", str(err))

    def _take_document(self, source: Source, place: str, document: Any, reader: TranscriptReader) -> None:
        if _is_other_signal(document):
            self._result.other_signals += 1
        elif (name := format_of(document)) is not None:
            self._expect(FORMATS[name].title, name)
            self._take(source, place, FORMATS[name].decode(document, None))
        elif self._form in FORMATS:
            raise _OtherFormatError(
                f"is not {_TITLES[self._form]}: {place} is {describe(document)}; "
                "leave --format out, or name what the file is"
            )
        else:
            self._take_transcript(source, place, document, reader)

    def _read_protobuf(self, source: Source) -> None:
        body = source.stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(body) > MAX_DOCUMENT_BYTES:
            raise DecodeError(f"longer than {MAX_DOCUMENT_BYTES >> 20} MiB")
        try:
            self._take(source, source.name, _decode_protobuf(body))
        except DecodeError as err:
            raise DecodeError(f"{err}; {ACCEPTED}") from err

    def _read_messages(self, source: Source) -> None:
        """Reads messages behind their length, as the OpenTelemetry Collector's file exporter writes protobuf."""
        number = 0
        while prefix := source.stream.read(4):
            number += 1
            place = f"{source.name}: message {number}"
            body = source.stream.read(min(int.from_bytes(prefix), MAX_DOCUMENT_BYTES))
            if len(prefix) < 4 or len(body) < int.from_bytes(prefix):
                self._result.skip(place, "torn: the file ends inside it")
                return
            try:
                self._take(source, place, _decode_protobuf(body))
            except DecodeError as err:
                self._result.skip(place, str(err))

    def _read_outcomes(self, source: Source) -> None:
        lines = io.TextIOWrapper(source.stream, "utf-8-sig", errors="replace", newline="")
        rows = read_outcomes(lines, recorded_at_unix_nano=source.modified_ns, task_id=self._task_id, trial=self._trial)
        for line, row in rows:
            if isinstance(row, DecodeError):
                self._result.skip(f"{source.name}:{line}", str(row))
                continue
            self._result.outcomes += 1
            self._batches.add("outcomes", [row], 0)
            self._report(source)

    def _take(self, source: Source, place: str, decoded: Decoded) -> None:
        result = self._result
        for problem in decoded.problems:
            result.skip(place, problem)
        result.skipped_count += max(0, decoded.rejected_spans + decoded.rejected_logs - len(decoded.problems))
        result.leniencies.update(decoded.leniencies)
        result.logs_without_span += decoded.logs_without_span
        result.spans += len(decoded.spans)
        result.logs += len(decoded.logs)
        self._traces.update(hash(row.trace_id) for row in decoded.spans)
        self._batches.add("spans", self._tag.rows(decoded.spans), size_of(decoded.spans))
        self._batches.add("logs", self._tag.rows(decoded.logs), size_of(decoded.logs))
        self._report(source)

    def _take_transcript(self, source: Source, place: str, record: Any, reader: TranscriptReader) -> None:
        transcript = reader.read(record)
        self._result.transcripts += 1
        self._take(source, place, Decoded(spans=transcript.spans, problems=transcript.problems))
        if transcript.outcome is not None:
            self._result.outcomes += 1
            self._batches.add("outcomes", [transcript.outcome], 0)

    def _report(self, source: Source) -> None:
        if self._progress is not None:
            self._progress(source.name, self._result.spans + self._result.logs + self._result.outcomes)


class _Tag:
    """Adds task and trial to the resource of records that name none; the record itself stays as it was sent."""

    def __init__(self, attributes: dict[str, str | int | None]) -> None:
        self._attributes = {key: value for key, value in attributes.items() if value is not None}
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def rows(self, rows: list[_Row]) -> list[_Row]:
        if not self._attributes:
            return rows
        return [row._replace(resource_attributes=self._tagged(row.attributes, row.resource_attributes)) for row in rows]

    def _tagged(self, attributes: str, resource_attributes: str) -> str:
        # Most records name neither, which the text shows without parsing it.
        own: dict[str, Any] = orjson.loads(attributes) if any(key in attributes for key in self._attributes) else {}
        wanted = tuple(key for key in self._attributes if key not in own)
        known = self._known.get((resource_attributes, wanted))
        if known is None:
            added = {key: self._attributes[key] for key in wanted}
            known = json_text({**added, **orjson.loads(resource_attributes)})
            self._known[resource_attributes, wanted] = known
        return known


def _is_other_signal(document: object) -> bool:
    return isinstance(document, dict) and any(key in document for key in _OTHER_SIGNALS)


def _decode_protobuf(body: bytes) -> Decoded:
    """Decodes a trace or log request; the bytes do not say which, but only the right one finds ids.

    Raises:
        DecodeError: It is neither.
    """
    try:
        traces = decode_traces_protobuf(body)
    except TooManyPartsError:
        raise
    except DecodeError:
        return decode_logs_protobuf(body)
    if traces.spans:
        return traces
    try:
        logs = decode_logs_protobuf(body)
    except DecodeError:
        return traces
    return logs if logs.spans or logs.logs or logs.logs_without_span else traces
