"""Decides what an erasure or a quarantine takes away, in every session that shares the messages.

Forks hold the message too, so the family of sessions is followed both ways along its lineage. One
transaction takes everything: the content, its earlier versions, every summary that was made from
it, views and records. From then on the message has no weight in the trees. Everything that may have
been made from the message goes; where that cannot be decided exactly, more goes rather than less.

Memory that was put into a prompt may have come back inside a later message, which then quotes what
the memory was made from. Such a message belongs to the caller and stays; the receipt names it.

Which earlier messages a summary was shown as overlap is on record with it (``overlap``). An open
window or group has no lasting text, so every provisional node is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from hiermem.core.extraction.stored_answer import made_from
from hiermem.core.log.edit import known_session, message_at
from hiermem.core.log.lineage import Family
from hiermem.core.log.propagate import Propagated
from hiermem.core.log.receipts import Receipt
from hiermem.core.log.size_changes import NOTHING, LoggedChanges, SizeChange, Weigher, marks_of
from hiermem.core.log.trees import TreeState, changes_of, logged_changes, tree_states
from hiermem.core.needs import inside
from hiermem.core.spaces.sources import SOURCE, SourceLink, links_in, named
from hiermem.types import Message, Node, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Batch,
    Changes,
    Deciding,
    LogEvent,
    Need,
    NeedEchoes,
    NeedEvents,
    NeedLevel,
    NeedProvisional,
    NeedRecords,
    NeedViews,
    Record,
    Rewrite,
    RunRecord,
    ViewRecord,
)

#: The kind of record that says which messages it was made from: a chunk's answer.
CHUNK: Final = "chunk"
#: The kinds of record made from messages. All but chunks are made from the whole session.
DERIVED: Final = (CHUNK, "entity", "feedback", "join", "part", "trivector")
#: The hash of every message that was erased.
ERASED: Final = "erased"
#: "all": sessions that share a message lose it too; "keep": they keep it, and are named.
ForkHandling: TypeAlias = Literal["all", "keep"]
WithdrawalKind: TypeAlias = Literal["erase", "quarantine"]
#: Summaries counted in one read.
_PAGE: Final = 512


def tombstone(stored: StoredMessage) -> StoredMessage:
    """Return what remains of an erased message: its place, its role, its time and its key."""
    message = stored.message
    return StoredMessage(
        index=stored.index,
        message=Message(
            message.role,
            "",
            key=message.key,
            thread=message.thread,
            created_at=message.created_at,
        ),
        tokens=0,
        size=0,
        hash=ERASED,
        state="erased",
        flags=stored.flags,
        slices=(0,) * len(stored.slices),
    )


def erase(
    session_id: str,
    indices: Iterable[int],
    kind: WithdrawalKind,
    *,
    forks: ForkHandling,
    now: datetime,
    run_id: str,
    weigher: Weigher,
) -> Deciding[Receipt]:
    """Erase or quarantine messages, in the whole family of the session or in this session alone.

    Raises NotFoundError.
    """
    record = yield from known_session(session_id)
    wanted = tuple(sorted(set(indices)))
    for index in wanted:
        yield from message_at(record, index)
    family = yield from Family.around(record, wanted)
    work = _Withdrawal(kind, now, weigher)
    for one, shared in family.reach.items():
        if one == session_id or forks == "all":
            yield from work.withdraw(family.records[one], shared)
    kin = tuple(one for one in family.reach if one != session_id)
    looked_at = family.reach if forks == "all" else {session_id: family.reach[session_id]}
    noted = yield from named(work.links)
    receipt = replace(
        work.receipt(),
        unproven=(*(yield from work.echoes(looked_at)), *noted),
        session_id=session_id,
        indices=wanted,
        already=tuple(index for index in wanted if index not in work.done.get(session_id, ())),
        forks_reached=tuple(one for one in kin if one in work.done),
        kept_in=kin if forks == "keep" else (),
    )
    if not work.changes:
        return Batch(receipt)
    run = _run(run_id, session_id, now, kind, work)
    return Batch(replace(receipt, run_id=run_id), tuple(work.changes), runs=(run,))


def erase_session(
    session_id: str, *, forks: ForkHandling, now: datetime, run_id: str, weigher: Weigher
) -> Deciding[Receipt]:
    """Erase a session: everything stored of it, and in its forks the messages that were its own.

    Messages inherited from the parent belong to the parent: they stay there and in its other forks,
    which ``kept_in`` lists. The session's own forks become forks of the remaining family.

    Raises NotFoundError.
    """
    record = yield from known_session(session_id)
    own = range(record.forked_at if record.forked_from else 0, record.messages)
    family = yield from Family.below(record, own)
    work = _Withdrawal("erase", now, weigher)
    for one, shared in family.reach.items():
        if one != session_id and forks == "all":
            yield from work.withdraw(family.records[one], shared)
    for child in family.without(record):
        # The record may have been changed above; the new parent is set on the changed one.
        latest = work.records.get(child.id, family.records[child.id])
        work.put(
            replace(
                latest,
                forked_from=child.forked_from,
                forked_at=child.forked_at,
                version=latest.version + 1,
            )
        )
    kept = tuple(one for one in family.reach if one != session_id) if forks == "keep" else ()
    if record.forked_from is not None and record.forked_at:
        kept = (record.forked_from, *kept)
    yield from work.count_all(record)
    looked_at = {one: held for one, held in family.reach.items() if one != session_id}
    echoing = (yield from work.echoes(looked_at)) if forks == "all" else ()
    noted = yield from named(work.links)
    receipt = replace(
        work.receipt(),
        unproven=(*echoing, *noted),
        kind="erase_session",
        session_id=session_id,
        forks_reached=tuple(work.done),
        kept_in=kept,
        run_id=run_id,
    )
    run = _run(run_id, session_id, now, "erase_session", work)
    return Batch(receipt, tuple(work.changes), delete=(session_id,), runs=(run,))


def _run(run_id: str, session_id: str, now: datetime, kind: str, work: _Withdrawal) -> RunRecord:
    """Return the journal's record of an erasure: which messages of which sessions, and counts."""
    detail: dict[str, Any] = {
        "kind": kind,
        "sessions": {one: list(done) for one, done in work.done.items()},
        "removed": dict(work.removed),
    }
    return RunRecord(run_id, "erasure", session_id, now, now, "ok", detail)


