"""agenttrace.toml, or [tool.agenttrace] in pyproject.toml: validated settings."""

import hashlib
import json
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from agenttrace.errors import ConfigError

FILE_NAME = "agenttrace.toml"

# Key of the validation context. With it, files that the configuration names must exist: no command may go on
# without the prices or cases that it was told to use.
_FOLDER = "folder"


def _beside_the_file(path: Path, info: ValidationInfo) -> Path:
    context: dict[str, Path] | None = info.context
    if not context:
        return path
    found = context[_FOLDER] / path.expanduser()
    if not found.exists():
        raise ValueError(f"no such file or folder: {found}")
    return found


def _as_path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


# Strict validation refuses text where a path is expected, and TOML has only text.
ConfigPath = Annotated[Path, BeforeValidator(_as_path), AfterValidator(_beside_the_file)]
Limit = Annotated[int, Field(ge=0)]


class _Section(BaseModel):
    """A table whose keys are all known; "5" is not a number, and true is none either."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ToolSettings(_Section):
    """What the configuration says about tools; names are globs where a list says so.

    Attributes:
        mutating: Globs of tools that change the world each time they run.
        read_only: Globs of tools that change nothing.
        idempotent: Globs of tools that set a state, so that a repeat changes nothing more.
        forbidden: Globs of tools that must never be requested.
        idempotency_keys: Names of arguments that make a repeated call harmless.
        checks: Tool to the read-only tools that show whether it took effect.
        inverse: Tool to the tools that undo it.
        identity: Tool to the arguments that make two of its calls the same mutation.
        error_results: Tool or glob to False (its results never mean an error), or to one more regular expression
            that does.
    """

    mutating: list[str] = []
    read_only: list[str] = []
    idempotent: list[str] = []
    forbidden: list[str] = []
    idempotency_keys: list[str] = []
    checks: dict[str, list[str]] = {}
    inverse: dict[str, list[str]] = {}
    identity: dict[str, list[str]] = {}
    error_results: dict[str, bool | str] = {}

    @model_validator(mode="after")
    def _contradicts_itself(self) -> Self:
        kinds = {"mutating": self.mutating, "read_only": self.read_only, "idempotent": self.idempotent}
        seen: dict[str, str] = {}
        for kind, names in kinds.items():
            for name in names:
                if seen.setdefault(name, kind) != kind:
                    raise ValueError(f"{name!r} stands in both {seen[name]} and {kind}")
        return self

    @field_validator("error_results")
    @classmethod
    def _compiles(cls, patterns: dict[str, bool | str]) -> dict[str, bool | str]:
        for tool, pattern in patterns.items():
            try:
                re.compile(pattern if isinstance(pattern, str) else "")
            except re.error as error:
                raise ValueError(f"{tool}: {pattern!r} is no regular expression: {error}") from error
        return patterns


class Budget(_Section):
    """Limits of one run; exactly at the limit is fine, None is no limit."""

    max_tool_calls: Limit | None = None
    max_model_calls: Limit | None = None
    max_tokens: Limit | None = None
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    max_duration_ms: Annotated[float, Field(ge=0)] | None = None


class Threshold(_Section):
    """Bounds of one metric; a hard gate fails the evaluation, a soft one is printed."""

    min: float | None = None
    max: float | None = None
    gate: Literal["hard", "soft"] = "hard"

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}, which no value can meet")
        return self


class Cases(_Section):
    """Where the benchmark cases stand: JSON lines."""

    path: ConfigPath | None = None


class Prices(_Section):
    """Where the user's own prices stand; they go before the built-in ones."""

    path: ConfigPath | None = None


class Nightly(_Section):
    """When a fault that earlier nights have seen is resolved.

    Attributes:
        resolved_after: Not seen in so many judged nights...
        min_runs: ... in each of which its agent, or its agent at its task, was judged at least so many times.
    """

    resolved_after: Annotated[int, Field(ge=1)] = 3
    min_runs: Annotated[int, Field(ge=1)] = 3


