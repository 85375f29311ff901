"""Decides what a request and an answer may take of a model's window, and which counts to believe.

An impossible count that a provider or an adapter reports is treated as no count, and replaced by
our own. It would otherwise stand in every journal and count against every cap: a negative count
gives back what was spent, one of another type makes the store's row unreadable, one that is too
large for the store ends the run that paid for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from hiermem.config import BankPolicy, ExtractionOptions
from hiermem.errors import ConfigError
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
                f"safe_processing_tokens is {asked}, but the model's window is {window}; give at "
                f"most that, or leave it out for {math.floor(SAFE_SHARE * window)}"
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
