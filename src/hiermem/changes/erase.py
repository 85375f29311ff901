"""Decides what an erasure or a quarantine takes away: messages, a session, or a space.

Forks hold the message too, so the family of sessions is followed both ways along its lineage. One
transaction takes everything of a message in a session: the content, its earlier versions, every
summary that was made from it, views and records. From then on the message has no weight in the
trees. Everything that may have been made from the message goes; where that cannot be decided
exactly, more goes rather than less.

Nobody else can write while a transaction runs. So each takes only as many messages as fit into HELD
seconds at the pace of the transaction before it. After each one the sessions are whole. The same
call goes on where one was cut off.

Memory that was put into a prompt may have come back inside a later message, which then quotes what
the memory was made from. Such a message belongs to the caller and stays; the receipt names it.

Which earlier messages a summary was shown as overlap is on record with it (``overlap``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from hiermem.bank import records as spaces
from hiermem.bank.said import LEARNT, THROUGH
from hiermem.bank.sources import SOURCE, SourceLink, exported, links_in, named, of_space, places_of
from hiermem.changes.propagate import Propagated, changes_of, check_index, propagate
from hiermem.changes.receipts import ForkHandling, Receipt
from hiermem.errors import NotFoundError, StoreCorruptError
from hiermem.extraction.plan import made_from
from hiermem.log.events import edits_of, taken_back
from hiermem.log.trees import MessageChange, TreeState, tree_states
from hiermem.needs import existing_session
from hiermem.protocols import TokenCounter
from hiermem.summaries.assess import RETRY, covers
from hiermem.text.fence import name_mark
from hiermem.text.wishes import without_flags
from hiermem.tree.windows import NOTHING, Weigher
from hiermem.types import Message, SessionRecord, StoredMessage, transaction
from hiermem.types.ranges import Ranges, clipped, each_of, joined, ranges_of
from hiermem.types.transaction import Asking, Batch, Changes, Deciding, Need, Record, Rewrite

#: The kind of record that says which messages it was made from: a chunk's answer.
CHUNK: Final = "chunk"
#: The kinds of record made from messages: chunks and retries from some, all others from any.
DERIVED: Final = (CHUNK, "entity", "feedback", "join", RETRY, "trivector")
#: The hash of every message that was erased.
ERASED: Final = "erased"
WithdrawalKind: TypeAlias = Literal["erase", "quarantine"]
#: The name in the receipt for the records of each kind; a note is live or consumed, never both.
_COUNTED: Final = {
    spaces.NOTE: "notes",
    spaces.CONSUMED: "notes",
    spaces.BANK: "files",
    spaces.REVISION: "revisions",
}
#: Messages read at once.
_PAGE: Final = 256
#: The seconds that one transaction may take.
HELD: Final = 0.1
#: The least, the first and the most number of messages, over all sessions, of a transaction.
STEPS: Final = (128, 256, 4096)


def tombstone(stored: StoredMessage) -> StoredMessage:
    """Return what remains of an erased message: its place, its role, its time and its key."""
    kept, flags, weights = stored.message, without_flags(stored.flags), (0,) * len(stored.slices)
    left = Message(kept.role, "", key=kept.key, thread=kept.thread, created_at=kept.created_at)
    bare = StoredMessage(stored.index, left, tokens=0, size=0, hash=ERASED, state="erased")
    return replace(bare, flags=flags, slices=weights)


def erase(
    session_id: str, indices: Iterable[int], earlier: Withdrawal, *, forks: ForkHandling
) -> Deciding[Withdrawal | Receipt]:
    """Erase or quarantine messages, in the whole family of the session or in this session alone.

    Return the receipt if that was all, and otherwise what has to be given to the next transaction
    as ``earlier``.

    Raises NotFoundError.
    """
    record = yield from existing_session(session_id)
    wanted = tuple(sorted(set(indices)))
    for index in wanted[:1] + wanted[-1:]:
        check_index(record, index)
    records, reach = yield from _family(record, ranges_of(wanted), upwards=True)
    work = earlier.following()
    taken = reach if forks == "all" else {session_id: reach[session_id]}
    if (yield from work.withdraw_some(records, taken)):
        return Batch(work, tuple(work.changes), runs=work.runs(session_id, "running"))
    kin = tuple(one for one in reach if one != session_id)
    noted = yield from named(work.links)
    receipt = replace(
        work.receipt(),
        unproven=(*(yield from work.echoes(taken)), *noted),
        session_id=session_id,
        indices=wanted,
        already=tuple(sorted({*wanted}.difference(each_of(work.done.get(session_id, ()))))),
        forks_reached=tuple(one for one in kin if one in work.done),
        kept_in=kin if forks == "keep" else (),
    )
    if not work.done:
        return Batch(receipt)
    runs = work.runs(session_id, "ok")
    return Batch(replace(receipt, run_id=work.run_id), tuple(work.changes), runs=runs)


def subject_of_erased(key: bytes, session_id: str) -> str:
    """Return the name under which the journal keeps the erasure of a session.

    An id may be a person's name. By its mark a copy of the store learns what was erased.
    """
    return f"erased:{name_mark(key, session_id)}"


def erase_session(
    session_id: str, earlier: Withdrawal, *, subject: str, forks: ForkHandling
) -> Deciding[Withdrawal | Receipt]:
    """Erase a session: everything stored of it, and in its forks the messages that were its own.

    Its id stays nowhere: ``subject`` is its name in the journal (``subject_of_erased``).

    Messages inherited from the parent belong to the parent: they stay there and in its other forks,
    which ``kept_in`` lists. The session's own forks become forks of the remaining family.

    Return the receipt if that was all, and otherwise what has to be given to the next transaction
    as ``earlier``.

    Raises NotFoundError.
    """
    record = yield from existing_session(session_id)
    begin, end = record.forked_at if record.forked_from else 0, record.messages
    # A damaged number may name any amount of messages.
    yield from _messages_in(record, ((end - 1, end),) if begin < end else ())
    own = ((begin, end),) if begin < end else ()
    records, reach = yield from _family(record, own, upwards=False)
    work = earlier.following()
    shared = {one: held for one, held in reach.items() if one != session_id}
    if forks == "all" and (yield from work.withdraw_some(records, shared)):
        return Batch(work, tuple(work.changes), runs=work.runs(session_id, "running"))
    yield from work.count(record)
    children = [fork for fork in records.values() if fork.forked_from == session_id]
    # The fork that shares most becomes the parent of the others, so that all go on sharing what
    # they shared.
    heir = max(children, key=lambda child: child.forked_at, default=record)
    for child in children:
        # The record may have been changed above; the new parent is set on the changed one.
        latest = work.records.get(child.id, child)
        after = replace(latest, forked_from=heir.id, version=latest.version + 1)
        if child is heir:
            shared_at = min(child.forked_at, record.forked_at)
            after = replace(after, forked_from=record.forked_from, forked_at=shared_at)
        work.changes.append((child.id, Changes(None, session=after)))
    kept = tuple(shared) if forks == "keep" else ()
    if record.forked_from is not None and record.forked_at:
        kept = (record.forked_from, *kept)
    echoing = (yield from work.echoes(shared)) if forks == "all" else ()
    noted = yield from named(work.links)
    receipt = replace(
        work.receipt(),
        unproven=(*echoing, *noted),
        kind="erase_session",
        session_id=session_id,
        forks_reached=tuple(work.done),
        kept_in=kept,
        run_id=work.run_id,
    )
    *others, request = work.runs(session_id, "ok", kind="erase_session")
    runs = (*others, replace(request, subject=subject))
    return Batch(receipt, tuple(work.changes), delete=(session_id,), runs=runs)


def erase_space(space: str, *, subject: str, now: datetime, run_id: str) -> Deciding[Receipt]:
    """Erase a space with everything stored of it; ``subject`` is its name in the journal.

    A space consists of records, so all of its records go: its content, its journal, and the records
    under messages that name its notes. Nothing has to be readable to be erased. Where the owner of
    an entry cannot be decided, the entry goes: a session may have the very name under which the
    space is journalled, and then loses its journal and nothing else. Files that were exported into
    folders are out of reach; the receipt names the folders.

    A run that is working on the space meanwhile finds another header than it began with, or none,
    and can write nothing more.

    Raises NotFoundError.
    """
    needs = [
        transaction.NeedRecords(spaces.SPACE),
        transaction.NeedRecords(spaces.kind_of(SOURCE, space), everywhere=True),
        transaction.NeedRecords(spaces.kind_of(LEARNT, space), everywhere=True),
        transaction.NeedRecords(spaces.kind_of(THROUGH, space), everywhere=True),
    ]
    needs += [transaction.NeedRecords(spaces.kind_of(kind, space)) for kind in spaces.KINDS]
    answers = yield tuple((spaces.SPACE_SCOPE, need) for need in needs)
    headers, sources, learnt, through, *stored = answers
    if all(each.key != space for each in headers):
        raise NotFoundError(f"space {space!r} does not exist")
    going = [(spaces.SPACE, spaces.SPACE_SCOPE, space)]
    removed = Counter(spaces=1)
    folders: tuple[str, ...] = ()
    for kind, found in zip(spaces.KINDS, stored, strict=True):
        going += [(each.kind, each.scope, each.key) for each in found]
        removed[_COUNTED.get(kind, "records")] += len(found)
        if kind == spaces.EXPORT:
            folders = exported(space, found)
    going += [(each.kind, each.scope, each.key) for each in (*learnt, *through)]
    for session_id, link in of_space(space, sources):
        going += [(kind, session_id, key) for kind, key in places_of(link)]
        removed["records"] += 1
    counts = dict(+removed)
    receipt = Receipt(
        "erase_space", None, removed=counts, unproven=folders, run_id=run_id, space=space
    )
    detail = {"kind": receipt.kind, "removed": dict(counts)}
    run = transaction.RunRecord(run_id, "erasure", subject, now, now, "ok", detail)
    return Batch(receipt, runs=(run,), drop_records=tuple(going), drop_journals=(subject,))


def erase_copied(session_id: str) -> Deciding[None]:
    """Erase the copy of a session that its source erased. Nothing is journalled here."""
    yield from ()
    return Batch(None, delete=(session_id,))


def _family(
    record: SessionRecord, runs: Ranges, *, upwards: bool
) -> Asking[tuple[dict[str, SessionRecord], dict[str, Ranges]]]:
    """Find the sessions that hold some of the messages; return records and ranges by id.

    A fork shares with its source exactly the messages before the index at which it was forked. An
    index is therefore followed into forks and forks of forks, and ``upwards`` into sources, for as
    long as it is below that point. The session that was asked about comes first. The records are
    also those of its direct forks that hold none of the messages.
    """
    records = {record.id: record}
    reach: dict[str, Ranges] = {record.id: runs}
    waiting = [record.id]
    for one in waiting:
        here = records[one]
        above = here.forked_from if upwards else None
        asked: list[transaction.SessionNeed] = [(one, "forks")]
        asked.extend((source, "session") for source in [above] if source is not None)
        forks, *sources = yield tuple(asked)
        kin: list[tuple[SessionRecord, int]] = [(fork, fork.forked_at) for fork in forks]
        kin += [(source, here.forked_at) for source in sources if source is not None]
        for other, shared in kin:
            records.setdefault(other.id, other)
            held = clipped(reach[one], 0, shared)
            if held and other.id not in reach:
                reach[other.id] = held
                waiting.append(other.id)
    return records, reach


class Withdrawal:
    """The state of one erasure or quarantine, over all the sessions that it reaches.

    ``done`` and what is counted are of all its transactions so far, ``changes`` and ``records`` of
    the present one, which takes at most ``step`` messages over all sessions.
    """

    def __init__(
        self, kind: WithdrawalKind, now: datetime, counter: TokenCounter, run_id: str
    ) -> None:
        self.kind: WithdrawalKind = kind
        self.now, self.counter, self.run_id = now, counter, run_id
        self.step = STEPS[1]
        self.changes: list[tuple[str, Changes[None]]] = []
        self.records: dict[str, SessionRecord] = {}
        self.done: dict[str, Ranges] = {}
        self.removed: Counter[str] = Counter()
        #: The number of messages of the session that is erased whole, with those erased before.
        self.length = 0
        self.remake: dict[str, tuple[str, ...]] = {}
        self.links: list[SourceLink] = []
        # The records as they were left, and how often their messages were edited until then. The
        # log grows with each transaction.
        self._edits: dict[str, tuple[SessionRecord, Counter[int]]] = {}
        # Messages before this index were looked at. Another session may take an erased one's id.
        self._reached: dict[tuple[str, datetime], int] = {}

    def following(self) -> Withdrawal:
        """Return a copy for the next transaction, which a store may decide more than once."""
        after = Withdrawal(self.kind, self.now, self.counter, self.run_id)
        after.step, after.length = self.step, self.length
        after.done, after.removed = dict(self.done), Counter(self.removed)
        after.remake, after.links = dict(self.remake), list(self.links)
        after._edits, after._reached = dict(self._edits), dict(self._reached)
        return after

    def pace(self, seconds: float) -> None:
        """Choose how many messages the next transaction takes; this one took so many seconds."""
        # The pace is noisy, so the step at most doubles.
        fitting = self.step * min(2.0, HELD / max(seconds, 1e-6))
        self.step = min(max(STEPS[0], int(fitting)), STEPS[2])

    def receipt(self) -> Receipt:
        """Return what was done so far, as a receipt that does not yet name its session."""
        return Receipt(self.kind, None, removed=dict(+self.removed), to_remake=dict(self.remake))

    def runs(
        self, session_id: str, outcome: Literal["running", "ok"], kind: str = ""
    ) -> tuple[transaction.RunRecord, ...]:
        """Return the journal's records: of each fork that is reached, then of the request.

        Each session's journal names that session alone, so that it goes with it.
        """
        ended = self.now if outcome == "ok" else None
        request: dict[str, Any] = {"kind": kind or self.kind, "removed": dict(+self.removed)}
        details: dict[str, dict[str, Any]] = {
            one: {"kind": self.kind} for one in self.done if one != session_id
        }
        details[session_id] = request | ({"length": self.length} if self.length else {})
        for one, done in self.done.items():
            details[one]["erased"] = [list(run) for run in done]
        # Forks keep their order, and so each record its id from one transaction to the next.
        ids = [
            sha256(f"{self.run_id} {number}".encode()).hexdigest()[:32]
            for number in range(len(details))
        ]
        ids[-1] = self.run_id
        return tuple(
            transaction.RunRecord(run_id, "erasure", one, self.now, ended, outcome, detail)
            for run_id, (one, detail) in zip(ids, details.items(), strict=True)
        )

    def withdraw_some(
        self, records: Mapping[str, SessionRecord], reach: Mapping[str, Ranges]
    ) -> Asking[bool]:
        """Take out the next ``step`` messages; return whether there are more."""
        left = self.step
        for one, runs in reach.items():
            if not runs:
                continue
            record = records[one]
            place = (one, record.created_at)
            waiting = clipped(runs, self._reached.get(place, 0), runs[-1][1])
            taken = _first(waiting, left)
            if taken:
                yield from self.withdraw(record, taken)
                self._reached[place] = taken[-1][1]
                left -= sum(stop - start for start, stop in taken)
            if taken != waiting:
                return True
        return False

    def withdraw(self, record: SessionRecord, runs: Ranges) -> Asking[None]:
        """Take messages out of one session, with everything that was made from them."""
        live = [
            stored
            for stored in (yield from _messages_in(record, runs))
            if stored.state == "live" or (self.kind == "erase" and stored.state != "erased")
        ]
        if not live:
            return
        if live[-1].index >= record.messages:
            raise StoreCorruptError(
                f"session {record.id!r} has messages after its last, {record.messages - 1}; "
                "the store is damaged"
            )
        trees = tree_states(record)
        left, edits = self._edits.get(record.id, (None, None))
        before = edits if left == record else None
        edits, views, sources, records = yield from _session_data(record, before)
        propagated: list[Propagated] = []
        for tree_state in trees:
            mine = [stored for stored in live if stored.index < tree_state.stop]
            yield from self._withdraw_messages(record, tree_state, mine)
            if not mine:
                continue
            result = yield from propagate(tree_state, "forget", self.now)
            propagated.append(result)
        withdrawn = {stored.index for stored in live}
        # Only two kinds of records may stay: those that were not made from these messages.
        derived = [
            (each.kind, each.key)
            for each in records
            if (each.kind != RETRY or covers(each.body, withdrawn))
            and (each.kind != CHUNK or made_from(each.body, withdrawn))
        ]
        # A note belongs to its author and stays. An erasure deletes the record of its sources;
        # a quarantine keeps that record, because an erasure may follow.
        noted = links_in(sources, withdrawn)
        self.links += noted.values()
        if self.kind == "erase":
            derived += [place for link in noted.values() for place in places_of(link)]
        after, changes = changes_of(
            record,
            propagated,
            self.kind,
            self.now,
            rewrites=[self._rewrite(stored) for stored in live],
            drop_views=[view.name for view in views],
            drop_records=derived,
        )
        self.records[record.id] = after
        self._edits[record.id] = after, edits
        self.changes += [(record.id, each) for each in changes]
        done = ranges_of(withdrawn)
        self.done[record.id] = joined((*self.done.get(record.id, ()), *done))
        # Nodes without a text yet are included: they wait for one, and so do all nodes above.
        remake = dict.fromkeys((*self.remake.get(record.id, ()), *propagated[0].forget))
        if remake:
            self.remake[record.id] = tuple(remake)
        self.removed.update(
            messages=len(live),
            versions=sum(edits[at] for at in withdrawn) if edits and self.kind == "erase" else 0,
            summaries=sum(len(result.gone) for result in propagated),
            views=len(views),
            records=len(derived),
        )

    def count(self, record: SessionRecord) -> Asking[None]:
        """Count what is stored of a session that is erased whole; summaries without a text too."""
        events: Sequence[transaction.LogEvent] = yield record.id, "events"
        gone = clipped(taken_back(events, "erase"), 0, record.messages)
        edits, views, sources, records = yield from _session_data(record, edits_of(events))
        counts = {"sessions": 1, "views": len(views), "records": len(records) + len(sources)}
        counts["messages"] = record.messages - sum(stop - start for start, stop in gone)
        counts["versions"] = sum(n for at, n in edits.items() if not clipped(gone, at, at + 1))
        counts["summaries"] = sum(sum(each.state.ordinals) for each in tree_states(record))
        self.length = record.messages
        self.removed.update(counts)
        self.links += links_in(sources, None).values()

    def echoes(self, reach: Mapping[str, Ranges]) -> Asking[tuple[str, ...]]:
        """Name the messages into which memory of the erased messages may have come back.

        Memory can come back only in messages after the first erased one, or in edited messages.
        """
        found: list[str] = []
        looked_at = [one for one, runs in reach.items() if runs]
        echoing = yield tuple((one, "echoes") for one in looked_at)
        echoes: dict[str, Sequence[int]] = dict(zip(looked_at, echoing, strict=True))
        echoes = {one: indices for one, indices in echoes.items() if indices}
        logs = yield tuple((one, "events") for one in echoes)
        for (one, indices), log in zip(echoes.items(), logs, strict=True):
            first, edited, gone = reach[one][0][0], edits_of(log), self.done.get(one, ())
            found += [
                f"{one}:message:{index}"
                for index in indices
                if (index > first or index in edited) and not clipped(gone, index, index + 1)
            ]
        return tuple(found)

    def _withdraw_messages(
        self, record: SessionRecord, tree_state: TreeState, messages: Sequence[StoredMessage]
    ) -> Asking[None]:
        """Set the messages' weights in one tree to nothing; their slices keep their windows."""
        places = yield from tree_state.locate_all(messages, ever=True)
        erases, weigher = self.kind == "erase", Weigher(self.counter)
        tree_state.changes = [
            MessageChange(
                stored.index,
                stored.thread,
                place,
                weigher.weigh(stored, tree_state.config, place.points),
                (NOTHING,) * place.slices,
                (0,) * len(place.points) if erases else place.points,
            )
            for stored, place in zip(messages, places, strict=True)
        ]

    def _rewrite(self, stored: StoredMessage) -> Rewrite:
        if self.kind == "erase":
            return Rewrite(tombstone(stored), "erase")
        return Rewrite(replace(stored, state="quarantined"), "mark")


