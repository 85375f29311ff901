"""Decides what messages and their slices weigh.

Sealing depends on the weights of messages alone. A weight is kept in characters and in tokens,
because nodes keep the unit that they were sealed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from hiermem.config import HierarchyConfig
from hiermem.protocols import TokenCounter
from hiermem.text import measure
from hiermem.tree.windows import CHARS_A_TOKEN
from hiermem.types import SizeUnit, StoredMessage


class Weight(NamedTuple):
    """The weight of a message or slice as summariser input, in code points and in tokens."""

    chars: int
    tokens: int

    def size(self, unit: SizeUnit) -> int:
        """Return the weight in ``unit``."""
        return self.tokens if unit == "tokens" else self.chars


#: The weight of a message that was taken out of the tree.
NOTHING = Weight(0, 0)


class Weigher:
    """Weighs messages and caches the results.

    Weights are computed before a transaction; the decision inside it looks them up and counts
    nothing twice. The cache key includes the message's hash, never its index alone.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self._weights: dict[tuple[Any, ...], tuple[Weight, ...]] = {}
        self._points: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def weigh(
        self, stored: StoredMessage, config: HierarchyConfig, points: Sequence[int] = ()
    ) -> tuple[Weight, ...]:
        """Return the weight of each slice that ``points`` make, or of the whole message."""
        if stored.state != "live":
            return (NOTHING,) * (len(points) + 1)
        if not points and not stored.echoes:  # then nothing is counted
            return _at_most(self._weigh(stored, points), stored, config)
        cache_key = (stored.index, stored.hash, stored.echoes, tuple(points))
        if cache_key not in self._weights:
            self._weights[cache_key] = self._weigh(stored, points)
        return _at_most(self._weights[cache_key], stored, config)

    def estimate(
        self, stored: StoredMessage, config: HierarchyConfig, points: Sequence[int] = ()
    ) -> tuple[Weight, ...]:
        """Return approximate weights for a message that another counter counted.

        They follow from its stored tokens.
        """
        if stored.state != "live":
            return (NOTHING,) * (len(points) + 1)
        whole = len(measure.body(stored.message))
        bounds = (0, *points, whole)
        estimates = tuple(
            Weight(end - begin, stored.tokens * (end - begin) // whole if whole else stored.tokens)
            for begin, end in pairwise(bounds)
        )
        return _at_most(estimates, stored, config)

    def _weigh(self, stored: StoredMessage, points: Sequence[int]) -> tuple[Weight, ...]:
        message, counter, echoes = stored.message, self.counter, stored.echoes
        if points:
            sizes = measure.slice_sizes(message, points, unit="chars", counter=counter)
            return tuple(Weight(chars, tokens) for chars, tokens in sizes)
        chars = measure.message_size(message, unit="chars", counter=counter, echoes=echoes)
        tokens = stored.tokens
        if echoes:
            tokens = measure.message_size(message, unit="tokens", counter=counter, echoes=echoes)
        return (Weight(chars, tokens),)

    def points(
        self, stored: StoredMessage, count: int, *, unit: SizeUnit, target: int
    ) -> tuple[int, ...]:
        """Return the offsets that cut a live message into exactly ``count`` slices.

        Slices are of at most ``target`` if that many slices can hold the text. A longer text is cut
        evenly, and the last slice takes the remainder; of a short text the last slices are empty.
        """
        if count == 1:
            return ()
        cache_key = (stored.index, stored.hash, count, unit, target)
        if cache_key not in self._points:
            message, counter = stored.message, self.counter
            whole = measure.message_size(message, unit=unit, counter=counter)
            most = max(target, ceil(whole / count))
            cuts = measure.slice_points(message, unit=unit, target=most, counter=counter)
            cuts = cuts[: count - 1]
            end = len(measure.body(message))
            self._points[cache_key] = (*cuts, *(end for _ in range(count - 1 - len(cuts))))
        return self._points[cache_key]


def _at_most(
    weights: tuple[Weight, ...], stored: StoredMessage, config: HierarchyConfig
) -> tuple[Weight, ...]:
    """Return the weights; a tool's result that is not sliced has that of an excerpt at most."""
    most = config.tool_result_tokens
    if stored.role != "tool" or most is None or len(weights) != 1 or weights[0].tokens <= most:
        return weights
    return (Weight(min(weights[0].chars, CHARS_A_TOKEN * most), most),)
