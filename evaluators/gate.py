"""Thresholds over measurements: the release gate."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from agenttrace.config import Threshold
from agenttrace.errors import ConfigError
from agenttrace.evaluators.results import Measurement

# metric, metric.p95 (also pass_hat_k.3), metric.p95{agent=shop, day=2026-01-31}
_KEY = re.compile(r"(?P<metric>[a-z_]+)(?:\.(?P<point>[^{}]+))?(?:\{(?P<group>[^{}]*)\})?")


def verdicts(thresholds: Mapping[str, Threshold], measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Returns one object per threshold: threshold, value, min, max, gate, passed, reason, n.

    `passed` is None where the metric was not measured or has no value, which is no pass.

    Raises:
        ConfigError: A key of `[thresholds]` does not name a metric.
    """
    found = list(measurements)
    return [_verdict(key, threshold, found) for key, threshold in thresholds.items()]


def _verdict(key: str, threshold: Threshold, measurements: list[Measurement]) -> dict[str, Any]:
    metric, dimensions = _wanted(key)
    match = next((m for m in measurements if m.metric == metric and _same(m.dimensions, dimensions)), None)
    value = match.value if match else None
    passed: bool | None = None
    if value is not None:
        passed = (threshold.min is None or value >= threshold.min) and (threshold.max is None or value <= threshold.max)
    return {
        "threshold": key,
        "value": value,
        "n": match.n if match else 0,
        "min": threshold.min,
        "max": threshold.max,
        "gate": threshold.gate,
        "passed": passed,
        "reason": _reason(threshold, match, metric, {m.metric for m in measurements}),
    }


def _reason(threshold: Threshold, match: Measurement | None, metric: str, measured: set[str]) -> str | None:
    if match is None:
        close = [] if metric in measured else get_close_matches(metric, sorted(measured), n=1)
        return "not measured in this evaluation" + (f"; did you mean {close[0]}?" if close else "")
    if match.value is None:
        return f"no value: {match.n_not_evaluable} not evaluable"
    if threshold.min is not None and match.value < threshold.min:
        return f"{match.value:g} is below {threshold.min:g}"
    if threshold.max is not None and match.value > threshold.max:
        return f"{match.value:g} is above {threshold.max:g}"
    return None


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
