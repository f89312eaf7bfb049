"""Thresholds over measurements: the release gate."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agenttrace.config import Threshold
from agenttrace.errors import ConfigError
from agenttrace.evaluators.results import Measurement

# metric, metric.p95 (also pass_hat_k.3), metric.p95{agent=shop, day=2026-01-31}
_KEY = re.compile(r"(?P<metric>[A-Za-z_][A-Za-z0-9_]*)(?:\.(?P<point>[^{}]+))?(?:\{(?P<group>[^{}]*)\})?")
# Of the tasks and runs that made a threshold fail so many are named, each in so many characters.
_SHOWN = 3
_WIDTH = 200


def verdicts(
    thresholds: Mapping[str, Threshold],
    measurements: Iterable[Measurement],
    offenders: Callable[[str], Sequence[str]] = lambda _: (),
) -> list[dict[str, Any]]:
    """Returns one object per threshold: threshold, value, n, min, max, gate, passed, reason.

    `passed` is None where the metric was not measured or has no value, which is no pass. The reason of one that failed
    names value, bound, n, interval and the first offenders, and that of one without a value what was lacking.

    Args:
        thresholds: Bounds by metric, as in `metric.p95{agent=shop}`.
        measurements: What was measured.
        offenders: Gives the tasks or runs behind the value of a metric, worst first.

    Raises:
        ConfigError: A key of `[thresholds]` does not name a metric.
    """
    found = list(measurements)
    return [_verdict(key, threshold, found, offenders) for key, threshold in thresholds.items()]


def _verdict(
    key: str, threshold: Threshold, measurements: list[Measurement], offenders: Callable[[str], Sequence[str]]
) -> dict[str, Any]:
    metric, dimensions = _wanted(key)
    match = next((m for m in measurements if m.metric == metric and _same(m.dimensions, dimensions)), None)
    if match is None:
        passed, reason = None, _unmeasured(metric, {m.metric for m in measurements})
    elif match.value is None:
        blank = f"no value: {match.n_not_evaluable} not evaluable"
        passed, reason = None, "; ".join((blank, *_first(offenders(metric))))
    else:
        miss = _miss(threshold, match.value)
        passed = miss is None
        reason = miss and "; ".join((f"{miss} ({_basis(match)})", *_first(offenders(metric))))
    return {
        "threshold": key,
        "value": match.value if match else None,
        "n": match.n if match else 0,
        "min": threshold.min,
        "max": threshold.max,
        "gate": threshold.gate,
        "passed": passed,
        "reason": reason,
    }


def _unmeasured(metric: str, measured: set[str]) -> str:
    close = [] if metric in measured else get_close_matches(metric, sorted(measured), n=1)
    return "not measured in this evaluation" + (f"; did you mean {close[0]}?" if close else "")


def _miss(threshold: Threshold, value: float) -> str | None:
    if threshold.min is not None and value < threshold.min:
        return f"{value:g} is below {threshold.min:g}"
    if threshold.max is not None and value > threshold.max:
        return f"{value:g} is above {threshold.max:g}"
    return None


def _basis(measurement: Measurement) -> str:
    text = f"n {measurement.n}"
    if measurement.n_not_evaluable:
        text += f", {measurement.n_not_evaluable} not evaluable"
    if measurement.low is None or measurement.high is None:
        return f"{text}, no 95 % interval"
    return f"{text}, 95 % interval {measurement.low:.4g} to {measurement.high:.4g}"


def _first(offenders: Sequence[str]) -> list[str]:
    shown = [text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..." for text in offenders[:_SHOWN]]
    return shown + ([f"and {len(offenders) - _SHOWN} more"] if len(offenders) > _SHOWN else [])


def _wanted(key: str) -> tuple[str, list[tuple[str | None, str]]]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise ConfigError(
            f"thresholds: {key!r} names no metric; expected metric, metric.p95 or metric.p95{{agent=NAME}}"
        )
    dimensions: list[tuple[str | None, str]] = [(None, match["point"])] if match["point"] else []
    for pair in (match["group"] or "").split(","):
        name, equals, value = pair.partition("=")
        if equals:
            dimensions.append((name.strip(), value.strip()))
        elif pair.strip():
            raise ConfigError(
                f"thresholds: {pair.strip()!r} in {key!r} is no group; expected NAME=VALUE, as in agent=shop"
            )
    return match["metric"], dimensions


def _same(dimensions: Mapping[str, Any], wanted: list[tuple[str | None, str]]) -> bool:
    """Whether exactly the wanted dimensions are there; a quantile or a k stands without its name."""
    rest = {name: str(value) for name, value in dimensions.items()}
    for name, value in wanted:
        names = (name,) if name is not None else ("quantile", "k")
        hit = next((candidate for candidate in names if rest.get(candidate) == value), None)
        if hit is None:
            return False
        del rest[hit]
    return not rest
