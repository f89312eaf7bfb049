"""A run -> a benchmark case: redacted, with what happened as the starting point of what should happen."""

import errno
import fcntl
import glob
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, cast

import duckdb

from agenttrace import json_text, private, terminal
from agenttrace.encode import encode
from agenttrace.errors import UsageError
from agenttrace.evaluators import cases, review
from agenttrace.redact import current_redaction
from agenttrace.show import rows

Row = dict[str, Any]

_ID_LENGTH = 8
# Of a long list so many are told, each in so many characters.
_SHOWN = 10
_SHOWN_WIDTH = 120
# Room for a check or a retry that the run itself did without.
_SPARE_STEPS = 2


class Promotion(NamedTuple):
    """A case in the making.

    Attributes:
        case: The case without its case_id.
        task_id: Task of the run; None where it has none.
        fallback_id: Id of the case where the task cannot be it.
        is_judged: Whether evaluators have judged anything in this store.
        left_out: Calls that the accepted sequence leaves out, each with the finding that says why.
        open_findings: Errors that the case takes no account of.
    """

    case: dict[str, Any]
    task_id: str | None
    fallback_id: str
    is_judged: bool
    left_out: list[str]
    open_findings: list[str]

    def named(self, path: Path | None) -> dict[str, Any]:
        """Returns the case with the task as its id, unless the file at `path` holds a case of this task already.

        Raises:
            ConfigError: The file holds a line that is no case.
            UsageError: It holds this run's own case.
        """
        taken = {row["case_id"] for row in cases.read(path)}
        case_id = self.task_id if self.task_id is not None and self.task_id not in taken else self.fallback_id
        if case_id in taken:
            raise UsageError(f"promote: {path} holds the case {case_id!r} already; take it out to promote anew.")
        return {"case_id": case_id, **self.case}


def promotion_of(con: duckdb.DuckDBPyConnection, trajectory_id: str) -> Promotion:
    """Makes a case of a run; `review.make_relations` comes first.

    The sequence is checked in order and by tool names: calls beside it, such as another check, are no fault, and values
    that redaction has hidden could not be compared. What the run did twice, or must not do, fails by the evaluator that
    found it.
    """
    (run,) = rows(con, _query("promoted_run"), {"trajectory_id": trajectory_id})
    executions = rows(con, _query("executions"), {"trajectory_id": trajectory_id})
    # A name that a case could not hold tells no reader anything.
    calls = [call for call in executions if call["tool_name"].strip()]
    errors = review.errors_of(con, trajectory_id)
    faulty, heeded = _faulty(calls, errors)
    kept = [call for call in calls if call["span_id"] not in faulty]
    # A case forbids by glob, and a trace may name its tools as it likes.
    forbidden = sorted({glob.escape(_text(error["tool_name"])) for error in errors if _is_forbidden(error)})
    sequence = [_called(call) for call in kept]
    initial = {} if run["initial_state"] is None else {"initial_state": _value(run["initial_state"])}
    case: dict[str, Any] = {
        **{key: _text(run[key]) for key in ("tenant_id", "user_input") if run[key] is not None and run[key].strip()},
        "mock_env": {**initial, "tools": [_answered(call) for call in calls]},
        "acceptable_tool_sequences": [sequence],
        "sequence_mode": "in_order",
        "arguments_mode": "ignore",
        **({"forbidden_tools": forbidden} if forbidden else {}),
        "max_allowed_steps": len(sequence) + _SPARE_STEPS,
        "expected_outcome": {"must_include": [], "must_not_include": []},
    }
    task, agent = (_text(run[key] or "").strip() for key in ("task_id", "agent"))
    return Promotion(
        case=case,
        task_id=task or None,
        fallback_id=f"{agent or 'run'}-{trajectory_id[:_ID_LENGTH]}",
        is_judged=run["evaluations"] > 0,
        left_out=[
            f"{call['tool_name']} at step {call['step_index']} ({faulty[call['span_id']]})"
            for call in calls
            if call["span_id"] in faulty
        ],
        open_findings=[_name(error) for number, error in enumerate(errors) if number not in heeded],
    )


def line_of(case: dict[str, Any]) -> str:
    """Returns a case as one line of JSON; what is not ASCII is escaped, so that it cannot steer a terminal."""
    return json.dumps(case, allow_nan=False)


