"""Reads values from outside, which may have any shape.

A value of another shape raises InvalidMessageError, which names the place and the type found, never
the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from hiermem.errors import InvalidMessageError
from hiermem.types.content import Content, JsonPart, Part

#: The most fields that an error names, and the most characters of a name.
_NAMED, _SHOWN = 12, 40


def as_mapping(value: object, *, where: str) -> dict[str, Any]:
    """Return a mapping (or an object of a provider's library, which can dump itself) as a dict."""
    if not isinstance(value, Mapping):
        dump = getattr(value, "model_dump", None)
        if not callable(dump) or isinstance(value, type):
            raise InvalidMessageError(f"{where} is {type(value).__name__}; it must be a mapping")
        value = dump(mode="json", exclude_unset=True)
        if not isinstance(value, Mapping):
            raise InvalidMessageError(f"{where} does not dump itself into a mapping")
    if not all(isinstance(key, str) for key in value):
        raise InvalidMessageError(f"{where} has a key that is not text")
    return dict(value)


def as_list(value: object, *, where: str) -> list[Any]:
    """Return any iterable but a text or mapping as a list."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidMessageError(f"{where} is {type(value).__name__}; it must be a list")
    return list(value)


def text_of(data: Mapping[str, Any], field: str, *, where: str) -> str:
    """Return a field that must exist and be text."""
    value = data.get(field)
    if not isinstance(value, str):
        kind = "missing" if field not in data else type(value).__name__
        raise InvalidMessageError(f"{where}.{field} is {kind}; it must be text")
    return value


def refuse_empty(data: Mapping[str, Any], *, where: str) -> NoReturn:
    """Raise the error of a message without content; it names the fields that were found."""
    found = ", ".join(name[:_SHOWN] for name in list(data)[:_NAMED]) or "nothing else"
    raise InvalidMessageError(f"{where}.content is missing; the message has {found}")


def take_time(data: dict[str, Any], *, where: str) -> datetime | None:
    """Take ``created_at`` out of a message, or return None if it has none.

    It is ISO 8601 text with a time zone, a datetime with one, or seconds since 1970.
    """
    given = data.pop("created_at", None)
    if given is None:
        return None
    when = given
    try:
        if isinstance(given, str):
            when = datetime.fromisoformat(given)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            when = datetime.fromtimestamp(given, UTC)
    except (ValueError, OverflowError, OSError):
        when = None
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise InvalidMessageError(
            f"{where}.created_at must be a time with its time zone, such as 2026-03-01T10:00:00Z"
        )
    return when


def kept_of(metadata: Mapping[str, Any], shape: str) -> Mapping[str, Any]:
    """Return what reading ``shape`` kept in a message's metadata, or nothing."""
    kept = metadata.get(shape)
    return kept if isinstance(kept, Mapping) else {}


def kept_for(kept: Mapping[str, Any], field: str, number: int) -> Mapping[str, Any]:
    """Return what was kept for the part or call of that number, or nothing."""
    held = kept.get(field)
    found = held.get(str(number)) if isinstance(held, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def read_parts(
    content: object,
    read: Callable[[Mapping[str, Any]], Part | None],
    write: Callable[[Part], dict[str, Any]],
    *,
    where: str,
) -> tuple[Content, dict[str, Any]]:
    """Return text, or parts and, by number, the fields that parts cannot hold.

    A part that ``write`` would not give back the same stays as it is, opaque.
    """
    if isinstance(content, str):
        return content, {}
    parts: list[Part] = []
    extras: dict[str, Any] = {}
    for number, value in enumerate(as_list(content, where=where)):
        block = as_mapping(value, where=f"{where}[{number}]")
        part = read(block)
        if part is not None:
            back = write(part)
            more = {k: v for k, v in block.items() if k not in back}
            if back | more == block:
                if more:
                    extras[str(number)] = more
                parts.append(part)
                continue
        parts.append(JsonPart(block))
    return tuple(parts), ({"parts": extras} if extras else {})
