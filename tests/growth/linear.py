"""Tells linear work from quadratic by the processor time that it takes.

The one rule: sizes are compared with each other, never with a clock's idea of fast. The machine may
be busy at one look, so only work that is too slow at every look is called so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: How many times the smaller input the larger one is.
TIMES = 4


def repeated(unit: str, size: int) -> str:
    """Give ``unit`` again and again, ``size`` characters in all."""
    return (unit * (size // len(unit) + 1))[:size]


def is_linear(
    prepare: Callable[[int], T],
    work: Callable[[T], object],
    *,
    size: int,
    slack: float = 0.02,
    looks: int = 4,
) -> bool:
    """Say whether ``work`` takes time in proportion to the size of what ``prepare`` gives it.

    It is done for ``size`` and for four times as much. The line is drawn at 2.6 for each doubling:
    linear work takes four times as long, quadratic work sixteen times. ``slack``, in seconds, is
    for what a cache or a collection of garbage adds; it has to stay small beside the larger work.
    """
    small, large = prepare(size), prepare(TIMES * size)
    return any(_spent(work, large) <= 2.6**2 * _spent(work, small) + slack for _ in range(looks))


def _spent(work: Callable[[T], object], given: T) -> float:
    begun = time.process_time()
    work(given)
    return time.process_time() - begun
