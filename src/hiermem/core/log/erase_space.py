"""Decides what an erasure of a whole space takes away.

A space consists of records, so all of its records go: its content, its journal, and the records
under messages that name its notes. Nothing has to be readable to be erased. Where the owner of an
entry cannot be decided, the entry goes: a session may have the very name under which the space is
journalled, and then loses its journal and nothing else.

Files that were exported into folders are out of reach; the receipt names the folders.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final

from hiermem.core.log.receipts import Receipt
from hiermem.core.spaces import record as kept
from hiermem.core.spaces.record import SPACE_SCOPE, kind_of
from hiermem.core.spaces.sources import SOURCE, exported, of_space
from hiermem.errors import NotFoundError
from hiermem.types.transaction import Batch, Deciding, NeedRecords, RunRecord

#: The name in the receipt for the records of each kind; a note is live or consumed, never both.
_COUNTED: Final = {
    kept.NOTE: "notes",
    kept.CONSUMED: "notes",
    kept.BANK: "files",
    kept.REVISION: "revisions",
}


def erase_space(space: str, *, subject: str, now: datetime, run_id: str) -> Deciding[Receipt]:
    """Erase a space with everything stored of it; ``subject`` is its name in the journal.

    A run that is working on the space meanwhile finds another header than it began with, or none,
    and can write nothing more.

    Raises NotFoundError.
    """
    needs = [NeedRecords(kept.SPACE), NeedRecords(SOURCE, everywhere=True)]
    needs += [NeedRecords(kind_of(kind, space)) for kind in kept.KINDS]
    headers, sources, *stored = yield tuple((SPACE_SCOPE, need) for need in needs)
    if all(each.key != space for each in headers):
        raise NotFoundError(f"space {space!r} does not exist")
    going = [(kept.SPACE, SPACE_SCOPE, space)]
    removed = Counter(spaces=1)
    folders: tuple[str, ...] = ()
    for kind, found in zip(kept.KINDS, stored, strict=True):
        going += [(each.kind, each.scope, each.key) for each in found]
        removed[_COUNTED.get(kind, "records")] += len(found)
        if kind == kept.EXPORT:
            folders = exported(space, found)
    traces = of_space(space, sources)
    going += [(each.kind, each.scope, each.key) for each in traces]
    removed["records"] += len(traces)
    counts = dict(+removed)
    receipt = Receipt(
        "erase_space", None, removed=counts, unproven=folders, run_id=run_id, space=space
    )
    detail = {"kind": receipt.kind, "removed": dict(counts)}
    run = RunRecord(run_id, "erasure", subject, now, now, "ok", detail)
    return Batch(receipt, runs=(run,), drop_records=tuple(going), drop_journals=(subject,))
