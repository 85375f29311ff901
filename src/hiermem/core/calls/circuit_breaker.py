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
_SUBJECTS: Final = 2

State: TypeAlias = Literal["closed", "open", "probing"]
#: What a request meets: it may go; it waits a moment; it was just tried in vain; nothing goes.
DecisionKind: TypeAlias = Literal["go", "wait", "tried", "open"]


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a circuit opens, after ``failures`` in a row (None never), and for how long at first.

    ``pause`` is in seconds.
    """

    failures: int | None = 8
    pause: float = 15.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a circuit says to a request, and for how many seconds that will hold."""

    kind: DecisionKind
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class AdmittedRequest:
    """One request that was let go. ``subject`` is what it is for."""

    subject: Hashable
    generation: int
    probe: bool = False


@dataclass(slots=True)
class CircuitBreaker:
    """What is known of one provider's health.

    A failure is one that may pass: a timeout, a dropped connection, a 429 or 5xx. Any answer, fit
    or not, shows that somebody is there.
    """

    state: State = "closed"
    _failures: int = 0
    _subjects: set[Hashable] = field(default_factory=set[Hashable])
    _times_opened: int = 0
    _open_until: float = 0.0
    _paused_until: float = 0.0
    _generation: int = 0
    _probe: AdmittedRequest | None = None
    _failed_probes: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def decide(self, subject: Hashable, now: float) -> Decision:
        """Say whether a request for ``subject`` may go now.

        "wait": ask again, at the latest in so many seconds. "tried": this thing failed a moment
        ago, another may go. "open": nothing may go for so many seconds.
        """
        if self.state == "open" and now < self._open_until:
            return Decision("open", self._open_until - now)
        if now < self._paused_until:
            return Decision("wait", self._paused_until - now)
        if self.state == "closed":
            return Decision("go")
        if self._probe is not None:
            return Decision("wait", float("inf"))
        retry_at = self._failed_probes.get(subject)
        if retry_at is not None and now < retry_at:
            return Decision("tried", retry_at - now)
        return Decision("go")

    def admit(self, subject: Hashable) -> AdmittedRequest:
        """Let a request go, to which ``decide`` said "go"."""
        if self.state == "open":
            self.state = "probing"
        request = AdmittedRequest(subject, self._generation, probe=self.state == "probing")
        if request.probe:
            self._probe = request
        return request

    def drop(self, request: AdmittedRequest) -> None:
        """Note that nothing was learnt from a request: it was not sent, or was given up."""
        if self._probe is request:
            self._probe = None

    def succeed(self, request: AdmittedRequest) -> None:
        """Note that the provider answered, whichever request it was: it is there."""
        self.drop(request)
        self.state = "closed"
        self._generation += 1
        self._failures, self._times_opened = 0, 0
        self._subjects.clear()
        self._failed_probes.clear()

    def fail(
        self,
        request: AdmittedRequest,
        now: float,
        *,
        breaker: BreakerPolicy,
        asked: float | None = None,
    ) -> None:
        """Note a failure that may pass.

        ``asked`` is the pause that the provider asked for, in seconds; of a longer one than an
        hour, an hour is kept.
        """
        self.drop(request)
        if asked is not None:
            asked = min(asked, _LONGEST_BELIEVED)
            self._paused_until = max(self._paused_until, now + min(asked, LONGEST_HOLD))
        if request.generation != self._generation:
            # It was sent before the last change; what it says is known already.
            return
        if asked is not None and asked > LONGEST_HOLD and breaker.failures is not None:
            self._open(now, breaker, least=asked)
        elif self.state == "probing":
            self._failed_probes[request.subject] = now + breaker.pause
            if len(self._failed_probes) >= _SUBJECTS:
                self._open(now, breaker)
        else:
            self._failures += 1
            self._subjects.add(request.subject)
            enough = breaker.failures is not None and self._failures >= breaker.failures
            if enough and len(self._subjects) >= _SUBJECTS:
                self._open(now, breaker)

    def _open(self, now: float, breaker: BreakerPolicy, *, least: float = 0.0) -> None:
        self._times_opened += 1
        pause = back_off(self._times_opened, first=breaker.pause, most=_LONGEST_PAUSE)
        self.state, self._open_until = "open", now + max(pause, least)
        self._generation += 1
        self._failures = 0
        self._subjects.clear()
        self._failed_probes.clear()
