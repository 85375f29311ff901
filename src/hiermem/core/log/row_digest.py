"""Decides when two stores hold the same of a session: where the digests of its rows are equal.

The rows are those of ``TenantStore.dump``. What belongs to no session (spaces, and a journal that
outlived its session) is dumped like a session whose id is empty; no session has that id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from hiermem.core.log.receipts import STORE_COPY
from hiermem.types.transaction import StoredRow

#: The id that stands for what belongs to no session.
NO_SESSION: Final = ""
#: The rows around the values, and the values that are derived from others.
_NO_CONTENT: Final = frozenset({"dump", "end", "block"})
_encoded: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


class RowDigest:
    """The digest of the rows of a dump, one after the other.

    It is of what they say: equal values have equal digests, from whichever store they come. With
    ``every`` it is of all rows; otherwise of content, without what is derived, and without the
    records of copies, which every store has for itself.
    """

    def __init__(self, *, every: bool = False) -> None:
        self._every = every
        self.value = b""

    def add(self, row: StoredRow, said: bytes | None = None) -> None:
        """Add the next row; ``said`` is what ``row_bytes`` returns for it, where that is known."""
        if self._every or (row["kind"] not in _NO_CONTENT and is_carried(row)):
            self.value = sha256(self.value + (said or row_bytes(row))).digest()

    def add_all(self, rows: Iterable[StoredRow]) -> None:
        """Add the next rows."""
        for row in rows:
            self.add(row)

    @property
    def text(self) -> str:
        """The digest of all rows that were added."""
        return self.value.hex()


def is_carried(row: StoredRow) -> bool:
    """Return whether a row goes to the target; the record of a copy is about its own store."""
    return not (row["kind"] == "record" and row["value"]["kind"] == STORE_COPY)


def row_bytes(row: StoredRow) -> bytes:
    """Return what a row says, the same for equal values."""
    value = row.get("value")
    if isinstance(value, dict) and any(type(held) is float for held in value.values()):
        # A store may keep a whole number as a fraction.
        plain: dict[str, Any] = {key: _number(held) for key, held in value.items()}
        row = {**row, "value": plain}
    return _encoded(row).encode("utf-8", "surrogatepass")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
