"""Decides how a note's source messages are recorded, and which notes an erased message leads to.

The author of a note may say which messages it came from. Each such message gets two records under
its session, and none anywhere else: a session's id goes with it. By the kind ``note-source`` an
erasure finds, without reading any space, the notes that may repeat the message; the space's journal
says which files those notes went into. The kind that includes the space's name gives the sources
of its notes.

Nothing here changes a note or a file, which are prose by their own authors. Whatever may repeat an
erased message is named, so that a person can look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hiermem.bank.records import EXPORT, REVISION, SPACE_SCOPE, kind_of, sound_revisions
from hiermem.types.bank import Note
from hiermem.types.transaction import Asking, NeedRecords, Record, RecordWrite

#: The kind of the records that link messages to notes; with a space's name after it, the kind of
#: the links of that space. Their scope is the session.
SOURCE: Final = "note-source"
#: More digits than a message's index has.
_DIGITS: Final = 19


#: The index of a message, and the space and the key of a note that was made from it.
SourceLink: TypeAlias = tuple[int, str, str]


def places_of(link: SourceLink) -> tuple[tuple[str, str], ...]:
    """Return the (kind, key) of the records of a link."""
    index, space, note = link
    key = f"{index}/{note}"
    return (SOURCE, f"{key}/{space}"), (kind_of(SOURCE, space), key)


def writes_of(session_id: str, link: SourceLink) -> tuple[RecordWrite, ...]:
    """Return the writes that record a link under the message's session."""
    return tuple(RecordWrite(kind, session_id, key, "") for kind, key in places_of(link))


def links_in(records: Iterable[Record], indices: Collection[int] | None) -> dict[str, SourceLink]:
    """Return the links of messages, by the keys of their records; None asks for all."""
    links = {record.key: _read(record.key) for record in records}
    return {
        key: link for key, link in links.items() if link and (indices is None or link[0] in indices)
    }


def of_space(space: str, records: Iterable[Record]) -> list[tuple[str, SourceLink]]:
    """Return session and link of the records of one space, by session, then message."""
    links = ((record.scope, _read(f"{record.key}/{space}")) for record in records)
    return sorted((scope, link) for scope, link in links if link is not None)


def with_sources(notes: Iterable[Note], space: str, records: Iterable[Record]) -> list[Note]:
    """Return notes of a space with their source messages, as far as they are not erased."""
    sources: dict[str, list[tuple[str, int]]] = {}
    for session_id, (index, _, note) in of_space(space, records):
        sources.setdefault(note, []).append((session_id, index))
    return [replace(note, sources=tuple(sources.get(note.key, ()))) for note in notes]


def exported(space: str, records: Iterable[Record]) -> tuple[str, ...]:
    """Name the folders that a space was exported to; ``records`` are of kind ``bank-export``."""
    return tuple(f"the export of space {space!r} in {each.key}" for each in records)


def named(links: Collection[SourceLink]) -> Asking[tuple[str, ...]]:
    """Name the notes, the files that took them in, and the folders these were exported to."""
    names: dict[str, None] = {}
    spaces = sorted({space for _, space, _ in links})
    stored: Sequence[Sequence[Record]] = yield tuple(
        (SPACE_SCOPE, NeedRecords(kind_of(kind, space)))
        for space in spaces
        for kind in (REVISION, EXPORT)
    )
    for space, revisions, exports in zip(spaces, stored[::2], stored[1::2], strict=True):
        notes = sorted({note for _, place, note in links if place == space})
        names |= dict.fromkeys(f"note {note} of space {space!r}" for note in notes)
        into = [each for each in sound_revisions(revisions) if not {*each.notes}.isdisjoint(notes)]
        if not into:
            continue
        files = sorted({name for revision in into for name in revision.files})
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
    return int(index), space, note
