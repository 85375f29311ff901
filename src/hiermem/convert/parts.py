"""Reads the parts of a message's content, each as one of ours if it would be written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hiermem.types import Content, JsonPart, Part
from hiermem.types.reading import as_list, as_mapping


def read_parts(
    content: object,
    read: Callable[[Mapping[str, Any]], Part | None],
    write: Callable[[Part], dict[str, Any]],
    *,
    where: str,
) -> tuple[Content, dict[str, Any]]:
    """Return text or parts and, by number, the fields that parts cannot hold.

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
