"""What model calls cost: the user's own prices first, then genai-prices at the time of the call."""

import tomllib
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

import genai_prices
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agenttrace.errors import ConfigError


class ModelUsage(NamedTuple):
    """Tokens of one model call; cached and cache-write tokens are parts of the input."""

    provider: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    at: datetime


class OwnPrice(BaseModel):
    """A user's own price of a model, US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    input_usd_per_million_tokens: float = Field(ge=0)
    output_usd_per_million_tokens: float = Field(ge=0)
    cached_input_usd_per_million_tokens: float | None = Field(default=None, ge=0)
    cache_write_usd_per_million_tokens: float | None = Field(default=None, ge=0)

    def cost_usd(self, usage: ModelUsage) -> float:
        """Prices one call; cached and written tokens at the input price where none is given for them."""
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        fresh = max((usage.input_tokens or 0) - cached - written, 0)
        full = self.input_usd_per_million_tokens
        cached_price, write_price = self.cached_input_usd_per_million_tokens, self.cache_write_usd_per_million_tokens
        return (
            fresh * full
            + cached * (full if cached_price is None else cached_price)
            + written * (full if write_price is None else write_price)
            + (usage.output_tokens or 0) * self.output_usd_per_million_tokens
        ) / 1e6


_OWN_PRICES = TypeAdapter(dict[str, OwnPrice])


class PriceTable:
    """Prices of models.

    Args:
        path: TOML file of the user's own prices, one table per model name or glob; the name goes before a glob, the
            first glob before the others. None for none.

    Raises:
        ConfigError: The file cannot be read or holds something else.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._own = _read_own_prices(path) if path else {}

    def cost_usd(self, usage: ModelUsage) -> float | None:
        """Prices one model call; None where the model is unknown or its tokens were not captured.

        Source:
            pydantic/genai-prices for all models without an own price.
        """
        if not usage.model or (usage.input_tokens is None and usage.output_tokens is None):
            return None
        own = self._own.get(usage.model) or self._first_match(usage.model)
        return own.cost_usd(usage) if own else _list_price(usage)

    def _first_match(self, model: str) -> OwnPrice | None:
        return next((price for pattern, price in self._own.items() if fnmatchcase(model, pattern)), None)


def price_source() -> str:
    """Names the price table in use, with its version."""
    return f"genai-prices {version('genai-prices')}"


def _read_own_prices(path: Path) -> dict[str, OwnPrice]:
    try:
        return _OWN_PRICES.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read as a price file: {err}") from err
    except ValidationError as err:
        first = err.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {place}: {first['msg']}. Each model needs input_usd_per_million_tokens.") from err


class _Rates(NamedTuple):
    """US dollars per token and per request of a model whose price depends on neither time nor size."""

    request: float
    input: float
    cached_input: float
    cache_write: float
    output: float


def _list_price(usage: ModelUsage) -> float | None:
    rates = _rates(usage.provider, usage.model or "")
    if rates is None:
        return None
    input_tokens, cached, written = (
        usage.input_tokens or 0,
        usage.cached_input_tokens or 0,
        usage.cache_write_tokens or 0,
    )
    output_tokens = usage.output_tokens or 0
    if isinstance(rates, _Rates) and cached + written <= input_tokens:
        fresh = input_tokens - cached - written
        return (
            rates.request
            + fresh * rates.input
            + cached * rates.cached_input
            + written * rates.cache_write
            + output_tokens * rates.output
        )
    tokens = genai_prices.Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached, cache_write_tokens=written
    )
    try:
        return float(_calculate(tokens, usage.provider, usage.model or "", usage.at).total_price)
    except (LookupError, ValueError):
        return None


def _calculate(
    tokens: genai_prices.Usage, provider: str | None, model: str, at: datetime
) -> genai_prices.types.PriceCalculation:
    try:
        return genai_prices.calc_price(tokens, model, provider_id=provider, genai_request_timestamp=at)
    except LookupError:
        # The provider may be a gateway or a framework of its own naming; the model's name alone decides then.
        return genai_prices.calc_price(tokens, model, genai_request_timestamp=at)


@lru_cache(maxsize=4096)
def _rates(provider: str | None, model: str) -> "_Rates | Literal['variable'] | None":
    """Returns the rates of a model; 'variable' where they depend on time or size, None for an unknown model.

    The library takes 100 times as long as this sum, and a night has a million calls of a few models.
    """
    now = datetime.now().astimezone()

    def price(**tokens: int) -> float:
        counts = {
            name: tokens.get(name, 0)
            for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
        }
        return float(_calculate(genai_prices.Usage(**counts), provider, model, now).total_price)

    try:
        found = _calculate(genai_prices.Usage(input_tokens=1), provider, model, now)
        if not isinstance(found.model.prices, genai_prices.types.ModelPrice) or any(
            isinstance(price, genai_prices.types.TieredPrices) for price in vars(found.model_price).values()
        ):
            return "variable"
        request, million = price(), 1_000_000
        return _Rates(
            request,
            (price(input_tokens=million) - request) / million,
            (price(input_tokens=million, cache_read_tokens=million) - request) / million,
            (price(input_tokens=million, cache_write_tokens=million) - request) / million,
            (price(output_tokens=million) - request) / million,
        )
    except (LookupError, ValueError):
        return None
