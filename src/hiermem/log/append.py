"""Writes to a session's log: messages, events, what is new of a whole history, and a fork.

Slow work (checking texts, counting tokens, cutting oversize messages) happens before the store is
called; only the pure fold runs inside the transaction. An append is all or nothing, and it is
durable once it has returned. ``sync`` appends what is new of a history that its client hands over
each time, as ``log.alignment`` decides; ``fork`` begins a session that shares another one's first
messages, as ``log.fork_plan`` decides inside the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from hiermem import arguments, errors
from hiermem.config import HierarchyConfig
from hiermem.convert import from_any
from hiermem.errors import BusyError, ConflictError
from hiermem.handle import Handle, beginning, session_state
from hiermem.log import fork_plan
from hiermem.log.alignment import Said, SyncReport, align, parts_of, rewrite_id, said, said_in
from hiermem.log.events import edits_of
from hiermem.text import fence, measure
from hiermem.text.policy import clean_message
from hiermem.text.wishes import flags_of
from hiermem.tokens import LONG, in_thread_if_long
from hiermem.tree import fold
from hiermem.tree.fold import Folded, SessionState, config_from
from hiermem.tree.turns import Arrival
from hiermem.tree.windows import Weigher, cut, weigh
from hiermem.types import Message, SessionRecord, StoredMessage
from hiermem.types.transaction import Changes, KeyEntry, LogEvent, Snapshot

Messages: TypeAlias = Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]]


@dataclass(slots=True)
class About:
    """An application's description of a session.

    ``metadata`` and ``config`` are those of a new session, which has the memory's without one.

    ``space`` is what the application calls the session's space, None if it says nothing of it;
    ``space_known`` says that it was compared. ``last_config`` and ``last_state`` are the stored
    texts of the last known record, so that an append need not read or parse them. They only save
    work: the transaction compares them with what it finds.
    """

    id: str
    title: str | None = None
    participants: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    space: str | None = None
    on_bad_text: Literal["refuse", "replace"] = "refuse"
    config: HierarchyConfig | None = None
    space_known: bool = field(default=False, compare=False, repr=False)
    last_config: str | None = field(default=None, compare=False, repr=False)
    last_state: tuple[str, SessionState] | None = field(default=None, compare=False, repr=False)

    def of_fork(self, session_id: str) -> About:
        """Return the description of a new session, of which no record is known yet."""
        return replace(self, id=session_id, last_config=None, last_state=None)

    def check_space(self, record: SessionRecord) -> None:
        """Refuse a session of another space than the application says. Raises UsageError."""
        if self.space not in (None, record.space):
            where = "no space" if record.space is None else f"space {record.space!r}"
            raise errors.UsageError(
                f"session {record.id!r} is in {where}, not in {self.space!r}; "
                "leave space out, or use leave() and join()"
            )


#: Makes of a message's index what the store keeps of it, and what the fold looks at.
_Numbered: TypeAlias = Callable[[int], tuple[StoredMessage, Arrival]]

OnRewrite = Literal["report", "fork", "error"]
_ON_REWRITE: Final = ("report", "fork", "error")
#: How often a session is read again that was appended to meanwhile.
_TRIES: Final = 8
_PAGE: Final = 2048
#: Messages that are read in addition to the least number that a history needs.
_MORE: Final = 64


def flatten(messages: Sequence[Messages]) -> list[Message]:
    """Return the messages of an append call: messages, dicts of a provider, and iterables of them.

    Raises InvalidMessageError for anything else.
    """
    flat: list[Message] = []
    for ours, stretch in groupby(_each(messages), key=lambda item: isinstance(item, Message)):
        given = list(stretch)
        flat.extend(cast("list[Message]", given) if ours else from_any(given))
    return flat


def _each(items: Iterable[object], *, inside: bool = False) -> Iterator[object]:
    for item in items:
        if isinstance(item, (Message, Mapping)) or callable(getattr(item, "model_dump", None)):
            yield item
        elif inside or isinstance(item, (str, bytes)) or not isinstance(item, Iterable):
            raise errors.InvalidMessageError(
                f"append got {type(item).__name__}; pass Message.user(...) or "
                f'{{"role": "user", "content": ...}}'
            )
        else:
            yield from _each(cast("Iterable[object]", item), inside=True)


async def append(
    handle: Handle, about: About, messages: Sequence[Messages], *, at: int | None = None
) -> list[int]:
    """Append messages and seal what they complete; return the index of each, in order.

    A key that exists with the same content returns its index and writes nothing. With ``at``, the
    first message is to have that index.

    Raises InvalidMessageError, ConflictError, ClosedError, and
    BusyError where the session does not have ``at`` messages; in each case nothing was
    written.
    """
    given = flatten(messages)
    if not given:
        return []
    stored = about.last_config
    if stored is None and handle._key is None:  # noqa: SLF001
        # The first append of a process waits once for both.
        key, record = await asyncio.gather(handle.key(), handle.store.session(about.id))
    else:
        key = await handle.key()
        record = await handle.store.session(about.id) if stored is None else None
    if record is not None:
        handle.check(record)
        stored = record.config
    while True:
        config = (about.config or handle.config) if stored is None else config_from(stored)
        decide = _Append(handle, about, key, config, stored, at)
        if sum(len(m.content) for m in given) > LONG:
            await asyncio.to_thread(decide.prepare, given)
        else:
            decide.prepare(given)
        indices = await handle.store.mutate(about.id, decide, keys=decide.keys)
        if indices is not None:
            return indices
        stored = None
        if decide.found is not None:
            handle.check(decide.found)
            stored = decide.found.config


def append_here(handle: Handle, about: About, given: Sequence[Message]) -> list[int] | None:
    """Append on the calling thread, which blocks; None, with nothing done, if that is impossible.

    It is possible if the store supports it, no other write waits, and an append went before it.

    Raises what ``append`` raises.
    """
    # Both are known after the first append; until then they would have to be awaited.
    key, stored = handle._key, about.last_config  # noqa: SLF001
    # A store may have ``mutate`` on the calling thread, which saves time; it returns None where
    # another write waits. By name: isinstance() with a protocol takes a hundred times as long.
    mutate_here: Callable[..., list[int] | None] | None = getattr(handle.store, "mutate_here", None)
    if not given or key is None or stored is None or mutate_here is None:
        return None
    decide = _Append(handle, about, key, config_from(stored), stored)
    decide.prepare(given)
    return mutate_here(about.id, decide, keys=decide.keys)


@dataclass(slots=True)
class _Append:
    """One append: ``prepare`` measures its messages, the call decides inside the transaction.

    The result is None, with nothing written, where the session has another configuration than the
    messages were prepared for, or is gone; ``found`` is its record then.
    ``stored`` is the stored text of ``config``, None if the session does not exist yet. The texts
    remembered in ``about`` are compared with the record before they are used, so a rolled-back run
    of the decision is harmless. ``at`` is the number of messages that the session must have, if it
    matters.
    """

    handle: Handle
    about: About
    key: bytes
    config: HierarchyConfig
    stored: str | None
    at: int | None = None
    now: datetime = field(init=False)
    new: SessionRecord | None = field(init=False, default=None)
    found: SessionRecord | None = field(init=False, default=None)
    prepared: Sequence[tuple[str | None, str | None, _Numbered]] = field(init=False)

    @property
    def keys(self) -> list[str]:
        """The keys of the messages."""
        return [key for key, *_ in self.prepared if key is not None]

    def prepare(self, messages: Sequence[Message]) -> None:
        """Check, stamp and measure the messages."""
        now = self.handle.clock()
        self.prepared = [self._prepared(message, now) for message in messages]
        self.now = self.handle.clock()
        if self.stored is None:
            self.new = replace(
                self.handle.new_record(self.about.id, self.config),
                title=self.about.title,
                participants=self.about.participants,
                metadata=self.about.metadata,
                space=self.about.space,
            )

    def _prepared(
        self, message: Message, now: datetime
    ) -> tuple[str | None, str | None, _Numbered]:
        """Return a message's key and its fingerprint to compare by, and all except its index."""
        message = clean_message(message, on_bad=self.about.on_bad_text)
        if message.created_at is None:
            message = replace(message, created_at=now)
        counter = self.handle.counter
        tokens = measure.message_tokens(message, counter)
        text = measure.body(message)
        echoes = fence.find(text, key=self.key)
        weight = weigh(message, tokens, self.config, counter=counter, echoes=echoes)
        size, heard = weight.size(self.config.unit), weight.tokens
        points, slices = cut(message, size, self.config, counter=counter)
        hashed, flags = measure.message_hash(message), flags_of(message)

        def numbered(index: int) -> tuple[StoredMessage, Arrival]:
            stored = StoredMessage(
                index=index,
                message=message,
                tokens=tokens,
                size=size,
                hash=hashed,
                flags=flags,
                slices=points,
                echoes=echoes,
            )
            arrived = Arrival.of(stored, slices)
            return stored, arrived if heard == tokens else replace(arrived, tokens=heard)

        fingerprint = None if message.key is None else measure.fingerprint(message)
        return message.key, fingerprint, numbered

    def __call__(self, snapshot: Snapshot) -> Changes[list[int] | None]:
        self.found = snapshot.session
        record = self.found or self.new
        if record is None:
            return Changes(None)
        self.about.check_space(record)
        if self.found is not None:
            # Equal texts need no parsing.
            if record.config != self.stored or record.counter != self.handle.counter.name:
                if config_from(record.config) != self.config:
                    return Changes(None)
                self.handle.check(record)
            self.about.last_config = record.config
        # The state that the last append left need not be parsed again.
        seen = self.about.last_state
        state = seen[1] if seen and seen[0] == record.state else session_state(record)
        if self.at is not None and self.at != state.next_index:
            raise errors.BusyError(session_id=record.id)
        indices, fresh, claimed = self._place(snapshot, state.next_index)
        if not fresh:
            return Changes(indices)
        if record.closed:
            raise errors.ClosedError(session_id=record.id)
        pairs = [numbered(index) for index, numbered in enumerate(fresh, state.next_index)]
        folded = fold.arrive(state, [arrived for _, arrived in pairs], self.config)
        return _changes(
            record,
            folded,
            result=indices,
            about=self.about,
            now=self.now,
            messages=tuple(stored for stored, _ in pairs),
            keys=tuple(claimed),
        )

    def _place(
        self, snapshot: Snapshot, next_index: int
    ) -> tuple[list[int], list[_Numbered], list[tuple[str, KeyEntry]]]:
        """Separate new messages from those whose key exists, in the store or in this call."""
        indices: list[int] = []
        fresh: list[_Numbered] = []
        claimed: dict[str, KeyEntry] = {}
        for key, fingerprint, numbered in self.prepared:
            seen = None if key is None else snapshot.keys.get(key) or claimed.get(key)
            if seen is None:
                index = next_index + len(fresh)
                if key is not None:
                    claimed[key] = KeyEntry(index, fingerprint)
                indices.append(index)
                fresh.append(numbered)
            elif key is not None and seen.fingerprint not in (None, fingerprint):
                raise errors.ConflictError(
                    f"session {self.about.id!r}: this message key names message {seen.index} with "
                    "other content; use a new key",
                    kind="key",
                    session_id=self.about.id,
                    index=seen.index,
                    key=key,
                )
            else:
                indices.append(seen.index)
        return indices, fresh, list(claimed.items())


