"""Decides how the journal of a run reads: its outcome, its items, the calls for each.

A run whose heartbeat stopped without an end was interrupted. Every reader sees it so, and its
unfinished calls are unknown, not failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from hiermem.calls.claim import is_believed
from hiermem.types import transaction
from hiermem.types.transaction import NO_COST, Cost

#: The state of one item: made, being made, failed, or unknown.
ItemState = Literal["ok", "running", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunItem(Cost):
    """One summary, chunk or batch that a run called a model for.

    ``reasons`` says, in order, why each unsuccessful call failed. An answer that may be used is not
    among them, nor one that was taken after a further call. ``seconds`` is what they took together.
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
        return _whole(self.record.detail.get("queue"))

    @property
    def dirty_share(self) -> float | None:
        """The share of the summaries that were dirty when the run began, or None."""
        value = self.record.detail.get("dirty_share")
        return float(value) if isinstance(value, (int, float)) else None


def journal(entry: transaction.RunRecord, *, nameless: bool = False) -> transaction.Deciding[bool]:
    """Journal a run of a session; return False, with nothing done, if the session was erased.

    With ``nameless`` the figures of such a run are journalled, and what the run wrote under the
    session's name since goes.
    """
    if (yield entry.subject, transaction.NeedSession()) is not None:
        return transaction.Batch(result=True, runs=(entry,))
    if not nameless:
        return transaction.Batch(result=False)
    kept = {
        name: value
        for name, value in entry.detail.items()
        if name in ("model", "alive_until") or isinstance(value, (int, float))
    }
    after = replace(entry, subject=transaction.NO_SESSION, detail=kept)
    return transaction.Batch(result=True, delete=(entry.subject,), runs=(after,))


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


def cut_off(attempts: Iterable[transaction.Attempt], now: datetime) -> list[transaction.Attempt]:
    """Return the attempts that started and did not end, with the outcome to journal for them now.

    Whether such a call was answered, and charged, is unknown; its reservation stays spent.
    """
    return [
        replace(attempt, outcome="unknown", reason="cut_off", ended_at=now)
        for attempt in attempts
        if attempt.outcome == "started"
    ]


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
    if last == "ok" or _took_earlier(calls):
        return "ok"
    if last == "started":
        return "running" if alive else "unknown"
    return "unknown" if last == "unknown" else "failed"


def _took_earlier(calls: Sequence[transaction.Attempt]) -> bool:
    """Return whether an answer was taken that was asked for again in vain.

    An answer with a reason may be used, and it is, where the next one is rejected or never comes.
    """
    rejected = 0
    for call in reversed(calls):
        if call.outcome == "ok":
            return bool(call.reason) and rejected <= 1
        if call.outcome == "started":
            return False
        rejected += call.outcome == "rejected"
    return False


def _seconds(call: transaction.Attempt) -> float:
    if call.ended_at is None or call.outcome == "unknown":
        return 0.0
    return max(0.0, (call.ended_at - call.started_at).total_seconds())


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
