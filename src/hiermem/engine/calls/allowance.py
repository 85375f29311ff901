"""Holds all runs of a tenant to the caps of a session and of the tenant.

The journal is the account. This module adds what the journal does not show yet: calls that are
about to be journalled, and the difference between what was reserved for a call and what it really
took. Within one process no cap is exceeded. The calls of another process count as soon as they are
journalled, which for a remote model happens before the call. So the caps can be exceeded only by
calls that two processes begin at the same instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hiermem.config import UpdatePolicy
from hiermem.errors import SpendLimitError
from hiermem.protocols import TenantStore
from hiermem.types.transaction import Attempt


@dataclass(slots=True, eq=False)
class _Call:
    """One call: the tokens reserved for it, its journal entry, and what it really took."""

    session_id: str
    reserved: int
    attempt_id: str = ""
    entered: bool = False
    took: int | None = None
    writing: bool = False

    @property
    def missing(self) -> tuple[int, int]:
        """Return the calls and tokens that the journal does not show yet."""
        spent = self.reserved if self.took is None else self.took
        return (0, spent - self.reserved) if self.entered else (1, spent)


class Allowances:
    """What the sessions of a tenant may spend, and what they have reserved."""

    def __init__(self, store: TenantStore, policy: UpdatePolicy) -> None:
        self._store, self._policy = store, policy
        self._calls: dict[int, _Call] = {}
        self._by_attempt: dict[str, _Call] = {}
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def any(self) -> bool:
        """Whether anything is capped."""
        policy = self._policy
        caps = (
            policy.session_calls, policy.session_tokens, policy.tenant_calls, policy.tenant_tokens,
        )  # fmt: skip
        return any(cap is not None for cap in caps)

    @property
    def counts_tokens(self) -> bool:
        """Whether requests must be counted exactly before they are sent."""
        policy = self._policy
        return policy.session_tokens is not None or policy.tenant_tokens is not None

    def of(self, session_id: str) -> Allowance:
        """Return the account that one run in a session is charged to."""
        return Allowance(self, session_id)

    async def reserve(self, session_id: str, tokens: int) -> _Call:
        """Reserve one call; wait where calls in flight may take less than they reserved.

        Raises SpendLimitError that names the cap.
        """
        call = _Call(session_id, tokens)
        async with self._lock:
            while self.any:
                self._changed.clear()
                cap, final = await self._refusal(call)
                if cap is None:
                    break
                if final:
                    raise SpendLimitError(cap)
                await self._changed.wait()
            self._calls[id(call)] = call
        return call

    def announce(self, call: _Call, attempt_id: str) -> None:
        """Note the id under which a call is journalled."""
        call.attempt_id = attempt_id
        self._by_attempt[attempt_id] = call

    def give_back(self, call: _Call) -> None:
        """Cancel the reservation of a call that was not made."""
        self._forget(call)

    def settle(self, call: _Call, tokens: int) -> None:
        """Note what a call really took."""
        call.took = tokens
        self._changed.set()

    @contextmanager
    def journalling(self, attempts: Sequence[Attempt]) -> Iterator[None]:
        """Keep the account right while these attempts are written to the journal."""
        self._writing(attempts)
        done = False
        try:
            yield
            done = True
        finally:
            self._written(attempts, done=done)

    def _writing(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            call = self._by_attempt.get(attempt.id)
            if call is not None:
                call.writing = True

    def _written(self, attempts: Sequence[Attempt], *, done: bool) -> None:
        for attempt in attempts:
            call = self._by_attempt.get(attempt.id)
            if call is None:
                continue
            call.writing = False
            if done and attempt.outcome == "started":
                call.entered = True
            elif done:
                self._forget(call)
        self._changed.set()

    def _forget(self, call: _Call) -> None:
        self._calls.pop(id(call), None)
        self._by_attempt.pop(call.attempt_id, None)
        self._changed.set()

    async def _refusal(self, call: _Call) -> tuple[str | None, bool]:
        """Return the cap that forbids ``call``, and whether waiting cannot change that."""
        policy = self._policy
        for scope, session_id, calls, tokens in (
            ("session", call.session_id, policy.session_calls, policy.session_tokens),
            ("tenant", None, policy.tenant_calls, policy.tenant_tokens),
        ):
            if calls is None and tokens is None:
                continue
            spent = await self._store.spent(session_id)
            open_ = [each for each in self._calls.values() if session_id in (None, each.session_id)]
            # While the journal is being written, the figures just read may count a call twice.
            final = not any(each.writing for each in open_)
            missing = [each.missing for each in open_]
            made = spent.calls + sum(count for count, _ in missing)
            used = spent.tokens_in + spent.tokens_out + sum(count for _, count in missing)
            if calls is not None and made >= calls:
                return f"{scope}_calls", final
            if tokens is not None and used + call.reserved > tokens:
                in_flight = sum(each.reserved for each in open_ if each.took is None)
                return f"{scope}_tokens", final and used - in_flight + call.reserved > tokens
        return None, True


class Allowance:
    """The account that one run in a session is charged to.

    ``stopped`` names the cap that refused a call.
    """

    def __init__(self, book: Allowances, session_id: str) -> None:
        self._book, self._session_id = book, session_id
        self.stopped: str | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether requests must be counted exactly before they are sent."""
        return self._book.counts_tokens

    def time_left(self) -> float | None:
        """Return None: there is no deadline."""
        return None

    async def reserve(self, tokens: int) -> AllowanceHold:
        """Reserve one call of at most ``tokens`` tokens. Raises SpendLimitError."""
        try:
            return AllowanceHold(self._book, await self._book.reserve(self._session_id, tokens))
        except SpendLimitError as error:
            self.stopped = str(error)
            raise SpendLimitError(
                f"{self.stopped} was reached; what was made is kept, raise the cap to go on"
            ) from None


class AllowanceHold:
    """The reservation of one call."""

    __slots__ = ("_book", "_call")

    def __init__(self, book: Allowances, call: _Call) -> None:
        self._book, self._call = book, call

    def announce(self, attempt_id: str) -> None:
        """Note the id under which the call is journalled."""
        self._book.announce(self._call, attempt_id)

    def give_back(self) -> None:
        """Cancel the reservation; the call was not made."""
        self._book.give_back(self._call)

    def settle(self, *, tokens_in: int, tokens_out: int, cost: float | None = None) -> None:
        """Note what the call really took. Money has no cap here."""
        self._book.settle(self._call, tokens_in + tokens_out)