T = TypeVar("T")


def _changes(
    record: SessionRecord,
    folded: Folded,
    *,
    result: T,
    about: About | None = None,
    now: datetime | None = None,
    messages: tuple[StoredMessage, ...] = (),
    keys: tuple[tuple[str, KeyEntry], ...] = (),
    events: tuple[LogEvent, ...] = (),
) -> Changes[T]:
    """Return the writes after a fold; a title or participants given later replace earlier ones.

    ``now`` is the time of an append.
    """
    after = replace(
        record,
        title=about.title if about and about.title is not None else record.title,
        participants=(about.participants if about else ()) or record.participants,
        messages=folded.state.next_index,
        state=folded.state.to_json(),
        closed=folded.state.closed,
        version=record.version + 1,
        last_activity=max(record.last_activity, now or record.last_activity),
    )
    if about is not None:
        about.last_state = (after.state, folded.state)
    return Changes(
        result,
        session=after,
        messages=messages,
        keys=keys,
        flags=folded.flags,
        nodes=folded.nodes,
        parents=folded.parents,
        events=events,
    )


async def tick_if_idle(handle: Handle, session_id: str) -> bool:
    """Apply the time rule to a session whose last append is longer ago than the rule's time.

    Returns whether anything was sealed or became due by that. The last append and the present are
    by the store's clock, the time of the tick by the messages' own.
    """
    when = handle.store_now()

    def change(snapshot: Snapshot) -> Changes[bool]:
        record = snapshot.session
        if record is None or record.closed:
            return Changes(result=False)
        config, state = config_from(record.config), session_state(record)
        tick = fold.idle_tick(state, config, when - record.last_activity)
        if tick is None:
            return Changes(result=False)
        at, folded = tick
        event = LogEvent("tick", state.next_index, when, at.isoformat())
        return _changes(record, folded, result=True, events=(event,))

    return await handle.store.mutate(session_id, change)


