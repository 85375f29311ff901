"""Decides how a tenant's records name the copies of the whole store.

An erasure does not reach a copy, so its receipt has to name it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from hiermem.types.brief import Brief
from hiermem.types.transaction import Record, RecordWrite

#: The kind of the records, and their scope, which no session can have.
KIND: Final = "store-copy"
_SCOPE: Final = ""


@dataclass(frozen=True, slots=True)
class StoreCopy(Brief):
    """A copy of the whole store: the place it was written to, and when."""

    place: str
    made_at: datetime


def key_of(place: str) -> str:
    """Return the key of the record of a copy; a later copy at the same place takes it over."""
    return sha256(place.encode("utf-8")).hexdigest()


def record(copy: StoreCopy) -> RecordWrite:
    """Return the write that records a copy."""
    body = json.dumps({"place": copy.place, "made_at": copy.made_at.isoformat()})
    return RecordWrite(KIND, _SCOPE, key_of(copy.place), body)


def withdrawal(copy: StoreCopy, before: Record | None) -> RecordWrite:
    """Return the write that takes ``record`` back, after a copy that failed."""
    body = None if before is None else before.body
    return RecordWrite(KIND, _SCOPE, key_of(copy.place), body)


def read(records: list[Record]) -> tuple[StoreCopy, ...]:
    """Return the recorded copies, oldest first; a damaged record still says that there is one."""
    found = [_read(each.body) for each in records]
    return tuple(sorted(found, key=lambda copy: (copy.made_at.timestamp(), copy.place)))


def _read(body: str) -> StoreCopy:
    try:
        value = json.loads(body)
        made_at = datetime.fromisoformat(value["made_at"])
        return StoreCopy(str(value["place"]), made_at.astimezone())
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return StoreCopy("an unknown place", datetime.fromtimestamp(0).astimezone())
