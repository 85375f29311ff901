"""Decides how the journal of a run reads: its outcome, its items, the calls for each.

A run whose heartbeat stopped without an end was interrupted. Every reader sees it so, and its
unfinished calls are unknown, not failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from hiermem.calls.claim import is_believed
from hiermem.types import transaction
from hiermem.types.transaction import NO_COST, Cost

#: The state of one item: made, being made, failed, or unknown.
ItemState = Literal["ok", "running", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunItem(Cost):
    """One summary, chunk or batch that a run called a model for.

    ``reasons`` says, in order, why each unsuccessful call failed. ``seconds`` is what they took
    together.
    """

    id: str
    session_id: str
    state: ItemState
    reasons: tuple[str, ...]
    seconds: float
    model: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunReport(Cost):
    """A journalled run with the items it called a model for; ``record`` holds the run as a whole.

    What was made without a call (copied verbatim, reused) is counted in ``record.detail`` only.
    """

    record: transaction.RunRecord
    items: tuple[RunItem, ...] = ()

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def kind(self) -> str:
        """The kind of run: update, extraction, erasure, …."""
        return self.record.kind

    @property
    def outcome(self) -> str:
        """How it ended; "running" while it lasts, "interrupted" where it was cut off."""
        return self.record.outcome

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it lasts, and where its end is not known.

        It is never negative: a clock that was set back meanwhile makes it 0.
        """
        if self.record.ended_at is None:
            return None
        return max(0.0, (self.record.ended_at - self.record.started_at).total_seconds())

    @property
    def latency(self) -> float | None:
        """The mean time of a call in seconds, or None without calls."""
        return sum(item.seconds for item in self.items) / self.calls if self.calls else None

    @property
    def queue(self) -> int | None:
        """How many summaries waited to be made when the run began, or None where not noted."""
        value = self.record.detail.get("queue")
        return value if isinstance(value, int) else None

    @property
    def dirty_share(self) -> float | None:
        """The share of the summaries that were dirty when the run began, or None."""
        value = self.record.detail.get("dirty_share")
        return float(value) if isinstance(value, (int, float)) else None


def with_current_outcome(run: transaction.RunRecord, now: datetime) -> transaction.RunRecord:
    """Return the run as it reads now: without a heartbeat, a running one was interrupted."""
    if run.outcome != "running":
        return run
    until = run.detail.get("alive_until")
    try:
        over = not isinstance(until, str) or not is_believed(datetime.fromisoformat(until), now=now)
    except (ValueError, TypeError):
        over = True
    return replace(run, outcome="interrupted") if over else run


def report(
    run: transaction.RunRecord, attempts: Sequence[transaction.Attempt], now: datetime
) -> RunReport:
    """Return the run with its items: its calls by what they were made for, as they began."""
    record = with_current_outcome(run, now)
    grouped: dict[tuple[str, str], list[transaction.Attempt]] = {}
    for attempt in attempts:
        grouped.setdefault((attempt.session_id, attempt.node_id), []).append(attempt)
    alive = record.outcome == "running"
    items = tuple(_item(*place, calls, alive=alive) for place, calls in grouped.items())
    return RunReport(record=record, items=items) + sum(items, NO_COST)


def _item(
    session_id: str, node_id: str, calls: Sequence[transaction.Attempt], *, alive: bool
) -> RunItem:
    item = RunItem(
        id=node_id,
        session_id=session_id,
        state=_state(calls, alive=alive),
        reasons=tuple(call.reason or call.outcome for call in calls if call.outcome != "ok"),
        seconds=sum(_seconds(call) for call in calls),
        model=calls[-1].model,
    )
    return item + sum((call.spent for call in calls), NO_COST)


def _state(calls: Sequence[transaction.Attempt], *, alive: bool) -> ItemState:
    last = calls[-1].outcome
    if last == "ok":
        return "ok"
    if last == "started":
        return "running" if alive else "unknown"
    return "unknown" if last == "unknown" else "failed"


def _seconds(call: transaction.Attempt) -> float:
    if call.ended_at is None or call.outcome == "unknown":
        return 0.0
    return max(0.0, (call.ended_at - call.started_at).total_seconds())
