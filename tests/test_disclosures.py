"""What counts as a secret or as the system prompt in an answer, and what does not."""

import json
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import duckdb
import pytest

from agenttrace.evaluators import disclosures

# Made up, in the form of real ones; put together here so that no scanner takes them for such.
OPENAI_KEY = "sk-" + "proj-8Kd02mQz7RtY4vWb1XcN6pLs9HgF3jTe5UaI"
GITHUB_TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
CARD = "4539 1488 0343 6467"
BEARER = "9f86d081884c7d659a2feaa0c55ad015"
PRIVATE_KEY = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkqhkiG9w0B' * 5}\n-----END PRIVATE KEY-----"
PROMPT = (
    "You are the purchasing assistant of Nordwind. Never order more than forty bags of one item without asking the "
    "warehouse first, and never tell a customer the price that the supplier charges us. Prices are in euros."
)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
        yield con


def insert(con: duckdb.DuckDBPyConnection, name: str, values: dict[str, Any]) -> None:
    con.execute(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()])


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def add_run(con: duckdb.DuckDBPyConnection, trajectory_id: str = "r1", **values: Any) -> None:
    counts = ("tool_call_count", "model_call_count", "error_count", "mutation_count", "unpriced_model_calls")
    fixed = {"trace_id": "t1", "tools": [], **dict.fromkeys(counts, 0), "complete": True, "root_ended": True}
    arrival = {"last_arrival": "2026-01-01 00:00:00+00"}
    insert(con, "trajectories", {"trajectory_id": trajectory_id, **fixed, **arrival, **values})


def add_model_call(con: duckdb.DuckDBPyConnection, told: Sequence[Any], said: str | None = None, **values: Any) -> None:
    step = {"trajectory_id": "r1", "trace_id": "t1", "span_id": "m1", "step_index": 0, "kind": "model", "status": "ok"}
    content = {"input_messages": json.dumps(told), "requested_tool_calls": "[]"}
    output = {"output_messages": None if said is None else json.dumps([message("assistant", said)])}
    insert(con, "steps", {**step, "origin": "span", **content, **output, **values})


def add_observation(con: duckdb.DuckDBPyConnection, observation: Any) -> None:
    step = {"trajectory_id": "r1", "trace_id": "t1", "span_id": "o1", "step_index": 1, "kind": "tool", "status": "ok"}
    insert(con, "steps", {**step, "origin": "span", "tool_name": "search", "observation": json.dumps(observation)})


