"""Decides the writes of each change of a bank, and with them the life cycle of a note.

========  =============  =========================================  ========================
state     record kinds   event                                      next state
========  =============  =========================================  ========================
live      note           an answer took it in, or dropped it with   consumed
                         a reason (``commit``)
live      note           an answer left it out (``commit``)         live, left out once more
live      note           a request for several of them failed       live; the next request
                         (``failed``)                               takes half as many
live      note           it failed alone, the last of               blocked
                         three times (``failed``)
live      note           it failed alone (``failed``)               live; one more failure if
                                                                    others succeed
live      note           it fits no request, even alone             blocked
                         (``set_aside``)
blocked   note, blocked  the caller asks for another try            live, no failures
consumed  consumed       a rollback restores it (``put``)           live
consumed  consumed       its retention is over (``expired``)        deleted
learnt    learnt         a line that came from it lost another      live
                         source (``forget_lines``)
========  =============  =========================================  ========================

A message of a conversation is a note by reference (``said``): while it is live, nothing is stored.

A live note that was left out or failed alone also has a record of kind ``blocked``, with the counts
of both and no reason; the reason is what makes a note blocked.

A lone failure counts only while the same model takes in other notes: its last answer was committed,
and no other note failed alone since. Otherwise the model may be at fault.

One change is one tuple of writes, which the store applies together or not at all. Each write names
the version that it expects, the figures' version included, so of two changes worked out from one
state the second writes nothing. A consumed note leaves the live list in the
same change that adds its texts and its revision: at no moment is a note in both
or in neither.

Notes are asked about oldest first (``in_order``). A note that answers left out, or that failed
alone, waits behind all others, so that it holds up none of them; the least often left out come
first. They never share a request with others, which they could make fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Final, TypeAlias

from hiermem.bank import lines, records, said
from hiermem.bank.files import Applied
from hiermem.bank.records import BankState, write_of
from hiermem.types.bank import BankRevision, BlockedNote, Note, RevisionKind, Source
from hiermem.types.transaction import Record, RecordWrite

#: How often a note is left out before it waits behind the others.
LEFT_OUT: Final = 2
#: How often a note may fail alone.
_MOST_FAILURES: Final = 3
#: From this many notes on, a halved limit is lifted.
_UNBOUND = 10_000
#: A change of a bank: the bank after it, and the writes that make it so.
Change: TypeAlias = tuple[BankState, tuple[RecordWrite, ...]]


def waits_behind(note: Note) -> bool:
    """Return whether a note waits behind those that were never left out, or once."""
    return note.unplaced >= LEFT_OUT


def in_order(notes: Iterable[Note]) -> list[Note]:
    """Return notes in the order in which they are asked about."""
    return sorted(notes, key=lambda note: (note.unplaced if waits_behind(note) else 0, note.key))


def leading(notes: Sequence[Note]) -> Sequence[Note]:
    """Return the first notes that may share a request; one that waits behind others is alone."""
    return list(takewhile(lambda note: not waits_behind(note), notes)) or notes[:1]


def commit(
    state: BankState, applied: Applied, *, now: datetime, run_id: str, model: str, llm: str = ""
) -> Change:
    """Return the change that adds an answer to the bank, with its notes and figures.

    ``model`` is the name in the answer, ``llm`` that of the configured model. A message that is
    left out too often is set aside.
    """
    meta, space, consumed = state.meta, state.space, applied.consumed
    number, most = meta.revision + 1, meta.batch_notes
    if most is not None and not applied.failed:
        # A halved limit is doubled again, then lifted.
        most = most * 2 if most < _UNBOUND else None
    meta = replace(
        meta,
        last_consolidation=now,
        consolidations=meta.consolidations + 1,
        notes_processed=meta.notes_processed + len(consumed),
        batch_notes=most,
        model=llm,
        failed_alone="",
    )
    keys = tuple(note.key for note in consumed)
    after, revised = _revise(
        replace(state, meta=meta, origins={**state.origins, **applied.origins}),
        BankRevision(number, "consolidation", now, run_id=run_id, model=model, notes=keys),
        texts=applied.texts,
        synthesis=applied.synthesis,
    )
    writes = [records.origin_write(space, *each) for each in applied.origins.items()]
    for note in consumed:
        if note.failures or note.unplaced:
            writes.append(write_of(records.BLOCKED, space, note.key))
        if said.is_said(note):
            writes.append(said.learn(space, note, number))
            continue
        body = records.note_body(replace(note, state="consumed", consolidation=number))
        writes += (
            write_of(records.NOTE, space, note.key, expected=1),
            write_of(records.CONSUMED, space, note.key, body, expected=0),
        )
    writes += _left_out(space, applied.unplaced)
    return after, (*revised, *writes)


def put(
    state: BankState,
    texts: Mapping[str, str | None],
    *,
    kind: RevisionKind,
    now: datetime,
    synthesis: str | None = None,
    to: int | None = None,
    restored: Sequence[Note] = (),
) -> Change:
    """Return the change that puts texts of no model into the bank: a load, or a rollback ``to``.

    ``texts`` are the texts of the files that change, None for a file that is removed; ``restored``
    are consumed notes that become live again. There are no writes if nothing would change.
    """
    changed = {name: text for name, text in texts.items() if state.texts.get(name) != text}
    new_synthesis = state.synthesis if synthesis is None else synthesis
    if not changed and new_synthesis == state.synthesis and not restored:
        return state, ()
    space, meta = state.space, state.meta
    keys = tuple(note.key for note in restored)
    revision = BankRevision(meta.revision + 1, kind, now, to=to, restored=keys)
    meta = replace(meta, notes_processed=meta.notes_processed - len(keys))
    after, revised = _revise(
        replace(state, meta=meta), revision, texts=changed, synthesis=new_synthesis
    )
    writes = [*revised, *said.unlearn(space, filter(said.is_said, restored))]
    for note in restored:
        if said.is_said(note):
            continue
        live = replace(note, state="live", consolidation=None, files=(), dropped_for="")
        writes += (
            write_of(records.CONSUMED, space, note.key, expected=1),
            write_of(records.NOTE, space, note.key, records.note_body(live), expected=0),
        )
    return after, tuple(writes)


def forget_lines(
    state: BankState,
    gone: Collection[str],
    *,
    heirs: Mapping[Source, Source],
    learnt: Iterable[Note],
    revisions: Iterable[Record],
    now: datetime,
) -> tuple[RecordWrite, ...]:
    """Return the writes that remove lines, by their ids, from the bank and from each revision.

    Every synthesis goes. Messages that the lines came from are live again, and so are those that
    were dropped, as they may say what a line said. ``heirs`` are the messages that take the place
    of others as sources.
    """
    space, by_key = state.space, {note.key: note for note in learnt}
    keys = {key for line in gone for _, _, key in state.origins[line].sources}
    restored = [note for key, note in by_key.items() if key in keys or (gone and note.dropped_for)]
    _, revised = put(
        state,
        {name: lines.without(text, gone) for name, text in state.texts.items()},
        kind="erasure",
        now=now,
        synthesis="" if gone else state.synthesis,
        restored=restored,
    )
    writes = [*revised, *(records.origin_write(space, line, None) for line in sorted(gone))]
    for record in revisions if gone else ():
        body = records.without_lines(record, lambda text: lines.without(text, gone), "")
        if body is not None:
            expected = record.version
            writes.append(write_of(records.REVISION, space, record.key, body, expected=expected))
    for line, origin in state.origins.items():
        sources = tuple(heirs.get(source, source) for source in origin.sources)
        if line not in gone and sources != origin.sources:
            writes.append(records.origin_write(space, line, replace(origin, sources=sources)))
    for (_, _, key), (session_id, index, own) in heirs.items():
        before = by_key.get(key) or Note(key, "", now)
        heir = replace(before, key=own, sources=((session_id, index),))
        writes.append(said.learn(space, heir, before.consolidation or state.meta.revision))
    return tuple(writes)


def failed(
    state: BankState, notes: Sequence[Note], *, llm: str
) -> tuple[BlockedNote | None, tuple[RecordWrite, ...]]:
    """Return the writes for notes whose answers were all refused, and the note that they block.

    After a request for several notes the next one takes half as many. A note that failed alone
    waits behind the others. Its failure counts while the model ``llm`` takes in others, and at
    three failures it is blocked.
    """
    space, meta = state.space, state.meta
    if len(notes) > 1:
        meta = replace(meta, batch_notes=len(notes) // 2)
        return None, (_meta_write(replace(state, meta=meta)),)
    (note,) = notes
    first = meta.failed_alone in ("", note.key)
    count = note.failures + (first and meta.model == llm)
    note = replace(note, unplaced=max(LEFT_OUT, note.unplaced + 1), failures=count)
    meta = replace(meta, failed_alone=note.key, model=meta.model if first else "")
    figures = _meta_write(replace(state, meta=meta))
    if count >= _MOST_FAILURES:
        blocked = BlockedNote(note.key, note.agent, "failed")
        return blocked, (set_aside(space, note, "failed"), figures)
    return None, (_trouble(space, note), figures)


def set_aside(space: str, note: Note, reason: str) -> RecordWrite:
    """Return the write that blocks a note for a reason."""
    return _trouble(space, replace(note, state="blocked", blocked_for=reason))


def expired(
    space: str, consumed: Iterable[Note], *, revised_at: Mapping[int, datetime], before: datetime
) -> tuple[RecordWrite, ...]:
    """Return the writes that delete the notes consumed ``before`` a time.

    ``revised_at`` is the time of each revision.
    """
    return tuple(
        write_of(records.CONSUMED, space, note.key)
        for note in consumed
        if note.consolidation is not None
        and (when := revised_at.get(note.consolidation)) is not None
        and when < before
    )


def _revise(
    state: BankState, revision: BankRevision, *, texts: Mapping[str, str | None], synthesis: str
) -> Change:
    """Return the writes of texts, synthesis, revision and figures, and the state after them."""
    space, files, versions = state.space, {**state.texts}, {**state.versions}
    writes: list[RecordWrite] = []
    kinds: dict[str, str] = {}
    for name, text in sorted(texts.items()):
        version = versions.pop(name, 0)
        files.pop(name, None)
        writes.append(write_of(records.BANK, space, name, text, expected=version))
        kinds[name] = "removed" if text is None else "updated" if version else "created"
        if text is not None:
            files[name], versions[name] = text, version + 1
    version = state.synthesis_version
    if synthesis != state.synthesis or not version:
        writes.append(write_of(records.SYNTHESIS, space, body=synthesis, expected=version))
        version += 1
    body = records.revision_body(replace(revision, files=kinds), texts=texts, synthesis=synthesis)
    state = replace(state, meta=replace(state.meta, revision=revision.number))
    writes += (
        write_of(records.REVISION, space, records.number_key(revision.number), body, expected=0),
        _meta_write(state),
    )
    after = replace(
        state,
        meta_version=state.meta_version + 1,
        texts=dict(sorted(files.items())),
        versions=versions,
        synthesis=synthesis,
        synthesis_version=version,
    )
    return after, tuple(writes)


def _left_out(space: str, notes: Sequence[Note]) -> list[RecordWrite]:
    """Return the writes that count one more answer without these notes; messages are set aside."""
    after = [replace(note, unplaced=note.unplaced + 1) for note in notes]
    return [
        set_aside(space, note, "failed")
        if said.is_said(note) and note.unplaced >= _MOST_FAILURES
        else _trouble(space, note)
        for note in after
    ]


def _trouble(space: str, note: Note) -> RecordWrite:
    return write_of(records.BLOCKED, space, note.key, records.trouble_body(note))


def _meta_write(state: BankState) -> RecordWrite:
    return write_of(
        records.META, state.space, body=records.meta_body(state.meta), expected=state.meta_version
    )
