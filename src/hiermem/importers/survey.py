"""Counts what a file holds, without keeping it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from hiermem.types.message import Conversation


@dataclass(frozen=True, slots=True)
class Survey:
    """The contents of a file, as they would be imported.

    ``speakers`` counts messages by name, or by role where there is no name. ``undated`` is the
    number of conversations and branches without times. ``notes`` counts what was assumed or left
    out as known, ``unread`` what is damaged or was not understood.
    """

    formats: tuple[str, ...]
    conversations: int
    branches: int
    messages: int
    speakers: Mapping[str, int]
    since: datetime | None
    until: datetime | None
    undated: int
    notes: Mapping[str, int]
    unread: Mapping[str, int]


def survey(conversations: Iterable[Conversation]) -> Survey:
    """Return what conversations hold; each is let go of before the next is read."""
    formats = dict[str, None]()
    speakers, notes, unread = Counter[str](), Counter[str](), Counter[str]()
    count = branches = messages = undated = 0
    ends: list[datetime] = []
    for conversation in conversations:
        formats[conversation.format] = None
        branches += conversation.parent is not None
        count += conversation.parent is None
        messages += len(conversation.messages)
        undated += all(message.created_at is None for message in conversation.messages)
        notes.update(conversation.notes)
        unread.update(conversation.unread)
        speakers.update(message.name or message.role for message in conversation.messages)
        times = [at for message in conversation.messages if (at := message.created_at) is not None]
        ends = [min(ends + times), max(ends + times)] if times else ends
    since, until = ends or (None, None)
    spoke = dict(speakers.most_common())
    assumed, missed = dict(notes), dict(unread)
    return Survey(
        tuple(formats), count, branches, messages, spoke, since, until, undated, assumed, missed
    )