def _budget_key(key: str) -> str:
    scope, _, name = key.partition(":")
    if key != "default" and not (scope in ("agent", "task") and name):
        raise ValueError(f"budget {key!r} is for nothing: expected default, agent:NAME or task:GLOB")
    return key


class Settings(_Section):
    """A whole configuration; `Settings()` is what applies without a file.

    Attributes:
        evaluators: Evaluator to its parameters, which its own header checks.
        evaluator_paths: Folders of the user's own evaluator files.
        thresholds: Metric, or `metric.quantile`, to its bounds: the release gate.
    """

    tools: ToolSettings = ToolSettings()
    budgets: dict[Annotated[str, AfterValidator(_budget_key)], Budget] = {}
    evaluators: dict[str, dict[str, Any]] = {}
    evaluator_paths: list[ConfigPath] = []
    cases: Cases = Cases()
    prices: Prices = Prices()
    thresholds: dict[str, Threshold] = {}
    nightly: Nightly = Nightly()
    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file the settings came from; None where no file was found."""
        return self._source

    def hash(self) -> str:
        """Returns 16 hex characters that are equal for two evaluations judged by the same settings, cases and prices.

        The content of files counts, not where they lie: the same configuration on two machines has one hash.
        """
        values = self.model_dump(mode="json", exclude={"cases", "prices", "evaluator_paths", "nightly"})
        files = [path.read_bytes() if path else b"" for path in (self.cases.path, self.prices.path)]
        values["files"] = [hashlib.sha256(content).hexdigest() for content in files]
        text = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(path: Path | None = None, *, start: Path | None = None) -> Settings:
    """Reads the configuration.

    Args:
        path: The file to read; a file called pyproject.toml is read at [tool.agenttrace].
        start: Without `path`, the folder from which agenttrace.toml and pyproject.toml are searched upwards;
            None is the current one.

    Returns:
        The settings; the defaults where the search finds nothing.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or holds an unknown key or a wrong value.
    """
    if path is None:
        return _search((start or Path.cwd()).resolve())
    values = _section(path)
    if values is None:
        raise ConfigError(f"{path}: has no [tool.agenttrace] table. Add one, or name another file with --config.")
    return _validated(path, values)


def _search(start: Path) -> Settings:
    for folder in (start, *start.parents):
        for path in (folder / FILE_NAME, folder / "pyproject.toml"):
            if path.is_file() and (values := _section(path)) is not None:
                return _validated(path, values)
    return Settings()


def _section(path: Path) -> Any:
    """The table that is ours; None in a pyproject.toml that does not mention us."""
    text = _read(path)
    is_project = path.name == "pyproject.toml"
    # A syntax error in somebody's project file is ours to report only if our table may be in it.
    if is_project and "agenttrace" not in text:
        return None
    try:
        document: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: not valid TOML: nested too deeply") from error
    if not is_project:
        return document
    try:
        return document["tool"]["agenttrace"]
    except (KeyError, TypeError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; TOML files are UTF-8") from error


def _validated(path: Path, values: Any) -> Settings:
    try:
        settings = Settings.model_validate(values, context={_FOLDER: path.resolve().parent})
    except ValidationError as error:
        details = error.errors(include_url=False)
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        raise ConfigError(f"{path}: {_explain(details[0])}{more}") from error
    settings._source = path  # pyright: ignore[reportPrivateUsage]
    return settings


def _explain(detail: ErrorDetails) -> str:
    place = [str(part) for part in detail["loc"] if part != "[key]"]
    name = ".".join(place)
    if detail["type"] == "extra_forbidden":
        return f"unknown key {name!r}; {_nearest(place[-1], _known_keys(place[:-1]))}"
    if detail["type"] == "value_error":
        reason = str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]
        return f"{name}: {reason}" if name else reason
    # Values of a configuration are the user's own rules, no trace content: they may be shown.
    return f"{name or 'the configuration'} is {_shown(detail['input'])}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _known_keys(place: list[str]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in place:
        field = model.model_fields.get(part)
        if field is not None:
            model = _model_in(field.annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := _model_in(part)) is not None:
            return found
    return None
