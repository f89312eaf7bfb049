"""Python reprs, which some producers write where others write JSON."""

import ast
import math
import re
import warnings
from typing import Any

from agenttrace.json_text import dump

_MAX_DEPTH = 50
_MAX_LENGTH = 200_000
# Strings pass; `<ChatRole.USER: 'user'>`, which is no Python, becomes one. A string without an end goes to the end of
# the text: were it no match, each quote in it would be tried in turn, in quadratic time.
_STRING_OR_ANGLE = re.compile(
    r"""'(?:[^'\\]|\\.?)*+(?:'|\Z)|"(?:[^"\\]|\\.?)*+(?:"|\Z)|(<(?:[^<>]|<[^<>]*>)*>)""", re.DOTALL
)


def json_of_repr(text: str) -> str | None:
    """The value of a Python literal as JSON; None where the text is none.

    A dataclass or model (`Call(name='x', id=None)`) becomes the object of its fields, an enum member its repr.
    """
    if len(text) > _MAX_LENGTH or text.lstrip()[:1] in ("", "<"):
        return None
    code = _STRING_OR_ANGLE.sub(lambda found: repr(found[1]) if found[1] else found[0], text.strip())
    try:
        with warnings.catch_warnings(action="ignore"):
            # It is parsed, never run.
            tree = ast.parse(code, mode="eval")
        return dump(_value(tree.body, 0))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    match node:
        case ast.Constant(value=str() as text):
            # A lone surrogate, which no UTF-8 text can hold, becomes U+FFFD.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case ast.Constant(value=int() | float() | None as value):
            return value if not isinstance(value, float) or math.isfinite(value) else None
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item, depth + 1) for item in items]
        case ast.Dict(keys=keys, values=values):
            pairs = [
                (_value(key, depth + 1) if key else None, _value(value, depth + 1))
                for key, value in zip(keys, values, strict=True)
            ]
            return {key if isinstance(key, str) else dump(key): value for key, value in pairs}
        case ast.Call(args=args, keywords=fields):
            named = {field.arg or "": _value(field.value, depth + 1) for field in fields}
            return named or [_value(item, depth + 1) for item in args]
        case ast.Name(id="nan" | "inf"):
            return None
        case _:
            raise ValueError("no Python literal")
