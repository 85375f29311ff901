"""Reads mappings that have the published names: which setting each key is, and in which unit.

The keys are a table, ``data/published.txt``. This module checks names and types and converts units;
the configurations check the ranges of what comes out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from hiermem.data import published
from hiermem.errors import ConfigError

Unit: TypeAlias = Literal[
    "chars", "count", "flag", "milliseconds", "number", "removed", "seconds", "share", "text",
    "tokens",
]  # fmt: skip
#: How similar a key must be to be named, where one is unknown, and how much of that one is shown.
_SIMILAR: Final = 0.6
_SHOWN: Final = 60


class Key(NamedTuple):
    """A published key: the plan it is of, its unit and default, and the settings that it is.

    ``default`` is in the published unit, None where there is none.
    """

    plan: str
    unit: Unit
    default: Any
    settings: tuple[str, ...]


#: A value that was given: the key it was given by, and the value in the setting's unit.
Given: TypeAlias = tuple[str, Any]


@cache
def keys() -> Mapping[str, Key]:
    """Return the published keys by name.

    >>> keys()["l2TargetCompressionRatio"].settings
    ('config.levels.2.target_ratio',)
    """
    found: dict[str, Key] = {}
    for plan, name, unit, default, *settings in published():
        value = None if default == "-" else json.loads(default)
        found[name] = Key(plan, cast("Unit", unit), value, tuple(settings))
    return MappingProxyType(found)


def read(mapping: object) -> dict[str, Given]:
    """Return the values of a mapping with published names by setting, such as "config.target".

    Raises ConfigError for a key that is not known, a value of another type, and two keys that say
    different things of one setting.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"the settings are {type(mapping).__name__}; they must be a mapping")
    given: Mapping[Any, Any] = mapping
    found: dict[str, Given] = {}
    for name, value in given.items():
        key = keys().get(name) if isinstance(name, str) else None
        if key is None:
            raise ConfigError(unknown(name, keys(), what="published setting"))
        read = name, _value(name, key.unit, value)
        for setting in key.settings:
            other = found.setdefault(setting, read)
            if other[1] != read[1]:
                raise ConfigError(f"{other[0]} and {name} are one setting; give one of them")
    return found


def unknown(name: object, known: Mapping[str, object], *, what: str) -> str:
    """Say that there is no such name, and which ones are like it.

    >>> unknown("window_chars", {"windowChars": 0}, what="key")
    "'window_chars' is no key; windowChars is"
    """
    if not isinstance(name, str):
        return f"a key is {type(name).__name__}; it must be the name of a {what}"
    from difflib import get_close_matches  # only an error needs it

    shown = repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
    plain = {_plain(each): each for each in known}
    near = get_close_matches(_plain(name[:_SHOWN]), plain, 2, _SIMILAR)
    if near[:1] == [_plain(name)]:
        del near[1:]
    said = f"{shown} is no {what}"
    if not near:
        return f"{said}; there are {', '.join(sorted(known))}"
    return f"{said}; {' and '.join(plain[each] for each in near)} {'are' if near[1:] else 'is'}"


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _value(name: str, unit: Unit, value: Any) -> Any:
    """Return a value in the unit of the setting. Raises ConfigError."""
    convert, wanted = _UNITS[unit]
    try:
        if name.isupper() and unit != "text" and isinstance(value, str):
            value = float(value)  # as a variable of the environment holds it
        return convert(value)
    except TypeError:
        raise ConfigError(f"{name} is {type(value).__name__}; it must be {wanted}") from None
    except ValueError:
        raise ConfigError(f"{name} must be {wanted}") from None


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError
    if abs(value) > 2**53 or not math.isfinite(value):
        raise ValueError
    return float(value)


def _share(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _kept(value: Any) -> float:
    # Rounded, so that 0.7 removed is 0.3 kept and not 0.30000000000000004.
    kept = round(1 - _share(value), 9)
    if not 0 < kept < 1:
        raise ValueError
    return kept


def _milliseconds(value: Any) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=_number(value))


def _seconds(value: Any) -> timedelta | float:
    # A number stays one: the configuration asks about a number that was meant in milliseconds.
    if isinstance(value, timedelta):
        return value
    number = _number(value)
    return int(number) if number.is_integer() else number


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


#: How a value of a unit is read, and what it must be.
_UNITS: Final[Mapping[Unit, tuple[Callable[[Any], Any], str]]] = {
    "chars": (_whole, "a whole number of characters"),
    "count": (_whole, "a whole number"),
    "flag": (_flag, "true or false"),
    "milliseconds": (_milliseconds, "a number of milliseconds, or a timedelta"),
    "number": (_number, "a number"),
    "removed": (_kept, "the share that is removed: more than 0 and less than 1"),
    "seconds": (_seconds, "a number of seconds, or a timedelta"),
    "share": (_share, "a share from 0 to 1"),
    "text": (_text, "text"),
    "tokens": (_whole, "a whole number of tokens"),
}
