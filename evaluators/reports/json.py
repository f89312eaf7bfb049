"""An evaluation as strict JSON."""

import json
import math
from typing import Any, cast

from agenttrace.evaluators.results import Evaluation


def render(evaluation: Evaluation) -> str:
    """Returns one object: run, passed, cases, findings, measurements, not_evaluable, gate.

    Everything beyond ASCII is escaped: trace content can neither steer a terminal nor break a reader's decoder.
    """
    return json.dumps(_finite(evaluation.as_dict()), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN; evidence may hold what a trace made up."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
