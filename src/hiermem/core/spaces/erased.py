"""Decides what a run of a space still journals after the space was erased under it.

A space that is erased and opened anew is another one, whatever its name; the two are told apart by
their headers. The one rule: of the first no name of a file and no key of a note is written down any
more, only that a run was there, when, and with what model.
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
    """Journal how a run ended, in the same moment in which its space is seen to stand.

    ``header`` is that of the space as the run found it.
    """
    headers: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(SPACE)
    if header is None or header in headers:
        return Batch(None, runs=(run,))
    bare = {"model": run.detail.get("model", ""), "reason": ERASED}
    return Batch(None, runs=(replace(run, detail=bare),))
