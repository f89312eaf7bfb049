"""What agenttrace says of itself, as OpenTelemetry metrics of the meter `agenttrace`.

Everything is counted anyway and only read here, when a MeterProvider collects: without one it costs nothing. Names
are those of OpenTelemetry's semantic conventions for SDKs where these have one.

Source:
    https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/ (in Development; checked 2026-11-30).
"""

import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, Protocol, TypeVar

from opentelemetry.metrics import CallbackOptions, Observation, get_meter

from agenttrace.guard import guarded

Subject = TypeVar("Subject")
Values = Iterable[tuple[float, Mapping[str, str]]]

_CREATE = {
    "counter": "create_observable_counter",
    "gauge": "create_observable_gauge",
    "up_down_counter": "create_observable_up_down_counter",
}


@dataclass(frozen=True)
class Metric(Generic[Subject]):
    """One metric.

    Attributes:
        name: Its name.
        kind: Its instrument.
        unit: Its unit, in UCUM.
        description: What it counts, for people.
        read: Returns the values of one subject, each with its attributes.
    """

    name: str
    kind: Literal["counter", "gauge", "up_down_counter"]
    unit: str
    description: str
    read: Callable[[Subject], Values]


class Observed(Generic[Subject]):
    """Objects of one kind that are observed for as long as somebody else needs them."""

    def __init__(self, metrics: Sequence[Metric[Subject]]) -> None:
        self.metrics = metrics
        self._subjects: weakref.WeakSet[Subject] = weakref.WeakSet()
        self._is_registered = False

    @guarded("offer metrics of its own")
    def add(self, subject: Subject) -> None:
        """Observes one more."""
        self._subjects.add(subject)
        if not self._is_registered:
            # Once in a process: a second instrument of a name would be a conflict.
            self._is_registered = True
            meter = get_meter("agenttrace")
            for metric in self.metrics:
                create: Callable[..., object] = getattr(meter, _CREATE[metric.kind])
                create(
                    metric.name,
                    callbacks=[partial(self._observe, metric)],
                    unit=metric.unit,
                    description=metric.description,
                )

    def _observe(self, metric: Metric[Subject], _options: CallbackOptions) -> Iterator[Observation]:
        for subject in list(self._subjects):
            for value, attributes in metric.read(subject):
                yield Observation(value, attributes)


_numbers: defaultdict[str, "itertools.count[int]"] = defaultdict(itertools.count)


def component(subject: object) -> dict[str, str]:
    """Returns the attributes by which one exporter or processor is told from the others of a process."""
    kind = f"{type(subject).__module__}.{type(subject).__qualname__}"
    return {"otel.component.type": kind, "otel.component.name": f"{kind}/{next(_numbers[kind])}"}


def outcomes(succeeded: int, failed: Mapping[str, int], attributes: Mapping[str, str]) -> Values:
    """Yields how many succeeded, and how many failed for each cause."""
    yield succeeded, attributes
    for cause, count in list(failed.items()):
        yield count, {**attributes, "error.type": cause}


class Exports(Protocol):
    """What counts exported spans: an exporter of ours, or a processor of ours for one of somebody else's."""

    def exported(self) -> Values:
        """Counts the spans that have arrived, and those that are lost, by cause."""
        ...


class Exporter(Protocol):
    """An exporter of ours."""

    component: dict[str, str]
    starts_missed: int


class Processor(Protocol):
    """A processor of ours."""

    component: dict[str, str]
    capacity: int

    @property
    def queue_size(self) -> int:
        """Ended spans that wait for the exporter."""
        ...

    def processed(self) -> Values:
        """Counts the spans that the exporter was given, and those that never got there, by cause."""
        ...


exports = Observed(
    [
        Metric[Exports](
            "otel.sdk.exporter.span.exported",
            "counter",
            "{span}",
            "The number of spans for which the export has finished, either successful or failed.",
            lambda subject: subject.exported(),
        ),
    ]
)

exporters = Observed(
    [
        Metric[Exporter](
            "agenttrace.exporter.start.missed",
            "counter",
            "{span}",
            "The number of started spans that were not on disk before what they stand for began.",
            lambda exporter: [(exporter.starts_missed, exporter.component)],
        ),
    ]
)

processors = Observed(
    [
        Metric[Processor](
            "otel.sdk.processor.span.processed",
            "counter",
            "{span}",
            "The number of spans for which the processing has finished, either successful or failed.",
            lambda batcher: batcher.processed(),
        ),
        Metric[Processor](
            "otel.sdk.processor.span.queue.size",
            "up_down_counter",
            "{span}",
            "The number of spans in the queue of a given instance of an SDK span processor.",
            lambda batcher: [(batcher.queue_size, batcher.component)],
        ),
        Metric[Processor](
            "otel.sdk.processor.span.queue.capacity",
            "up_down_counter",
            "{span}",
            "The maximum number of spans the queue of a given instance of an SDK span processor can hold.",
            lambda batcher: [(batcher.capacity, batcher.component)],
        ),
    ]
)
