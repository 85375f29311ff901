"""The journal entry of a space for one committed answer.

An entry holds ids, names of files and counts, and no text of a note, a file or a model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from hiermem.types.transaction import Record


@dataclass(frozen=True, slots=True)
class Journal:
    """What one committed answer of a model took in, cost and changed."""

    number: int
    run_id: str
    at: datetime
    notes: tuple[str, ...]
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    model: str = ""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


def write_journal(entry: Journal) -> str:
    """Write a journal entry as a record's body."""
    value = {name: getattr(entry, name) for name in Journal.__slots__}
    return json.dumps(value | {"at": entry.at.astimezone(UTC).isoformat()})


def read_journal(record: Record) -> Journal | None:
    """Read a journal entry; None if the record is damaged."""
    try:
        value = json.loads(record.body)
        notes, created, updated = (
            tuple(map(str, value[name])) for name in ("notes", "created", "updated")
        )
        return Journal(
            number=int(value["number"]),
            run_id=str(value["run_id"]),
            at=datetime.fromisoformat(value["at"]),
            notes=notes,
            created=created,
            updated=updated,
            model=str(value["model"]),
            calls=int(value["calls"]),
            tokens_in=int(value["tokens_in"]),
            tokens_out=int(value["tokens_out"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
