"""Decides how much of a model's window one request may take, and one answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from hiermem.config import BankPolicy, ExtractionOptions
from hiermem.errors import ConfigError
from hiermem.protocols import ChatMessage

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

    A ``live`` model gets ``remote`` tokens by default.

    The number depends on the model alone, never on the limit: a request is the same with and
    without one.
    """
    if options.output_tokens is not None:
        return options.output_tokens
    most = remote if live else LOCAL_ANSWER
    return most if window is None else max(256, min(most, window // 4))


def request_tokens(messages: Sequence[ChatMessage], count: Callable[[str], int]) -> int:
    """Return the tokens of a rendered request."""
    return sum(count(message.content) + FRAME for message in messages)
