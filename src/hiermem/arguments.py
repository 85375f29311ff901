"""Checks the arguments of public calls: one function for each kind of argument.

An accepted argument can do no harm further in. Any other raises UsageError (or its ConfigError or
InvalidMessageError), which names the argument and what would be right, never its value. Texts are
checked by ``hiermem.text.policy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from hiermem import protocols
from hiermem.config import Limits
from hiermem.errors import UsageError
from hiermem.text.policy import MAX_CONTENT, MAX_NAME, check, check_json, check_name
from hiermem.types import Span
from hiermem.types.tree import OWN_LABELS, Scope, SessionFilter, Sessions, member_of

T = TypeVar("T")
#: The longest name of an embedder, and its greatest weight in relation to the words.
_LONGEST_NAME = 200
#: The most pairs in the metadata of one session.
_MOST_METADATA = 64
_HEAVIEST = 10


def whole(value: Any, what: str, *, least: int = 0) -> int:
    """Return a whole number of at least ``least``; a bool is refused."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a whole number")
    if value < least:
        raise UsageError(f"{what} must be {least} or more")
    return value


def seconds(value: Any, what: str) -> float:
    """Return a finite number of seconds, 0 or more."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a number of seconds")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"{what} must be a finite number of seconds, 0 or more")
    return number


def share(value: Any, what: str) -> float:
    """Return a number from 0 to 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a number from 0 to 1")
    if not 0 <= value <= 1:
        raise UsageError(f"{what} must be a number from 0 to 1")
    return float(value)


def stretch(value: Any, what: str) -> tuple[int, int]:
    """Return a half-open range of message indices, (start, stop), from a pair or a Span."""
    if isinstance(value, Span):
        value = (value.start, value.stop)
    # Not any sequence: range(3, 9) has six numbers, and range(3, 5) would pass for a pair.
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"{what} is {type(value).__name__}; it must be (start, stop), or a Span")
    pair: Sequence[Any] = value
    if len(pair) != 2:
        raise UsageError(f"{what} has {len(pair)} numbers; it must be (start, stop)")
    start = whole(pair[0], f"the start of {what}")
    return start, whole(pair[1], f"the stop of {what}", least=start)


def run(limits: Any = None, *, on_progress: Any = None) -> Limits:
    """Return the limits of a run; refuse what cannot be told its progress."""
    if on_progress is not None:
        function(on_progress, "on_progress")
    return optional(limits, "limits", Limits)


def switch(value: Any, what: str) -> bool:
    """Return True or False; no other value is accepted."""
    if not isinstance(value, bool):
        raise UsageError(f"{what} is {type(value).__name__}; it must be True or False")
    return value


def function(value: Any, what: str) -> Callable[..., Any]:
    """Return a callable."""
    if not callable(value):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a function")
    found: Callable[..., Any] = value
    return found


def moment(value: Any, what: str) -> datetime:
    """Return a timezone-aware datetime that can be converted to UTC."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise UsageError(
            f"{what} must be a timezone-aware datetime, such as datetime.now(timezone.utc)"
        )
    if not 1 < value.year < 9999:
        raise UsageError(f"{what} must lie between the years 2 and 9998")
    return value


def one_of(value: Any, what: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not in ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise UsageError(f"{what} must be one of {', '.join(map(repr, allowed))}")


def optional(value: Any, what: str, kind: type[T], default: Callable[[], T] | None = None) -> T:
    """Return an object of the right class; for None, what ``default`` or else the class makes."""
    if value is None:
        return kind() if default is None else default()
    if not isinstance(value, kind):
        raise UsageError(f"{what} is {type(value).__name__}; it must be {kind.__name__} or None")
    return value


def embedder_of(value: Any) -> protocols.Embedder | None:
    """Return the embedder, or None: then only words are compared, and no vectors are stored.

    Raises UsageError for an object that is no embedder.
    """
    if value is None:
        return None
    if isinstance(value, type) or not protocols.offers(value, protocols.Embedder):
        right = "have a name, a dimension and embed(), or be None"
        raise protocols.refused(value, protocols.Embedder, "embedder", right)
    name, dimension = value.name, value.dimension
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        raise UsageError(f"the embedder's name must be a text of 1 to {_LONGEST_NAME} characters")
    if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
        raise UsageError("the embedder's dimension must be a whole number, 1 or more")
    weight = getattr(value, "weight", 1.0)
    if not isinstance(weight, (int, float)) or not 0 <= weight <= _HEAVIEST:
        raise UsageError(f"the embedder's weight must be a number from 0 to {_HEAVIEST}")
    return value


def names(value: Any, what: str) -> tuple[str, ...]:
    """Return names from a sequence; a single text is not taken for a sequence of letters."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a sequence of names")
    return tuple(check_name(name, what=f"a name in {what}") for name in value)


def metadata(value: Any, what: str = "metadata") -> dict[str, str]:
    """Return a session's metadata: a flat mapping of short texts, copied.

    Names have 1 to 512 code points, values up to 512, and there are at most 64 pairs.
    """
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{what} is {type(value).__name__}; it must be a mapping of texts to texts"
        )
    if len(value) > _MOST_METADATA:
        raise UsageError(f"{what} has {len(value):,} pairs; at most {_MOST_METADATA} are allowed")
    for name in value:
        if isinstance(name, str) and name.startswith(OWN_LABELS):
            raise UsageError(f"{what} has {name!r}; names that begin with {OWN_LABELS!r} are taken")
    return {
        check_name(key, what=f"a name in {what}"): check(
            held, what=f"a value in {what}", cap=MAX_NAME
        )
        for key, held in value.items()
    }


def sessions(space: Scope, labels: Mapping[str, str] | None) -> SessionFilter:
    """Return the filter for the sessions of a space, of none or of all, that have ``labels``."""
    given = {} if labels is None else metadata(labels)
    if space is None or isinstance(space, Sessions):
        return SessionFilter(given, alone=space is None)
    return SessionFilter(given | member_of(check_name(space, what="space")))


def system_prompt(value: Any) -> str | None:
    """Return a system prompt that can be sent, or None."""
    return None if value is None else check(value, what="system", cap=MAX_CONTENT)


def tool_schemas(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return tool schemas as plain JSON objects."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise UsageError(
            f"tools is {type(value).__name__}; it must be a sequence of schemas, each a mapping"
        )
    schemas = list(value)
    for schema in schemas:
        if not isinstance(schema, Mapping):
            raise UsageError(f"tools holds {type(schema).__name__}; each schema is a mapping")
    copied: list[Mapping[str, Any]]
    copied, _ = check_json(schemas, what="tools", cap=MAX_CONTENT)
    return tuple(copied)
