"""What model calls cost."""

from datetime import UTC, datetime
from pathlib import Path

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.errors import ConfigError
from agenttrace.prices import ModelUsage, PriceTable, price_source

AT = datetime(2026, 1, 31, tzinfo=UTC)


def usage(
    model: str | None = "gpt-4o",
    tokens: tuple[int | None, int | None] = (1_000_000, 0),
    *,
    provider: str | None = "openai",
    cached: int | None = None,
    written: int | None = None,
) -> ModelUsage:
    return ModelUsage(provider, model, *tokens, cached, written, AT)


def table(tmp_path: Path, text: str) -> PriceTable:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return PriceTable(path)


@pytest.mark.parametrize(
    ("call", "usd"),
    [
        # gpt-4o, US dollars per million tokens: 2.5 in, 10 out, 1.25 cached.
        (usage(), 2.5),
        (usage(tokens=(0, 1_000_000)), 10.0),
        (usage(tokens=(1_000_000, None)), 2.5),
        (usage(tokens=(None, 1_000_000)), 10.0),
        (usage(cached=400_000), 0.6 * 2.5 + 0.4 * 1.25),
        (usage(tokens=(0, 0)), 0.0),
        # claude-3-5-haiku: 0.8 in, 0.08 cached, 1 written.
        (
            usage("claude-3-5-haiku-20241022", provider="anthropic", cached=500_000, written=250_000),
            0.25 * 0.8 + 0.5 * 0.08 + 0.25,
        ),
        # A gateway's or framework's own name of a provider: the model's name decides.
        (usage(provider="my-gateway"), 2.5),
        (usage(provider=None), 2.5),
        (usage("GPT-4o"), 2.5),
    ],
)
def test_list_prices(call: ModelUsage, usd: float) -> None:
    assert PriceTable().cost_usd(call) == pytest.approx(usd)


def test_a_tier_is_reached_by_the_size_of_the_call() -> None:
    # gemini-2.5-pro: 1.25 up to 200,000 tokens of input, then 2.5 for all of them.
    small, large = (
        PriceTable().cost_usd(usage("gemini-2.5-pro", (tokens, 0), provider="google")) for tokens in (200_000, 400_000)
    )
    assert (small, large) == (pytest.approx(0.25), pytest.approx(1.0))


@pytest.mark.parametrize(
    "call", [usage("nobodys-model"), usage(None), usage(tokens=(None, None)), usage("x" * 5000), usage("'; --")]
)
def test_what_is_unknown_has_no_cost(call: ModelUsage) -> None:
    assert PriceTable().cost_usd(call) is None


@given(
    st.sampled_from([("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), ("google", "gemini-2.5-pro")]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)
def test_the_cost_is_the_librarys(model: tuple[str, str], given: int, out: int, cached: float, written: float) -> None:
    read, wrote = int(given * cached), int(given * written)
    expected = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=given, output_tokens=out, cache_read_tokens=read, cache_write_tokens=wrote),
        model[1],
        provider_id=model[0],
        genai_request_timestamp=AT,
    )
    found = PriceTable().cost_usd(ModelUsage(*model, given, out, read, wrote, AT))
    assert found == pytest.approx(float(expected.total_price))


OWN = """
["my-*"]
input_usd_per_million_tokens = 1
output_usd_per_million_tokens = 2
["my-model"]
input_usd_per_million_tokens = 10
output_usd_per_million_tokens = 20
cached_input_usd_per_million_tokens = 1
cache_write_usd_per_million_tokens = 0.5
["gpt-4o"]
input_usd_per_million_tokens = 0
output_usd_per_million_tokens = 0
"""


def test_own_prices_go_first_and_a_name_before_a_glob(tmp_path: Path) -> None:
    own = table(tmp_path, OWN)
    assert own.cost_usd(usage("my-model", (1_000_000, 1_000_000), cached=300_000, written=200_000)) == pytest.approx(
        0.5 * 10 + 0.3 * 1 + 0.2 * 0.5 + 20
    )
    # Without prices of their own, cached and written tokens cost what the others cost.
    assert own.cost_usd(usage("my-other", (1_000_000, 500_000), cached=300_000)) == pytest.approx(2.0)
    assert own.cost_usd(usage("gpt-4o")) == 0.0
    assert own.cost_usd(usage("gpt-4o-mini")) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a]\ninput_usd_per_million_tokens = 1", "a.output_usd_per_million_tokens"),
        ("[a]\ninput_usd_per_million_tokens = -1\noutput_usd_per_million_tokens = 1", "greater than or equal to 0"),
        ("[a]\ninput_usd_per_million_tokens = nan\noutput_usd_per_million_tokens = 1", "finite"),
        ("[a]\ninput_usd = 1", "a.input_usd"),
        ("a = 1", "a: Input should be"),
        ("[a", "cannot be read as a price file"),
    ],
)
def test_a_wrong_price_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        table(tmp_path, text)
    assert "prices.toml: " in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_price_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        PriceTable(tmp_path / "nowhere.toml")


def test_the_price_table_has_a_version() -> None:
    assert price_source().startswith("genai-prices ")
