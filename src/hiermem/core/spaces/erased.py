"""Decides what a run still journals after its space was erased.

A space that was erased and opened again is another space, even under the same name; the two are
told apart by their headers. For an erased space no file name and no note key is written down any
more, only that a run took place, when, and with which model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hiermem.core.spaces.record import SPACE, SPACE_SCOPE
from hiermem.types.transaction import Batch, Deciding, NeedRecords, Record, RunRecord

#: Why a run of an erased space ended.
ERASED: Final = "the space was erased; nothing of it was kept"


def ended(header: Record | None, run: RunRecord) -> Deciding[None]:
    """Journal the end of a run, in the transaction that checks that its space still exists.

    ``header`` is the space's header as the run found it.
    """
    headers: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(SPACE)
    if header is None or header in headers:
        return Batch(None, runs=(run,))
    bare = {"model": run.detail.get("model", ""), "reason": ERASED}
    return Batch(None, runs=(replace(run, detail=bare),))
