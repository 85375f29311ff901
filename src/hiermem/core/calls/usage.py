"""Decides which of the figures that a provider or an adapter reports can be believed.

An impossible count is treated as no count. It would otherwise stand in every journal and count
against every cap: a negative count gives back what was spent, one of another type makes the store's
row unreadable, one that is too large for the store ends the run that paid for it. A count that is
not believed is replaced by our own.
"""

from __future__ import annotations

from typing import Final

from hiermem.protocols import Usage

#: More tokens than any call takes; a sum of millions of such counts still fits a store's numbers.
MOST_TOKENS: Final = 1_000_000_000


def count_of(value: object) -> int | None:
    """Return a plausible count of tokens, or None.

    >>> count_of(12), count_of(-1), count_of(1.5), count_of(10**30)
    (12, None, None, None)
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def plausible_usage(usage: object) -> Usage:
    """Return the plausible figures of a usage; none where it is not a Usage."""
    if not isinstance(usage, Usage):
        return Usage()
    return Usage(
        input_tokens=count_of(usage.input_tokens),
        output_tokens=count_of(usage.output_tokens),
        cached_tokens=count_of(usage.cached_tokens),
        reasoning_tokens=count_of(usage.reasoning_tokens),
    )


def reported_model(value: object, *, asked: str) -> str:
    """Return the model that an answer names, where the name can be stored; otherwise ``asked``."""
    fit = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
    return str(value) if fit else asked