async def happen(
    handle: Handle,
    session_id: str,
    kind: Literal["flush", "close", "reopen", "tick"],
    detail: str = "",
) -> None:
    """Record an event in the log and fold it in (``fold.happen``).

    ``detail`` is the time of a tick. Closing a closed session, or reopening an open one, changes
    nothing; the other events need an open session.
    """
    await handle.record(session_id)
    when = handle.clock()
    closed = {"close": True, "reopen": False}.get(kind)

    def change(snapshot: Snapshot) -> Changes[None]:
        record = snapshot.session
        if record is None:
            raise errors.NotFoundError(f"session {session_id!r} was erased meanwhile")
        if closed is None and record.closed:
            raise errors.ClosedError(session_id=session_id)
        if record.closed == closed:
            return Changes(None)
        state = session_state(record)
        event = LogEvent(kind, state.next_index, when, detail)
        folded = fold.happen(state, event, config_from(record.config))
        return _changes(record, folded, result=None, events=(event,))

    await handle.store.mutate(session_id, change)


async def sync(
    handle: Handle, about: About, messages: Messages, *, on_rewrite: OnRewrite = "report"
) -> SyncReport:
    """Append what is new of a whole history to the session, or to a fork where it was rewritten.

    If the session is longer than the history, only its beginning and its end are read.

    Raises ConflictError, BusyError where the session was appended to all the
    time, and what ``append`` and ``fork`` raise.
    """
    arguments.one_of(on_rewrite, "on_rewrite", _ON_REWRITE)
    given = [clean_message(each, on_bad=about.on_bad_text) for each in flatten([messages])]
    key = await handle.key()
    history = await in_thread_if_long(partial(said, given, key=key), given)
    least = sum(len(parts_of(mark)) for mark in history.values())
    rewritten_at: int | None = None
    tries = 0
    while tries < _TRIES:
        try:
            record = await handle.record_or_new(about.id)
            read = await _read(handle, about.id, record.messages, least)
            new, at, ends_at = align(history, *read)
            if at is None:
                fresh = [given[place] for place in islice(history, new, None)]
                indices = await append(handle, about, fresh, at=record.messages)
                return SyncReport(about.id, tuple(indices), rewritten_at, ends_at)
            if on_rewrite == "report":
                return SyncReport(about.id, rewritten_at=at)
            if on_rewrite == "error":
                raise ConflictError(
                    f"the history differs from session {about.id!r} at message {at}; pass "
                    'on_rewrite="fork" or "report"',
                    kind="history",
                    session_id=about.id,
                    index=at,
                )
            name = rewrite_id(about.id, at, str(list(history.values())[new]))
            with suppress(ConflictError):  # then this rewrite was seen before
                await fork(handle, about.id, name, at=at, title=about.title)
        except BusyError:
            tries += 1
            continue
        # The fork may have been rewritten in its turn. A loop, because a client that rewrites with
        # every turn makes a fork of a fork of a fork.
        about, tries = about.of_fork(name), 0
        rewritten_at = at if rewritten_at is None else rewritten_at
    raise BusyError(session_id=about.id)


