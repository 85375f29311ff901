"""Reads a tenant's part of a store from end to end and checks every promise that it can show.

Nothing is written. A session that is written to meanwhile is not accused: it is read again, and a
finding is reported if two readings between writes agree on it. ``upkeep.check`` decides what a
finding is.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from hiermem.bank.space import check_spaces
from hiermem.errors import StoreCorruptError
from hiermem.handle import Handle, every_session, state_from
from hiermem.log import trees
from hiermem.log.events import configs_of, edits_of
from hiermem.log.trees import Build
from hiermem.summaries import inputs
from hiermem.text.measure import message_tokens
from hiermem.tokens import in_thread_if_long
from hiermem.tree.fold import SessionState, config_from
from hiermem.types import Node, Revision, SessionRecord, StoredMessage
from hiermem.types.transaction import Changes, KeyEntry, LogEvent, Snapshot
from hiermem.types.tree import Finding
from hiermem.upkeep import check as checking
from hiermem.upkeep.check import CheckReport, Fault

#: Rows read at once.
_PAGE: Final = 500
#: Sessions read at once.
_AT_ONCE: Final = 8
#: More findings than this in one session say nothing new.
_MOST: Final = 1_000
#: How often a session is read again because it was written to meanwhile.
_TRIES: Final = 3
#: The kinds of records whose scope is a session.
_SCOPED: Final = (
    "chunk", "join", "part", "retry", "trivector", "entity", "feedback", "note-source",
)  # fmt: skip
_MANY: Final = 2**31 - 1


async def check(handle: Handle) -> CheckReport:
    """Check everything that is stored for the tenant. It reads all of it and writes nothing."""
    findings: list[Finding] = []
    skipped: list[str] = []
    sessions = messages = nodes = 0
    ids = [record.id async for record in every_session(handle.store)]
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        for session_check in await asyncio.gather(*(_check_settled(handle, id_) for id_ in some)):
            if session_check is not None:
                sessions += 1
                findings += session_check.findings
                skipped += session_check.skipped
                messages += session_check.record.messages
                nodes += session_check.nodes
    subjects, wrong, unsettled = await check_spaces(handle)
    findings += [*wrong, *await _orphans(handle, subjects)]
    skipped += unsettled
    return CheckReport(
        tenant=handle.store.tenant,
        sessions=sessions,
        messages=messages,
        nodes=nodes,
        findings=tuple(sorted(set(findings))),
        skipped=tuple(skipped),
    )


async def _check_settled(handle: Handle, session_id: str) -> _SessionCheck | None:
    """Check a session; keep the findings of two readings in a row during which nothing was written.

    Returns None if the session is gone.
    """
    before, last = None, None
    for _ in range(_TRIES):
        record = await handle.store.session(session_id)
        if record is None:
            return None
        last = _SessionCheck(handle, record)
        try:
            await last.run()
        except StoreCorruptError as error:
            # The error names what is damaged and never quotes it.
            last.add([("P1", "the session", f"it cannot be read: {error}")])
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            last.add([("P1", "the session", f"it cannot be read ({type(error).__name__})")])
        if not last.findings:
            return last
        if await handle.store.session(session_id) != record:
            before = None
        elif before is None:
            before = set(last.findings)
        else:
            last.findings = sorted(before & set(last.findings))
            return last
    if last is not None:
        last.findings = []
        last.skipped.append(f"session {session_id!r} was written to all the time: not checked")
    return last


class _SessionCheck:
    """One reading of one session, from its messages up to its summaries, with what it found."""

    def __init__(self, handle: Handle, record: SessionRecord) -> None:
        self.record = record
        self.findings: list[Finding] = []
        self.skipped: list[str] = []
        self.nodes = 0
        self._handle, self._store = handle, handle.store
        self._events: Sequence[LogEvent] = ()
        self._counts = record.counter == handle.counter.name
        self._gone: set[int] = set()
        self._threads: dict[str, array[int]] = {}
        self._nodes: dict[str, Node] = {}
        self._edited: Collection[int] = ()
        if not self._counts:
            self.skipped.append(
                f"session {record.id!r} is counted by {record.counter!r}: no tokens were counted"
            )

    def add(self, faults: Iterable[Fault]) -> None:
        """Add the faults of one check, up to a bound."""
        self.findings += (
            Finding(promise, self.record.id, where, what)
            for promise, where, what in islice(faults, max(_MOST - len(self.findings), 0))
        )

    async def run(self) -> None:
        """Read and check everything of the session."""
        record = self.record
        state = state_from(record.state)
        Build.from_json(record.build)
        if state.closed != record.closed:
            what = f"it is {'' if record.closed else 'not '}closed, and its state says otherwise"
            self.add([("P1", "the session", what)])
        if state.next_index != record.messages:
            what = f"its state is at message {state.next_index} of {record.messages}"
            self.add([("P1", "the session", what)])
        self._events = await self._store.events(record.id)
        self._edited = edits_of(self._events)
        await self._messages()
        await self._shape(state)
        await self._texts()

    # -- messages

    async def _messages(self) -> None:
        record = self.record
        # One more than there should be: a message after the end is as wrong as a missing one.
        for start in range(0, record.messages + 1, _PAGE):
            stop = min(start + _PAGE, record.messages + 1)
            page = await self._store.messages(record.id, start, stop)
            wanted = min(stop, record.messages) - start
            if len(page) != wanted:
                what = f"{len(page)} messages are there, not {wanted}"
                where = f"messages {start} to {start + wanted}"
                self.add([("P1", where, what)])
                if not page:
                    break  # a damaged number may name more messages than could ever be stored
            counted = await in_thread_if_long(partial(self._counted, page), page)
            for offset, (stored, tokens) in enumerate(zip(page, counted, strict=True)):
                # Where some are missing, the others are still checked one by one.
                index = start + offset if len(page) == wanted else stored.index
                self.add(checking.of_message(stored, index=index, tokens=tokens))
                self._threads.setdefault(stored.thread, array("q")).append(stored.index)
                if stored.state != "live":
                    self._gone.add(stored.index)
            await self._keys(page)

    def _counted(self, page: Sequence[StoredMessage]) -> list[int | None]:
        counter = self._handle.counter
        return [
            message_tokens(stored.message, counter)
            if self._counts and stored.state == "live"
            else None
            for stored in page
        ]

    async def _keys(self, page: Sequence[StoredMessage]) -> None:
        """Check the keys of a page, and the earlier versions of edited and erased messages."""
        keys = [stored.key for stored in page if stored.key is not None]

        def ask(snapshot: Snapshot) -> Changes[dict[str, KeyEntry]]:
            return Changes(dict(snapshot.keys))

        entries = await self._store.mutate(self.record.id, ask, keys=keys) if keys else {}
        for stored in page:
            entry = entries.get(stored.key) if stored.key is not None else None
            was_edited = stored.index in self._edited
            faults = list(checking.of_key(stored, entry, ()))
            if faults or was_edited or stored.state == "erased":
                earlier = await self._store.versions(self.record.id, stored.index)
                faults = list(checking.of_key(stored, entry, earlier))
                if was_edited:
                    faults += checking.of_versions(stored, earlier)
            self.add(faults)

    # -- shape

    async def _shape(self, state: SessionState) -> None:
        levels = await self._store.tree(self.record.id).levels()
        windows: list[Node] = []
        for level in sorted({*range(1, len(state.ordinals) + 1), *levels}):
            nodes = await self._store.tree(self.record.id).level(level, 0)
            by_id = {node.id: node for node in nodes}
            # A child may be of any lower level; those are all read by now.
            count = state.next_ordinal(level)
            faults = checking.of_level(level, nodes, self._nodes | by_id, count)
            self.add(faults)
            self._nodes |= by_id
            windows = windows or nodes
        self.nodes = len(self._nodes)
        self.add(checking.of_threads(windows, self._threads, state))
        self.add(checking.of_roots(self._nodes, state))

    # -- texts

    async def _texts(self) -> None:
        """Check each node's text and what it was made from, lowest level first."""
        texts_below: dict[str, Revision] = {}
        count = self._handle.counter.count if self._counts else None
        nodes = iter(list(self._nodes.values()))
        while page := list(islice(nodes, _PAGE)):
            wanted = [(node.id, node.revision) for node in page if node.revision]
            read = await self._store.tree(self.record.id).revisions(wanted)
            texts = {revision.node_id: revision for revision in read}
            for node in page:
                revision = texts.get(node.id)
                self.add(checking.of_revision(node, revision))
                if revision is None:
                    continue
                faults = checking.of_text(revision, count=count, gone=self._gone.__contains__)
                self.add(faults)
                made_from = await self._inputs(node, texts_below, trees.shown_size(revision))
                if made_from is not None:
                    gone = not node.children and any(
                        node.span.start <= index < node.span.stop for index in self._gone
                    )
                    self.add(checking.of_inputs(node, revision, made_from, gone=gone))
                # The levels above need only its hash and size, and whether it is empty.
                texts_below[node.id] = replace(
                    revision, text=revision.text[:1], provenance="", anchors=(), extras={}
                )

    async def _inputs(
        self, node: Node, below: dict[str, Revision], overlap: int
    ) -> list[inputs.Inputs] | None:
        """Read what a node is made from; ``overlap`` is how much preceding text it was shown."""
        if node.children:
            if not all(child in below and child in self._nodes for child in node.children):
                return None
            return [
                inputs.from_children([(self._nodes[each], below[each]) for each in node.children])
            ]
        if not self._counts:
            return None
        span, count = node.span, self._handle.counter.count
        read = await self._store.messages(self.record.id, span.start, span.stop, thread=node.thread)
        before: Sequence[StoredMessage] = ()
        if overlap:
            start = max(0, span.start - trees.OVERLAP_REACH)
            before = await self._store.messages(
                self.record.id, start, span.start + 1, thread=node.thread
            )
        shown = inputs.overlap_before(node, before, overlap)
        # Under a configuration before, a summary may have taken more or less of a tool's result.
        limits = {config_from(self.record.config).tool_result_tokens}
        for event in self._events:
            limits.update(each.tool_result_tokens for each in configs_of(event))
        return [
            inputs.from_messages(span, read, count=count, tool_tokens=most, overlap=shown)
            for most in limits
        ]


async def _orphans(handle: Handle, subjects: Sequence[str]) -> list[Finding]:
    """Find what is stored for sessions that do not exist; ``subjects`` are those of spaces.

    The journal may name a space that was erased, and names no session that was.
    """
    findings: list[Finding] = []
    attempts = await handle.store.attempts(limit=_MANY)
    runs = await handle.store.runs(limit=_MANY)
    erased = {run.subject for run in runs if run.detail.get("kind") == "erase_space"}
    scopes = {tried.session_id: "a journalled call" for tried in attempts if tried.session_id}
    for run in runs:
        if run.kind in ("update", "extraction", "embedding") and run.subject:
            scopes.setdefault(run.subject, "a journalled run")
    scopes = {scope: what for scope, what in scopes.items() if scope not in erased}
    for kind in _SCOPED:
        for record in await handle.store.records(kind, limit=_MANY):
            scopes.setdefault(record.scope, f"a record of kind {kind}")
    # Read last: what began meanwhile has its session.
    existing = {record.id async for record in every_session(handle.store)} | set(subjects)
    for scope, what in scopes.items():
        if scope not in existing:
            findings.append(Finding("P12", scope, what, "there is no such session"))
    return findings
