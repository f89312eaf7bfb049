"""Gives the arguments of a call their parameter names, so that f(1) and f(x=1) have equal arguments.

A binder is generated once per function: a function with the same parameters whose body is a dict of them. It costs 0.07
of `inspect.Signature.bind`.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

Arguments = dict[str, object]
Binder = Callable[[tuple[Any, ...], dict[str, Any]], Arguments]


class Binding(NamedTuple):
    """How the arguments of one function get their names."""

    bind: Binder
    names: tuple[str, ...]
    """Parameters in order, the receiver of a method left out."""
    takes_any_name: bool


def make_binding(function: Callable[..., Any], *, has_receiver: bool = False) -> Binding:
    """Builds the binder of a function; it never raises, whatever the arguments.

    Defaults that the caller left out are filled in. `**kwargs` are arguments under their own names.

    Args:
        function: Any callable; for a partial, the arguments that it holds belong to the call.
        has_receiver: The first parameter is the receiver of a method, under whatever name. `self` and `cls` are
            recognised without it.
    """
    if isinstance(function, functools.partial):
        inner = make_binding(function.func, has_receiver=has_receiver)
        return inner._replace(bind=_after(function.args, function.keywords, inner.bind))
    try:
        parameters = list(_signature(function).parameters.values())
    except (TypeError, ValueError):
        return Binding(_bind_without_names, (), True)
    positional = [each.name for each in parameters if each.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    receiver = positional[0] if positional and (has_receiver or positional[0] in ("self", "cls")) else None
    names = tuple(each.name for each in parameters if each.name != receiver)
    takes_any_name = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    return Binding(_with_fallback(_generate(parameters, receiver), positional, receiver), names, takes_any_name)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """From Python 3.14 on, annotations are evaluated unless told not to, and may name what is not there yet."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _generate(parameters: list[inspect.Parameter], receiver: str | None) -> Callable[..., Arguments]:
    """Generates the function with the same parameters; only their names enter its source, and those are identifiers."""
    defaults: dict[str, object] = {}
    signature: list[str] = []
    last = None
    for number, each in enumerate(parameters):
        if last is inspect.Parameter.POSITIONAL_ONLY and each.kind is not last:
            signature.append("/")
        if each.kind is inspect.Parameter.KEYWORD_ONLY and last not in (each.kind, inspect.Parameter.VAR_POSITIONAL):
            signature.append("*")
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(each.kind, "")
        if each.default is not inspect.Parameter.empty:
            defaults[f"default_{number}"] = each.default
            signature.append(f"{each.name}=default_{number}")
        else:
            signature.append(f"{stars}{each.name}")
        last = each.kind
    if last is inspect.Parameter.POSITIONAL_ONLY:
        signature.append("/")
    body = ", ".join(_entry(each) for each in _any_names_first(parameters) if each.name != receiver)
    return eval(f"lambda {', '.join(signature)}: {{{body}}}", defaults)  # noqa: S307


def _any_names_first(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """A positional-only parameter wins over a keyword of the same name."""
    return sorted(parameters, key=lambda each: each.kind is not inspect.Parameter.VAR_KEYWORD)


def _entry(parameter: inspect.Parameter) -> str:
    name = parameter.name
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{name}"
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"**({{'{name}': {name}}} if {name} else {{}})"
    return f"'{name}': {name}"


def _with_fallback(generated: Callable[..., Arguments], positional: list[str], receiver: str | None) -> Binder:
    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        try:
            return generated(*args, **kwargs)
        except TypeError:
            # The function will refuse this call in its own words; what was passed is worth keeping.
            named: Arguments = dict(zip(positional, args, strict=False))
            named.pop(receiver or "", None)
            surplus = args[len(positional) :]
            return {**named, **kwargs, **({"args": surplus} if surplus else {})}

    return bind


def _bind_without_names(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return {**({"args": args} if args else {}), **kwargs}


def _after(first: tuple[Any, ...], keywords: dict[str, Any], bind: Binder) -> Binder:
    return lambda args, kwargs: bind((*first, *args), {**keywords, **kwargs})
