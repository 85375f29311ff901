"""Decides how edits, erasures and copies of the whole store are reported and recorded.

A receipt says what was done, what is still to be done and what could not be proven. It names
messages by index and summaries by id, and holds no text. An erasure does not reach a copy, so its
receipt has to name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from hiermem.types import transaction
from hiermem.types.brief import Brief, FrozenDict

ReceiptKind: TypeAlias = Literal[
    "erase", "quarantine", "erase_session", "erase_space", "erase_tenant"
]
#: "all": sessions that share a message lose it too; "keep": they keep it, and are named.
ForkHandling: TypeAlias = Literal["all", "keep"]


@dataclass(frozen=True, slots=True)
class EditReport(Brief):
    """The result of an edit.

    ``version`` is the number of earlier versions that are kept of the message. ``dirty`` are the
    summaries of the old text.
    """

    session_id: str
    index: int
    version: int = 0
    dirty: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt(Brief):
    """The result of an erasure or a quarantine.

    ``indices`` are the requested messages of ``session_id``, ``already`` those among them that had
    been erased or quarantined before. ``forks_reached`` are the other sessions that lost the shared
    messages, ``kept_in`` those that still hold them. ``removed`` counts what is gone: ``sessions``,
    ``messages``, ``versions``, ``summaries``, ``views``, ``records``, ``backups``; and for an
    erased ``space`` also ``spaces``, ``notes``, ``files``, ``revisions``. ``to_remake`` lists by
    session the ids of the summaries over the messages; the next update makes them from what is
    left.

    ``unproven`` names what could not be shown to be clean. These are messages, as ``<session
    id>:message:<index>``, that contain rendered memory and may quote erased text; notes that named
    an erased message as a source, the files and the history of the bank that took those notes in,
    and the folders to which the session's space was exported. A message belongs to its author and
    stays until it is erased itself. Apart from these, nothing made from the messages is left.
    Messages and notes that repeat them in other words are not looked for.

    ``copies`` are the backups of the store that were made with ``memory.backup``, and the stores to
    which, or from which, ``memory.copy_to`` copied. The erasure does not reach them; delete those
    that hold what was erased, or erase there too.

    ``scrubbed`` says whether the store's bytes are clean too, ``scrub_reason`` why not yet;
    ``memory.scrub()`` tries again. ``run_id`` is the id of the run, "" if nothing had to be done.
    """

    kind: ReceiptKind
    session_id: str | None
    indices: tuple[int, ...] = ()
    already: tuple[int, ...] = ()
    forks_reached: tuple[str, ...] = ()
    kept_in: tuple[str, ...] = ()
    removed: Mapping[str, int] = field(default_factory=FrozenDict[str, int])
    to_remake: Mapping[str, tuple[str, ...]] = field(
        default_factory=FrozenDict[str, tuple[str, ...]]
    )
    unproven: tuple[str, ...] = ()
    copies: tuple[StoreCopy, ...] = ()
    scrubbed: bool = False
    scrub_reason: str = ""
    run_id: str = ""
    space: str | None = None


#: The kind of the records, and their scope, which no session can have.
STORE_COPY: Final = "store-copy"
_SCOPE: Final = ""


@dataclass(frozen=True, slots=True)
class StoreCopy(Brief):
    """A copy of the whole store: the place it was written to, and when."""

    place: str
    made_at: datetime


def record_copy(copy: StoreCopy) -> transaction.RecordWrite:
    """Return the write that records a copy; a later copy at the same place takes it over."""
    key = sha256(copy.place.encode("utf-8")).hexdigest()
    body = json.dumps({"place": copy.place, "made_at": copy.made_at.isoformat()})
    return transaction.RecordWrite(STORE_COPY, _SCOPE, key, body)


def read_copies(records: list[transaction.Record]) -> tuple[StoreCopy, ...]:
    """Return the recorded copies, oldest first; a damaged record still says that there is one."""
    found = [_read_copy(each.body) for each in records]
    return tuple(sorted(found, key=lambda copy: (copy.made_at.timestamp(), copy.place)))


def _read_copy(body: str) -> StoreCopy:
    try:
        value = json.loads(body)
        made_at = datetime.fromisoformat(value["made_at"])
        return StoreCopy(str(value["place"]), made_at.astimezone())
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return StoreCopy("an unknown place", datetime.fromtimestamp(0).astimezone())
