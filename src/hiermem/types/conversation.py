"""A conversation that was read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hiermem.types.message import Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of an export: the messages of a session, each with a key.

    A branch holds its own messages only: ``parent`` is the id of the conversation that it leaves,
    and ``after`` the key of the message there that it follows (None: it has its own beginning).
    ``branching`` says that the format keeps branches, so that a message which a session does not
    hold belongs after its predecessor. Either all messages have a time or none has. ``notes``
    counts what was assumed or left out as known, ``unread`` what is damaged or was not understood;
    each of these names the first place.
    """

    id: str
    title: str | None
    messages: tuple[Message, ...]
    format: str = field(kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    after: str | None = field(default=None, kw_only=True)
    branching: bool = field(default=False, kw_only=True)
    notes: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    unread: Mapping[str, int] = field(default_factory=dict, kw_only=True)
