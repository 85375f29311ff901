"""Decides the writes of each change of a space's bank, and with them the life cycle of a note.

========  =============  =========================================  ========================
state     record kinds   what happens                               next state
========  =============  =========================================  ========================
live      note           an answer took it in, or dropped it with   consumed
                         a reason (``commit``)
live      note           an answer left it out (``commit``,         live, left out once more
                         ``failed``)
live      note           a request for several of them failed       live; the next request
                         (``failed``)                               takes half as many
live      note           it failed alone, the last of               blocked
                         ``max_failures`` times (``failed``)
live      note           it failed alone (``failed``)               live; one more failure if
                                                                    others succeed
live      note           it fits no request, even alone             blocked
                         (``set_aside``)
blocked   note, blocked  the caller asks for another try            live, no failures
consumed  consumed       a rollback restores it (``put``)           live
consumed  consumed       its retention is over (``expired``)        deleted
========  =============  =========================================  ========================

A live note that was left out or failed alone also has a record of kind ``blocked``, with the counts
of both and no reason; the reason is what makes a note blocked.

A lone failure counts only while the same model takes in other notes: its last answer was committed,
and no other note failed alone since. Otherwise the fault may be the model's.

One change is one tuple of writes, which the store applies together or not at all. Each write names
the version that it was worked out from, including that of the space's figures, so of two changes
worked out from one state the second writes nothing. A consumed note leaves the live list in the
same change that adds its texts, its revision and its journal entry: at no moment is a note in both
or in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from hiermem.core.spaces.answer_record import Journal, write_journal
from hiermem.core.spaces.files import Applied
from hiermem.core.spaces.queue import LEFT_OUT, waits_behind
from hiermem.core.spaces.record import (
    BANK,
    BLOCKED,
    CONSOLIDATION,
    CONSUMED,
    META,
    NOTE,
    REVISION,
    SPACE_SCOPE,
    SYNTHESIS,
    BankState,
    StoredText,
    kind_of,
    meta_body,
    note_body,
    number_key,
    revision_body,
    trouble_body,
)
from hiermem.types.bank import BankRevision, BlockedNote, Note, RevisionKind
from hiermem.types.transaction import RecordWrite

#: A note limit from which on there is no limit.
_UNBOUND = 10_000


class Change(NamedTuple):
    """A change of a bank: the bank after it, and the writes that make it so."""

    state: BankState
    writes: tuple[RecordWrite, ...]


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """Which model answered, and what the answer cost, repairs included.

    ``model`` is the name that the answer bears, ``llm`` that of the model as it was configured.
    """

    run_id: str
    model: str
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    llm: str = ""


def commit(state: BankState, applied: Applied, *, usage: AnswerUsage, now: datetime) -> Change:
    """Make an answer part of the bank: texts, synthesis, notes, revision, journal, figures."""
    meta = state.meta
    number = meta.revision + 1
    consumed = applied.consumed
    meta = replace(
        meta,
        last_consolidation=now,
        consolidations=meta.consolidations + 1,
        notes_processed=meta.notes_processed + len(consumed),
        batch_notes=_grown(meta.batch_notes, applied),
        model=usage.llm,
        failed_alone="",
    )
    revision = BankRevision(
        number,
        "consolidation",
        now,
        run_id=usage.run_id,
        model=usage.model,
        notes=tuple(note.key for note in consumed),
    )
    journal = Journal(
        meta.consolidations,
        usage.run_id,
        now,
        notes=revision.notes,
        created=applied.created,
        updated=applied.updated,
        model=usage.model,
        calls=usage.calls,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
    )
    change = _revise(
        replace(state, meta=meta), revision, texts=applied.texts, synthesis=applied.synthesis
    )
    space = state.space
    writes = [
        RecordWrite(
            kind_of(CONSOLIDATION, space), SPACE_SCOPE, number_key(journal.number),
            write_journal(journal), expected=0,
        )
    ]  # fmt: skip
    for note in consumed:
        body = note_body(replace(note, state="consumed", consolidation=number))
        writes += (
            RecordWrite(kind_of(NOTE, space), SPACE_SCOPE, note.key, None, expected=1),
            RecordWrite(kind_of(CONSUMED, space), SPACE_SCOPE, note.key, body, expected=0),
        )
        if note.failures or note.unplaced:
            writes.append(RecordWrite(kind_of(BLOCKED, space), SPACE_SCOPE, note.key, None))
    writes += _left_out(space, applied.unplaced)
    return Change(change.state, (*change.writes, *writes))


def put(
    state: BankState,
    texts: Mapping[str, str | None],
    *,
    kind: RevisionKind,
    now: datetime,
    run_id: str = "",
    synthesis: str | None = None,
    to: int | None = None,
    restored: Sequence[Note] = (),
) -> Change | None:
    """Put texts into the bank that no model wrote: a load, or a return to revision ``to``.

    ``texts`` are the texts of the files that change, None for a file that is removed; ``restored``
    are consumed notes that become live again. Returns None if nothing would change.
    """
    held = state.texts
    changed = {name: text for name, text in texts.items() if held.get(name) != text}
    said = state.synthesis.text if synthesis is None else synthesis
    if not changed and said == state.synthesis.text and not restored:
        return None
    space, meta = state.space, state.meta
    keys = tuple(note.key for note in restored)
    revision = BankRevision(meta.revision + 1, kind, now, run_id=run_id, to=to, restored=keys)
    meta = replace(meta, notes_processed=meta.notes_processed - len(keys))
    change = _revise(replace(state, meta=meta), revision, texts=changed, synthesis=said)
    writes = list(change.writes)
    for note in restored:
        live = replace(note, state="live", consolidation=None, files=(), dropped_for="")
        writes += (
            RecordWrite(kind_of(CONSUMED, space), SPACE_SCOPE, note.key, None, expected=1),
            RecordWrite(kind_of(NOTE, space), SPACE_SCOPE, note.key, note_body(live), expected=0),
        )
    return Change(change.state, tuple(writes))


def failed(
    state: BankState,
    notes: Sequence[Note],
    *,
    llm: str,
    max_failures: int,
    unplaced: Sequence[Note] = (),
) -> tuple[BlockedNote | None, tuple[RecordWrite, ...]]:
    """Return the writes for notes of which no answer could be used, and the note that they block.

    After a request for several notes the next one takes half as many. A note that failed alone
    waits behind the others. Its failure counts while the model ``llm`` takes in others, and at
    ``max_failures`` it is blocked. ``unplaced`` are notes that an answer left out.
    """
    space, meta = state.space, state.meta
    if len(notes) > 1:
        writes = _left_out(space, unplaced)
        if not waits_behind(notes[0]):
            meta = replace(meta, batch_notes=len(notes) // 2)
            writes.append(_meta_write(space, meta_body(meta), state.meta_version))
        return None, tuple(writes)
    (note,) = notes
    first = meta.failed_alone in ("", note.key)
    count = note.failures + (first and meta.model == llm)
    note = replace(note, unplaced=max(LEFT_OUT, note.unplaced + 1), failures=count)
    meta = replace(meta, failed_alone=note.key, model=meta.model if first else "")
    figures = _meta_write(space, meta_body(meta), state.meta_version)
    if count >= max_failures:
        blocked = BlockedNote(note.key, note.agent, "failed")
        return blocked, (set_aside(space, note, "failed"), figures)
    return None, (_trouble(space, note), figures)


def set_aside(space: str, note: Note, reason: str) -> RecordWrite:
    """Return the write that blocks a note for a reason."""
    return _trouble(space, replace(note, state="blocked", blocked_for=reason))


def _trouble(space: str, note: Note) -> RecordWrite:
    return RecordWrite(kind_of(BLOCKED, space), SPACE_SCOPE, note.key, trouble_body(note))


def _left_out(space: str, notes: Sequence[Note]) -> list[RecordWrite]:
    """Return the writes that count once more that an answer left these notes out."""
    return [_trouble(space, replace(note, unplaced=note.unplaced + 1)) for note in notes]


def expired(
    space: str, consumed: Iterable[Note], *, at: Mapping[int, datetime], before: datetime
) -> tuple[RecordWrite, ...]:
    """Return the writes that delete notes which were consumed before that time.

    ``at`` is the time of each revision.
    """
    return tuple(
        RecordWrite(kind_of(CONSUMED, space), SPACE_SCOPE, note.key, None)
        for note in consumed
        if note.consolidation is not None
        and (when := at.get(note.consolidation)) is not None
        and when < before
    )


def _grown(most: int | None, applied: Applied) -> int | None:
    """Return the note limit of the next request: a halved limit is doubled again, then lifted."""
    if most is None or applied.failed:
        return most
    return most * 2 if most < _UNBOUND else None


def _meta_write(space: str, body: str, version: int) -> RecordWrite:
    return RecordWrite(kind_of(META, space), SPACE_SCOPE, "", body, expected=version)


def _revise(
    state: BankState, revision: BankRevision, *, texts: Mapping[str, str | None], synthesis: str
) -> Change:
    """Return the writes of texts, synthesis, revision and figures, and the state after them."""
    space, held = state.space, dict(state.files)
    writes: list[RecordWrite] = []
    kinds: dict[str, str] = {}
    for name, text in sorted(texts.items()):
        version = held[name].version if name in held else 0
        writes.append(RecordWrite(kind_of(BANK, space), SPACE_SCOPE, name, text, expected=version))
        kinds[name] = "removed" if text is None else "updated" if version else "created"
        if text is None:
            held.pop(name, None)
        else:
            held[name] = StoredText(text, version + 1)
    said = state.synthesis
    if synthesis != said.text or not said.version:
        writes.append(
            RecordWrite(
                kind_of(SYNTHESIS, space), SPACE_SCOPE, "", synthesis, expected=said.version
            )
        )
        said = StoredText(synthesis, said.version + 1)
    revision = replace(revision, files=kinds)
    meta = replace(state.meta, revision=revision.number)
    writes += (
        RecordWrite(
            kind_of(REVISION, space), SPACE_SCOPE, number_key(revision.number),
            revision_body(revision, texts=texts, synthesis=synthesis), expected=0,
        ),
        _meta_write(space, meta_body(meta), state.meta_version),
    )  # fmt: skip
    after = replace(
        state, meta=meta, meta_version=state.meta_version + 1, files=held, synthesis=said
    )
    return Change(after, tuple(writes))
