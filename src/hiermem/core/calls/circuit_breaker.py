"""Decides when a provider that keeps failing is not asked, and when it is asked again.

::

    closed -> open      failures in a row, of more than one subject
    open -> probing     after a pause
    probing -> closed   at the first answer
    probing -> open     probes for two subjects failed; the pause is doubled

One subject that always fails says nothing about the provider. So a row of failures counts only
where it involves at least two subjects, and a failed probe is followed by one for another subject
before the circuit opens again. The code does not wait and reads no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hiermem.core.calls.backoff import back_off
from hiermem.core.calls.sliding_window import Permit

#: Where a provider asks for a longer pause than this, in seconds, the circuit opens for that time,
#: as far as the pause is believed. A shorter pause is waited out.
LONGEST_HOLD: Final = 120.0
#: The longest pause, in seconds, that a provider is believed to ask for. A date far off or a wrong
#: number would otherwise stop all requests until the process ends. Asking once an hour harms
#: nobody.
_LONGEST_BELIEVED: Final = 3_600.0
#: The longest pause between two probes, in seconds.
_LONGEST_PAUSE: Final = 600.0
#: This many different subjects have to fail before the provider counts as failing.
_SUBJECTS: Final = 2

State: TypeAlias = Literal["closed", "open", "probing"]
#: What the circuit breaker says to a request, and for how many seconds that holds: it may go; it
#: has to wait a moment; its subject failed a moment ago; no request may go.
Decision: TypeAlias = tuple[Literal["go", "wait", "tried", "open"], float]


@dataclass(slots=True)
class CircuitBreaker:
    """What is known of one provider's health.

    A failure is one that may pass: a timeout, a dropped connection, a 429 or 5xx. Any answer, fit
    or not, shows that the provider is available.
    """

    state: State = "closed"
    _failures: int = 0
    _subjects: set[Hashable] = field(default_factory=set[Hashable])
    _times_opened: int = 0
    _open_until: float = 0.0
    _paused_until: float = 0.0
    _generation: int = 0
    _probe: Permit | None = None
    _failed_probes: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def decide(self, subject: Hashable, now: float) -> Decision:
        """Return whether a request for ``subject`` may go now.

        "wait": ask again, at the latest in so many seconds. "tried": this subject failed a moment
        ago, another may go. "open": nothing may go for so many seconds.
        """
        if self.state == "open" and now < self._open_until:
            return "open", self._open_until - now
        if now < self._paused_until:
            return "wait", self._paused_until - now
        if self.state == "closed":
            return "go", 0.0
        if self._probe is not None:
            return "wait", float("inf")
        retry_at = self._failed_probes.get(subject)
        if retry_at is not None and now < retry_at:
            return "tried", retry_at - now
        return "go", 0.0

    def admit(self, request: Permit) -> None:
        """Admit a request for whose subject ``decide`` said "go"."""
        if self.state == "open":
            self.state = "probing"
        request.generation, request.probe = self._generation, self.state == "probing"
        if request.probe:
            self._probe = request

    def drop(self, request: Permit) -> None:
        """Note that a request taught nothing: it was not sent, or was given up."""
        if self._probe is request:
            self._probe = None

    def succeed(self, request: Permit) -> None:
        """Note that the provider answered any request: it is available."""
        self.drop(request)
        self._times_opened = 0
        self._enter("closed")

    def fail(self, request: Permit, now: float, *, asked: float | None = None) -> None:
        """Note a failure that may pass.

        ``asked`` is the pause that the provider asked for, in seconds. At most one hour of it
        counts.
        """
        self.drop(request)
        if asked is not None:
            asked = min(asked, _LONGEST_BELIEVED)
            self._paused_until = max(self._paused_until, now + min(asked, LONGEST_HOLD))
        if request.generation != self._generation:
            # The request was sent before the last state change; its result adds nothing.
            return
        most, pause = request.limits.circuit_failures, request.limits.circuit_pause
        if asked is not None and asked > LONGEST_HOLD and most is not None:
            self._open(now, pause, least=asked)
        elif self.state == "probing":
            self._failed_probes[request.subject] = now + pause
            if len(self._failed_probes) >= _SUBJECTS:
                self._open(now, pause)
        else:
            self._failures += 1
            self._subjects.add(request.subject)
            enough = most is not None and self._failures >= most
            if enough and len(self._subjects) >= _SUBJECTS:
                self._open(now, pause)

    def _open(self, now: float, first_pause: float, *, least: float = 0.0) -> None:
        self._times_opened += 1
        pause = back_off(self._times_opened, (first_pause, _LONGEST_PAUSE))
        self._open_until = now + max(pause, least)
        self._enter("open")

    def _enter(self, state: State) -> None:
        self.state = state
        self._generation += 1
        self._failures = 0
        self._subjects.clear()
        self._failed_probes.clear()
