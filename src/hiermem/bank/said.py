"""Decides what the messages of a space's conversations say that it may learn, and what it learnt.

In a space that learns, a message with words of somebody's own is a live note, by reference: its
text is read from the message and stored nowhere else. Its key tells session, index and version of
the message, so rebuilds, forks and second imports teach nothing twice.

| kind | scope | key | body |
|---|---|---|---|
| ``learnt`` | the session | index of the message | the note's key, the revision and the files |
| ``learnt-through`` | the session | | the first message that is not learnt yet, and the epoch |

Both include the space's name. They go with their session, and say nothing of what a message said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from hiermem.bank.records import kind_of, read_body
from hiermem.text.measure import body, speaker
from hiermem.text.terms import FIRST_PERSON, words
from hiermem.text.wishes import listed, own_words, speaks_as
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.bank import Note
from hiermem.types.transaction import Record, RecordWrite

LEARNT: Final = "learnt"
THROUGH: Final = "learnt-through"
#: The category of notes in which somebody else than the space's person speaks.
OTHERS: Final = "another person"
#: A space is due at so many tokens of words that it did not learn, and so long after the last word.
_DUE_TOKENS: Final = 20_000
_DUE_AFTER: Final = timedelta(days=1)
#: A message of no more characters is shown with the end of what it answers.
_SHORT: Final = 60
_CONTEXT: Final = 200
_MARK: Final = 20
_ASKS: Final = frozenset("?\uff1f\u061f")
_FIGURE_OR_NAME: Final = re.compile(r"\d|[a-z] [A-Z]")


def key_of(identity: str, session_id: str, stored: StoredMessage) -> str:
    """Return the key of the note that a message is, in the space of this ``identity``.

    It sorts by time, then index. It tells nothing of the session to whom has no guess.
    """
    named = "\0".join((identity, session_id, str(stored.index), stored.hash))
    mark = sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    time = stored.created_at.astimezone(UTC).isoformat(timespec="microseconds")
    return f"{time.removesuffix('+00:00')}Z:{stored.index:010d}-{mark}"


def is_said(note: Note) -> bool:
    """Return whether a note is a message of a conversation."""
    return "Z:" in note.key


def note_of(
    identity: str, session_id: str, stored: StoredMessage, before: StoredMessage | None, person: str
) -> Note | None:
    """Return the note that a message is; None if nobody says anything of his own in it.

    ``before`` is the message before it, which is shown with a short one.
    """
    if stored.role != "user" or stored.state != "live":
        return None
    # Who answers another person asks about no text.
    among_people = bool(stored.message.name) and before is not None and before.role == "user"
    text = own_words(stored.message, stored.echoes, among_people=among_people)
    said_before = body(before.message) if before is not None and before.state == "live" else ""
    is_answer = not _ASKS.isdisjoint(said_before)
    if not any(map(str.isalnum, text)) or (among_people and not is_answer and _is_cheer(text)):
        return None
    # What another person asked is a note of its own.
    is_short = is_answer and not among_people and len(text) <= _SHORT
    is_own = speaks_as(stored.message, person)
    return Note(
        key_of(identity, session_id, stored),
        text,
        stored.created_at,
        agent=(person if is_own else "") or speaker(stored.message),
        category="" if is_own else OTHERS,
        sources=((session_id, stored.index),),
        context=" ".join(said_before.split())[-_CONTEXT:] if is_short else "",
    )


def _is_cheer(text: str) -> bool:
    """Return whether a text is about who is spoken to, and nothing in it about who speaks.

    >>> [_is_cheer(text) for text in ("Lucky you! How was it?", "Took your advice, I left.")]
    [True, False]
    """
    spoken = set(words(text))
    is_about_self = not FIRST_PERSON.isdisjoint(spoken) or _FIGURE_OR_NAME.search(text)
    return not is_about_self and not listed("listener").isdisjoint(spoken)


def is_due(notes: Sequence[Note], tokens: int, now: datetime) -> bool:
    """Return whether so many tokens of live notes, or their age, make a space due."""
    waiting = [note.timestamp for note in notes if note.state == "live"]
    return bool(waiting) and (tokens >= _DUE_TOKENS or now - max(waiting) >= _DUE_AFTER)


def learnt_note(record: Record) -> Note:
    """Return a message that was learnt, without its text. Raises StoreCorruptError."""

    def read(value: dict[str, Any]) -> Note:
        return Note(
            str(value["note"]),
            "",
            datetime.fromisoformat(value["note"].partition("Z:")[0]).replace(tzinfo=UTC),
            sources=((record.scope, int(record.key)),),
            state="consumed",
            consolidation=int(value["number"]),
            files=tuple(map(str, value["files"])),
            dropped_for=str(value["dropped"]),
        )

    return read_body(record, read)


def learn(space: str, note: Note, number: int) -> RecordWrite:
    """Return the write that records that revision ``number`` took a message in."""
    value = {"note": note.key, "number": number, "files": note.files, "dropped": note.dropped_for}
    return _write(space, note, json.dumps(value))


def unlearn(space: str, notes: Iterable[Note]) -> list[RecordWrite]:
    """Return the writes after which messages are live notes again; each session is read anew."""
    notes = list(notes)
    sessions = dict.fromkeys(session_id for note in notes for session_id, _ in note.sources)
    kind = kind_of(THROUGH, space)
    again = [RecordWrite(kind, session_id, "", None) for session_id in sessions]
    return again + [_write(space, note, None) for note in notes]


def _write(space: str, note: Note, value: str | None) -> RecordWrite:
    ((session_id, index),) = note.sources
    return RecordWrite(kind_of(LEARNT, space), session_id, f"{index:019d}", value)


def read_through(record: Record, session: SessionRecord) -> int:
    """Return the first message that may not be learnt; 0 if something was taken back since."""
    index, _, epoch = record.body.partition(" ")
    return int(index) if index.isdecimal() and epoch == str(session.epoch) else 0


def progress(
    space: str, sessions: Iterable[SessionRecord], waiting: Iterable[Note]
) -> list[RecordWrite]:
    """Return the writes that record how far sessions are learnt, save the ``waiting`` messages."""
    first: dict[str, int] = {}
    for note in waiting:
        ((session_id, index),) = note.sources
        first[session_id] = min(index, first.get(session_id, index))
    kind = kind_of(THROUGH, space)
    return [
        RecordWrite(
            kind, session.id, "", f"{first.get(session.id, session.messages)} {session.epoch}"
        )
        for session in sessions
    ]
