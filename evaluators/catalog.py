"""Reads evaluator files: one SQL query below a TOML header."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import duckdb

from agenttrace.errors import ConfigError

# What an evaluator may read. The first two are tables of the store, the rest is prepared by pure Python.
RELATIONS = (
    "steps",
    "trajectories",
    "claims",
    "argument_errors",
    "cases",
    "budgets",
    "outcomes",
    "sequence_matches",
    "outcome_checks",
    "disclosures",
)
FINDING_COLUMNS = ("trajectory_id", "trace_id", "span_id", "kind", "severity", "message")
MEASUREMENT_COLUMNS = ("metric", "dimensions", "value", "unit", "n", "n_not_evaluable", "low", "high")
SEVERITIES = ("error", "warning", "note")
SCOPES = ("trajectory", "session", "summary")

_HEADER = re.compile(r"\A\s*/\* \+\+\+\n(?P<header>.*?)\n\+\+\+ \*/\n(?P<query>.*)\Z", re.DOTALL)
_KEYS = ("name", "returns", "scope", "question", "reads", "limits", "references", "columns")
_OPTIONAL_KEYS = ("severity", "params")
_PARAM_KEYS = ("type", "default", "help")


@dataclass(frozen=True)
class Param:
    """One value that the configuration may set; bound as `$name`."""

    type: str
    default: Any
    help: str


@dataclass(frozen=True)
class Evaluator:
    """One evaluator file.

    Attributes:
        returns: "findings" or "measurements".
        severity: The highest level of its findings; None for measurements.
        columns: Every output column in order, with its meaning and unit.
        version: 16 hex characters, hash of the file's text.
        query: The SQL below the header, as it stands in the file.
    """

    name: str
    path: Path
    returns: str
    scope: str
    severity: str | None
    question: str
    reads: tuple[str, ...]
    limits: str
    references: tuple[str, ...]
    params: Mapping[str, Param]
    columns: Mapping[str, str]
    version: str
    query: str

    def values(self, configured: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, duckdb.Value]:
        """Returns the parameters to bind.

        Args:
            configured: `[evaluators.<name>]` of the configuration; goes first.
            shared: Values that several evaluators take from elsewhere, such as `[tools.checks]`; used for parameters
                of the same name.

        Raises:
            ConfigError: A key that the header does not know, or a value of another type.
        """
        for key in configured:
            if key not in self.params:
                raise ConfigError(f"evaluators.{self.name}: unknown key {key!r}; {_nearest(key, self.params)}")
        return {
            name: self._typed(name, param, configured.get(name, shared.get(name, param.default)))
            for name, param in self.params.items()
        }

    def _typed(self, name: str, param: Param, value: Any) -> duckdb.Value:
        if not _fits(value, param.type):
            raise ConfigError(f"evaluators.{self.name}.{name} is {value!r}; expected {param.type}: {param.help}")
        return duckdb.Value(_bindable(value, param.type), duckdb.type(param.type))


def load(folders: Iterable[Path] = ()) -> dict[str, Evaluator]:
    """Reads the catalogue.

    Args:
        folders: Folders of the user's own `.sql` files, read after the built-in ones.

    Returns:
        Name to evaluator, in the order of the names.

    Raises:
        ConfigError: A file has no right header, or two files share a name.
    """
    found: dict[str, Evaluator] = {}
    for folder in (Path(__file__).parent, *folders):
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; evaluator_paths names folders of .sql files")
        for path in sorted(folder.glob("*.sql")):
            evaluator = read(path)
            if evaluator.name in found:
                raise ConfigError(
                    f"{path}: an evaluator {evaluator.name!r} exists already in {found[evaluator.name].path.parent}; "
                    "give the file another name"
                )
            found[evaluator.name] = evaluator
    return dict(sorted(found.items()))


def read(path: Path) -> Evaluator:
    """Reads one evaluator file and checks its header.

    Raises:
        ConfigError: The file cannot be read, or its header lacks a key, has an unknown one or a wrong value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    match = _HEADER.match(text.replace("\r\n", "\n"))
    if match is None:
        raise ConfigError(f"{path}: no header; the file must begin with a line '/* +++', TOML, and a line '+++ */'")
    try:
        header = tomllib.loads(match["header"])
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: the header is not valid TOML: {error}") from error
    return _evaluator(path, _Header(path, header), text, match["query"])


def _evaluator(path: Path, header: "_Header", text: str, query: str) -> Evaluator:
    header.check_keys(_KEYS, _OPTIONAL_KEYS)
    returns = header.choice("returns", ("findings", "measurements"))
    name = header.text("name")
    if name != path.stem:
        raise ConfigError(f"{path}: header key 'name' is {name!r}; expected {path.stem!r}, the file's name")
    question = header.text("question")
    if not question.endswith("?"):
        raise ConfigError(f"{path}: header key 'question' is {question!r}; expected one sentence with a question mark")
    return Evaluator(
        name=name,
        path=path,
        returns=returns,
        scope=header.choice("scope", SCOPES),
        severity=header.severity(returns),
        question=question,
        reads=header.relations(),
        limits=header.text("limits"),
        references=header.texts("references"),
        params=header.params(),
        columns=header.columns(returns),
        version=hashlib.sha256(text.encode()).hexdigest()[:16],
        query=query,
    )