async def _read(
    handle: Handle, session_id: str, messages: int, history: int
) -> tuple[Said, Said | None]:
    """Return the beginning of a session as it is compared, and its end where that is not all.

    The beginning has at least as many messages as the ``history`` has texts and calls, the end
    about twice as many, so that the history may also lack some of the newest.
    """
    edited = edits_of(await handle.store.events(session_id))
    head: Said = {}
    at = 0
    while at < messages and len(head) < history:
        stop = min(messages, at + history - len(head) + _MORE)
        head |= await _compared(handle, session_id, at, stop, edited)
        at = stop
    if at == messages:
        return head, None
    start = max(0, messages - 2 * history - _MORE)
    return head, await _compared(handle, session_id, start, messages, edited)


async def _compared(
    handle: Handle, session_id: str, start: int, stop: int, edited: Collection[int]
) -> Said:
    """Return the messages of a range as they are compared."""
    counts: Said = {}
    for first in range(start, stop, _PAGE):
        page = await handle.messages(session_id, first, min(stop, first + _PAGE))
        counts |= await in_thread_if_long(partial(said_in, page, edited=edited), page)
    return counts


async def fork(
    handle: Handle, source_id: str, new_id: str, *, at: int | None = None, title: str | None = None
) -> int:
    """Make ``new_id`` a session that shares the first ``at`` messages (all of them, if it is None).

    Returns their number.

    Raises NotFoundError if the source does not have so many, and ConflictError.
    """
    await handle.record(source_id)
    decide = partial(
        fork_plan.fork,
        source_id,
        new_id,
        at=at,
        title=title,
        first_epoch=beginning(),
        now=handle.clock(),
        weigher=Weigher(handle.counter),
    )
    return await handle.store.transact(decide)
