"""How a returned value is shown: one line, and in a notebook a small table.

Everything that a call returns is of a class with ``Brief`` among its bases. The whole value is in
its fields; the line and the table show the beginning of each. A ``FrozenDict`` among the fields is
a mapping that does not change, which can be copied, pickled and written as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from datetime import datetime
from html import escape
from typing import Any, ClassVar, Final, NoReturn, Self, TypeAlias, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("this mapping does not change; make a dict of it and change that")


# ``Any``, because it takes the place of methods with different signatures.
_REFUSED: Any = _refuse


class FrozenDict(dict[K, V]):
    """A dict that refuses every change; its values are not copied.

    >>> FrozenDict({"a": 1}) == {"a": 1}
    True
    """

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _REFUSED
    clear = pop = popitem = setdefault = update = _REFUSED

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict[K, V]:
        return FrozenDict(deepcopy(dict(self), memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


#: The most characters of a text, of a line, and of the text below a table.
_TEXT, _LINE, _BELOW = 48, 160, 4_000
#: The most values of a collection that are shown; of a larger one, its size.
_FEW: Final = 6
#: The colours of a strip by level; 0 is verbatim, and the last one serves the levels above.
_COLOURS: Final = ("#6b7280", "#2f9e44", "#1098ad", "#4c6ef5", "#9c36b5")


#: A part of a row: the first of its messages, the one behind its last, its level and its label.
Bar: TypeAlias = tuple[int, int, int, str]


class Brief:
    """Gives the classes of returned values their ``repr`` and their look in a notebook.

    ``_brief`` are the attributes that are shown, in order; "" means all fields. Attributes that are
    None, empty or 0 are left out, unless ``_brief`` names them or it is an ``index`` of 0.
    ``_idle`` ends the line if all are left out.
    """

    __slots__ = ()
    _brief: ClassVar[str] = ""
    _idle: ClassVar[str] = ""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # A dataclass writes a ``__repr__`` of its own, unless its class body has one.
        if "__repr__" not in cls.__dict__:
            setattr(cls, "__repr__", Brief.__repr__)  # noqa: B010 - mypy allows no assignment

    def __repr__(self) -> str:
        line = type(self).__name__
        for name, value in self._facts():
            if len(line) + len(more := f" {name}={value}") > _LINE:
                return f"<{line} …>"
            line += more
        return f"<{line}>" if " " in line else f"<{line}{self._idle}>"

    def _repr_html_(self) -> str:
        """Return the value as a table for a notebook; all text is escaped."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        total, strip = self._strip()
        below = self._below()
        cut = f"{below[:_BELOW]}…" if len(below) > _BELOW else below
        text = f"<pre style='white-space:pre-wrap'>{escape(cut)}</pre>" if below else ""
        name = escape(type(self).__name__)
        return f"<div><b>{name}</b>{_drawn(total, strip)}<table>{rows}</table>{text}</div>"

    def _strip(self) -> tuple[int, Mapping[str, Sequence[Bar]]]:
        """Return the number of messages, and the rows of bars over them, the top one first."""
        return 0, {}

    def _below(self) -> str:
        """Return the text that stands below the table."""
        return ""

    def _facts(self) -> Iterable[tuple[str, str]]:
        named = self._brief.split()
        own: list[str] = []
        if is_dataclass(self):
            own = [each.name for each in fields(self) if each.repr]
        for name in named or own:
            # What a traceback shows may not be made yet.
            value = getattr(self, name, None)
            if value or ((named or name == "index") and value == 0):
                yield name, _short(value)


def _short(value: Any) -> str:
    """Return the beginning of a value, on one line; of a collection that is long, its size."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}"
    if isinstance(value, Mapping) and all(isinstance(each, int) for each in value.values()):
        return str(dict(value)) if len(value) <= _FEW else f"{len(value):,} items"
    if isinstance(value, Collection) and not isinstance(value, str):
        few = len(value) <= _FEW and all(isinstance(each, (int, float, str)) for each in value)
        shown = f"({', '.join(map(_short, value))})" if few else ""
        return shown if 0 < len(shown) <= _TEXT else f"{len(value):,} items"
    start, stop = getattr(value, "start", None), getattr(value, "stop", None)
    if isinstance(start, int) and isinstance(stop, int):
        return f"{start}:{stop}"
    named = getattr(value, "id", value)
    flat = " ".join((named if isinstance(named, str) else repr(named))[: 4 * _TEXT].split())
    cut = flat if len(flat) <= _TEXT else flat[: _TEXT - 1] + "…"
    return repr(cut) if isinstance(named, str) else cut


def _drawn(total: int, rows: Mapping[str, Sequence[Bar]]) -> str:
    """Draw rows of bars over ``total`` messages."""
    lines = []
    for name, bars in rows.items():
        drawn = "".join(
            f"<span title='{escape(label, quote=True)}' style='position:absolute;height:100%;"
            f"left:{100 * start / total:.2f}%;"
            f"width:{max(0.15, 100 * (stop - start) / total - 0.1):.2f}%;"
            f"background:{_COLOURS[min(level, len(_COLOURS) - 1)]}'></span>"
            for start, stop, level, label in bars
        )
        lines.append(
            f"<div style='display:flex;align-items:center'><code style='width:6em'>{escape(name)}"
            f"</code><div style='position:relative;flex:1;height:1em'>{drawn}</div></div>"
        )
    return "".join(lines)
