"""What an agent prefers in a context: a named mix of summaries, recent messages and pins.

A profile states preferences, never omissions: every profile covers the whole history. ``profiled``
decides how the cut for a profile is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from hiermem.core import arguments
from hiermem.core.text.policy import check
from hiermem.errors import ConfigError, UsageError
from hiermem.types import Summary

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MAX_TAG: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextProfile:
    """A named mix for one kind of agent; each has a sticky cut of its own.

    ``levels`` are those whose summaries stand whole, None for no wish; what they do not cover
    stands in trimmed views. ``recent`` is how many of the newest messages stand verbatim: exchanges
    whole, and up to twice as many before the older ones join the summaries. ``pins`` are ranges of
    messages, (start, stop), that stand verbatim besides.

    Where not all that is wanted fits, the newest goes first, before it what bears one of ``tags``
    (which is also shown as finely as ``levels`` allow), and before that what ``value`` gives more
    for: it is called with a Summary and gives a number. Raises ConfigError.
    """

    name: str
    levels: frozenset[int] | None = None
    recent: int | None = None
    pins: tuple[tuple[int, int], ...] = ()
    tags: frozenset[str] = frozenset()
    value: Callable[[Summary], float] | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except UsageError as error:
            raise ConfigError(f"ContextProfile: {error}") from None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError("name must be 1 to 100 letters, digits, dots, dashes or underscores")
        if self.levels is not None:
            levels = frozenset(
                arguments.whole(level, "a level in levels", least=1)
                for level in _each(self.levels, "levels")
            )
            if not levels:
                raise UsageError("levels is empty; use None for no wish")
            object.__setattr__(self, "levels", levels)
        if self.recent is not None:
            arguments.whole(self.recent, "recent", least=1)
        pins = tuple(arguments.stretch(pin, "a pin") for pin in _each(self.pins, "pins"))
        object.__setattr__(self, "pins", pins)
        tags = frozenset(
            check(tag, what="a tag in tags", cap=_MAX_TAG).strip().casefold()
            for tag in _each(self.tags, "tags")
        )
        object.__setattr__(self, "tags", tags)
        if self.value is not None:
            arguments.function(self.value, "value")

    @property
    def key(self) -> str:
        """Give the name that its sticky cut is kept under; ``value`` is known by the name alone."""
        said: list[Any] = [
            None if self.levels is None else sorted(self.levels),
            self.recent,
            self.pins,
            sorted(self.tags),
        ]
        return f"{self.name}~{sha256(json.dumps(said).encode()).hexdigest()[:12]}"

    @property
    def mixes(self) -> bool:
        """Say whether it wishes anything of the summaries."""
        return self.levels is not None or bool(self.tags) or self.value is not None

    @classmethod
    def code_reviewer(cls, **changes: Any) -> ContextProfile:
        """Every summary of level 1, which keeps details, and ten messages; nothing coarser."""
        return replace(cls(name="code-reviewer", levels=frozenset({1}), recent=10), **changes)

    @classmethod
    def documentation(cls, **changes: Any) -> ContextProfile:
        """Summaries of level 2, of level 3 for what is older, and five messages."""
        return replace(cls(name="documentation", levels=frozenset({2, 3}), recent=5), **changes)


def _each(value: Any, what: str) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must hold several")
    return tuple(value)
