"""Reads values from outside, which may have any shape.

A value of another shape raises InvalidMessageError, which names the place and the type found, never
the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hiermem.errors import InvalidMessageError
from hiermem.types.content import Content, JsonPart, Part


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
