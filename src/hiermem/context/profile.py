"""Decides what a profile of an agent may prefer: levels of summaries, recent messages and pins.

A profile states preferences, never omissions: every profile covers the whole history, in an exact
cover inside the budget like every cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from hiermem import arguments
from hiermem.errors import ConfigError, UsageError

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextProfile:
    """A named mix for one kind of agent; each profile has a sticky cut of its own.

    ``levels`` are the levels whose summaries may be shown, None for all. ``recent`` is the number
    of newest messages that are verbatim: exchanges stay whole, and up to twice as many messages
    stay before the older ones join the summaries. ``pins`` are the indices of messages that are
    pinned for this profile, besides those of the session. Raises ConfigError.
    """

    name: str
    levels: frozenset[int] | None = None
    recent: int | None = None
    pins: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        try:
            self._check()
        except UsageError as error:
            raise ConfigError(f"ContextProfile: {error}") from None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError("name must be 1 to 100 letters, digits, dots, dashes or underscores")
        if self.levels is not None:
            levels = _numbers(self.levels, "levels", least=1)
            if not levels:
                raise UsageError("levels is empty; pass None for all levels")
            object.__setattr__(self, "levels", levels)
        if self.recent is not None:
            arguments.whole(self.recent, "recent", least=1)
        object.__setattr__(self, "pins", _numbers(self.pins, "pins", least=0))

    @property
    def key(self) -> str:
        """Return the name of its sticky cut."""
        said: list[Any] = [
            None if self.levels is None else sorted(self.levels),
            self.recent,
            sorted(self.pins),
        ]
        return f"{self.name}~{sha256(json.dumps(said).encode()).hexdigest()[:12]}"

    @classmethod
    def code_reviewer(cls, **changes: Any) -> ContextProfile:
        """Return a profile with level-1 summaries, which keep details, and ten messages."""
        return replace(cls(name="code-reviewer", levels=frozenset({1}), recent=10), **changes)

    @classmethod
    def documentation(cls, **changes: Any) -> ContextProfile:
        """Return a profile with summaries of levels 2 and 3, and five messages."""
        return replace(cls(name="documentation", levels=frozenset({2, 3}), recent=5), **changes)


def _numbers(value: Any, what: str, *, least: int) -> frozenset[int]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must hold several")
    return frozenset(arguments.whole(each, f"a number in {what}", least=least) for each in value)
