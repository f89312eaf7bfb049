"""ToolBench's recorded runs as chat transcripts.

A run is a chain of nodes. The message of a tool node is the text of a Python dict {'name', 'arguments', 'response'},
cut at 100 characters in most nodes: the name is whole; arguments that are cut count as not recorded.
"""

import ast
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "toolbench"

_FIELD = r"'{}': ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_RESPONSE_BEGINS = re.compile(r"'response': ['\"](.*)", re.DOTALL)


def transcripts() -> Iterator[dict[str, Any]]:
    """Yields all runs of the evaluation set."""
    for path in sorted((DATA / "gpt-3.5-turbo_CoT").glob("*.json.gz")):
        runs: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        for query_id, run in runs.items():
            yield {
                "task_id": f"{path.name.removesuffix('.json.gz')} {query_id}",
                "tools": run["available_tools"],
                "messages": list(_messages(run)),
            }


def _messages(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": run["query"]}
    for number, (role, text) in enumerate(_nodes(run["answer"])):
        if role == "assistant":
            yield {"role": "assistant", "content": text}
        elif role == "tool":
            arguments = _field("arguments", text)
            function = {"name": ast.literal_eval(_field("name", text) or "")}
            if arguments is not None:
                function["arguments"] = ast.literal_eval(arguments)
            call_id = f"call_{number}"
            yield {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}
            response = _RESPONSE_BEGINS.search(text)
            yield {"role": "tool", "tool_call_id": call_id, "content": response[1] if response else None}


def _nodes(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    nodes = answer["answer_details"]
    while nodes:
        (node,) = nodes
        yield node["role"], node["message"]
        nodes = node.get("next", [])


def _field(name: str, text: str) -> str | None:
    found = re.search(_FIELD.format(name), text)
    return found[1] if found else None
