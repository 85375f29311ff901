"""Decides what a copy to another store does with a session, and with what belongs to none.

A session is compared by its head, which every change moves except the sticky state of its contexts
and what is derived. What belongs to no session (spaces, and a journal that outlived its session) is
compared row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hiermem.bank.records import META, SEQUENCE, SPACE, subject_of
from hiermem.changes.receipts import STORE_COPY
from hiermem.errors import ConflictError
from hiermem.types import SessionRecord
from hiermem.types.brief import Brief
from hiermem.types.transaction import NO_SESSION, Record, RunRecord, StoredRow
from hiermem.types.tree import Finding

#: What is done with a session of the source.
Step: TypeAlias = Literal["copy", "replace", "keep"]


@dataclass(frozen=True, slots=True)
class Head:
    """What tells a later state of a session from an earlier one.

    ``run`` is its newest run, ``records`` those that are written without a run and leave the record
    of the session as it is.
    """

    record: SessionRecord
    run: RunRecord | None
    records: tuple[Record, ...]


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


def step(source: Head, target: Head | None, *, known: bool, erased: bool) -> Step:
    """Return what is done with a session, by its heads in both stores.

    ``known``: the source has the target's newest run and newest message. ``erased``: the source
    erased a session of that id since the target has it.

    Raises ConflictError where the target's is another session, or was written to.
    """
    if target is None:
        return "copy"
    if target == source:
        return "keep"
    ours, theirs = source.record, target.record
    behind = theirs == ours or theirs.version < ours.version
    if erased or (behind and known and theirs.created_at == ours.created_at):
        return "replace"
    raise differs(ours.id)


def is_removed(target: SessionRecord, erasures: Sequence[RunRecord]) -> bool:
    """Return whether the source erased a session that the target still has.

    Raises ConflictError where the target has messages that were not erased with it.
    """
    if not erasures:
        return False
    last = max(erasures, key=lambda run: run.started_at)
    if target.messages > last.detail.get("length", 0) or target.last_activity > last.started_at:
        raise differs(target.id)
    return True


def differs(session_id: str, *, erased: bool = False) -> ConflictError:
    """Return the error for a copy that would overwrite what is in the target."""
    what = f"session {session_id!r}" if session_id else "what belongs to no session (spaces)"
    why = (
        "was erased in the target; erase it in the source too, or copy other sessions singly"
        if erased
        else "differs in the target; erase it there, or copy to another store"
    )
    return ConflictError(f"{what} {why}", kind="copy", session_id=session_id)


def is_carried(row: StoredRow) -> bool:
    """Return whether a row goes to the target; the record of a copy is about its own store."""
    return not (row["kind"] == "record" and row["value"]["kind"] == STORE_COPY)


def is_of(row: StoredRow, space: str) -> bool:
    """Return whether a row of no session belongs to a space."""
    value = row["value"]
    if row["kind"] == "record" and value["kind"] == SPACE:
        return bool(value["key"] == space)
    kind, owner = value.get("kind", ""), value.get("subject") or value.get("session_id")
    return bool(kind.partition("/")[2] == space or owner == subject_of(space))


def place_of_kind(row: StoredRow) -> int:
    """Return the place of a row among those of no session, which a dump has by their kinds."""
    return ("view", "record", "run", "attempt").index(row["kind"])


def _is_head(row: StoredRow) -> bool:
    """Return whether a row of no session tells a later state of it from an earlier one."""
    if row["kind"] == "record":
        return row["value"]["kind"].partition("/")[0] in (SPACE, SEQUENCE, META)
    return bool(row["kind"] == "run")


def step_without_session(source: Sequence[StoredRow], target: Sequence[StoredRow]) -> Step:
    """Return what is done with what belongs to no session, by its rows in both stores.

    Raises ConflictError where the target has a space, a note, a bank or a run that the source
    never had.
    """
    if source == target:
        return "keep"
    if not target:
        return "copy"
    known: dict[tuple[str, str], int] = {}
    erasures: dict[str, str] = {}
    for row in filter(_is_head, source):
        known[_name(row)] = row["value"].get("version", 0)
        if row["kind"] == "run" and row["value"]["detail"].get("kind") == "erase_space":
            erasures[row["value"]["id"]] = row["value"]["subject"]
    there = list(filter(_is_head, target))
    for row in there:
        if row["kind"] == "run":
            erasures.pop(row["value"]["id"], None)
    gone = set(erasures.values())
    for row in there:
        value = row["value"]
        if _owner(row) not in gone and known.get(_name(row), -1) < value.get("version", 0):
            raise differs(NO_SESSION)
    return "replace"


def _name(row: StoredRow) -> tuple[str, str]:
    value = row["value"]
    return ("run", value["id"]) if row["kind"] == "run" else (value["kind"], value["key"])


def _owner(row: StoredRow) -> str:
    """Return the name in the journal of what a head row belongs to."""
    value = row["value"]
    if row["kind"] == "run":
        return str(value["subject"])
    _, _, space = value["kind"].partition("/")
    return subject_of(space or value["key"])


def is_erasure(run: RunRecord) -> bool:
    """Return whether a run erased its subject as a whole."""
    return run.kind == "erasure" and run.detail.get("kind") == "erase_session"
