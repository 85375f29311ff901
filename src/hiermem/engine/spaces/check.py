"""Reads everything that is stored of a tenant's spaces and checks it.

Nothing is written. ``core.spaces.check`` decides what is wrong. Of a space that is being written,
only what was read in one state of it is reported.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hiermem.config import BankPolicy
from hiermem.core.check import Finding
from hiermem.core.spaces.check import KINDS, faults
from hiermem.core.spaces.record import subject_of
from hiermem.engine.handle import Handle
from hiermem.engine.spaces.records import SpaceContext
from hiermem.engine.spaces.space import spaces

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
        if header is None:
            continue
        for _ in range(_AGAIN):
            if (found := await space.settled(KINDS)) is not None:
                break
        if found is None:
            skipped.append(f"space {name!r} was written to all the time: it was not compared")
            continue
        wrong = await asyncio.to_thread(list, faults(name, header, found))
        findings += [Finding("bank", subject_of(name), "the space", what) for what in wrong]
    return subjects, findings, skipped
