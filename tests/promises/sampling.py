"""How many cases a test draws: a part of them in the ordinary run, all with ``-m thorough``.

A test states the full number, and what the ordinary run draws where a tenth is not right.
A property that states no number draws a hundred.
``pytest -m thorough`` selects every test that draws more then, and those that are marked
``thorough`` because they take long. ``HIERMEM_THOROUGH=20 pytest -m thorough`` draws twenty times
the full number, and other cases each time; 0.3 draws three tenths, the same each time.
"""

import os
import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., object])

#: How many times the full number is drawn; 0 in an ordinary run. The conftest sets it.
factor = 0.0
_ASKED = float(os.environ.get("HIERMEM_THOROUGH", "1"))
#: Other cases in each run, which more than the full number asks for.
others = _ASKED > 1


def factor_of(expression: str) -> float:
    """Return the factor of a run that selects tests by this marker expression."""
    return _ASKED if re.search(r"(?<!\bnot )\bthorough\b", expression) else 0.0


def share(full: int, plain: int | None = None) -> int:
    """Return how many cases to draw in this run."""
    least = min(full, max(5, full // 10)) if plain is None else plain
    return max(least, int(full * factor))


def every(plain: int) -> int:
    """Return how far apart the places are that this run tries of all that a test names."""
    return max(1, min(plain, round(1 / factor))) if factor else plain


def counted(test: Test) -> Test:
    """Let a thorough run select the test, which draws more in it."""
    return pytest.mark.thorough(test) if factor else test


def chosen(full: int, plain: int | None = None) -> settings:
    """Return the settings of a property that draws ``share(full, plain)`` examples.

    The examples are the same in each run, so that a failure can be repeated.
    """
    return settings(
        max_examples=share(full, plain),
        derandomize=not others,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def drawn(full: int, plain: int | None = None) -> Callable[[Test], Test]:
    """Return the decorator of a property test that draws ``share(full, plain)`` examples."""

    def decorate(test: Test) -> Test:
        return counted(chosen(full, plain)(test))

    return decorate


def params(values: Iterable[object], plain: int) -> list[object]:
    """Return parameters of which the ordinary run takes ``plain``, evenly spread.

    A tuple holds the values of several parameters.
    """
    listed, thorough = list(values), pytest.mark.thorough
    return [
        value
        if number * plain % len(listed) < plain
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=thorough)
        for number, value in enumerate(listed)
    ]


def crossed(*axes: Iterable[object]) -> list[object]:
    """Return every combination of the axes' values.

    The ordinary run takes as many as the longest axis has values: each of these once, with the
    others' values in turn.
    """
    lists = [list(axis) for axis in axes]
    longest = max(range(len(lists)), key=lambda axis: len(lists[axis]))
    found: list[object] = []
    for places in product(*(range(len(values)) for values in lists)):
        turn = places[longest]
        plain = all(place == turn % len(lists[axis]) for axis, place in enumerate(places))
        values = [lists[axis][place] for axis, place in enumerate(places)]
        name = "-".join(map(_id_of, values, places))
        found.append(pytest.param(*values, marks=() if plain else pytest.mark.thorough, id=name))
    return found


def _id_of(value: object, place: int) -> str:
    """Return what stands for a value in a test's id: a word for itself, a number for a text."""
    return value if isinstance(value, str) and value.isidentifier() else str(place)
