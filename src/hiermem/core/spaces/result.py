"""Builds the result of a consolidation: its status, its message, its figures.

Several answers of one run are reported as one change: a file that the first of them made and the
second changed was created.

A result holds counts, names of files and keys of notes. Only the diff and the reasons for which a
model dropped notes hold text, and neither the journal nor the log holds those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hiermem.core.spaces.files import Applied, diff
from hiermem.types.bank import (
    BlockedNote,
    ConsolidationResult,
    ConsolidationStatus,
    DroppedNote,
    FileChange,
    Note,
)
from hiermem.types.frozen import FrozenDict

#: The names of the figures in the result and in the log.
_PUBLISHED = (
    "notes_processed", "notes_remaining", "bank_files_updated", "bank_files_created",
    "bank_files_unchanged", "synthesis_size", "llm_tokens_used", "llm_prompt_tokens",
    "llm_completion_tokens", "duration_seconds",
)  # fmt: skip


@dataclass(slots=True)
class ConsolidationTally:
    """The running totals of a run.

    ``before`` and ``after`` are the texts of the files when the run began and now. ``stopped`` says
    why it ended before all its notes were consumed, "" if it did not.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    synthesis: str = ""
    revision: int = 0
    taken: list[Applied] = field(default_factory=list[Applied])
    unplaced: tuple[Note, ...] = ()
    blocked: list[BlockedNote] = field(default_factory=list[BlockedNote])
    stopped: str = ""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def processed(self) -> int:
        """Return how many notes were consumed."""
        return sum(len(each.consumed) for each in self.taken)


def result_of(
    space: str,
    tally: ConsolidationTally,
    *,
    remaining: int,
    seconds: float,
    dry_run: bool,
    run_id: str,
) -> ConsolidationResult:
    """Return the result of a run; ``remaining`` notes are live and wait for the next."""
    created = tuple(sorted(tally.after.keys() - tally.before.keys()))
    updated = tuple(
        sorted(
            name
            for name in tally.after.keys() & tally.before.keys()
            if tally.after[name] != tally.before[name]
        )
    )
    unchanged = tuple(sorted(tally.after.keys() - {*created, *updated}))
    failed = [each for applied in tally.taken for each in applied.failed]
    status = _status(tally, failed)
    numbers = (
        tally.processed, remaining, len(updated), len(created), len(unchanged),
        len(tally.synthesis), tally.tokens_in + tally.tokens_out, tally.tokens_in,
        tally.tokens_out, round(seconds, 3),
    )  # fmt: skip
    return ConsolidationResult(
        space,
        status,
        _message(tally, status, failed, remaining, dry_run=dry_run),
        notes_processed=tally.processed,
        notes_remaining=remaining,
        files_created=created,
        files_updated=updated,
        files_unchanged=unchanged,
        lines_removed=sum(each.lines_removed for each in tally.taken),
        changes=tuple(_changes(tally, created, updated)),
        dropped=tuple(
            DroppedNote(note.key, note.agent, note.dropped_for)
            for applied in tally.taken
            for note in applied.dropped
        ),
        unplaced=tuple(note.key for note in tally.unplaced),
        blocked=tuple(tally.blocked),
        failed=tuple(failed),
        revision=tally.revision,
        dry_run=dry_run,
        run_id=run_id,
        metrics=FrozenDict(zip(_PUBLISHED, numbers, strict=True)),
    )


def idle(
    space: str, tally: ConsolidationTally, *, blocked: int, dry_run: bool
) -> ConsolidationResult:
    """Return the result when no note is waiting; ``blocked`` notes are blocked."""
    result = _nothing(space, tally, remaining=0, dry_run=dry_run)
    aside = f"; {_count(blocked, 'note')} set aside" if blocked else ""
    return _with(result, "nothing_to_do", f"No new notes to consolidate{aside}")


def busy(space: str, tally: ConsolidationTally, *, remaining: int) -> ConsolidationResult:
    """Return the result when another run is consolidating the space."""
    result = _nothing(space, tally, remaining=remaining, dry_run=False)
    return _with(result, "busy", "Another run is writing this bank; nothing was done")


def detail(result: ConsolidationResult, *, model: str, unknown: int) -> dict[str, Any]:
    """Return the detail of the run's journal record."""
    return {
        "model": model,
        "status": result.status,
        "message": result.message,
        "revision": result.revision,
        "files_created": list(result.files_created),
        "files_updated": list(result.files_updated),
        "lines_removed": result.lines_removed,
        "dropped": [each.note for each in result.dropped],
        "unplaced": list(result.unplaced),
        "blocked": [each.key for each in result.blocked],
        "failed": list(result.failed),
        "dry_run": result.dry_run,
        "unknown": unknown,
        **result.metrics,
    }


def log_line(result: ConsolidationResult) -> str:
    """Return the line that is logged: the status and the published figures.

    >>> log_line(ConsolidationResult("x", "ok", "", metrics={"notes_processed": 2}))
    "space 'x': ok, notes_processed=2"
    """
    figures = [f"{name}={value}" for name, value in result.metrics.items()]
    return ", ".join([f"space {result.space!r}: {result.status}", *figures])


def _nothing(
    space: str, tally: ConsolidationTally, *, remaining: int, dry_run: bool
) -> ConsolidationResult:
    return result_of(space, tally, remaining=remaining, seconds=0.0, dry_run=dry_run, run_id="")


def _with(
    result: ConsolidationResult, status: ConsolidationStatus, message: str
) -> ConsolidationResult:
    return replace(result, status=status, message=message)


def _status(tally: ConsolidationTally, failed: Sequence[str]) -> Literal["ok", "partial", "error"]:
    if not (failed or tally.stopped or tally.blocked or tally.unplaced):
        return "ok"
    return "partial" if tally.processed else "error"


def _message(
    tally: ConsolidationTally, status: str, failed: Sequence[str], remaining: int, *, dry_run: bool
) -> str:
    """Say in one sentence what was done, and what was not and why."""
    done = "would be consolidated" if dry_run else "consolidated"
    parts = [f"{_count(tally.processed, 'note')} {done}"]
    if dropped := sum(len(each.dropped) for each in tally.taken):
        parts.append(f"{dropped} dropped of these")
    if remaining:
        parts.append(f"{remaining} remain live")
    if tally.unplaced:
        parts.append(f"{len(tally.unplaced)} unplaced by the model")
    if tally.blocked:
        parts.append(f"{len(tally.blocked)} set aside")
    if tally.stopped:
        parts.append(f"stopped: {tally.stopped}")
    elif failed and status != "ok":
        parts.append(f"not taken: {'; '.join(failed)}")
    return "; ".join(parts)


def _changes(
    tally: ConsolidationTally, created: Sequence[str], updated: Sequence[str]
) -> list[FileChange]:
    removed: dict[str, int] = {}
    for applied in tally.taken:
        for each in applied.changes:
            removed[each.name] = removed.get(each.name, 0) + each.lines_removed
    return [
        FileChange(
            name,
            "created" if name in created else "updated",
            removed.get(name, 0),
            diff(name, tally.before.get(name, ""), tally.after[name]),
        )
        for name in sorted((*created, *updated))
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