@dataclass(slots=True)
class _Withdrawal:
    """The state of one erasure or quarantine, over all the sessions that it reaches."""

    kind: WithdrawalKind
    now: datetime
    weigher: Weigher
    changes: list[tuple[str, Changes[None]]] = field(
        default_factory=list[tuple[str, Changes[None]]]
    )
    records: dict[str, SessionRecord] = field(default_factory=dict[str, SessionRecord])
    done: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    removed: dict[str, int] = field(default_factory=dict[str, int])
    remake: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    links: list[SourceLink] = field(default_factory=list[SourceLink])

    def receipt(self) -> Receipt:
        """Return what was done so far, as a receipt that does not yet name its session."""
        return Receipt(self.kind, None, removed=dict(self.removed), to_remake=dict(self.remake))

    def put(self, record: SessionRecord) -> None:
        """Add a write of one session's record."""
        self.records[record.id] = record
        self.changes.append((record.id, Changes(None, session=record)))

    def withdraw(
        self, record: SessionRecord, indices: Iterable[int]
    ) -> Generator[tuple[str, Need], Any, None]:
        """Take messages out of one session, with everything that was made from them."""
        live: list[StoredMessage] = []
        for index in sorted(indices):
            stored = yield from message_at(record, index)
            if stored.state == "live" or (self.kind == "erase" and stored.state != "erased"):
                live.append(stored)
        if not live:
            return
        events: Sequence[LogEvent] = yield record.id, NeedEvents()
        edits = _edits(events)
        reached: list[TreeState] = []
        for tree_state in tree_states(record):
            mine = [stored for stored in live if stored.index < tree_state.stop]
            for stored in mine:
                yield from self._withdraw_message(record, tree_state, stored)
            if mine:
                reached.append(tree_state)
        propagated: list[tuple[TreeState, Propagated]] = []
        for tree_state in reached:
            result = yield from inside(record.id, tree_state.propagate("forget", self.now))
            # It is not on record when a provisional node was made, or from what.
            loose: Sequence[Node] = yield record.id, NeedProvisional(tree_state.tree)
            drop = dict.fromkeys((*result.drop, *(node.id for node in loose)))
            propagated.append((tree_state, replace(result, drop=tuple(drop))))
        views: Sequence[ViewRecord] = yield record.id, NeedViews()
        withdrawn = {stored.index for stored in live}
        derived: list[tuple[str, str]] = []
        for kind in DERIVED:
            found: Sequence[Record] = yield record.id, NeedRecords(kind)
            derived += [(kind, each.key) for each in found if _made_from(each, withdrawn)]
        # A note belongs to its author and stays. An erasure deletes the record of its sources;
        # a quarantine keeps that record, because an erasure may follow.
        sources: Sequence[Record] = yield record.id, NeedRecords(SOURCE)
        noted = links_in(sources, withdrawn)
        self.links += noted.values()
        if self.kind == "erase":
            derived += [(SOURCE, key) for key in noted]
        event = LogEvent(self.kind, record.messages, self.now, logged_changes(reached).to_json())
        after, changes = changes_of(
            record,
            propagated,
            event,
            rewrites=[self._rewrite(stored) for stored in live],
            drop_views=[view.name for view in views],
            drop_records=derived,
        )
        self.records[record.id] = after
        self.changes += [(record.id, each) for each in changes]
        done = tuple(stored.index for stored in live)
        self.done[record.id] = done
        # Nodes without a text yet are included: they wait for one, and so do all nodes above.
        if propagated[0][1].forget:
            self.remake[record.id] = propagated[0][1].forget
        versions = sum(edits.get(index, 0) for index in done)
        self._count("messages", len(done))
        self._count("versions", versions if self.kind == "erase" else 0)
        self._count("summaries", sum(len(result.gone) for _, result in propagated))
        self._count("views", len(views))
        self._count("records", len(derived))

    def count_all(self, record: SessionRecord) -> Generator[tuple[str, Need], Any, None]:
        """Count everything that is stored of a session that is erased as a whole."""
        self._count("sessions", 1)
        self._count("messages", record.messages)
        events: Sequence[LogEvent] = yield record.id, NeedEvents()
        for index, edits in _edits(events).items():
            stored = yield from message_at(record, index)
            self._count("versions", edits if stored.state != "erased" else 0)
        for tree_state in tree_states(record):
            for level in range(1, len(tree_state.state.ordinals) + 1):
                count = tree_state.state.next_ordinal(level)
                for first in range(0, count, _PAGE):
                    stop = min(count, first + _PAGE)
                    page: list[Node] = yield (
                        record.id,
                        NeedLevel(level, first, stop, tree_state.tree),
                    )
                    self._count("summaries", sum(node.revision > 0 for node in page))
        views: Sequence[ViewRecord] = yield record.id, NeedViews()
        self._count("views", len(views))
        for kind in DERIVED:
            found: Sequence[Record] = yield record.id, NeedRecords(kind)
            self._count("records", len(found))
        sources: Sequence[Record] = yield record.id, NeedRecords(SOURCE)
        self._count("records", len(sources))
        self.links += links_in(sources, None).values()

    def echoes(
        self, reach: Mapping[str, Collection[int]]
    ) -> Generator[tuple[str, Need], Any, tuple[str, ...]]:
        """Name the messages into which memory of the erased messages may have come back.

        Memory can come back only in messages after the first erased one, or in edited messages.
        """
        found: list[str] = []
        for one, indices in reach.items():
            echoing: Sequence[int] = yield one, NeedEchoes()
            if not echoing or not indices:
                continue
            events: Sequence[LogEvent] = yield one, NeedEvents()
            first, edited, gone = min(indices), _edits(events), self.done.get(one, ())
            found += [
                f"{one}:message:{index}"
                for index in echoing
                if (index > first or index in edited) and index not in gone
            ]
        return tuple(found)

    def _withdraw_message(
        self, record: SessionRecord, tree_state: TreeState, stored: StoredMessage
    ) -> Generator[tuple[str, Need], Any, None]:
        """Set the message's weight in one tree to nothing; its slices keep their windows."""
        place = yield from inside(record.id, tree_state.locate(stored, ever=True))
        calls, result_of = marks_of(stored.message) if self.kind == "erase" else ((), None)
        weigher = self.weigher
        weigh = weigher.weigh if record.counter == weigher.counter.name else weigher.estimate
        shift = SizeChange(
            stored.index,
            stored.thread,
            weigh(stored, place.points),
            (NOTHING,) * place.slices,
            calls,
            result_of,
        )
        tree_state.add(
            place, shift, (0,) * len(place.points) if self.kind == "erase" else place.points
        )

    def _rewrite(self, stored: StoredMessage) -> Rewrite:
        if self.kind == "erase":
            return Rewrite(tombstone(stored), "erase")
        return Rewrite(replace(stored, state="quarantined"), "mark")

    def _count(self, what: str, number: int) -> None:
        if number:
            self.removed[what] = self.removed.get(what, 0) + number


def _made_from(record: Record, indices: Collection[int]) -> bool:
    """Return whether a derived record goes with these messages; only a chunk's record may stay."""
    return record.kind != CHUNK or made_from(record.body, indices)


def _edits(events: Iterable[LogEvent]) -> dict[int, int]:
    """Return how often each message was edited, by index."""
    edits: dict[int, int] = {}
    for event in events:
        if event.kind == "edit":
            for shift in LoggedChanges.from_json(event.detail).shifts:
                edits[shift.index] = edits.get(shift.index, 0) + 1
    return edits
