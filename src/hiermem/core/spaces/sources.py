"""Decides where notes of a space leave traces of the messages they were made from.

Whoever writes a note may say which messages it came from. Each such message has a record under its
session, so that an erasure finds, without looking through any space, which notes may repeat what
was said; the journal of the space says which files those notes went into.

The one rule: nothing here changes a note or a file, which are prose by their own authors. What may
hold a trace is named, so that a person can look.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hiermem.core.spaces.answer_record import read_journal
from hiermem.core.spaces.record import CONSOLIDATION, EXPORT, SHELF, kind_of
from hiermem.types.transaction import Need, NeedRecords, Record, RecordWrite

#: The kind of record that says which note was made from a message; its scope is the session.
SOURCE: Final = "note-source"
#: More digits than a message's index has.
_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class Trace:
    """One message that a note was made from."""

    index: int
    space: str
    note: str


def write_of(session_id: str, trace: Trace) -> RecordWrite:
    """Give the write by which a trace is put on record under the message's session."""
    return RecordWrite(SOURCE, session_id, f"{trace.index}/{trace.note}/{trace.space}", "")


def found_in(records: Iterable[Record], indices: Collection[int] | None) -> dict[str, Trace]:
    """Give the traces of messages, of all where None is given, by the keys of their records."""
    found: dict[str, Trace] = {}
    for record in records:
        trace = _read(record.key)
        if trace is not None and (indices is None or trace.index in indices):
            found[record.key] = trace
    return found


def of_space(space: str, records: Iterable[Record]) -> list[Record]:
    """Give those of the records that say which notes of this space came from a message."""
    return [
        record
        for record in records
        if (trace := _read(record.key)) is not None and trace.space == space
    ]


def exported(space: str, records: Iterable[Record]) -> tuple[str, ...]:
    """Name the folders that a space was exported to; ``records`` are of the kind for that."""
    return tuple(f"the export of space {space!r} in {each.key}" for each in records)


def named(traces: Collection[Trace]) -> Generator[tuple[str, Need], Any, tuple[str, ...]]:
    """Name the notes, the files that they went into, and the folders these were exported to."""
    told: dict[str, None] = {}
    for space in sorted({trace.space for trace in traces}):
        notes = sorted({trace.note for trace in traces if trace.space == space})
        told |= dict.fromkeys(f"note {note} of space {space!r}" for note in notes)
        journal: Sequence[Record] = yield SHELF, NeedRecords(kind_of(CONSOLIDATION, space))
        entries = [found for record in journal if (found := read_journal(record)) is not None]
        into = [entry for entry in entries if not {*entry.notes}.isdisjoint(notes)]
        if not into:
            continue
        files = sorted({name for entry in into for name in (*entry.created, *entry.updated)})
        told |= dict.fromkeys(f"file {name} of space {space!r}" for name in files)
        told[f"the synthesis and the history of space {space!r}"] = None
        exports: Sequence[Record] = yield SHELF, NeedRecords(kind_of(EXPORT, space))
        told |= dict.fromkeys(exported(space, exports))
    return tuple(told)


def _read(key: str) -> Trace | None:
    """Read the key of a source: the message, the note, the space, whose name may hold any mark."""
    index, _, rest = key.partition("/")
    note, mark, space = rest.partition("/")
    if not mark or not index.isdecimal() or len(index) >= _DIGITS:
        return None
    return Trace(int(index), space, note)
