"""Runs changes of what is in a session: prepares outside the transaction, scrubs after it.

What changes is decided inside the transaction, by ``changes.propagate`` and ``changes.erase``. This
module checks and counts a new text before the store is called, runs an erasure in transactions of
bounded length, and cleans the store's bytes after it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, cast

from hiermem import arguments
from hiermem.bank.records import kind_of, subject_of
from hiermem.bank.space import clean_space, ensure_exists
from hiermem.changes import erase as erasing
from hiermem.changes import propagate as change
from hiermem.changes.erase import Withdrawal, WithdrawalKind
from hiermem.changes.propagate import check_index
from hiermem.changes.receipts import (
    STORE_COPY,
    EditReport,
    ForkHandling,
    Receipt,
    StoreCopy,
    read_copies,
)
from hiermem.errors import NotFoundError, UsageError
from hiermem.handle import Handle, every_session
from hiermem.protocols import TenantStore
from hiermem.text import fence, measure
from hiermem.text.policy import OnBad, clean_message
from hiermem.text.wishes import flags_of
from hiermem.tree.fold import config_from
from hiermem.tree.windows import Weigher, weigh
from hiermem.types import Content, SessionRecord, StoredMessage
from hiermem.types.transaction import Changes, Deciding, RecordWrite, Snapshot
from hiermem.types.tree import SessionFilter, member_of

#: The kind of the record that a session left a space, with that space's name after it; its scope is
#: the session. Notes from such sessions alone are not known until they join again.
LEFT: Final = "left"

_ALL: Final = 2**31 - 1

_FORKS = ("all", "keep")
#: Seconds between two transactions of an erasure: another process that waits for the lock of an
#: SQLite file only looks for it each few milliseconds.
_PAUSE = 0.02
#: Why nothing is scrubbed after a quarantine.
_STAYS = "a quarantined message stays for the record"
#: The next step for a caller if the bytes could not be cleaned.
_AGAIN = "memory.scrub() tries again"


async def edit(
    handle: Handle,
    session_id: str,
    index: int,
    content: Content,
    *,
    on_bad_text: OnBad = "refuse",
) -> EditReport:
    """Replace the content of a message; the content before stays readable as a version.

    Raises NotFoundError, ClosedError, ConflictError and InvalidMessageError, with nothing written.
    """
    arguments.whole(index, "index")
    regenerate = handle.update_policy.regenerate_on_edit
    record = await handle.record(session_id)
    config, key = config_from(record.config), await handle.key()
    weigher = Weigher(handle.counter)
    known: dict[tuple[int, str], StoredMessage] = {}

    def amended(stored: StoredMessage) -> StoredMessage:
        """Return a message as it is after the edit; what was computed once is cached."""
        place = (stored.index, stored.hash)
        if place not in known:
            message = clean_message(replace(stored.message, content=content), on_bad=on_bad_text)
            echoes = fence.find(measure.body(message), key=key)
            tokens = measure.message_tokens(message, handle.counter)
            weight = weigh(message, tokens, config, counter=handle.counter, echoes=echoes)
            known[place] = replace(
                stored,
                message=message,
                tokens=tokens,
                size=weight.size(config.unit),
                hash=measure.message_hash(message),
                echoes=echoes,
            )
        flags = flags_of(known[place].message, stored.flags)
        return replace(known[place], flags=flags, slices=stored.slices)

    def prepare(stored: StoredMessage) -> None:
        """Count in advance what the transaction will most likely need."""
        after, slices = amended(stored), len(stored.slices) + 1
        points = weigher.points(after, slices, unit=config.unit, target=config.target)
        weigher.weigh(stored, config, stored.slices)
        weigher.weigh(after, config, points)

    if index < record.messages:
        (stored,) = await handle.messages(session_id, index, index + 1)
        if stored.state == "live":
            await asyncio.to_thread(prepare, stored)
    now = handle.clock()
    report = await handle.store.transact(
        lambda: change.edit(
            session_id, index, amended, regenerate=regenerate, now=now, weigher=weigher
        )
    )
    await _clean_spaces(handle, (record.space,))
    return replace(report, version=len(await handle.store.versions(session_id, index)))


async def erase(
    handle: Handle,
    session_id: str,
    indices: int | Iterable[int],
    *,
    forks: ForkHandling = "all",
    kind: WithdrawalKind = "erase",
) -> Receipt:
    """Erase messages and everything made from them, in the session and in those that share them.

    With the ``kind`` "quarantine" the messages themselves stay readable for the record. The
    indices may be an endless iterable: reading stops at the first impossible one.

    Raises UsageError, and NotFoundError if the session has no such message; then nothing was
    written.
    """
    arguments.one_of(forks, "forks", _FORKS)
    record = await handle.record(session_id)
    wanted: list[int] = []
    for each in _listed(indices):
        index = arguments.whole(each, "an index of indices")
        check_index(record, index)
        if len(wanted) == record.messages:
            raise UsageError(f"indices has more than the session's {record.messages} messages")
        wanted.append(index)
    receipt = await _withdraw(
        handle, kind, lambda earlier: erasing.erase(session_id, wanted, earlier, forks=forks)
    )
    if kind == "quarantine":
        return replace(receipt, scrub_reason=_STAYS)
    return await _scrubbed(handle, await _learnt_gone(handle, receipt, record.space))


async def _withdraw(
    handle: Handle,
    kind: WithdrawalKind,
    decide: Callable[[Withdrawal], Deciding[Withdrawal | Receipt]],
) -> Receipt:
    """Run the transactions of an erasure one after another, and return its receipt."""
    state: Withdrawal | Receipt
    state = Withdrawal(kind, handle.clock(), handle.counter, uuid.uuid4().hex)
    while isinstance(state, Withdrawal):
        began = 0.0

        def decided(earlier: Withdrawal = state) -> Deciding[Withdrawal | Receipt]:
            nonlocal began
            began = time.monotonic()  # the store may have waited for others before
            return decide(earlier)

        state = await handle.store.transact(decided)
        if isinstance(state, Withdrawal):
            state.pace(time.monotonic() - began)
            await asyncio.sleep(_PAUSE)
    return state


def _listed(given: object) -> Iterable[object]:
    """Return one index or several as several. Raises UsageError for what is neither."""
    if isinstance(given, int):
        return (given,)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"indices is {type(given).__name__}; give message indices, like [3, 4]")
    return cast("Iterable[object]", given)


async def erase_session(handle: Handle, session_id: str, *, forks: ForkHandling = "all") -> Receipt:
    """Erase a whole session, and its own messages in the sessions that were forked from it.

    Raises NotFoundError.
    """
    arguments.one_of(forks, "forks", _FORKS)
    record = await handle.store.session(session_id)
    try:
        subject = erasing.subject_of_erased(await handle.key(), session_id)
        receipt = await _withdraw(
            handle,
            "erase",
            lambda earlier: erasing.erase_session(
                session_id, earlier, subject=subject, forks=forks
            ),
        )
    finally:
        handle.forget()
    space = record.space if record else None
    await _forget_shown(handle, session_id, space)
    return await _scrubbed(handle, await _learnt_gone(handle, receipt, space))


async def _learnt_gone(handle: Handle, receipt: Receipt, space: str | None) -> Receipt:
    """Remove what spaces learnt from erased messages; name the exports of it on the receipt."""
    forks = [await handle.store.session(fork) for fork in receipt.forks_reached]
    exports = await _clean_spaces(handle, {space, *(fork.space for fork in forks if fork)})
    return replace(receipt, unproven=tuple(dict.fromkeys((*receipt.unproven, *exports))))


async def _clean_spaces(handle: Handle, spaces: Iterable[str | None]) -> list[str]:
    return [
        export for name in spaces if name is not None for export in await clean_space(handle, name)
    ]


async def _forget_shown(handle: Handle, session_id: str, space: str | None) -> None:
    """Take the name of a session out of what the other members of its space show of it."""
    if space is None:
        return
    async for member in every_session(handle.store, SessionFilter(member_of(space))):
        await handle.store.transact(partial(change.forget_shown, member.id, session_id))


async def erase_space(handle: Handle, space: str) -> Receipt:
    """Erase a space: its notes, its bank with all revisions, its rules and its journal.

    Raises NotFoundError.
    """
    run_id, now = uuid.uuid4().hex, handle.clock()
    # Members leave before and after: one may be created while the others leave.
    await _leave_all(handle, space)
    receipt = await handle.store.transact(
        lambda: erasing.erase_space(space, subject=subject_of(space), now=now, run_id=run_id)
    )
    await _leave_all(handle, space)
    return await _scrubbed(handle, receipt)


async def _leave_all(handle: Handle, space: str) -> None:
    async for record in every_session(handle.store, SessionFilter(member_of(space))):
        await leave(handle, record.id, space)


async def join(handle: Handle, session_id: str, space: str) -> None:
    """Make a session a member of a space.

    Raises NotFoundError if either does not exist, UsageError if the session is in another space.
    """
    await ensure_exists(handle, space)

    def joined(record: SessionRecord) -> SessionRecord:
        if record.space not in (None, space):
            raise UsageError(
                f"session {session_id!r} is in space {record.space!r}; it must leave that first"
            )
        return replace(record, space=space)

    await describe(handle, session_id, joined)
    await handle.store.put_records([RecordWrite(kind_of(LEFT, space), session_id, "", None)])


async def leave(handle: Handle, session_id: str, space: str | None = None) -> None:
    """Take a session out of its space, or out of ``space`` if that is the one it is in."""
    before: str | None = None

    def left(record: SessionRecord) -> SessionRecord:
        nonlocal before
        before = record.space if space in (None, record.space) else None
        return replace(record, space=None) if before is not None else record

    record = await handle.store.session(session_id)
    if space is None and record and record.space:  # of a space that is erased, nothing stays
        # First: if this is cut off, what only the session said is hidden rather than shown.
        mark = RecordWrite(kind_of(LEFT, record.space), session_id, "", "")
        await handle.store.put_records([mark])
    await describe(handle, session_id, left)
    await _forget_shown(handle, session_id, before)


async def erase_tenant(handle: Handle) -> Receipt:
    """Erase everything stored for the tenant, its journal included."""
    messages = 0
    async for record in every_session(handle.store):
        messages += record.messages
    copies = await copies_of(handle.store)  # the records of them are erased too
    removed = Counter(sessions=await handle.store.erase_all(), messages=messages)
    return await _scrubbed(handle, Receipt("erase_tenant", None, removed=dict(+removed)), copies)


async def _scrubbed(
    handle: Handle, receipt: Receipt, copies: tuple[StoreCopy, ...] | None = None
) -> Receipt:
    """Remove erased content from the store's bytes too, and report the result on the receipt.

    ``copies`` are the recorded copies of the store; None: read them.
    """
    if copies is None:
        copies = await copies_of(handle.store)
    found = await handle.store.scrub()
    reason = "" if found.done else f"{found.reason or 'it was not done'}; {_AGAIN}"
    return replace(receipt, copies=copies, scrubbed=found.done, scrub_reason=reason)


async def set_pin(handle: Handle, session_id: str, indices: object, *, pinned: bool) -> None:
    """Pin messages, or take their pins off. Raises NotFoundError, ConflictError."""
    await handle.record(session_id)
    wanted = {arguments.whole(index, "an index of indices") for index in _listed(indices)}
    await handle.store.transact(lambda: change.set_pin(session_id, sorted(wanted), pinned=pinned))


async def describe(
    handle: Handle, session_id: str, described: Callable[[SessionRecord], SessionRecord]
) -> None:
    """Replace what an application says of a session: its title, the labels it is listed by.

    Nothing is written where ``described`` returns an equal record. Raises NotFoundError.
    """
    await handle.record(session_id)

    def decide(snapshot: Snapshot) -> Changes[None]:
        record = snapshot.session
        if record is None:
            raise NotFoundError(f"session {session_id!r} was erased meanwhile")
        after = described(record)
        if after == record:
            return Changes(None)
        return Changes(None, session=replace(after, version=record.version + 1))

    await handle.store.mutate(session_id, decide)


async def copies_of(tenant: TenantStore) -> tuple[StoreCopy, ...]:
    """Return the recorded copies that hold data of the tenant, oldest first."""
    return read_copies(await tenant.records(STORE_COPY, limit=_ALL))
