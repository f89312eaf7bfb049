"""Rules 6, 7 and 8: status, effect and mutability of tool calls."""

from typing import Any

import pytest
from span_trees import Node, Run, agent, answer, asked, call, chat, insert, open_memory, rebuilt, runs, span_rows, tool

from agenttrace.config import Settings, ToolSettings
from agenttrace.errors import ConfigError
from agenttrace.rebuild import rebuild

TOOL = "order"


def _executed(**given: Any) -> tuple[Node, ...]:
    return (agent("restock", tool(TOOL, {}, **given)),)


def _in_messages(response: Any, **more: Any) -> tuple[Node, ...]:
    """A call of which only the messages know."""
    return (
        agent(
            "restock",
            chat(asks=[call(TOOL, {}, "a")], offers=[TOOL]),
            chat(reads=[asked(call(TOOL, {}, "a")), answer("a", response, **more)]),
        ),
    )


# name: (trace, status, effect, effect_reason, error_source)
OUTCOMES: dict[str, tuple[tuple[Node, ...], str, str, str | None, str | None]] = {
    "ok": (_executed(result={"id": "o1"}), "ok", "yes", None, None),
    "ok_without_result": (_executed(), "ok", "yes", None, None),
    "ok_that_speaks_of_errors": (
        _executed(result="No Error: all fine. The request timed out yesterday."),
        "ok",
        "yes",
        None,
        None,
    ),
    "ok_error_null": (_executed(result={"id": 1, "error": None}), "ok", "yes", None, None),
    "ok_error_none": (_executed(result={"id": 1, "error": "None"}), "ok", "yes", None, None),
    "ok_error_empty": (_executed(result={"id": 1, "error": "", "success": True}), "ok", "yes", None, None),
    "ok_errors_deeper": (_executed(result={"log": {"error": "x"}, "status": "done"}), "ok", "yes", None, None),
    "ok_status_200": (_executed(result={"status": 200}), "ok", "yes", None, None),
    "ok_quotes_a_wrapper": (
        _executed(result="The docs say: an error occurred while running the tool"),
        "ok",
        "yes",
        None,
        None,
    ),
    # Results that say they failed.
    "error_colon": (_executed(result="Error: no stock"), "error", "no", None, "result"),
    "error_colon_lower_case": (_executed(result="error: no stock"), "error", "no", None, "result"),
    "error_parenthesis": (_executed(result="Error (17): no stock"), "error", "no", None, "result"),
    "is_error": (
        _executed(result={"content": [{"type": "text", "text": "no stock"}], "isError": True}),
        "error",
        "no",
        None,
        "result",
    ),
    "content_blocks": (_executed(result=[{"type": "text", "text": "Error: no stock"}]), "error", "no", None, "result"),
    "error_key": (_executed(result={"error": "no stock"}), "error", "no", None, "result"),
    "error_object": (_executed(result={"error": {"message": "no stock"}}), "error", "no", None, "result"),
    "error_true": (_executed(result={"error": True, "message": "no stock"}), "error", "no", None, "result"),
    "status_error": (_executed(result={"status": "error"}), "error", "no", None, "result"),
    "status_failed": (_executed(result={"status": "Failed"}), "error", "no", None, "result"),
    "exception_class": (_executed(result="app.errors.StockError: none left"), "error", "no", None, "result"),
    "exception_class_of_a_lost_connection": (
        _executed(result="ConnectionResetError: reset by peer"),
        "error",
        "unknown",
        "connection_lost",
        "result",
    ),
    "ok_that_names_an_exception": (
        _executed(result="StockError is raised where none is left"),
        "ok",
        "yes",
        None,
        None,
    ),
    "http_as_text": (_executed(result="HTTP 500: oops"), "error", "unknown", "server_error", "result"),
    "http_client_as_text": (
        _executed(result="Request failed with status code 400"),
        "error",
        "no",
        None,
        "result",
    ),
    "ok_false": (_executed(result={"ok": False, "reason": "none left"}), "error", "no", None, "result"),
    "success_false": (_executed(result={"success": False}), "error", "no", None, "result"),
    "http_404": (_executed(result={"status_code": 404}), "error", "no", None, "result"),
    "http_409_as_text": (_executed(result={"statusCode": "409", "body": "x"}), "error", "no", None, "result"),
    "http_503": (
        _executed(result={"status_code": 503, "error": "try later"}),
        "error",
        "unknown",
        "server_error",
        "result",
    ),
    "http_504": (_executed(result={"status": 504, "message": "upstream"}), "timeout", "unknown", "timeout", "result"),
    "http_503_nested": (
        _executed(result={"error": {"code": 503, "message": "busy"}}),
        "error",
        "unknown",
        "server_error",
        "result",
    ),
    "result_timeout": (
        _executed(result="Error: the supplier did not respond within 30 s"),
        "timeout",
        "unknown",
        "timeout",
        "result",
    ),
    "result_timeout_rule": (_executed(result="Error: timeout must be between 1 and 60"), "error", "no", None, "result"),
    "result_timeout_rule_quoted": (
        _executed(result="Error: request 'timeout' must be positive"),
        "error",
        "no",
        None,
        "result",
    ),
    "opaque": (
        _executed(result="An error occurred while running the tool. Please try again."),
        "error",
        "unknown",
        "opaque",
        "result",
    ),
    "connection_lost": (
        _executed(result="Error: connection reset by peer"),
        "error",
        "unknown",
        "connection_lost",
        "result",
    ),
    "message_error": (_in_messages("no stock", is_error=True), "error", "no", None, "result"),
    "message_exception": (_in_messages("ValueError: qty"), "error", "no", None, "result"),
    "message_timeout": (_in_messages("ReadTimeout: x"), "timeout", "unknown", "timeout", "result"),
    "message_ok": (_in_messages({"id": 1}), "ok", "yes", None, None),
    # Spans that failed.
    "validation": (_executed(raises=("ValueError", "qty")), "error", "no", None, "span"),
    "type_error_with_module": (_executed(raises=("<class 'builtins.TypeError'>", "x")), "error", "no", None, "span"),
    "not_found": (_executed(raises=("ApiError", "order 7 not found")), "error", "no", None, "span"),
    "denied": (_executed(raises=("PERMISSION_DENIED", "")), "error", "no", None, "span"),
    "already_exists": (_executed(raises=("ApiError", "o1 already exists")), "error", "no", None, "span"),
    "http_type_404": (_executed(raises=("404", "x")), "error", "no", None, "span"),
    "json_rpc": (_executed(raises=("-32602", "x")), "error", "no", None, "span"),
    "refused": (_executed(raises=("ConnectError", "[Errno 111] Connection refused")), "error", "no", None, "span"),
    "refused_though_aborted": (
        _executed(raises=("OSError", "Connection aborted: Connection refused")),
        "error",
        "no",
        None,
        "span",
    ),
    "mcp_tool_error": (_executed(raises=("tool_error", "no stock")), "error", "no", None, "span"),
    "unspecific": (_executed(raises=("RuntimeError", "oops")), "error", "unknown", "unspecific", "span"),
    "no_words": (_executed(status_code="error"), "error", "unknown", "unspecific", "span"),
    "wrapper_raised": (
        _executed(raises=("ToolError", "Error executing tool order")),
        "error",
        "unknown",
        "opaque",
        "span",
    ),
    "reset": (_executed(raises=("ConnectionResetError", "x")), "error", "unknown", "connection_lost", "span"),
    "type_500": (_executed(raises=("500", "x")), "error", "unknown", "server_error", "span"),
    "grpc_unavailable": (_executed(raises=("UNAVAILABLE", "x")), "error", "unknown", "server_error", "span"),
    "gateway_with_words_of_refusal": (
        _executed(raises=("HTTPError", "502 Bad Gateway: invalid response")),
        "error",
        "unknown",
        "server_error",
        "span",
    ),
    "code_that_looks_like_5xx": (
        _executed(raises=("ApiError", "invalid coupon code 555")),
        "error",
        "no",
        None,
        "span",
    ),
    "timeout_type": (_executed(raises=("httpx.ReadTimeout", "")), "timeout", "unknown", "timeout", "span"),
    "timeout_well_known": (_executed(raises=("timeout", "")), "timeout", "unknown", "timeout", "span"),
    "timeout_grpc": (_executed(raises=("DEADLINE_EXCEEDED", "")), "timeout", "unknown", "timeout", "span"),
    "timeout_http": (_executed(raises=("504", "")), "timeout", "unknown", "timeout", "span"),
    "timeout_words": (_executed(raises=("ApiError", "the request timed out")), "timeout", "unknown", "timeout", "span"),
    "timeout_rule": (_executed(raises=("ApiError", "timeout must be between 1 and 60")), "error", "no", None, "span"),
    "cancelled": (_executed(raises=("asyncio.CancelledError", "")), "cancelled", "unknown", "cancelled", None),
    "cancelled_by_us": (
        _executed(attributes={"agenttrace.cancelled": True, "error.type": "X"}),
        "cancelled",
        "unknown",
        "cancelled",
        None,
    ),
    "unfinished": (_executed(ended=False), "unfinished", "unknown", "unfinished", None),
    "unfinished_with_result": (_executed(ended=False, result={"id": 1}), "unfinished", "unknown", "unfinished", None),
    "error_type_alone": (_executed(attributes={"error.type": "ValueError"}), "error", "no", None, "span"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Run]:
    con = open_memory()
    rows = [
        row for number, (roots, *_) in enumerate(OUTCOMES.values()) for row in span_rows(f"{number + 1:032x}", *roots)
    ]
    insert(con, rows)
    rebuild(con)
    found = runs(con, rows)
    return {name: found[f"{number + 1:032x}"] for number, name in enumerate(OUTCOMES)}


@pytest.mark.parametrize("name", OUTCOMES)
def test_status_and_effect(name: str, outcomes: dict[str, Run]) -> None:
    step = outcomes[name].tool
    assert (step["status"], step["effect"], step["effect_reason"], step["error_source"]) == OUTCOMES[name][1:]


def test_a_failed_call_says_why(outcomes: dict[str, Run]) -> None:
    assert outcomes["validation"].tool["error_message"] == "qty"
    assert (outcomes["message_exception"].tool["error_type"], outcomes["message_exception"].tool["error_message"]) == (
        "ValueError",
        "ValueError: qty",
    )
    assert outcomes["http_503"].tool["error_message"] == "503 try later"
    assert outcomes["ok"].tool["error_message"] is None


def test_what_the_next_model_call_received_decides_where_the_span_is_silent() -> None:
    run = rebuilt(
        agent(
            "restock",
            chat(asks=[call(TOOL, {}, "a")]),
            tool(TOOL, {}, id="a"),
            chat(reads=[answer("a", "Error: no stock")]),
        )
    )
    assert (run.tool["status"], run.tool["error_source"], run.tool["observation"]) == (
        "error",
        "result",
        '"Error: no stock"',
    )


def test_a_model_call_can_time_out_and_be_cancelled() -> None:
    def failed(kind: str) -> dict[str, Any]:
        return {"attributes": {"error.type": kind}, "status_code": "error"}

    run = rebuilt(
        agent("restock", chat(**failed("APITimeoutError")), chat(**failed("CancelledError")), chat(**failed("X")))
    )
    assert [step["status"] for step in run.counted] == ["timeout", "cancelled", "error"]
    assert run.trajectory["error_count"] == 2


def _settings(**tools: Any) -> Settings:
    return Settings(tools=ToolSettings(**tools))


def test_results_are_switched_off_and_extended_per_tool() -> None:
    settings = _settings(error_results={"log_*": False, "log_search": "never", "order": "^KO", "ord*": "^NO"})
    run = rebuilt(
        agent(
            "restock",
            tool("log_search", {"n": 1}, result="Error: found in line 3"),
            tool("order", {"n": 2}, result="KO 17"),
            tool("order", {"n": 3}, result="NO"),
            tool("order", {"n": 4}, result="OK"),
            tool("book", {"n": 5}, result="KO"),
        ),
        settings=settings,
    )
    assert [step["status"] for step in run.tools] == ["ok", "error", "error", "ok", "ok"]


def test_a_pattern_that_the_database_cannot_read_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"tools\.error_results\.order: '\(\?<=a\)b' is no regular expression of RE2"):
        rebuilt(agent("restock"), settings=_settings(error_results={"order": "(?<=a)b"}))


