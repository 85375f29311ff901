"""Reads the parts of a fold's stored state, each in the module that packs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hiermem.errors import StoreCorruptError

T = TypeVar("T")

_decode: Final[Callable[[str], Any]] = json.JSONDecoder().decode


def check_types(*values: Any, kind: type) -> None:
    """Raise TypeError where a value is not exactly of this kind."""
    if any(type(value) is not kind for value in values):
        raise TypeError


def read_part(text: str, make: Callable[[Any], T]) -> T:
    """Make a value of ``text``, a part of a fold's state.

    Raises StoreCorruptError where that is not possible; the error holds nothing of the text.
    """
    try:
        return make(_decode(text))
    except (
        ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
    ):  # fmt: skip
        raise StoreCorruptError(
            "a session's state is not what hiermem wrote; the store is damaged"
        ) from None
