"""What edits and erasures tell of themselves.

The one rule: a receipt says what was done, what is still to be done and what could not be proven;
it names messages by index and summaries by id, and holds no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

ReceiptKind: TypeAlias = Literal[
    "erase", "quarantine", "erase_session", "erase_space", "erase_tenant"
]
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EditReport:
    """What an edit changed.

    ``version`` is the number of earlier versions that are kept of the message. ``stale`` are the
    summaries whose text is of what stood there before, ``dirty`` those among them that the next
    update makes anew. ``split`` are the parts of groups that the edit made too large.
    """

    session_id: str
    index: int
    version: int = 0
    stale: tuple[str, ...] = ()
    dirty: tuple[str, ...] = ()
    split: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure or a quarantine did.

    ``indices`` are the messages of ``session_id`` that it was asked for, ``already`` those among
    them that were so before. ``forks_reached`` are the other sessions in which the shared messages
    went too; ``kept_in`` those that hold them still. ``removed`` counts what is gone: ``sessions``,
    ``messages``, ``versions``, ``summaries``, ``views``, ``records``, ``backups``; of ``space``,
    where that was erased, also ``spaces``, ``notes``, ``files``, ``revisions``. ``to_remake``
    gives by session the ids of the summaries over the messages, which the next update makes from
    what is left.

    ``unproven`` names what could not be shown to be clean: the messages, as
    ``<session id>:message:<index>``, that hold rendered memory which came back with them and may
    quote what went; notes that named it as a source, the files and the history of the bank they
    went into, the folders that these were exported to. A message is its author's, and stays until
    it is erased like one. Apart from these, nothing that was made from it is left; messages and
    notes that say it again in their own words are not looked for. ``scrubbed`` says whether the
    store's bytes are clean too, ``scrub_reason`` why not yet; ``memory.scrub()`` tries again.
    ``run_id`` is the run's, "" where nothing had to be done.
    """

    kind: ReceiptKind
    session_id: str | None
    indices: tuple[int, ...] = ()
    already: tuple[int, ...] = ()
    forks_reached: tuple[str, ...] = ()
    kept_in: tuple[str, ...] = ()
    removed: Mapping[str, int] = field(default_factory=lambda: _NONE)
    to_remake: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType(dict[str, tuple[str, ...]]())
    )
    unproven: tuple[str, ...] = ()
    scrubbed: bool = False
    scrub_reason: str = ""
    run_id: str = ""
    space: str | None = None
