"""Decides what is believed of what a provider or an adapter reports beside its answer.

The one rule: a count that cannot be is none. It would stand in every journal and against every cap:
one below zero gives back what was spent, one of another type makes the store's row unreadable, one
beyond its numbers ends the run that paid for it. What is not believed is counted instead.
"""

from __future__ import annotations

from typing import Final

from hiermem.protocols import Usage

#: More tokens than any call takes; a sum of millions of such counts still fits a store's numbers.
MOST_TOKENS: Final = 1_000_000_000


def count_of(value: object) -> int | None:
    """Give a count of tokens; None for what is none.

    >>> count_of(12), count_of(-1), count_of(1.5), count_of(10**30)
    (12, None, None, None)
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def plausible_usage(usage: object) -> Usage:
    """Give what may be believed of a usage; nothing where it is none at all."""
    if not isinstance(usage, Usage):
        return Usage()
    return Usage(
        input_tokens=count_of(usage.input_tokens),
        output_tokens=count_of(usage.output_tokens),
        cached_tokens=count_of(usage.cached_tokens),
        reasoning_tokens=count_of(usage.reasoning_tokens),
    )


def reported_model(value: object, *, asked: str) -> str:
    """Give the model that an answer names, where it names one fit to be kept; else ``asked``."""
    fit = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
    return str(value) if fit else asked
