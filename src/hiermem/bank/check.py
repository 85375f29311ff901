"""Decides whether the stored records of a space are consistent.

Whatever can be worked out again is compared and not trusted: the figures with the journal, the
files with the history, the consumed notes with the live ones. A finding names keys and files, and
holds no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hiermem.bank import record as kept
from hiermem.bank.record import JournalEntry
from hiermem.errors import StoreCorruptError
from hiermem.types.transaction import Record

#: The kinds of record that are read beside the figures, in this order: a note that arrives
#: meanwhile is not missed.
KINDS = (
    kept.SEQUENCE, kept.NOTE, kept.BLOCKED, kept.CONSUMED, kept.BANK, kept.SYNTHESIS,
    kept.REVISION, kept.CONSOLIDATION,
)  # fmt: skip


def faults(space: str, header: Record, records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Yield what is wrong; ``records`` are all records of the space, by kind, read in one state."""
    try:
        rules, _ = kept.read_space(header)
        state = kept.read_state(space, rules, records)
        live = kept.live_notes(records[kept.NOTE], records[kept.BLOCKED])
        consumed = kept.consumed_notes(records[kept.CONSUMED])
        revisions = kept.read_revisions(records[kept.REVISION])
        texts = kept.texts_at(records[kept.REVISION], len(revisions))
        arrived = kept.arrivals(next(iter(records[kept.SEQUENCE]), None))
        nowhere = kept.placed_nowhere(records[kept.CONSUMED])
    except StoreCorruptError as error:
        yield str(error)
        return
    journal: list[JournalEntry] = []
    for record in records[kept.CONSOLIDATION]:
        entry = kept.read_journal(record)
        if entry is None:
            yield f"the entry {record.key} of its journal is damaged"
        else:
            journal.append(entry)
    # A consumed note that the journal names may be gone, for its retention may be over.
    entered = Counter(key for entry in journal for key in entry.notes)
    entered.subtract(key for revision in revisions for key in revision.restored)
    entered = +entered
    waiting = {note.key for note in live}
    yield from (f"note {key} went in more than once" for key, count in entered.items() if count > 1)
    yield from (f"note {key} went in and still waits" for key in sorted(waiting & entered.keys()))
    for note in consumed:
        if note.key in waiting or note.key not in entered:
            yield f"note {note.key} is among the consumed and no journal says so"
    found = set(map(kept.arrival_of, {*waiting, *entered, *(note.key for note in consumed)}))
    for number in range(1, arrived + 1):
        if number not in found:
            yield f"note number {number} arrived, and is neither live nor consumed"
    yield from (f"note {key} is among the consumed and went into no file" for key in nowhere)
    meta = state.meta
    said = (meta.consolidations, meta.notes_processed, meta.revision)
    notes = sum(len(entry.notes) for entry in journal)
    notes -= sum(len(revision.restored) for revision in revisions)
    summed = (len(journal), notes, len(revisions))
    if said != summed:
        yield f"its figures say {said}, its records {summed}"
    if [each.number for each in revisions] != list(range(1, len(revisions) + 1)):
        yield "its revisions are not numbered one after another"
    if texts != (state.texts, state.synthesis):
        yield "the files, or the synthesis, are not those that its history gives"