@pytest.mark.parametrize(
    ("name", "mutability"),
    [
        *[
            (name, "mutating")
            for name in ("place_order", "placeOrder", "orders.place", "issue-refund", "send_email", "PayInvoice")
        ],
        *[(name, "idempotent") for name in ("set_price", "cancel_order", "delete_file", "update_order", "db/upsert")],
        *[(name, "read_only") for name in ("get_order", "check_stock", "order_status", "listFiles", "search_flights")],
        *[(name, None) for name in ("run_shell", "bash", "execute", "python", "x")],
    ],
)
def test_the_verb_of_the_name_decides_last(name: str, mutability: str | None, by_name: Run) -> None:
    (step,) = (step for step in by_name.tools if step["tool_name"] == name)
    assert (step["mutability"], step["mutability_source"]) == (mutability, "name" if mutability else None)


@pytest.fixture(scope="module")
def by_name() -> Run:
    names = [
        "place_order",
        "placeOrder",
        "orders.place",
        "issue-refund",
        "send_email",
        "PayInvoice",
        "set_price",
        "cancel_order",
        "delete_file",
        "update_order",
        "db/upsert",
        "get_order",
        "check_stock",
        "order_status",
        "listFiles",
        "search_flights",
        "run_shell",
        "bash",
        "execute",
        "python",
        "x",
    ]
    return rebuilt(agent("restock", *(tool(name, {}) for name in names)))


