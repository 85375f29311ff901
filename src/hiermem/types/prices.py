"""Prices of tokens, and the cost of a call.

Only the caller states prices; none is built in, and none is guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from hiermem.errors import UsageError

__all__ = ["PER", "Prices", "add_costs"]

#: Prices are quoted for this many tokens.
PER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens, in a currency of the caller's choice.

    ``input`` and ``output`` are those of the model that summarises; ``cached`` is the price of
    input tokens from the provider's cache, ``input`` if it is None. ``context`` is the input price
    of the model to which contexts are sent; if it is None, ``input`` is used.

    Raises UsageError for a price that is not a finite number, 0 or more.

    >>> Prices(input=2.0, output=8.0, cached=0.5).cost(1_000_000, 500_000, cached=400_000)
    5.4
    """

    input: float
    output: float
    context: float | None = None
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "context", "cached"):
            value: Any = getattr(self, name)
            if name in ("context", "cached") and value is None:
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise UsageError(f"{name} is {type(value).__name__}; a price is a number")
            if not math.isfinite(value) or value < 0:
                raise UsageError(f"{name} must be a finite price, 0 or more")

    def cost(self, tokens_in: int, tokens_out: int, *, cached: int = 0) -> float:
        """Return the cost of so many tokens; ``cached`` of the input came from the cache."""
        cheaper = self.input if self.cached is None else self.cached
        held = min(max(0, cached), tokens_in)
        fresh = tokens_in - held
        return (fresh * self.input + held * cheaper + tokens_out * self.output) / PER


def add_costs(*costs: float | None) -> float | None:
    """Add up costs, of which some may be unknown; None if all are."""
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None
