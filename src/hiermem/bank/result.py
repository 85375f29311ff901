"""Decides what a consolidation reports: its status, message, figures and journal entry.

Several answers of one run are reported as one change: a file that the first answer made and the
second changed was created.

A result holds counts, names of files and keys of notes. Only the diff and a model's reasons for
dropping notes hold text, and neither the journal nor the log holds those.

A space that was erased and opened again is another space, even under the same name; their headers
differ. Of an erased space only a run, its time and its model are journalled, and no file name or
note key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hiermem.bank.files import Applied, diff
from hiermem.bank.records import SPACE, SPACE_SCOPE, BankState
from hiermem.types import bank
from hiermem.types.brief import FrozenDict
from hiermem.types.transaction import NO_COST, Batch, Cost, Deciding, NeedRecords, Record, RunRecord

#: Why a run of an erased space ended.
ERASED: Final = "the space was erased; nothing of it was kept"

#: The names of the figures in the result and in the log.
_PUBLISHED = (
    "notes_processed", "notes_remaining", "bank_files_updated", "bank_files_created",
    "bank_files_unchanged", "synthesis_size", "llm_tokens_used", "llm_prompt_tokens",
    "llm_completion_tokens", "duration_seconds",
)  # fmt: skip


@dataclass(slots=True)
class ConsolidationTally:
    """The running totals of a run.

    ``before`` and ``state`` are the bank when the run began and now. ``stopped`` says why the run
    ended before all its notes were consumed, "" if it did not.
    """

    before: BankState
    state: BankState
    taken: list[Applied] = field(default_factory=list[Applied])
    unplaced: tuple[bank.Note, ...] = ()
    blocked: list[bank.BlockedNote] = field(default_factory=list[bank.BlockedNote])
    stopped: str = ""
    spent: Cost = NO_COST

    @property
    def processed(self) -> int:
        """Return how many notes were consumed."""
        return sum(len(applied.consumed) for applied in self.taken)


def result_of(
    tally: ConsolidationTally,
    *,
    remaining: int,
    dry_run: bool,
    seconds: float = 0.0,
    run_id: str = "",
) -> bank.ConsolidationResult:
    """Return the result of a run; ``remaining`` notes are live and wait for the next."""
    before, after = tally.before.texts, tally.state.texts
    created = tuple(sorted(after.keys() - before.keys()))
    updated = tuple(
        sorted(name for name in after.keys() & before.keys() if after[name] != before[name])
    )
    unchanged = tuple(sorted(after.keys() - {*created, *updated}))
    removed = Counter[str]()
    for applied in tally.taken:
        removed.update(applied.removed)
    failed = [reason for applied in tally.taken for reason in applied.failed]
    status: bank.ConsolidationStatus = "ok"
    if failed or tally.stopped or tally.blocked or tally.unplaced:
        status = "partial" if tally.processed else "error"
    numbers = (
        tally.processed, remaining, len(updated), len(created), len(unchanged),
        len(tally.state.synthesis), tally.spent.tokens, tally.spent.tokens_in,
        tally.spent.tokens_out, round(seconds, 3),
    )  # fmt: skip
    return bank.ConsolidationResult(
        tally.state.space,
        status,
        _message(tally, status, failed, remaining, dry_run=dry_run),
        notes_processed=tally.processed,
        notes_remaining=remaining,
        files_created=created,
        files_updated=updated,
        files_unchanged=unchanged,
        lines_removed=removed.total(),
        changes=tuple(
            bank.FileChange(
                name,
                "created" if name in created else "updated",
                removed[name],
                diff(name, before.get(name, ""), after[name]),
            )
            for name in sorted((*created, *updated))
        ),
        dropped=tuple(
            bank.DroppedNote(note.key, note.agent, note.dropped_for)
            for applied in tally.taken
            for note in applied.dropped
        ),
        unplaced=tuple(note.key for note in tally.unplaced),
        blocked=tuple(tally.blocked),
        failed=tuple(failed),
        revision=tally.state.meta.revision,
        dry_run=dry_run,
        run_id=run_id,
        spent=tally.spent,
        metrics=FrozenDict(zip(_PUBLISHED, numbers, strict=True)),
    )


def without_work(
    tally: ConsolidationTally, status: bank.ConsolidationStatus, message: str, remaining: int = 0
) -> bank.ConsolidationResult:
    """Return the result of a run that asked no model."""
    return replace(
        result_of(tally, remaining=remaining, dry_run=False), status=status, message=message
    )


def detail(result: bank.ConsolidationResult, *, model: str, unknown: int) -> dict[str, Any]:
    """Return the detail of the run's journal record."""
    names = ("status", "message", "revision", "lines_removed", "dry_run")
    lists = ("files_created", "files_updated", "unplaced", "failed")
    return {
        "model": model,
        **{name: getattr(result, name) for name in names},
        **{name: list(getattr(result, name)) for name in lists},
        "dropped": [dropped.note for dropped in result.dropped],
        "blocked": [blocked.key for blocked in result.blocked],
        "unknown": unknown,
        **result.metrics,
    }


def log_line(result: bank.ConsolidationResult) -> str:
    """Return the line that is logged: the status and the published figures.

    >>> log_line(bank.ConsolidationResult("x", "ok", "", metrics={"notes_processed": 2}))
    "space 'x': ok, notes_processed=2"
    """
    figures = [f"{name}={value}" for name, value in result.metrics.items()]
    return ", ".join([f"space {result.space!r}: {result.status}", *figures])


def end_of_run(header: Record | None, run: RunRecord) -> Deciding[None]:
    """Journal the end of a run, in the transaction that checks that its space still exists.

    ``header`` is the space's header when the run began.
    """
    headers: Sequence[Record] = yield SPACE_SCOPE, NeedRecords(SPACE)
    if header is None or header in headers:
        return Batch(None, runs=(run,))
    bare = {"model": run.detail.get("model", ""), "reason": ERASED}
    return Batch(None, runs=(replace(run, detail=bare),))


def _message(
    tally: ConsolidationTally, status: str, failed: Sequence[str], remaining: int, *, dry_run: bool
) -> str:
    """Return one sentence about what was done, what was not, and why."""
    done = "would be consolidated" if dry_run else "consolidated"
    parts = [f"{_count(tally.processed, 'note')} {done}"]
    if dropped := sum(len(applied.dropped) for applied in tally.taken):
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
