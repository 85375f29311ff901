"""Decides the writes of each change of a space's bank, and with them the life cycle of a note.

========  =============  =========================================  ========================
state     record kinds   what happens                               next state
========  =============  =========================================  ========================
live      note           an answer took it in (``commit``)          consumed
live      note           a request for several of them failed       live; the next request
                         (``failed``)                               takes half as many
live      note           it failed alone, the last of               blocked
                         ``max_failures`` times (``failed``)
live      note           it failed alone (``failed``)               live, one more failure
live      note           it fits no request, even alone             blocked
                         (``set_aside``)
blocked   note, blocked  the caller asks for another try            live, no failures
consumed  consumed       its retention is over (``expired``)        deleted
========  =============  =========================================  ========================

A live note that failed alone also has a record of kind ``blocked``, with the count of its failures
and no reason; the reason is what makes a note blocked.

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
    failures_body,
    kind_of,
    meta_body,
    note_body,
    number_key,
    revision_body,
)
from hiermem.types.bank import BankRevision, Note, RevisionKind
from hiermem.types.transaction import RecordWrite

#: A note limit from which on there is no limit.
_UNBOUND = 10_000


class Change(NamedTuple):
    """A change of a bank: the bank after it, and the writes that make it so."""

    state: BankState
    writes: tuple[RecordWrite, ...]


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """Which model answered, and what the answer cost, repairs included."""

    run_id: str
    model: str
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


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
        if note.failures:
            writes.append(RecordWrite(kind_of(BLOCKED, space), SPACE_SCOPE, note.key, None))
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
) -> Change | None:
    """Put texts into the bank that no model wrote: a load, or a return to revision ``to``.

    ``texts`` are the texts of the files that change, None for a file that is removed. Returns None
    if nothing would change.
    """
    held = state.texts
    changed = {name: text for name, text in texts.items() if held.get(name) != text}
    said = state.synthesis.text if synthesis is None else synthesis
    if not changed and said == state.synthesis.text:
        return None
    revision = BankRevision(state.meta.revision + 1, kind, now, run_id=run_id, to=to)
    return _revise(state, revision, texts=changed, synthesis=said)


def failed(
    state: BankState, notes: Sequence[Note], *, reason: str, max_failures: int
) -> tuple[RecordWrite, ...]:
    """Record that the answers for these notes could not be used.

    After a request for several notes the next one takes half as many. A note that failed alone is
    counted, and blocked with ``reason`` at ``max_failures``.
    """
    space = state.space
    if len(notes) > 1:
        meta = replace(state.meta, batch_notes=len(notes) // 2)
        return (_meta_write(space, meta_body(meta), state.meta_version),)
    (note,) = notes
    count = note.failures + 1
    return (set_aside(space, note, count, reason if count >= max_failures else ""),)


def set_aside(space: str, note: Note, failures: int, reason: str) -> RecordWrite:
    """Return the write that records a note's failures, and why it is blocked ("" if it is not)."""
    body = failures_body(failures, reason=reason)
    return RecordWrite(kind_of(BLOCKED, space), SPACE_SCOPE, note.key, body)


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
