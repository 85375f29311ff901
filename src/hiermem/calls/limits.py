"""Decides what a request may take of a model's window, which counts to believe, and what they cost.

An impossible count that a provider or an adapter reports is treated as no count, and replaced by
our own. It would otherwise stand in every journal and count against every cap: a negative count
gives back what was spent, one of another type makes the store's row unreadable, one that is too
large for the store ends the run that paid for it.

Only the caller states prices; none is built in, and none is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hiermem.config import BankPolicy, ExtractionOptions
from hiermem.errors import ConfigError, UsageError
from hiermem.protocols import ChatMessage, Usage

#: The share of a model's stated window that one request may take.
SAFE_SHARE: Final = 0.75
#: Tokens reserved for an answer: what providers allow by default, and what costs nothing locally.
REMOTE_ANSWER: Final = 4096
LOCAL_ANSWER: Final = 16_384
#: Tokens that a provider adds to each message of a request.
FRAME: Final = 4


def threshold(options: ExtractionOptions | BankPolicy, window: object) -> int | None:
    """Return the most tokens that one request may take: by the options, or by the model's window.

    None where neither is known. Of the window it is a share.

    Raises ConfigError where the window is not a whole number above 0, or the options ask for more
    than the model can take.
    """
    if window is not None and (
        isinstance(window, bool) or not isinstance(window, int) or window < 1
    ):
        raise ConfigError("the model's context_window must be a whole number above 0, or None")
    asked = options.safe_processing_tokens
    if asked is not None:
        if window is not None and asked > window:
            raise ConfigError(
                f"safe_processing_tokens is {asked}, but the window is {window}; pass at most "
                f"that, or omit it for {math.floor(SAFE_SHARE * window)}"
            )
        return asked
    if window is None:
        return None
    return max(1, math.floor(SAFE_SHARE * window))


def answer_tokens(
    options: ExtractionOptions | BankPolicy,
    *,
    window: int | None,
    live: bool,
    remote: int = REMOTE_ANSWER,
) -> int:
    """Return the tokens reserved for one answer: from the options, or by the model.

    A ``live`` model gets ``remote`` tokens by default, another one LOCAL_ANSWER; neither gets more
    than a quarter of the window in force. That is the model's window, or a smaller one of which the
    options' limit is the share that a request may take.
    """
    if options.output_tokens is not None:
        return options.output_tokens
    windows = [] if window is None else [window]
    if options.safe_processing_tokens is not None:
        windows.append(math.ceil(options.safe_processing_tokens / SAFE_SHARE))
    most = remote if live else LOCAL_ANSWER
    return max(256, min(most, min(windows) // 4)) if windows else most


def request_tokens(messages: Sequence[ChatMessage], count: Callable[[str], int]) -> int:
    """Return the tokens of a rendered request."""
    return sum(count(message.content) + FRAME for message in messages)


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


__all__ = ["PER", "Prices"]

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
