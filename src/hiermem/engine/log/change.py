"""Edits and erases what is in the log: prepares outside the transaction, decides inside it.

The decisions are in ``hiermem.core.log`` (``edit``, ``erase``, ``erase_space``). This module checks
and counts a new text before the store is called, and scrubs the store's bytes afterwards.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from hiermem.config import HierarchyConfig
from hiermem.core import arguments
from hiermem.core.log import edit as change
from hiermem.core.log import erase as erasing
from hiermem.core.log import erase_space as clearing
from hiermem.core.log.copies import StoreCopy
from hiermem.core.log.edit import OnEdit
from hiermem.core.log.erase import ForkHandling, WithdrawalKind
from hiermem.core.log.receipts import EditReport, Receipt
from hiermem.core.log.size_changes import Weigher
from hiermem.core.spaces.record import subject_of
from hiermem.core.text import fence, measure
from hiermem.core.text.instructions import flags_of
from hiermem.core.text.policy import OnBad, clean_message
from hiermem.core.tree.stored import config_from
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.log.copies import copies_of
from hiermem.errors import NotFoundError, UsageError
from hiermem.protocols import TokenCounter
from hiermem.types import Content, SessionRecord, SizeUnit, StoredMessage

_ON_EDIT = ("flag", "rebuild")
_FORKS = ("all", "keep")
#: Why nothing is scrubbed after a quarantine.
_STAYS = "a quarantined message stays for the record"
#: What a caller can do if the bytes could not be cleaned.
_AGAIN = "memory.scrub() tries again"


async def edit(
    handle: Handle,
    session_id: str,
    index: int,
    content: Content,
    *,
    on_edit: OnEdit = "flag",
    on_bad_text: OnBad = "refuse",
) -> EditReport:
    """Replace the content of a message; the content before stays readable as a version.

    Raises NotFoundError, SessionClosedError, MessageWithdrawnError, InvalidMessageError and
    InvalidTextError; in each case nothing was written.
    """
    arguments.whole(index, "index")
    arguments.one_of(on_edit, "on_edit", _ON_EDIT)
    record = await handle.record(session_id)
    weigher, config = Weigher(handle.counter), config_from(record.config)
    amend = _Amended(content, handle.counter, await handle.key(), config.unit, on_bad_text)
    if index < record.messages:
        (stored,) = await handle.messages(session_id, index, index + 1)
        await asyncio.to_thread(_prepare, stored, amend, weigher, config)
    now = handle.clock()
    report = await handle.store.transact(
        lambda: change.edit(session_id, index, amend, on_edit=on_edit, now=now, weigher=weigher)
    )
    return replace(report, version=len(await handle.store.versions(session_id, index)))


def _prepare(
    stored: StoredMessage, amend: _Amended, weigher: Weigher, config: HierarchyConfig
) -> None:
    """Count in advance what the transaction will most likely need."""
    if stored.state == "live":
        after, slices = amend(stored), len(stored.slices) + 1
        points = weigher.points(after, slices, unit=config.unit, target=config.target)
        weigher.weigh(stored, stored.slices)
        weigher.weigh(after, points)


@dataclass(slots=True)
class _Amended:
    """Returns a message as it is after an edit, and caches what was computed once."""

    content: Content
    counter: TokenCounter
    key: bytes
    unit: SizeUnit
    on_bad: OnBad
    known: dict[tuple[int, str], StoredMessage] = field(
        default_factory=dict[tuple[int, str], StoredMessage]
    )

    def __call__(self, stored: StoredMessage) -> StoredMessage:
        place = (stored.index, stored.hash)
        if place not in self.known:
            self.known[place] = self._amend(stored)
        known = self.known[place]
        flags = flags_of(known.message, stored.flags)
        return replace(known, flags=flags, slices=stored.slices)

    def _amend(self, stored: StoredMessage) -> StoredMessage:
        message = clean_message(replace(stored.message, content=self.content), on_bad=self.on_bad)
        echoes = fence.find(measure.body(message), key=self.key)
        return replace(
            stored,
            message=message,
            tokens=measure.message_tokens(message, self.counter),
            size=measure.message_size(message, unit=self.unit, counter=self.counter, echoes=echoes),
            hash=measure.message_hash(message),
            echoes=echoes,
        )


async def erase(
    handle: Handle, session_id: str, indices: Iterable[int], *, forks: ForkHandling = "all"
) -> Receipt:
    """Erase messages and everything made from them, in the session and in those that share them.

    Raises NotFoundError if the session has no such message; then nothing was written.
    """
    return await _withdraw(handle, session_id, indices, "erase", forks)


async def quarantine(
    handle: Handle, session_id: str, indices: Iterable[int], *, forks: ForkHandling = "all"
) -> Receipt:
    """Take messages out of everything made from them; they stay readable for the record.

    Raises NotFoundError if the session has no such message; then nothing was written.
    """
    return await _withdraw(handle, session_id, indices, "quarantine", forks)


async def _withdraw(
    handle: Handle,
    session_id: str,
    indices: Iterable[int],
    kind: WithdrawalKind,
    forks: ForkHandling,
) -> Receipt:
    given: object = indices
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"indices is {type(given).__name__}; give message indices, like [3, 4]")
    arguments.one_of(forks, "forks", _FORKS)
    record = await handle.record(session_id)
    wanted = _indices(indices, record)
    weigher, run_id, now = Weigher(handle.counter), uuid.uuid4().hex, handle.clock()
    receipt = await handle.store.transact(
        lambda: erasing.erase(
            session_id, wanted, kind, forks=forks, now=now, run_id=run_id, weigher=weigher
        )
    )
    if kind == "quarantine":
        return replace(receipt, scrub_reason=_STAYS)
    return await _scrubbed(handle, receipt)


def _indices(indices: Iterable[Any], record: SessionRecord) -> tuple[int, ...]:
    """Read the indices of an erasure, at most as many as the session has messages.

    The iterable may be endless: reading stops at the first impossible index. Raises UsageError, and
    NotFoundError if the session has no such message.
    """
    wanted: list[int] = []
    for given in indices:
        index = arguments.whole(given, "an index of indices")
        if index >= record.messages:
            raise NotFoundError(
                f"session {record.id!r} has no message {index}; it has {record.messages}"
            )
        if len(wanted) == record.messages:
            raise UsageError(f"indices gives more than the {record.messages} messages there are")
        wanted.append(index)
    return tuple(wanted)


async def erase_session(handle: Handle, session_id: str, *, forks: ForkHandling = "all") -> Receipt:
    """Erase a whole session, and its own messages in the sessions that were forked from it.

    Raises NotFoundError.
    """
    arguments.one_of(forks, "forks", _FORKS)
    weigher, run_id, now = Weigher(handle.counter), uuid.uuid4().hex, handle.clock()
    try:
        receipt = await handle.store.transact(
            lambda: erasing.erase_session(
                session_id, forks=forks, now=now, run_id=run_id, weigher=weigher
            )
        )
    except NotFoundError:
        if not any(one.unfinished for one in await handle.store.restores(session_id)):
            raise
        receipt = await handle.store.transact(lambda: erasing.erase_copied(session_id))
    finally:
        handle.forget()
    return await _scrubbed(handle, receipt)


async def erase_space(handle: Handle, space: str) -> Receipt:
    """Erase a space: its notes, its bank with all revisions, its rules and its journal.

    Raises NotFoundError.
    """
    run_id, now = uuid.uuid4().hex, handle.clock()
    receipt = await handle.store.transact(
        lambda: clearing.erase_space(space, subject=subject_of(space), now=now, run_id=run_id)
    )
    return await _scrubbed(handle, receipt)


async def erase_tenant(handle: Handle) -> Receipt:
    """Erase everything stored for the tenant, its journal included."""
    messages = 0
    async for record in every_session(handle.store):
        messages += record.messages
    copies = await copies_of(handle.store)  # the records of them are erased too
    removed = {"sessions": await handle.store.erase_all(), "messages": messages}
    gone = {what: count for what, count in removed.items() if count}
    return await _scrubbed(handle, Receipt("erase_tenant", None, removed=gone), copies)


async def _scrubbed(
    handle: Handle, receipt: Receipt, copies: tuple[StoreCopy, ...] | None = None
) -> Receipt:
    """Remove erased content from the store's bytes too, and report the result on the receipt.

    ``copies`` are the recorded copies of the store; None: read them.
    """
    if copies is None:
        copies = await copies_of(handle.store)
    found = await handle.store.scrub()
    removed = dict(receipt.removed)
    if found.removed:
        removed["backups"] = len(found.removed)
    reason = "" if found.done else f"{found.reason or 'it was not done'}; {_AGAIN}"
    return replace(
        receipt, removed=removed, copies=copies, scrubbed=found.done, scrub_reason=reason
    )
