"""Decides whether a provider that keeps failing is left alone, and when it is asked again.

::

    closed -> open      failures in a row, of more than one thing
    open -> probing     after a pause
    probing -> closed   at the first answer
    probing -> open     two things were asked for and both failed; the pause is doubled

The one rule: one thing that always fails says nothing about the provider. So a row of failures
counts only where it is of at least two things, and a probe that fails is followed by one for
another thing before the provider is given up again. It does not wait and reads no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hiermem.core.calls.fairness import back_off

#: A provider that asks for a longer pause than this, in seconds, is taken at its word, as far as it
#: is believed: no request is made until then. A shorter one is waited out.
LONGEST_HOLD: Final = 120.0
#: The longest pause, in seconds, that a provider is believed to ask for. A date far off or a wrong
#: number would else leave it alone until the process ends; whatever was meant, asking it once an
#: hour harms nobody.
_LONGEST_BELIEVED: Final = 3_600.0
#: The longest pause between two probes, in seconds.
_LONGEST_PAUSE: Final = 600.0
#: So many different things have to fail before it is the provider that fails.
_THINGS: Final = 2

State: TypeAlias = Literal["closed", "open", "probing"]
#: What a request meets: it may go; it waits a moment; it was just tried in vain; nothing goes.
Word: TypeAlias = Literal["go", "wait", "tried", "open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a circuit opens, after ``failures`` in a row (None never), and for how long at first.

    ``pause`` is in seconds.
    """

    failures: int | None = 8
    pause: float = 15.0


@dataclass(frozen=True, slots=True)
class Gate:
    """What a circuit says to a request, and for how many seconds that will hold."""

    word: Word
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Trial:
    """One request that was let go. ``thing`` is what it is for."""

    thing: Hashable
    turn: int
    probe: bool = False


@dataclass(slots=True)
class Circuit:
    """What is known of one provider's health.

    A failure is one that may pass: a timeout, a dropped connection, a 429 or 5xx. Any answer, fit
    or not, shows that somebody is there.
    """

    state: State = "closed"
    _row: int = 0
    _things: set[Hashable] = field(default_factory=set[Hashable])
    _opened: int = 0
    _until: float = 0.0
    _held: float = 0.0
    _turn: int = 0
    _probe: Trial | None = None
    _failed: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def look(self, thing: Hashable, now: float) -> Gate:
        """Say whether a request for ``thing`` may go now.

        "wait": ask again, at the latest in so many seconds. "tried": this thing failed a moment
        ago, another may go. "open": nothing may go for so many seconds.
        """
        if self.state == "open" and now < self._until:
            return Gate("open", self._until - now)
        if now < self._held:
            return Gate("wait", self._held - now)
        if self.state == "closed":
            return Gate("go")
        if self._probe is not None:
            return Gate("wait", float("inf"))
        again = self._failed.get(thing)
        if again is not None and now < again:
            return Gate("tried", again - now)
        return Gate("go")

    def admit(self, thing: Hashable) -> Trial:
        """Let a request go, to which ``look`` said "go"."""
        if self.state == "open":
            self.state = "probing"
        trial = Trial(thing, self._turn, probe=self.state == "probing")
        if trial.probe:
            self._probe = trial
        return trial

    def drop(self, trial: Trial) -> None:
        """Note that nothing was learnt from a request: it was not sent, or was given up."""
        if self._probe is trial:
            self._probe = None

    def succeed(self, trial: Trial) -> None:
        """Note that the provider answered, whichever request it was: it is there."""
        self.drop(trial)
        self.state = "closed"
        self._turn += 1
        self._row, self._opened = 0, 0
        self._things.clear()
        self._failed.clear()

    def fail(
        self, trial: Trial, now: float, *, breaker: Breaker, asked: float | None = None
    ) -> None:
        """Note a failure that may pass.

        ``asked`` is the pause that the provider asked for, in seconds; of a longer one than an
        hour, an hour is kept.
        """
        self.drop(trial)
        if asked is not None:
            asked = min(asked, _LONGEST_BELIEVED)
            self._held = max(self._held, now + min(asked, LONGEST_HOLD))
        if trial.turn != self._turn:
            # It was sent before the last change; what it says is known already.
            return
        if asked is not None and asked > LONGEST_HOLD and breaker.failures is not None:
            self._open(now, breaker, least=asked)
        elif self.state == "probing":
            self._failed[trial.thing] = now + breaker.pause
            if len(self._failed) >= _THINGS:
                self._open(now, breaker)
        else:
            self._row += 1
            self._things.add(trial.thing)
            enough = breaker.failures is not None and self._row >= breaker.failures
            if enough and len(self._things) >= _THINGS:
                self._open(now, breaker)

    def _open(self, now: float, breaker: Breaker, *, least: float = 0.0) -> None:
        self._opened += 1
        pause = back_off(self._opened, first=breaker.pause, most=_LONGEST_PAUSE)
        self.state, self._until = "open", now + max(pause, least)
        self._turn += 1
        self._row = 0
        self._things.clear()
        self._failed.clear()
