"""Opens any Python value one level deep, for the encoder and for the canonical form.

A value is hostile: its class may raise from any special method, lie about its class, or be changed by another thread.
So types decide here, never `isinstance` (which asks the value for `__class__`), built-in containers are read with the
methods of the built-in type, and iterators, files and the like are named and never touched.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import pathlib
import re
import sys
import types
import uuid
from base64 import b64encode
from collections import UserString, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from agenttrace.guard import is_programs_own

MAX_BYTES: Final = 1 << 20
_MAX_COPIED: Final = 10_000
_ADDRESS = re.compile(r" (?:object )?(?:at 0x[0-9a-fA-F]+|id='\d+')")


class Pairs(NamedTuple):
    """An opened mapping or record."""

    pairs: Iterable[tuple[object, object]]
    length: int


class Items(NamedTuple):
    """An opened sequence, or a set, whose order means nothing."""

    items: Iterable[object]
    length: int
    is_set: bool = False


class Label(str):
    """The name of a value that has no content of its own to show."""

    __slots__ = ()


Opened = str | int | float | bool | None | Pairs | Items
_Opener = Callable[[Any], object]


def open_value(value: object) -> Opened:
    """Returns a scalar of an exact built-in type, or the parts of a container; whatever the value raises is a label."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value  # pyright: ignore[reportReturnType] - narrowed by the exact type
    try:
        opened = _opener(kind)(value)
        for _ in range(4):
            kind = type(opened)
            if kind in _OPEN or opened is None:
                return opened  # pyright: ignore[reportReturnType] - narrowed by the exact type
            # An Enum of a dataclass, a model whose root is a list, ...
            opened = _opener(kind)(opened)
        return Label(f"<{type_name(type(value))}>")
    except BaseException as error:
        if is_programs_own(error):
            raise
        return Label(f"<unreadable {type_name(type(value))}>")


_OPEN = frozenset({str, int, float, bool, Pairs, Items, Label})


def type_name(kind: type) -> str:
    """Returns the qualified name of a type, bare where it is built in, whatever its metaclass does."""
    module, name = _module_of(kind), str.__str__(_qualname_of(kind))
    return name if type(module) is not str or module == "builtins" else f"{module}.{name}"


# The attributes of `type` itself, which no metaclass can replace.
_of_type: Any = type.__dict__
_module_of, _qualname_of = _of_type["__module__"].__get__, _of_type["__qualname__"].__get__


@functools.lru_cache(maxsize=1024)
def _opener(kind: type) -> _Opener:
    """Chooses once per type; the order puts the more special type first."""
    for base, opener in _OPENERS:
        if issubclass(kind, base):
            return opener
    return _record_opener(kind) or _foreign_opener(kind) or _abstract_opener(kind)


def _record_opener(kind: Any) -> _Opener | None:
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        return functools.partial(_fields, names)
    attributes: Any = getattr(kind, "__attrs_attrs__", None)
    if isinstance(attributes, tuple):
        attributes = cast("tuple[Any, ...]", attributes)
        return functools.partial(_fields, tuple(attribute.name for attribute in attributes))
    struct_fields: Any = getattr(kind, "__struct_fields__", None)
    if isinstance(struct_fields, tuple):
        return functools.partial(_fields, cast("tuple[str, ...]", struct_fields))
    return None


def _foreign_opener(kind: type) -> _Opener | None:
    """Types of packages that a program may have imported; none is imported for this."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, getattr(pydantic, "BaseModel", ())):
        return functools.partial(_model, kind)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, getattr(numpy, "ndarray", ())):
        return functools.partial(_array, numpy)
    if numpy is not None and issubclass(kind, getattr(numpy, "generic", ())):
        return functools.partial(_numpy_scalar, numpy)
    return None


def _abstract_opener(kind: Any) -> _Opener:
    # What is read asynchronously is read from somewhere: the repr of a Django query runs it.
    if issubclass(kind, (Iterator, Awaitable)) or hasattr(kind, "__anext__") or hasattr(kind, "__aiter__"):
        return _label
    if issubclass(kind, Mapping):
        return _mapping
    if issubclass(kind, Set):
        return _set
    if issubclass(kind, Sequence):
        return _sequence
    if kind.__repr__ is object.__repr__:
        return _label
    return lambda value: _ADDRESS.sub("", repr(value))


def _label(value: object) -> Label:
    kind = type_name(type(value))
    if _answers_itself(type(value)):
        return Label(f"<{kind}>")
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return Label(f"<{kind} {name}>" if type(name) is str else f"<{kind}>")


def _answers_itself(kind: Any) -> bool:
    """Tells whether asking for an attribute runs a user's code: a lazy object would load, a proxy call its server."""
    return hasattr(kind, "__getattr__") or isinstance(kind.__getattribute__, types.FunctionType)