def append(promotion: Promotion, path: Path) -> dict[str, Any]:
    """Adds a case to the end of a file, which is made if it is not there: all of it or nothing.

    Returns:
        The case.

    Raises:
        ConfigError: The file holds a line that is no case.
        UsageError: The file holds this run's own case, or is none.
        OSError: It cannot be written.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"promote: {path} is no file; without --cases the case is printed.")
    # Several may be the first, and each appends to the file of whoever was it.
    with suppress(FileExistsError):
        os.close(private.create(path))
    with path.open("a+b", buffering=0) as file:
        # Several may be promoted at once, and each must see the ids of the others.
        fcntl.flock(file, fcntl.LOCK_EX)
        case = promotion.named(path)
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        gap = "" if file.read(1) in (b"", b"\n") else "\n"
        data = f"{gap}{line_of(case)}\n".encode()
        if file.write(data) != len(data):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return case


def hints(promotion: Promotion, case: dict[str, Any], path: Path | None) -> Iterator[str]:
    """Yields what is left for a human to do."""
    case_id = case["case_id"]
    place = "" if path is None else f" -> {path}"
    yield (
        f"case {case_id}{place}: edit acceptable_tool_sequences to what should have happened, "
        "and expected_outcome to what the answer must say."
    )
    if promotion.left_out:
        yield f"left out of the sequence as faulty: {_listed(promotion.left_out)}"
    if promotion.open_findings:
        yield f"found in this run, and not in the case: {_listed(promotion.open_findings)}"
    if not promotion.is_judged:
        yield "not judged yet: after agenttrace evaluate, a promoted case leaves out the calls that were found faulty."
    if case_id != promotion.task_id:
        yield (
            f"runs that replay it must carry its id: agenttrace.run(..., task_id={case_id!r}), "
            # Agents name themselves as they like: no shell must expand what is pasted into it.
            f"or agenttrace import --task-id {shlex.quote(case_id)}"
        )


def _listed(names: list[str]) -> str:
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([terminal.cut(name, _SHOWN_WIDTH) for name in names[:_SHOWN]] + more)


def _faulty(calls: list[Row], errors: list[Row]) -> tuple[dict[str, str], set[int]]:
    """Returns the calls that findings call faulty, by span with the finding's name, and which findings say so."""
    faulty: dict[str, str] = {}
    heeded: set[int] = set()
    for number, error in enumerate(errors):
        if error["evaluator"] == "duplicate_mutations":
            # The first execution is what was asked for.
            spans = {*error["related_span_ids"][1:], error["span_id"]}
        elif _is_forbidden(error) or error["kind"] == "unknown_tool":
            spans = {call["span_id"] for call in calls if call["tool_name"] == error["tool_name"]}
        else:
            continue
        heeded.add(number)
        faulty |= {span_id: _name(error) for span_id in spans}
    return faulty, heeded


def _is_forbidden(error: Row) -> bool:
    return error["evaluator"] == "forbidden_tools" and error["tool_name"] is not None


def _name(error: Row) -> str:
    return f"{error['evaluator']}/{error['kind']}"


def _called(call: Row) -> dict[str, Any]:
    """A call as an accepted sequence holds it; without arguments where none were captured."""
    arguments = None if call["arguments"] is None else _value(call["arguments"])
    tool = {"tool": _text(call["tool_name"])}
    return {**tool, "arguments": cast(dict[str, Any], arguments)} if isinstance(arguments, dict) else tool


def _answered(call: Row) -> dict[str, Any]:
    """A call with its answer, for tools that play the world of this run."""
    captured = {key: call[key] for key in ("arguments", "observation") if call[key] is not None}
    return {"tool": _text(call["tool_name"]), **{key: _value(text) for key, text in captured.items()}}


def _value(text: str) -> Any:
    """Returns the value of a JSON text with all secrets in its strings and keys hidden, cut if it is very large."""
    try:
        value = json_text.parse(text)
    except ValueError:
        value = text
    return json.loads(encode(value, redact=current_redaction()).text)


def _text(text: str) -> str:
    return str(json.loads(encode(text, redact=current_redaction()).text))


def _query(name: str) -> str:
    return (resources.files("agenttrace.evaluators.relations") / f"{name}.sql").read_text(encoding="utf-8")
