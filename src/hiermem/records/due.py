"""Reads and writes when sessions have something to make, and the claims on them.

An entry is its own guard. While ``claimed`` is not 0, ``due_at`` is when the claim ends; 2 says
that something became due meanwhile. ``generation`` rises with each claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hiermem.calls.claim import is_believed
from hiermem.records import sessions
from hiermem.records.contract import read_time, to_micros
from hiermem.records.tables import Key, Row, Scan
from hiermem.records.transaction import Transaction
from hiermem.summaries.due import AT_ONCE
from hiermem.types.transaction import Due, DueSession

#: The number of entries that are read at a time.
_PAGE = 128


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the list of what is due."""

    tenant: str
    session_id: str
    due_at: int
    generation: int
    claimed: int

    def is_held(self, claim: DueSession) -> bool:
        """Return whether the entry is claimed, and by this claim."""
        return self.claimed > 0 and self.generation == claim.generation

    def holds(self, now: datetime) -> bool:
        """Return whether a claim on the entry holds now."""
        return self.claimed > 0 and is_believed(read_time(self.due_at), now=now)


def key_of(t: Transaction, session_id: str) -> Key:
    """Return the key of a session's entry."""
    return Key("due", (t.tenant, session_id))


def entry_of(row: Row) -> Entry:
    """Return the entry of a row."""
    return Entry(row[0], row[1], row[3], row[4], row[5])


async def find(t: Transaction, session_id: str) -> Entry | None:
    """Return a session's entry, or None."""
    row = await t.get(key_of(t, session_id))
    return None if row is None else entry_of(row)


def _put(t: Transaction, session_id: str, due_at: int, generation: int, claimed: int) -> None:
    t.put("due", (t.tenant, session_id, t.serial(), due_at, generation, claimed))


async def become_due(t: Transaction, session_id: str, due: Due) -> None:
    """Enter when a session is due, unless it is by then; note it on a claim."""
    at = to_micros(await t.now() + due if isinstance(due, timedelta) else due)
    t.guess(key_of(t, session_id))
    entry = await find(t, session_id)
    if entry is None:
        _put(t, session_id, at, t.serial(), 0)
    elif entry.claimed == 1:
        _put(t, session_id, entry.due_at, entry.generation, 2)
    elif not entry.claimed and at < entry.due_at:
        _put(t, session_id, at, entry.generation, 0)


async def put_due(t: Transaction, session_ids: Sequence[str]) -> None:
    """Make those of these sessions due now that have no entry; others stay as they are."""
    await t.want(key for id_ in session_ids for key in (sessions.place_key(t, id_), key_of(t, id_)))
    for id_ in session_ids:
        if await sessions.place_of(t, id_) and await find(t, id_) is None:
            await become_due(t, id_, AT_ONCE)


async def take_due(
    t: Transaction, session_id: str, *, lease: float, held: DueSession | None = None
) -> DueSession | None:
    """Claim the session for ``lease`` seconds, due or not, unless another claim holds.

    Where the session has no entry in the list of what is due, it gets one. With ``held``, that
    claim is renewed for ``lease`` seconds from now, if nobody took the session over. Returns
    None, changing nothing, where another claim holds, and where the session does not exist.
    """
    keys = sessions.place_key(t, session_id), key_of(t, session_id)
    t.guess(*keys)
    await t.want(keys)
    if await sessions.place_of(t, session_id) is None:
        return None
    entry = await find(t, session_id)
    now = await t.now()
    until = to_micros(now + timedelta(seconds=lease))
    if held is not None:
        if entry is None or not entry.is_held(held):
            return None
        _put(t, session_id, until, entry.generation, entry.claimed)
        return held
    if entry is not None and entry.holds(now):
        return None
    generation = max(t.serial(), entry.generation + 1 if entry else 0)
    _put(t, session_id, until, generation, 1)
    return DueSession(t.tenant, session_id, generation)


async def settle_due(t: Transaction, claimed: DueSession, *, at: datetime | None = None) -> bool:
    """End a claim: remove the session's entry, or set its next time; return whether.

    If something became due under the claim, the session is due at once. The entry stays as it
    is, and False is returned, if that is no longer the session's claim.
    """
    session_id = claimed.session_id
    t.guess(key_of(t, session_id))  # who deletes a session deletes its entry
    entry = await find(t, session_id)
    if not entry or not entry.is_held(claimed):
        return False
    if entry.claimed == 2:
        now = await t.now()
        at = now if at is None else min(now, at)
    if at is None:
        t.delete(key_of(t, session_id))
    else:
        _put(t, session_id, to_micros(at), entry.generation, 0)
    return True


def page(tenant: str | None, after: tuple[int | str, ...]) -> Scan:
    """Return the scan of the next entries of one tenant, or of all, the longest due first."""
    prefix, index = ((), "next") if tenant is None else ((tenant,), "of_tenant")
    return Scan("due", prefix, after, (), index, _PAGE)
