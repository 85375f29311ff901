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
    """A named mix for one kind of agent; each profile has a sticky cut of its own.

    ``levels`` are the levels whose summaries are shown whole, None for no preference; trimmed views
    show what these summaries do not cover. ``recent`` is the number of newest messages that are
    verbatim: exchanges stay whole, and up to twice as many messages stay before the older ones join
    the summaries. ``pins`` are ranges of messages, (start, stop), that are verbatim in addition.

    If not all wanted summaries fit, those with the highest ``value`` come first: ``value`` is
    called with a Summary and returns a number. Among equals, summaries with one of ``tags`` come
    first (which are also shown as finely as ``levels`` allow), then the newest. Raises ConfigError.
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
        """Return the name of its sticky cut.

        Functions cannot be compared, so two profiles with different ``value`` need different names.
        """
        said: list[Any] = [
            None if self.levels is None else sorted(self.levels),
            self.recent,
            self.pins,
            sorted(self.tags),
        ]
        return f"{self.name}~{sha256(json.dumps(said).encode()).hexdigest()[:12]}"

    @property
    def mixes(self) -> bool:
        """Return whether the profile states a preference about summaries."""
        return self.levels is not None or bool(self.tags) or self.value is not None

    @classmethod
    def code_reviewer(cls, **changes: Any) -> ContextProfile:
        """Return a profile with all level-1 summaries, which keep details, and ten messages."""
        return replace(cls(name="code-reviewer", levels=frozenset({1}), recent=10), **changes)

    @classmethod
    def documentation(cls, **changes: Any) -> ContextProfile:
        """Return a profile with level-2 summaries, level 3 for older parts, and five messages."""
        return replace(cls(name="documentation", levels=frozenset({2, 3}), recent=5), **changes)


def _each(value: Any, what: str) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must hold several")
    return tuple(value)
