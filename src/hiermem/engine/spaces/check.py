"""Reads everything that is stored of a tenant's spaces and checks it.

Nothing is written. ``core.spaces.check`` decides what is wrong. Of a space that is being written,
only what was read in one state of it is reported.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hiermem.config import BankPolicy
from hiermem.core.check import Finding
from hiermem.core.spaces import record as bank_record
from hiermem.core.spaces.check import KINDS, faults
from hiermem.core.spaces.record import subject_of
from hiermem.engine.handle import Handle
from hiermem.engine.spaces.records import SpaceContext
from hiermem.engine.spaces.space import spaces
from hiermem.types.transaction import Record

#: How often a space is read again where it was written to meanwhile.
_AGAIN: Final = 4


async def check_spaces(handle: Handle) -> tuple[list[str], list[Finding], list[str]]:
    """Check each space; return their subjects, the findings, and what could not be compared."""
    subjects: list[str] = []
    findings: list[Finding] = []
    skipped: list[str] = []
    for name in await spaces(handle):
        subjects.append(subject_of(name))
        space = SpaceContext(handle, name, None, BankPolicy())
        header = await space.current_header()
        found = await _settled(space)
        if header is None:
            continue
        if found is None:
            skipped.append(f"space {name!r} was written to all the time: it was not compared")
            continue
        wrong = await asyncio.to_thread(list, faults(name, header, found))
        findings += [Finding("bank", subject_of(name), "the space", what) for what in wrong]
    return subjects, findings, skipped


async def _settled(space: SpaceContext) -> dict[str, list[Record]] | None:
    """Read all records of a space in one state of its bank; None where it kept changing."""
    for _ in range(_AGAIN):
        before = await space.one(bank_record.META)
        found = {kind: await space.of_kind(kind) for kind in KINDS}
        if found[bank_record.META] == ([before] if before else []) and before == await space.one(
            bank_record.META
        ):
            return found
    return None