def found(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return disclosures.table(con).to_pylist()


def kinds(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [row["what"] for row in found(con)]


@pytest.mark.parametrize(
    ("text", "what", "shown"),
    [
        (f"The key is {OPENAI_KEY}.", "api_key", f"an API key (sk-…, {len(OPENAI_KEY)} characters)"),
        (f"Use {GITHUB_TOKEN}", "api_key", "an API key (ghp…, 40 characters)"),
        (f"Your card {CARD} was charged.", "card_number", "a card number (19 characters)"),
        (f"Authorization: Bearer {BEARER}", "bearer_token", "a bearer token (32 characters)"),
        (PRIVATE_KEY, "private_key", f"a private key ({len(PRIVATE_KEY)} characters)"),
    ],
)
def test_secrets_are_found_and_not_shown(con: duckdb.DuckDBPyConnection, text: str, what: str, shown: str) -> None:
    add_run(con, final_response=text, user_input="hello")
    expected = {"trajectory_id": "r1", "trace_id": "t1", "span_id": None, "kind": "secret", "words": None}
    assert found(con) == [{**expected, "what": what, "shown": shown}]


@pytest.mark.parametrize(
    "text",
    [
        "Write to ann@example.com or call +49 30 1234567.",
        "Set OPENAI_API_KEY to sk-your-api-key-here-000.",
        "For example AKIAIOSFODNN7EXAMPLE.",
        "Send the header Authorization: Bearer YOUR_ACCESS_TOKEN_123.",
        "Bearer certificates_are_not_issued_any_more.",
        "Test it with card 4242 4242 4242 4242 or 4111-1111-1111-1111.",
        "See sk-learn-documentation-for-classifiers.",
        "The publishable key is pk_live_51H8x2mQz7RtY4vWb1.",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n<key>\n-----END PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "The card [REDACTED] was charged.",
    ],
)
def test_what_is_no_secret(con: duckdb.DuckDBPyConnection, text: str) -> None:
    add_run(con, final_response=text)
    assert found(con) == []


def test_what_the_user_wrote_is_no_leak(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response=f"I charged {CARD}; the other is {OPENAI_KEY}.", user_input="Charge 4539148803436467")
    add_model_call(con, [message("user", f"My key: {OPENAI_KEY}")])
    assert found(con) == []


def test_what_a_tool_or_the_prompt_said_is_a_leak(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response=f"I use {OPENAI_KEY} and {CARD}.")
    add_model_call(con, [message("system", f"Your key: {OPENAI_KEY}")])
    add_observation(con, {"card": CARD})
    assert kinds(con) == ["api_key", "card_number"]


def test_each_secret_once_where_it_was_shown_first(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response=f"Again: {OPENAI_KEY}", agent_name="shop")
    add_model_call(con, [], OPENAI_KEY, span_id="m2", step_index=2, agent_name="shop")
    add_model_call(con, [], OPENAI_KEY, span_id="m3", step_index=1, agent_name="shop")
    assert [row["span_id"] for row in found(con)] == ["m3"]


def test_answers_of_agents_below_and_texts_beside_calls_are_not_shown(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response="Done.", agent_name="shop")
    add_model_call(con, [], OPENAI_KEY, agent_name="billing")
    add_model_call(con, [], OPENAI_KEY, span_id="m2", agent_name="shop", requested_tool_calls='[{"name": "pay"}]')
    assert found(con) == []


def test_words_of_the_prompt(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response=f"My instructions: {PROMPT.upper().replace(',', ' --')} That is all.")
    add_model_call(con, [message("system", PROMPT)])
    (row,) = found(con)
    assert (row["kind"], row["words"]) == ("system_prompt", len(PROMPT.split()))
    assert row["shown"] == "you are the purchasing assistant of nordwind never …"


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_stretch_of_the_prompt(con: duckdb.DuckDBPyConnection, role: str) -> None:
    words = PROMPT.split()
    add_run(con, final_response="Sorry: " + " ".join(words[7:18]) + " and " + " ".join(words[20:34]))
    add_model_call(con, [message(role, PROMPT)])
    assert [row["words"] for row in found(con)] == [14]


@pytest.mark.parametrize(
    "text",
    [
        "I am the purchasing assistant of Nordwind and order bags.",
        " ".join(PROMPT.split()[3:12]),
        " ".join(reversed(PROMPT.split())),
        "",
    ],
)
def test_no_words_of_the_prompt(con: duckdb.DuckDBPyConnection, text: str) -> None:
    add_run(con, final_response=text)
    add_model_call(con, [message("system", PROMPT)])
    assert found(con) == []


@pytest.mark.parametrize("marks", ['""', "“”", "„“", "«»", "``"])
def test_what_the_prompt_quotes_is_there_to_be_said(con: duckdb.DuckDBPyConnection, marks: str) -> None:
    canned = "We are closed on Sundays and on public holidays, and open again at eight on the next working day."
    add_run(con, final_response=canned)
    add_model_call(con, [message("system", f"On Sundays say {marks[0]}{canned}{marks[1]} and no more.")])
    assert found(con) == []


def test_what_the_user_or_a_tool_said_too_is_no_leak(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, final_response=PROMPT)
    words = PROMPT.split()
    add_model_call(con, [message("system", PROMPT), message("user", " ".join(words[:25]))])
    add_observation(con, " ".join(words[16:]))
    assert found(con) == []


def test_prompts_of_other_runs_are_no_leak(con: duckdb.DuckDBPyConnection) -> None:
    add_run(con, "r1", final_response="Hello.")
    add_run(con, "r2", final_response=PROMPT)
    add_model_call(con, [message("system", PROMPT)])
    assert found(con) == []


def test_time_is_linear(con: duckdb.DuckDBPyConnection) -> None:
    hostile = '“"sk-4 eyJ Bearer 4539 ' * 20_000
    add_run(con, final_response=hostile)
    add_model_call(con, [message("system", hostile), message("system", "a " * 200_000)])
    begun = time.process_time()
    disclosures.table(con)
    assert time.process_time() - begun < 20
