"""Histograms as inline SVG: no script, no network, colours from the page's style sheet."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

BINS = 24
_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 36, 10, 36, 44
_PLOT_WIDTH = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_LABEL_WIDTH = 84
# No run costs or lasts less; nearer to 0, floats have no digits left to divide.
_SMALLEST = 1e-12


class Histogram(NamedTuple):
    """What to draw.

    Attributes:
        title: What is distributed.
        unit: usd, ms or tokens.
        upper: End of the axis, which begins at 0; the last bin also holds what lies beyond it.
        counts: Runs per bin, all bins of one width.
        beyond: How many of the last bin's runs lie beyond the axis.
        marks: Name and value of each quantile to mark, in rising order.
    """

    title: str
    unit: str
    upper: float
    counts: Sequence[int]
    beyond: int
    marks: Sequence[tuple[str, float]]


class Scale(NamedTuple):
    """A unit for the axis: what to divide by, and its name."""

    divisor: float
    name: str


def axis_end(highest: float, p95: float) -> float:
    """Returns a round end of the axis; one run far out does not flatten all others into the first bin."""
    wanted = highest if highest <= 4 * p95 else 2 * p95
    return rounded_up(wanted, step_of(wanted)) if wanted > _SMALLEST else 1.0


def step_of(span: float) -> float:
    """Returns the largest of 1, 2 and 5 times a power of ten that cuts `span` into three parts or more."""
    part = span / 3 * (1 + 1e-9)
    power = 10.0 ** math.floor(math.log10(part))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= part)


def rounded_up(value: float, step: float) -> float:
    """Returns the next multiple of a step."""
    return step * math.ceil(value / step - 1e-9)


def ticks_of(end: float, step: float) -> list[float]:
    """Returns the multiples of a step from 0 to an end."""
    return [step * i for i in range(int(end / step + 1e-9) + 1)]


def scale_of(unit: str, upper: float) -> Scale:
    """Returns the unit in which an axis up to a value is read best."""
    if unit == "ms" and upper >= 120_000:
        return Scale(60_000, "minutes")
    if unit == "ms" and upper >= 1_000:
        return Scale(1_000, "seconds")
    names = {"ms": "milliseconds", "usd": "US dollars"}
    return Scale(1, names.get(unit, unit))


def number_text(value: float) -> str:
    """Returns a number in three digits, without powers of ten."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{min(digits, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def svg(chart: Histogram) -> Markup:
    """Returns the picture, with a text for those who do not see it."""
    scale = scale_of(chart.unit, chart.upper)
    highest = max(chart.counts)
    step = max(1.0, step_of(highest))
    ceiling = rounded_up(highest, step)
    parts = [
        *_counts_axis(ceiling, step),
        *_bars(chart, scale, ceiling),
        *_values_axis(chart, scale),
        *_marks(chart, scale),
    ]
    told = ", ".join(f"{name} {number_text(value / scale.divisor)}" for name, value in chart.marks)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}: {} runs, {} {}" class="chart">{}</svg>').format(
        _WIDTH, _HEIGHT, chart.title, sum(chart.counts), told, scale.name, Markup("").join(parts)
    )


def _x(share: float) -> float:
    return round(_LEFT + _PLOT_WIDTH * min(share, 1.0), 1)


def _y(share: float) -> float:
    return round(_TOP + _PLOT_HEIGHT * (1 - share), 1)


def _bars(chart: Histogram, scale: Scale, ceiling: float) -> list[Markup]:
    width = _PLOT_WIDTH / len(chart.counts)
    bars: list[Markup] = []
    for index, count in enumerate(chart.counts):
        if not count:
            continue
        low, high = (chart.upper * (index + end) / len(chart.counts) / scale.divisor for end in (0, 1))
        top = _y(count / ceiling)
        bars.append(
            Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
                round(_LEFT + index * width + 0.75, 1),
                top,
                round(width - 1.5, 1),
                round(_TOP + _PLOT_HEIGHT - top, 1),
                f"{number_text(low)} to {number_text(high)} {scale.name}: {count:,}",
            )
        )
    return bars


def _counts_axis(ceiling: float, step: float) -> list[Markup]:
    lines = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick end" x="{}" y="{}">{}</text>'
        ).format(
            _LEFT,
            _WIDTH - _RIGHT,
            _y(tick / ceiling),
            _y(tick / ceiling),
            _LEFT - 6,
            _y(tick / ceiling) + 4,
            number_text(tick),
        )
        for tick in ticks_of(ceiling, step)
    ]
    return [*lines, Markup('<text class="axis" x="{}" y="{}">runs</text>').format(4, _TOP - 12)]


def _values_axis(chart: Histogram, scale: Scale) -> list[Markup]:
    end = chart.upper / scale.divisor
    ticks = ticks_of(end, step_of(end))
    marks = [
        Markup('<text class="tick {}" x="{}" y="{}">{}</text>').format(
            # The last number would stick out.
            "end" if tick > end * 0.97 else "middle",
            _x(tick / end) + (6 if tick > end * 0.97 else 0),
            _HEIGHT - _BOTTOM + 16,
            number_text(tick),
        )
        for tick in (ticks if len(ticks) < 7 else ticks[::2])
    ]
    beyond = f" ({chart.beyond:,} beyond, in the last bar)" if chart.beyond else ""
    name = Markup('<text class="axis middle" x="{}" y="{}">{}</text>').format(
        _LEFT + _PLOT_WIDTH / 2, _HEIGHT - 8, scale.name + beyond
    )
    return [*marks, name]


def _marks(chart: Histogram, scale: Scale) -> list[Markup]:
    lines: list[Markup] = []
    taken = -1.0
    for name, value in chart.marks:
        at = _x(value / chart.upper)
        side = "end" if at > _WIDTH - _LABEL_WIDTH else "start"
        # Names that would meet get two lines, and one near the edge turns left.
        begin = at - _LABEL_WIDTH if side == "end" else at
        raised = begin < taken
        taken = begin + _LABEL_WIDTH
        lines.append(
            Markup(
                '<line class="mark {}" x1="{}" x2="{}" y1="{}" y2="{}"/>'
                '<text class="quantile {}" x="{}" y="{}">{}</text>'
            ).format(
                name,
                at,
                at,
                _TOP - (18 if raised else 6),
                _TOP + _PLOT_HEIGHT,
                side,
                at + (-4 if side == "end" else 4),
                _TOP - (14 if raised else 2),
                f"{name} {number_text(value / scale.divisor)}",
            )
        )
    return lines