def test_span_then_annotations_then_configuration_then_name() -> None:
    offers = [
        {"name": "place_a", "annotations": {"readOnlyHint": True}},
        {"name": "place_b", "annotations": {"idempotentHint": True, "readOnlyHint": False}},
        {"name": "place_c", "annotations": {"readOnlyHint": False}},
        "place_d",
    ]
    says = {"agenttrace.tool.mutates": False}
    run = rebuilt(
        agent(
            "restock",
            chat(offers=offers),
            *(tool(name, {}) for name in ("place_a", "place_b", "place_c", "get_it", "get_that")),
            tool("place_d", {}, attributes=says),
        ),
        settings=_settings(mutating=["place_a", "get_*"], idempotent=["place_d"], read_only=["place_c", "get_that"]),
    )
    assert [(step["tool_name"], step["mutability"], step["mutability_source"]) for step in run.tools] == [
        ("place_a", "read_only", "annotation"),
        ("place_b", "idempotent", "annotation"),
        ("place_c", "read_only", "configuration"),
        ("get_it", "mutating", "configuration"),
        # The name itself goes before a glob.
        ("get_that", "read_only", "configuration"),
        ("place_d", "read_only", "span"),
    ]


def test_mutations_are_counted_unless_nothing_happened() -> None:
    run = rebuilt(
        agent(
            "restock",
            tool("place_order", {"n": 1}),
            tool("place_order", {"n": 2}, raises=("ReadTimeout", "")),
            tool("place_order", {"n": 3}, raises=("ValueError", "")),
            tool("set_price", {}),
            tool("get_price", {}),
        )
    )
    assert (run.trajectory["mutation_count"], run.trajectory["error_count"]) == (2, 2)