def _fields(names: Sequence[str], value: object) -> Pairs:
    return Pairs(((name, _attribute(value, name)) for name in names), len(names))


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        return Label("<unset>")
    except Exception as error:
        if is_programs_own(error):
            raise
        return Label(f"<unreadable: {type_name(type(error))}>")


def _model(kind: Any, value: Any) -> object:
    """Reads a pydantic model without running its serializers, which are a user's code."""
    state: dict[str, object] = object.__getattribute__(value, "__dict__")
    fields: Mapping[str, Any] = getattr(kind, "model_fields", None) or {}
    extra = getattr(value, "__pydantic_extra__", None)
    state = {**state, **extra} if isinstance(extra, dict) else state
    if getattr(kind, "__pydantic_root_model__", False):
        return state.get("root")
    hidden = {name for name, field in fields.items() if getattr(field, "exclude", None) is True}
    pairs = [(name, part) for name, part in state.items() if name not in hidden]
    return Pairs(pairs, len(pairs))


def _array(numpy: Any, value: Any) -> object:
    size, shape = int(value.size), tuple(value.shape)
    if value.dtype.kind in "mM":
        value = numpy.datetime_as_string(value) if value.dtype.kind == "M" else value.astype(str)
    if not shape or size <= _MAX_COPIED:
        return _exact(numpy.ndarray.tolist(value))
    return Items((value[index] for index in range(shape[0])), shape[0])


def _numpy_scalar(numpy: Any, value: Any) -> object:
    item = value.item()
    # Long doubles, and times finer than a microsecond, have no Python type of their own.
    return str(value) if isinstance(item, numpy.generic) or value.dtype.kind in "mM" else item


def _exact(value: Any) -> object:
    return _sequence(value) if type(value) is list else value


def _sequence(value: Any) -> Items:
    return Items(value, len(value))


def _set(value: Any) -> Items:
    return Items(value, len(value), is_set=True)


def _mapping(value: Mapping[object, object]) -> Pairs:
    return Pairs(((key, value[key]) for key in value), len(value))


def _builtin(kind: Any, *, is_set: bool = False) -> _Opener:
    """Reads a container with the methods of its built-in type; a copy cannot change while it is read."""

    def open_container(value: Any) -> Items:
        length = kind.__len__(value)
        items = kind.__iter__(value)
        return Items(tuple(items) if length <= _MAX_COPIED else items, length, is_set)

    return open_container


def _dict(value: Any) -> Pairs:
    items: Any = _dict_items(value)
    length = _dict_length(value)
    return Pairs(tuple(items) if length <= _MAX_COPIED else items, length)


def _tuple(value: Any) -> Pairs | Items:
    kind = cast("Any", type(value))
    names: Any = getattr(kind, "_fields", None)
    items = cast("Items", _open_tuple(value))
    if isinstance(names, tuple) and len(cast("tuple[str, ...]", names)) == items.length:
        return Pairs(zip(cast("tuple[str, ...]", names), items.items, strict=True), items.length)
    return items


def _bytes(value: bytes | bytearray | memoryview) -> str:
    """Bytes that are text show as text, so that it can be redacted; others as base64."""
    view = memoryview(value)
    data = bytes(view[:MAX_BYTES]) if view.contiguous else view.tobytes()[:MAX_BYTES]
    more = f"…[+{view.nbytes - len(data)} bytes]" if view.nbytes > len(data) else ""
    try:
        return data.decode() + more
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii") + more


def _timedelta(value: datetime.timedelta) -> str:
    """ISO 8601 duration."""
    sign, value = ("-", -value) if value < datetime.timedelta(0) else ("", value)
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}P{value.days}DT{value.seconds}{fraction}S"


def _error(value: BaseException) -> str:
    return f"{type_name(type(value))}: {value}"


def _named(value: object) -> Label:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", ""))
    return Label(f"<{type_name(type(value))} {module + '.' if type(module) is str else ''}{name}>")


_dict_items, _dict_length = cast("Any", dict).items, cast("Any", dict).__len__
_open_tuple = _builtin(tuple)

_OPENERS: tuple[tuple[Any, _Opener], ...] = (
    (enum.Enum, lambda value: value._value_),
    (bool, bool),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (dict, _dict),
    (list, _builtin(list)),
    (tuple, _tuple),
    (set, _builtin(set, is_set=True)),
    (frozenset, _builtin(frozenset, is_set=True)),
    (deque, _builtin(deque)),
    (UserString, lambda value: value.data),  # a sequence of itself, for ever
    ((bytes, bytearray, memoryview), _bytes),
    (datetime.datetime, datetime.datetime.isoformat),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, _timedelta),
    ((decimal.Decimal, fractions.Fraction, complex, uuid.UUID, pathlib.PurePath), str),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network), str),
    (BaseException, _error),
    (range, repr),
    (types.MappingProxyType, lambda value: _dict(dict(islice(value.items(), _MAX_COPIED)))),
    ((type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType), _named),
)
