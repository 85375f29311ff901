"""Decides what a copy to another store does with a session.

Two stores hold the same of a session where the digests of its rows are equal (``row_digest``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hiermem.core.check import Finding
from hiermem.errors import SessionDiffersError
from hiermem.types.brief import Brief
from hiermem.types.transaction import RestoreState, RunRecord

#: What is done with a session of the source.
Step: TypeAlias = Literal["copy", "replace", "keep"]


@dataclass(frozen=True, slots=True)
class CopyReport(Brief):
    """The progress or the result of a copy to another store.

    ``place`` is where the target is. ``sessions`` are those that the source has, and all of them
    are at the target: ``copied`` ones are new there, ``replaced`` ones had changed in the source
    since an earlier copy, ``unchanged`` ones were there already. ``removed`` were erased in the
    source since an earlier copy, and now in the target. ``messages`` counts those that were
    written. ``changing`` are sessions that were written to as often as they were copied; what is at
    the target is one state of them, and the next copy brings the rest. ``findings`` are those of a
    check of the target.
    """

    place: str
    tenants: int = 0
    sessions: int = 0
    copied: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    messages: int = 0
    changing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the target holds the last state of every session and breaks no promise."""
        return not self.findings and not self.changing


def step(session_id: str, *, source: str, target: str | None, arrived: RestoreState | None) -> Step:
    """Return what is done with a session, by the digests of its content in both stores.

    ``target`` is None where the target does not have it. A session that is at the target as an
    earlier copy left it is replaced by what the source holds now.

    Raises SessionDiffersError where the target's is another one, or was written to since.
    """
    if target is None:
        return "copy"
    if target == source:
        # Nothing may stay of a copy that was cut off, which was of another state.
        return "replace" if arrived is not None and arrived.unfinished else "keep"
    if arrived is None or arrived.digest != target:
        raise SessionDiffersError(session_id)
    return "replace"


def is_erasure(run: RunRecord) -> bool:
    """Return whether a run erased its subject as a whole."""
    return run.kind == "erasure" and run.detail.get("kind") == "erase_session"
