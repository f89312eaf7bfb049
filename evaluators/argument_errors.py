"""Arguments of tool calls against JSON schemas: offered with a request, or configured for what was executed.

Schemas and arguments come out of traces and are hostile: nothing is fetched, no regular expression of theirs is run,
and the work on one call is bounded, however often a schema refers to itself.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import pyarrow as pa
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from agenttrace.evaluators import tables

SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("position", pa.int64()),
        ("tool_call_id", pa.string()),
        ("tool_name", pa.string()),
        ("source", pa.string()),
        ("rule", pa.string()),
        ("message", pa.string()),
    ]
)

# Checks of one keyword against one value; a hand-written schema needs tens.
_MAX_CHECKS = 5_000
_MAX_SCHEMA_BYTES = 100_000
_MAX_DEPTH = 40
_MAX_NESTED_CHECKS = 100
_SHOWN_ERRORS = 3
_SHOWN_CHARACTERS = 40

# Left out: `pattern` and `patternProperties` run a regular expression of the trace, `format` is advice, and
# `uniqueItems` and `contains` compare everything with everything.
_KEYWORDS = (
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "type", "enum", "const"),
    *("properties", "required", "additionalProperties", "items", "prefixItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
)
_REDACTED = ("[redacted", "__redacted__", "<redacted")


class ArgumentError(NamedTuple):
    """How the arguments of one call break their schema.

    Attributes:
        rule: The JSON Schema keyword of the first fault: required, type, additionalProperties, ...
        message: Up to three faults in words.
    """

    rule: str
    message: str


def check(schema: str, arguments: str) -> ArgumentError | None:
    """Compares arguments with a schema.

    Args:
        schema: JSON text of the offered `parameters`.
        arguments: JSON text of the arguments.

    Returns:
        None where they fit, or where the schema cannot be used: not an object, too large, refers elsewhere.
    """
    validator = _validator(schema)
    if validator is None:
        return None
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        # A text that is no JSON although it wants to be; other texts are a recorder's short form.
        return ArgumentError("type", "the arguments are no valid JSON") if value.lstrip().startswith("{") else None
    if not isinstance(value, dict):
        return None
    try:
        _checks.left, _checks.depth = _MAX_CHECKS, 0
        errors = sorted(validator.iter_errors(value), key=_place)  # pyright: ignore[reportUnknownMemberType]
    except (_TooMuchError, RecursionError, Unresolvable, UnknownType, TypeError, ValueError, AttributeError):
        return None
    # A dictionary, because a list of missing keys comes once per key.
    faults = list({_words(error): str(error.validator) for error in errors if not _hidden(error.instance)}.items())
    if not faults:
        return None
    more = f", and {len(faults) - _SHOWN_ERRORS} more" if len(faults) > _SHOWN_ERRORS else ""
    return ArgumentError(faults[0][1], "; ".join(words for words, _ in faults[:_SHOWN_ERRORS]) + more)


def definitions(schemas: Mapping[str, Any]) -> str:
    """Returns configured schemas, tool to schema, in the form in which tools are offered: JSON, dates as text."""
    return json.dumps([{"name": name, "parameters": schema} for name, schema in schemas.items()], default=str)


def table(requests: Iterable[Sequence[str]]) -> pa.Table:
    """Returns the relation `argument_errors`.

    Args:
        requests: Rows of trajectory_id, trace_id, span_id, source, tools and calls as JSON. With the source `offered`
            the step is a model call, with its offered tools and requested calls; with `configured` it is a tool call.
    """
    rows: list[tuple[Any, ...]] = []
    for trajectory_id, trace_id, span_id, source, tools, calls in requests:
        schemas = _schemas(tools)
        for position, call in enumerate(_objects(calls), start=1):
            name, arguments = call.get("name"), call.get("arguments")
            schema = schemas.get(name) if isinstance(name, str) else None
            if schema is not None and arguments is not None:
                error = _cached_check(schema, json.dumps(arguments, sort_keys=True))
                if error is not None:
                    rows.append((trajectory_id, trace_id, span_id, position, call.get("id"), name, source, *error))
    return tables.table(rows, SCHEMA)


class _TooMuchError(Exception):
    """The schema asks for more checks than one call is worth."""


class _Checks:
    """Checks left for the call at hand, and how deep they stand in each other."""

    left = 0
    depth = 0


_checks = _Checks()


def _limited(keyword: Callable[..., Iterator[ValidationError] | None]) -> Callable[..., Iterator[ValidationError]]:
    def check_keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _checks.left -= 1
        _checks.depth += 1
        try:
            # A schema that refers to itself must end here: the registry below, in Rust, panics where Python recurses
            # too deep.
            if _checks.left < 0 or _checks.depth > _MAX_NESTED_CHECKS:
                raise _TooMuchError
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            _checks.depth -= 1

    return check_keyword


def _additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # Whether a key is additional cannot be told without running the patterns.
    if "patternProperties" not in schema:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, value, instance, schema)


_ValidatorClass = cast(
    Any,
    validators.create(  # pyright: ignore[reportUnknownMemberType]
        meta_schema={},
        validators={
            keyword: _limited(
                _additional if keyword == "additionalProperties" else Draft202012Validator.VALIDATORS[keyword]
            )
            for keyword in _KEYWORDS
        },
        type_checker=Draft202012Validator.TYPE_CHECKER,
    ),
)


@lru_cache(maxsize=4096)
def _validator(schema: str) -> Any:
    if len(schema) > _MAX_SCHEMA_BYTES:
        return None
    try:
        value = _plain(json.loads(schema), 0)
    except (ValueError, RecursionError):
        return None
    # An empty registry knows no address and retrieves none.
    nowhere = cast(Any, Registry)()
    return _ValidatorClass(value, registry=nowhere) if isinstance(value, dict) else None


@lru_cache(maxsize=65_536)
def _cached_check(schema: str, arguments: str) -> ArgumentError | None:
    return check(schema, arguments)


@lru_cache(maxsize=1024)
def _schemas(tools: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for tool in _objects(tools):
        name, parameters = tool.get("name"), tool.get("parameters")
        if isinstance(name, str) and isinstance(parameters, dict):
            found[name] = json.dumps(parameters)
    return found


def _objects(text: str) -> list[dict[str, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return []
    entries = cast(list[object], values) if isinstance(values, list) else []
    return [cast(dict[str, Any], entry) for entry in entries if isinstance(entry, dict)]


def _plain(value: Any, depth: int) -> Any:
    """A schema of OpenAPI's or Gemini's dialect as JSON Schema: types in lower case, `nullable` as a type."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    if isinstance(value, list):
        return [_plain(part, depth + 1) for part in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    schema = {key: _plain(part, depth + 1) for key, part in cast(dict[str, Any], value).items()}
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()
    return schema


def _place(error: ValidationError) -> tuple[str, str]:
    return error.json_path, str(error.validator)


def _hidden(instance: object) -> bool:
    """Whether the value is what redaction left: its type says nothing."""
    return isinstance(instance, str) and instance.lower().startswith(_REDACTED)


def _words(error: ValidationError) -> str:
    name = error.json_path.removeprefix("$.").replace("$", "the arguments")
    value: Any = error.validator_value
    instance: Any = error.instance
    prefix = "" if name == "the arguments" else f"{name}."
    if error.validator == "required":
        return f"{prefix}{_missing(value, instance)} is missing"
    if error.validator == "additionalProperties":
        known = set(cast(dict[str, Any], error.schema).get("properties", {}))
        unknown = sorted(set(instance) - known)
        return f"{', '.join(prefix + _short(key) for key in unknown[:_SHOWN_ERRORS])} is not in the schema"
    if error.validator == "type":
        expected = " or ".join(map(str, cast(list[object], value))) if isinstance(value, list) else str(value)
        return f"{name} is {_short(json.dumps(instance))}, expected {expected}"
    if error.validator == "enum":
        return f"{name} is {_short(json.dumps(instance))}, expected one of {_short(json.dumps(value))}"
    return f"{name} is {_short(json.dumps(instance))}, which breaks {error.validator} of the schema"


def _missing(required: list[str], instance: Mapping[str, Any]) -> str:
    return ", ".join(_short(key) for key in required if key not in instance)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
