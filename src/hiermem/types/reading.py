"""Reads values from outside, which may have any shape.

A value of another shape raises InvalidMessageError, which names the place and the type found, never
the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hiermem.errors import InvalidMessageError


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