def _session_data(
    record: SessionRecord, edits: Counter[int] | None = None
) -> Asking[tuple[Counter[int], Sequence[transaction.ViewRecord], Sequence[Record], list[Record]]]:
    """Read what is stored of a session beside its messages and sealed nodes.

    That is how often each message was edited, by index, read from the log if ``edits`` is None; the
    views; the records of sources; and those of the DERIVED kinds.
    """
    if edits is None:
        edits = edits_of((yield record.id, "events"))
    needs: list[Need] = [transaction.NeedViews()]
    needs += [transaction.NeedRecords(kind) for kind in (SOURCE, *DERIVED)]
    views, sources, *derived = yield tuple((record.id, need) for need in needs)
    return edits, views, sources, [each for records in derived for each in records]


def _messages_in(record: SessionRecord, runs: Ranges) -> Asking[list[StoredMessage]]:
    """Read the messages in these ranges, which exist."""
    found: list[StoredMessage] = []
    for start, stop in runs:
        for first in range(start, stop, _PAGE):
            last = min(first + _PAGE, stop)
            read: Sequence[StoredMessage] = yield record.id, transaction.NeedMessages(first, last)
            if len(read) != last - first:
                raise StoreCorruptError(
                    f"session {record.id!r} has {len(read)} of the {last - first} messages from "
                    f"{first} to {last - 1}; the store is damaged"
                )
            found += read
    return found


def _first(runs: Ranges, most: int) -> Ranges:
    """Return the first numbers of half-open ranges, at most so many."""
    found: list[tuple[int, int]] = []
    for start, stop in runs:
        taken = min(most, stop - start)
        if taken <= 0:
            break
        found.append((start, start + taken))
        most -= taken
    return tuple(found)