class _Header:
    """Values of one header; every complaint names the file, the key, what stands there and what was expected."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self._path = path
        self._values = values

    def check_keys(self, needed: tuple[str, ...], optional: tuple[str, ...]) -> None:
        for key in self._values:
            if key not in (*needed, *optional):
                raise ConfigError(f"{self._path}: unknown header key {key!r}; {_nearest(key, (*needed, *optional))}")
        for key in needed:
            if key not in self._values:
                raise ConfigError(f"{self._path}: header key {key!r} is missing; a header needs {', '.join(needed)}")

    def text(self, key: str) -> str:
        value = self._values[key]
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(key, value, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value: object = self._values[key]
        parts = cast(list[object], value) if isinstance(value, list) else [None]
        if not all(isinstance(part, str) for part in parts):
            raise self._wrong(key, self._values[key], "a list of texts")
        return tuple(cast(list[str], parts))

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._values[key]
        if value not in choices:
            raise self._wrong(key, value, _one_of(choices))
        return str(value)

    def severity(self, returns: str) -> str | None:
        if returns == "measurements":
            if "severity" in self._values:
                raise ConfigError(f"{self._path}: header key 'severity' is only for evaluators that return findings")
            return None
        if "severity" not in self._values:
            raise ConfigError(f"{self._path}: header key 'severity' is missing; expected {_one_of(SEVERITIES)}")
        return self.choice("severity", SEVERITIES)

    def relations(self) -> tuple[str, ...]:
        names = self.texts("reads")
        for name in names:
            if name not in RELATIONS:
                raise self._wrong("reads", name, _one_of(RELATIONS))
        return names

    def params(self) -> dict[str, Param]:
        params: dict[str, Param] = {}
        for name, table in self._table("params", {}).items():
            if not isinstance(table, dict):
                raise self._wrong(f"params.{name}", table, "a table with type, default and help")
            keys = cast(dict[str, Any], table)
            for key in keys:
                if key not in _PARAM_KEYS:
                    raise ConfigError(
                        f"{self._path}: unknown header key 'params.{name}.{key}'; {_nearest(key, _PARAM_KEYS)}"
                    )
            # TOML has no null: a parameter without `default` is NULL unless the configuration sets it.
            for key in ("type", "help"):
                if not isinstance(keys.get(key), str):
                    raise self._wrong(f"params.{name}.{key}", keys.get(key), "a text")
            params[name] = Param(keys["type"], keys.get("default"), keys["help"])
            if not _fits(params[name].default, params[name].type):
                raise self._wrong(f"params.{name}.default", keys["default"], keys["type"])
        return params

    def columns(self, returns: str) -> dict[str, str]:
        columns = {name: str(meaning) for name, meaning in self._table("columns", None).items()}
        first = FINDING_COLUMNS if returns == "findings" else MEASUREMENT_COLUMNS
        if tuple(columns)[: len(first)] != first:
            raise ConfigError(
                f"{self._path}: header table 'columns' begins with {', '.join(list(columns)[: len(first)])}; "
                f"{returns} begin with {', '.join(first)}"
            )
        return columns

    def _table(self, key: str, default: dict[str, Any] | None) -> dict[str, Any]:
        value = self._values.get(key, default)
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table")
        return cast(dict[str, Any], value)

    def _wrong(self, key: str, value: object, expected: str) -> ConfigError:
        return ConfigError(f"{self._path}: header key {key!r} is {value!r}; expected {expected}")


def _one_of(choices: tuple[str, ...]) -> str:
    quoted = [repr(choice) for choice in choices]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _nearest(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(key, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(names) or 'none'}"


def _fits(value: object, sql_type: str) -> bool:
    """Whether a value of TOML has the SQL type; None always does."""
    sql_type = sql_type.strip()
    if value is None:
        return True
    if sql_type.endswith("[]"):
        return isinstance(value, list) and all(_fits(part, sql_type[:-2]) for part in cast(list[object], value))
    if sql_type.startswith("MAP("):
        inner = sql_type.removeprefix("MAP(").removesuffix(")").split(",", 1)[1]
        return isinstance(value, dict) and all(_fits(part, inner) for part in cast(dict[str, object], value).values())
    if sql_type == "JSON":
        return isinstance(value, dict)
    if sql_type in ("DOUBLE", "FLOAT") or sql_type.startswith("DECIMAL"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if sql_type in ("BIGINT", "INTEGER"):
        return isinstance(value, int) and not isinstance(value, bool)
    expected: dict[str, type] = {"VARCHAR": str, "BOOLEAN": bool}
    return sql_type in expected and isinstance(value, expected[sql_type])


def _bindable(value: Any, sql_type: str) -> Any:
    """Integers of TOML bind as DOUBLE where that is the type, and tables as JSON text, dates in them as text."""
    if sql_type == "JSON" and value is not None:
        return json.dumps(value, default=str)
    return float(value) if sql_type == "DOUBLE" and isinstance(value, int) else value
