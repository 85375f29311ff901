"""Decides what an erasure of a whole space takes away.

Everything of a space is records, so all of them go, with its journal and with what the messages
that its notes came from say of those notes. The one rule: nothing of it has to be readable to be
erased, and where it cannot be told whose a thing is, it goes: a session may bear the very name
under which the space is journalled, and loses its journal then, and nothing else.

What was written into folders is out of reach; the receipt names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from hiermem.core.log.receipts import Receipt
from hiermem.core.spaces import record as kept
from hiermem.core.spaces.record import SPACE_SCOPE, kind_of
from hiermem.core.spaces.sources import SOURCE, exported, of_space
from hiermem.errors import NotFoundError
from hiermem.types.transaction import Batch, Deciding, NeedRecords, Record, RunRecord

#: What the records of some kinds are counted as; a note is live or consumed, never both.
_COUNTED: Final = {
    kept.NOTE: "notes",
    kept.CONSUMED: "notes",
    kept.BANK: "files",
    kept.REVISION: "revisions",
}


def erase_space(space: str, *, subject: str, now: datetime, run_id: str) -> Deciding[Receipt]:
    """Erase a space with all that is kept of it; ``subject`` is what it is journalled under.

    Whatever is at work on it meanwhile finds another header than it began with, or none, and can
    write nothing more.

    Raises NotFoundError.
    """
    headers: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(kept.SPACE)
    if all(each.key != space for each in headers):
        raise NotFoundError(f"space {space!r} does not exist")
    going = [(kept.SPACE, SPACE_SCOPE, space)]
    removed = {"spaces": 1}
    folders: tuple[str, ...] = ()
    for kind in kept.KINDS:
        found: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(kind_of(kind, space))
        going += [(each.kind, each.scope, each.key) for each in found]
        _count(removed, _COUNTED.get(kind, "records"), len(found))
        if kind == kept.EXPORT:
            folders = exported(space, found)
    sources: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(SOURCE, everywhere=True)
    traces = of_space(space, sources)
    going += [(each.kind, each.scope, each.key) for each in traces]
    _count(removed, "records", len(traces))
    receipt = Receipt(
        "erase_space", None, removed=removed, unproven=folders, run_id=run_id, space=space
    )
    detail = {"kind": receipt.kind, "removed": dict(removed)}
    run = RunRecord(run_id, "erasure", subject, now, now, "ok", detail)
    return Batch(receipt, runs=(run,), drop_records=tuple(going), drop_journals=(subject,))


def _count(removed: dict[str, int], what: str, number: int) -> None:
    if number:
        removed[what] = removed.get(what, 0) + number
