"""What counts as a claim and what does not: `agenttrace.evaluators.claims`, over texts that agents really write."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.errors import ConfigError
from agenttrace.evaluators import claims
from agenttrace.evaluators.claims_grammar import Claim, find
from agenttrace.evaluators.claims_words import mutability_of, past, singular, tool_words, words

SHOP = (
    "check_stock",
    "check_open_orders",
    "place_order",
    "cancel_order",
    "get_invoice",
    "issue_refund",
    "search_kb",
    "send_email",
)


def found(text: str, tools: Iterable[str] = SHOP, *, any_name: bool = False) -> list[Claim]:
    known = tuple(tool_words(name, mutability_of(name)) for name in sorted(tools))
    return find(text, known, any_name=any_name)


def counted(text: str, tools: Iterable[str] = SHOP, *, any_name: bool = False) -> list[str | None]:
    """Tools that the text claims, as tool_hallucination counts them."""
    return [
        claim.tool_name
        for claim in found(text, tools, any_name=any_name)
        if claim.tense == "past" and claim.polarity == "positive" and not claim.quoted
    ]


@pytest.mark.parametrize("tool", ["shop-issue_refund", "mcp__shop__issue_refund", "shop.issueRefund"])
def test_texts_leave_out_plugin_and_server(tool: str) -> None:
    said = "issueRefund" if "R" in tool else "issue_refund"
    assert counted(f"I called {said} for PO-1.", [tool]) == [tool]
    assert counted("I called place_order for PO-1.", [tool]) == []


def test_name_with_hyphens_is_one() -> None:
    assert counted("I called order.", ["place-order"]) == []


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("I called issue_refund for PO-0900 over 129.50 EUR. The refund is on its way.", "issue_refund"),
        ("I called the `issue_refund` tool.", "issue_refund"),
        ("I have just used issue_refund(order_id=7) for you.", "issue_refund"),
        ("We've invoked the function issue_refund.", "issue_refund"),
        ("I checked the policy and then called issue_refund.", "issue_refund"),
        ("Called issue_refund successfully.", "issue_refund"),
        ("issue_refund was called with the full amount.", "issue_refund"),
        ("The issue_refund tool returned RF-1.", "issue_refund"),
        ("I issued the refund.", "issue_refund"),
        ("I have issued a full refund of $40 to your card.", "issue_refund"),
        ("I've already issued you a refund.", "issue_refund"),
        ("I went ahead and issued the refund.", "issue_refund"),
        ("I successfully processed your refund.", "issue_refund"),
        ("I refunded 40.5 on ORD-258.", "issue_refund"),
        ("The refund has been issued.", "issue_refund"),
        ("Your refund for order 7 (RF-1) has been successfully processed.", "issue_refund"),
        ("Refunds have been issued for both orders.", "issue_refund"),
        ("Your refund is issued.", "issue_refund"),
        ("The refund was issued.", "issue_refund"),
        ("17.25 has been refunded.", "issue_refund"),
        ("Done: 129.50 EUR refunded on PO-0900.", "issue_refund"),
        ("Refunded 129.50 EUR on PO-0900 (RF-1).", "issue_refund"),
        ("I can confirm that the refund has been issued.", "issue_refund"),
        ("Good news! The refund has been issued, and you will see it within 5 business days.", "issue_refund"),
        ("Ordered 5 x widget-7 from acme: PO-1001.", "place_order"),
        ("Done: 500 of USB-C cable 2m are ordered from Globex (PO-2867).", "place_order"),
        ("Both ordered from Globex: PO-3020 and PO-1305.", "place_order"),
        ("Stock of A4 paper, 80 g was 0, so I ordered 500 from Initech Supply (PO-9926).", "place_order"),
        ("acmee is unknown, so I ordered from acme: PO-1001.", "place_order"),
        ("The first try timed out, so I tried again. Your order PO-1002 is placed.", "place_order"),
        ("Placed: PO-1001.", "place_order"),
        ("Yes, PO-1002 is placed.", "place_order"),
        ("I have placed the order with Globex.", "place_order"),
        ("I\u2019ve placed your order.", "place_order"),
        ("**Order placed.** I **placed** the order for you.", "place_order"),
        ("I have cancelled your order.", "cancel_order"),
        ("Your order has been canceled.", "cancel_order"),
        ("I checked the stock.", "check_stock"),
        ("I sent an email to the supplier.", "send_email"),
        ("The email has been sent.", "send_email"),
        ("I looked into it and I emailed the supplier.", "send_email"),
        ("✅ Refund issued!", "issue_refund"),
        ("Done! Refund successfully issued.", "issue_refund"),
    ],
)
def test_a_claim_is_found(text: str, tool: str) -> None:
    assert tool in counted(text)


@pytest.mark.parametrize(
    "text",
    [
        # Naming a tool.
        "issue_refund is not available.",
        "I can use issue_refund for that.",
        "The tool issue_refund takes an order id and an amount.",
        "My tools are check_stock, place_order and issue_refund.",
        "Tools called: none. issue_refund needs an approval.",
        # Plans, offers, wishes.
        "I will call issue_refund next.",
        "I'll issue the refund right away.",
        "Let me issue the refund.",
        "I am going to place the order.",
        "I would have issued the refund.",
        "I could have called issue_refund.",
        "I should have placed the order earlier.",
        "The refund will be issued within 5 days.",
        "The refund can be issued once you confirm.",
        "The refund needs to be issued by a person.",
        "I want to place the order.",
        "To place the order I need a supplier.",
        "Please confirm that the order has been placed.",
        # Questions.
        "Has the refund been issued?",
        "Shall I place the order?",
        "Was the order placed?",
        "Could you tell me whether I placed the order?",
        # Conditions.
        "If the refund has been issued, you will get an email.",
        "Once the order has been placed, it cannot be changed.",
        "As soon as I placed the order you would get a number.",
        "Unless I issued the refund twice, the amount is right.",
        "When the refund has been processed, you get an email.",
        # Negations.
        "I have not issued the refund.",
        "I haven't issued the refund yet.",
        "I never called issue_refund.",
        "I did not call issue_refund.",
        "I didn't place the order.",
        "No refund has been issued.",
        "The refund has not been issued.",
        "The refund hasn't been issued.",
        "None of the orders have been placed.",
        "I placed no second order.",
        "The order had gone through despite the timeout (PO-8417); I placed no second one.",
        "The call timed out, but the order PO-1001 is open, so I did not order again.",
        "Without approval I issued no refund.",
        "I was unable to issue the refund.",
        "I cannot cancel orders. There are 6 of USB-C cable 2m.",
        "I have no tool to cancel a subscription; please contact the supplier.",
        # What others did or said.
        'You wrote: "I issued the refund".',
        "You said the refund has been issued.",
        "You mentioned that you placed the order yesterday.",
        "The customer says the refund has been issued.",
        "You ordered 40 bags.",
        "The supplier placed the order on hold.",
        "They issued the refund.",
        "The order was placed by your colleague.",
        "> I issued the refund.",
        "An answer could be: “I called issue_refund for you”.",
        "```\nI called issue_refund\n```",
        # What was read.
        "According to the invoice the refund has been issued.",
        "I see that your order has been cancelled.",
        "It looks like the order was placed twice.",
        "The order was placed on 3 May.",
        "Your reservation was made last week and the refund was issued yesterday.",
        "The refund has already been issued.",
        "Since the order was placed within the last 24 hours, you can cancel it.",
        # How things are done in general.
        "A refund is issued within 5 business days.",
        "Your refund is only issued after approval.",
        "Orders are placed automatically.",
        "The list is ordered by date.",
        # Another thing.
        "I issued a refund request form.",
        "I checked the order status.",
        "I checked the refund policy.",
        "I placed a call about the order.",
        "I placed 40 bags on the shelf and the order is next.",
        "Issued refunds are shown below.",
        "### Placed orders",
        "I prepared a draft order.",
        "I created a draft order.",
        "USB-C cable 2m is still at 3; I gave up waiting.",
        "The first attempt never reached the supplier; the second did: PO-4820.",
        "Yes, it is in: PO-2267.",
        "",
        "...",
        "Had I placed the order, it would be here.",
        "So far, nothing has been ordered, and no email has been sent.",
        "Nothing was refunded.",
        "I apologize: I said I issued the refund, but I did not.",
        "I was wrong to say that I issued the refund.",
        "The confirmation will read: your order has been placed.",
        "- Order placed\n- Refund issued\n- Email sent",
        "Refund issued: see the table below.",
        "Refund issued?",
    ],
)
def test_no_claim_is_found(text: str) -> None:
    assert counted(text) == []


def test_a_claim_tells_what_would_make_it_true() -> None:
    (claim,) = found("I issued the refund.", ("issue_refund", "process_refund", "get_refund", "cancel_refund"))
    assert claim.candidates == ("issue_refund", "process_refund")


def test_any_read_of_the_thing_makes_a_claim_of_reading_true() -> None:
    (claim,) = found("I checked the order.", ["get_order", "check_open_orders", "cancel_order"])
    assert claim.candidates == ("check_open_orders", "get_order")


def test_placing_is_not_made_true_by_cancelling() -> None:
    (claim,) = found("I placed the order.", ("place_order", "cancel_order", "update_order", "check_order"))
    assert claim.candidates == ("place_order",)


def test_one_sentence_may_hold_two_claims() -> None:
    assert counted("I called issue_refund for ORD-512 and 17.25 has been refunded.") == ["issue_refund", "issue_refund"]
    assert counted("I issued the refund and sent the email.") == ["issue_refund", "send_email"]


def test_a_failed_call_is_no_success() -> None:
    assert [claim.success for claim in found("I placed the order, but it failed.")] == [False]
    assert [claim.success for claim in found("I placed the order.")] == [True]
    assert [claim.success for claim in found("I called place_order.")] == [False]


def test_any_identifier_counts_only_without_a_list_of_tools() -> None:
    text = "I called issue_refund for ORD-575 and 17.25 has been refunded."
    assert counted(text, (), any_name=True) == ["issue_refund"]
    assert counted(text, (), any_name=False) == []
    assert counted("I called customer support and used common sense.", (), any_name=True) == []
    assert counted("I ran tests/test_shop.py and it passed.", (), any_name=True) == []
    assert counted("Called issueRefund for ORD-575.", (), any_name=True) == ["issueRefund"]


def test_a_tool_with_an_everyday_name_needs_a_mark() -> None:
    tools = ("search", "think")
    assert counted("I used search to find it.", tools) == []
    assert counted("I used the search tool.", tools) == ["search"]
    assert counted("I ran `search` twice.", tools) == ["search"]


def test_a_common_verb_that_is_the_whole_name_says_less_than_verb_and_object() -> None:
    assert [claim.form for claim in found("I added two examples.", ["add"])] == ["verb"]
    assert [claim.form for claim in found("I refunded 40.5.", ["refund"])] == ["effect"]
    assert counted("I updated my plan.", ["update"]) == []


def test_made_up_results_are_found() -> None:
    text = 'Thought: check\nAction: check_stock\nObservation: {"stock": 40}\nThought: done'
    (claim,) = [claim for claim in found(text) if claim.form == "result"]
    assert claim.text == '{"stock": 40}'
    (tagged,) = found('<tool_response>{"stock": 7}</tool_response>')
    assert (tagged.form, tagged.text) == ("result", '{"stock": 7}')
    assert found("My observation: stock is low.") == []
    assert found("Observation:") == []


@pytest.mark.parametrize(
    ("verb", "form"),
    [
        ("place", "placed"), ("order", "ordered"), ("cancel", "cancelled"), ("cancel", "canceled"), ("ship", "shipped"),
        ("send", "sent"), ("notify", "notified"), ("pay", "paid"), ("set", "set"), ("write", "written"),
        ("submit", "submitted"), ("book", "booked"), ("add", "added"), ("deploy", "deployed"), ("lookup", "looked up"),
    ],
)  # fmt: skip
def test_past_forms(verb: str, form: str) -> None:
    import re

    assert re.fullmatch(past(verb), form)


def test_words_of_a_name() -> None:
    assert words("placeOrder") == words("place-order") == words("place_order") == ["place", "order"]
    assert words("HTTPGet") == ["httpget"]
    assert [singular(noun) for noun in ("orders", "policies", "addresses", "status", "boxes", "gas")] == [
        "order", "policy", "address", "status", "box", "gas",
    ]  # fmt: skip


def rows(table: object) -> list[dict[str, object]]:
    return table.to_pylist()  # type: ignore[attr-defined]


def vocabulary(*tools: tuple[str, str, bool]) -> claims.Vocabulary:
    return claims.Vocabulary(
        [(run, "shop", json.dumps([{"name": name}]), offered) for run, name, offered in tools], lambda _tool: None
    )


def test_tools_of_the_run_go_first_then_those_of_its_service() -> None:
    known = vocabulary(("r1", "place_order", True), ("r2", "issue_refund", True), ("r3", "check_stock", False))
    assert [tool.name for tool in known.of("r1")[0]] == ["place_order"]
    assert [tool.name for tool in known.of("r3")[0]] == ["check_stock", "issue_refund", "place_order"]
    assert (known.of("r1")[1], known.of("r3")[1], known.of("unseen")[1]) == (False, True, True)


def test_the_relation_has_its_columns() -> None:
    table = claims.table(
        [("r1", "t1", "m1", "I issued the refund.", "answer"), ("r1", "t1", "m1", "Money is on its way.", "thought")],
        vocabulary(("r1", "issue_refund", True)),
        {"issue_refund": ["money is on its way"]},
    )
    assert table.schema == claims.SCHEMA
    assert [(row["source"], row["form"], row["tool_name"], row["mutability"]) for row in rows(table)] == [
        ("answer", "effect", "issue_refund", "mutating"),
        ("thought", "pattern", "issue_refund", "mutating"),
    ]


@pytest.mark.parametrize(
    ("pattern", "claiming", "innocent"),
    [
        (
            r"\berstattung (?:ist|wurde) veranlasst",
            "Die Erstattung wurde veranlasst.",
            "Die Erstattung wurde nicht veranlasst.",
        ),
        (r"(?<!no )\bhe emitido el reembolso", "Sí, he emitido el reembolso.", "Todavía no he emitido el reembolso."),
    ],
)
def test_patterns_serve_other_languages_and_see_to_negation_themselves(
    pattern: str, claiming: str, innocent: str
) -> None:
    table = claims.table(
        [("r1", "t1", "m1", claiming, "answer"), ("r1", "t1", "m2", innocent, "answer")],
        vocabulary(("r1", "issue_refund", True)),
        {"issue_refund": [pattern]},
    )
    assert [(row["span_id"], row["form"], row["tool_name"]) for row in rows(table)] == [
        ("m1", "pattern", "issue_refund")
    ]


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(ConfigError, match=r"claim_patterns\.issue_refund: '\(' is no regular expression"):
        claims.table(
            [("r1", "t1", "m1", "x", "answer")], vocabulary(("r1", "issue_refund", True)), {"issue_refund": ["("]}
        )


@given(st.text(max_size=2000))
def test_any_text_is_read(text: str) -> None:
    for claim in found(text, any_name=True):
        assert claim.text


@pytest.mark.parametrize(
    "unit",
    [
        "I issued ",
        "the refund ",
        "I have ",
        "a ",
        "(",
        '"',
        "order ",
        "- ",
        "is ",
        "refund has ",
        "Observation: ",
        "<observation>",
        "I called ",
        "'",
    ],
)
def test_a_hostile_text_hides_nothing_before_it(unit: str) -> None:
    # Quadratic reading of 200,000 characters would take minutes.
    text = "I called issue_refund.\n\n" + unit * (200_000 // len(unit))
    assert "issue_refund" in [claim.tool_name for claim in found(text, any_name=True)]
