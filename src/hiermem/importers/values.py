"""Reads what a value of JSON holds, whatever its form: at a path, as a list, as a name."""

from __future__ import annotations

from typing import Any

from hiermem.text.policy import MAX_NAME


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; none where the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def kind_name(value: Any) -> str:
    """Return the name of a type as a note may show it."""
    text = value if isinstance(value, str) else type(value).__name__
    return "".join(c for c in text if c.isalnum() or c in "_.-")[:40] or "?"


def found_at(value: object, path: str) -> Any:
    """Return what a path of field names, with dots between, leads to; None where it leads nowhere.

    >>> found_at({"author": {"name": "Ada"}}, "author.name")
    'Ada'
    """
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_at(value: object, path: str) -> str | None:
    """Return the text that a path leads to; None where there is none, or it is empty."""
    text = found_at(value, path)
    return text if isinstance(text, str) and text else None


class Opened(dict[str, Any]):
    """The members of an object before it breaks; the one in which it breaks is empty."""


def leads(value: object, path: str) -> bool:
    """Return whether a path leads to a field, through the first item of each list.

    It does where it leads into the part at which an object breaks.
    """
    name, _, rest = path.partition(".")
    member = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, Opened) and member in ([], {}):
        return True
    if isinstance(member, list) and rest:
        member = next((each for each in member if isinstance(each, dict)), None)
    return leads(member, rest) if rest else isinstance(value, dict) and name in value


def name_of(value: object) -> str | None:
    """Return a title, or a speaker's or a tool's name, cut to what is taken."""
    if not isinstance(value, str) or not value.strip():
        return None
    text = value.replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
    return text[:MAX_NAME]


def name_at(value: object, *paths: str) -> str | None:
    """Return the name that the first of the paths leads to that leads to one."""
    return next((name for path in paths if (name := name_of(found_at(value, path)))), None)
