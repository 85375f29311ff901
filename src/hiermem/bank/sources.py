"""Records which messages the notes of a space were made from, and finds those notes again.

The author of a note may say which messages it came from. Each such message gets a record under its
session. An erasure then finds, without reading any space, the notes that may repeat what was said;
the space's journal says which files those notes went into.

Nothing here changes a note or a file, which are prose by their own authors. Whatever may repeat an
erased message is named, so that a person can look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hiermem.bank.record import CONSOLIDATION, EXPORT, SPACE_SCOPE, kind_of, read_journal
from hiermem.types.transaction import Asking, NeedRecords, Record, RecordWrite

#: The kind of record that says which note was made from a message; its scope is the session.
SOURCE: Final = "note-source"
#: More digits than a message's index has.
_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class SourceLink:
    """The link from one message to a note that was made from it."""

    index: int
    space: str
    note: str


def write_of(session_id: str, link: SourceLink) -> RecordWrite:
    """Return the write that records a link under the message's session."""
    return RecordWrite(SOURCE, session_id, f"{link.index}/{link.note}/{link.space}", "")


def links_in(records: Iterable[Record], indices: Collection[int] | None) -> dict[str, SourceLink]:
    """Return the links of messages (of all, if None is given) by the keys of their records."""
    found: dict[str, SourceLink] = {}
    for record in records:
        link = _read(record.key)
        if link is not None and (indices is None or link.index in indices):
            found[record.key] = link
    return found


def of_space(space: str, records: Iterable[Record]) -> list[Record]:
    """Return those records that link a message to notes of this space."""
    return [
        record
        for record in records
        if (link := _read(record.key)) is not None and link.space == space
    ]


def exported(space: str, records: Iterable[Record]) -> tuple[str, ...]:
    """Name the folders that a space was exported to; ``records`` are of kind ``bank-export``."""
    return tuple(f"the export of space {space!r} in {each.key}" for each in records)


def named(links: Collection[SourceLink]) -> Asking[tuple[str, ...]]:
    """Name the notes, the files that took them in, and the folders these were exported to."""
    names: dict[str, None] = {}
    spaces = sorted({link.space for link in links})
    stored: Sequence[Sequence[Record]] = yield tuple(
        (SPACE_SCOPE, NeedRecords(kind_of(kind, space)))
        for space in spaces
        for kind in (CONSOLIDATION, EXPORT)
    )
    for space, journal, exports in zip(spaces, stored[::2], stored[1::2], strict=True):
        notes = sorted({link.note for link in links if link.space == space})
        names |= dict.fromkeys(f"note {note} of space {space!r}" for note in notes)
        entries = [found for record in journal if (found := read_journal(record)) is not None]
        into = [entry for entry in entries if not {*entry.notes}.isdisjoint(notes)]
        if not into:
            continue
        files = sorted({name for entry in into for name in (*entry.created, *entry.updated)})
        names |= dict.fromkeys(f"file {name} of space {space!r}" for name in files)
        names[f"the synthesis and the history of space {space!r}"] = None
        names |= dict.fromkeys(exported(space, exports))
    return tuple(names)


def _read(key: str) -> SourceLink | None:
    """Read the key of a link: message, note and space, whose name may contain any character."""
    index, _, rest = key.partition("/")
    note, mark, space = rest.partition("/")
    if not mark or not index.isdecimal() or len(index) >= _DIGITS:
        return None
    return SourceLink(int(index), space, note)
