"""Line charts with intervals as inline SVG: nights, and pass^k over k."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from agenttrace.evaluators.reports.charts import Scale, number_text, rounded_up, scale_of, step_of, ticks_of

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 44, 30
_PLOT_WIDTH = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_MAX_LABELS = 5


class Point(NamedTuple):
    """A value with its 95 % interval; `value` None is a gap in the line."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Line(NamedTuple):
    """One line: its name, a point for each label of the chart, and the class that colours it."""

    name: str
    points: Sequence[Point]
    mark: str = "s0"


class Chart(NamedTuple):
    """What to draw: the labels of the axis from left to right, and one line or a few."""

    title: str
    unit: str
    labels: Sequence[str]
    lines: Sequence[Line]


def svg(chart: Chart) -> Markup:
    """Returns the picture, with a text for those who do not see it."""
    highest = max(
        (value for line in chart.lines for point in line.points for value in point if value is not None), default=0
    )
    scale = scale_of(chart.unit, highest)
    chart = _in(scale, chart)
    top = highest / scale.divisor or 1.0
    step = step_of(top)
    ceiling = rounded_up(top, step)
    parts = [
        *_grid(chart, ceiling, step),
        *(part for line in chart.lines for part in _line(chart, line, ceiling)),
        *_legend(chart),
    ]
    told = "; ".join(f"{line.name} {_told(chart, line)}" for line in chart.lines)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{} in {}: {}" class="chart lines">{}</svg>').format(
        _WIDTH, _HEIGHT, chart.title, chart.unit, told, Markup("").join(parts)
    )


def _in(scale: Scale, chart: Chart) -> Chart:
    def scaled(point: Point) -> Point:
        return Point(*(None if value is None else value / scale.divisor for value in point))

    lines = [line._replace(points=[scaled(point) for point in line.points]) for line in chart.lines]
    return chart._replace(unit=scale.name, lines=lines)


def _told(chart: Chart, line: Line) -> str:
    known = [
        f"{label} {number_text(point.value)}"
        for label, point in zip(chart.labels, line.points, strict=True)
        if point.value is not None
    ]
    return " to ".join([known[0], known[-1]][: len(known)]) if known else "no value"


def _x(chart: Chart, index: int) -> float:
    share = index / (len(chart.labels) - 1) if len(chart.labels) > 1 else 0.5
    return round(_LEFT + _PLOT_WIDTH * share, 1)


def _y(share: float) -> float:
    return round(_TOP + _PLOT_HEIGHT * (1 - share), 1)


def _grid(chart: Chart, ceiling: float, step: float) -> list[Markup]:
    rows = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="end" x="{}" y="{}">{}</text>').format(
            _LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 4, number_text(tick)
        )
        for tick in ticks_of(ceiling, step)
        for y in (_y(tick / ceiling),)
    ]
    every = max(1, -(-(len(chart.labels) - 1) // (_MAX_LABELS - 1)))
    columns = [
        Markup('<text class="{}" x="{}" y="{}">{}</text>').format(
            "middle" if 0 < index < len(chart.labels) - 1 else "end" if index else "", x, _HEIGHT - 10, label
        )
        for index, label in enumerate(chart.labels)
        if index % every == 0
        for x in (_x(chart, index) + (_RIGHT if 0 < index == len(chart.labels) - 1 else 0),)
    ]
    unit = Markup('<text class="axis" x="{}" y="{}">{}</text>').format(4, _TOP - 12, chart.unit)
    return [*rows, *columns, unit]


def _line(chart: Chart, line: Line, ceiling: float) -> list[Markup]:
    parts: list[Markup] = []
    for run in _runs(line.points):
        band = [(_x(chart, place), point) for place, point in run if point.low is not None and point.high is not None]
        if len(band) > 1:
            upper = [f"{x},{_y((point.high or 0) / ceiling)}" for x, point in band]
            lower = [f"{x},{_y((point.low or 0) / ceiling)}" for x, point in reversed(band)]
            parts.append(Markup('<polygon class="band {}" points="{}"/>').format(line.mark, " ".join(upper + lower)))
        dots = [(_x(chart, place), _y((point.value or 0) / ceiling), place, point) for place, point in run]
        if len(dots) > 1:
            path = " ".join(f"{x},{y}" for x, y, _, _ in dots)
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(line.mark, path))
        parts += [
            Markup('<circle class="dot {}" cx="{}" cy="{}" r="3"><title>{}</title></circle>').format(
                line.mark, x, y, f"{chart.labels[place]}: {line.name} {_point_text(point, chart.unit)}"
            )
            for x, y, place, point in dots
        ]
    return parts


def _point_text(point: Point, unit: str) -> str:
    value, low, high = (None if part is None else number_text(part) for part in point)
    interval = f" (95 % interval {low} to {high})" if low is not None and high is not None else ""
    return f"{value} {unit}{interval}"


def _runs(points: Sequence[Point]) -> list[list[tuple[int, Point]]]:
    """Cuts a line where there is no value."""
    runs: list[list[tuple[int, Point]]] = [[]]
    for place, point in enumerate(points):
        if point.value is None:
            runs.append([])
        else:
            runs[-1].append((place, point))
    return [run for run in runs if run]


def _legend(chart: Chart) -> list[Markup]:
    if len(chart.lines) < 2:
        return []
    parts: list[Markup] = []
    x = _LEFT
    for line in chart.lines:
        parts.append(
            Markup('<circle class="dot {}" cx="{}" cy="{}" r="4"/><text x="{}" y="{}">{}</text>').format(
                line.mark, x + 4, 12, x + 12, 16, line.name
            )
        )
        x += 28 + 7 * len(line.name)
    return parts
