"""What the journal says of one run: what it worked on, how often it tried, and how that ended.

The one rule: a run that stopped giving signs of life without an end was cut off; it is said so
whoever looks, and what it had not finished is unknown, not failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from hiermem.types.prices import add_costs
from hiermem.types.transaction import Attempt, RunRecord

#: What became of one item: made, in the making, not made, or nobody knows.
ItemState = Literal["ok", "running", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class RunItem:
    """One summary, chunk or other thing that a run called a model for.

    ``attempts`` counts the calls, ``reasons`` says for each that came to nothing why, in order.
    ``seconds`` is what they took together, ``cost`` what they cost, None without prices.
    """

    id: str
    session_id: str
    state: ItemState
    attempts: int
    reasons: tuple[str, ...]
    tokens_in: int
    tokens_out: int
    seconds: float
    model: str
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A journalled run with what it called a model for; ``record`` holds the run as a whole.

    What was made without a call (kept word for word, reused) is counted in ``record.detail`` alone.
    """

    record: RunRecord
    items: tuple[RunItem, ...] = ()

    @property
    def id(self) -> str:
        """Give the run's id."""
        return self.record.id

    @property
    def kind(self) -> str:
        """Give what was done: update, extraction, erasure, …."""
        return self.record.kind

    @property
    def outcome(self) -> str:
        """Give how it ended; "running" while it lasts, "interrupted" where it was cut off."""
        return self.record.outcome

    @property
    def seconds(self) -> float | None:
        """Give how long it took, or None while it lasts or where its end is not known."""
        if self.record.ended_at is None:
            return None
        return (self.record.ended_at - self.record.started_at).total_seconds()

    @property
    def calls(self) -> int:
        """Give the number of journalled calls."""
        return sum(item.attempts for item in self.items)

    @property
    def tokens_in(self) -> int:
        """Give the tokens that the calls took."""
        return sum(item.tokens_in for item in self.items)

    @property
    def tokens_out(self) -> int:
        """Give the tokens that the calls gave."""
        return sum(item.tokens_out for item in self.items)

    @property
    def cost(self) -> float | None:
        """Give what the calls cost, or None where none of them had a price."""
        return add_costs(*(item.cost for item in self.items))

    @property
    def latency(self) -> float | None:
        """Give the mean time of a call in seconds, or None where there was none."""
        return sum(item.seconds for item in self.items) / self.calls if self.calls else None

    @property
    def queue(self) -> int | None:
        """Give how many summaries waited to be made when it began, or None where not noted."""
        return _whole(self.record.detail.get("queue"))

    @property
    def dirty_share(self) -> float | None:
        """Give the share of the summaries that were due to be made anew then, or None."""
        value = self.record.detail.get("dirty_share")
        return float(value) if isinstance(value, (int, float)) else None


def with_current_outcome(run: RunRecord, now: datetime) -> RunRecord:
    """Give the run as it has to be understood: one that ceased to beat was interrupted."""
    if run.outcome != "running":
        return run
    until = run.detail.get("alive_until")
    try:
        over = not isinstance(until, str) or datetime.fromisoformat(until) <= now
    except (ValueError, TypeError):
        over = True
    return replace(run, outcome="interrupted") if over else run


def cut_off(attempts: Iterable[Attempt], now: datetime) -> list[Attempt]:
    """Give those that were started and not ended, as what is to be journalled of them now.

    Whether the call was answered, and charged, nobody knows; what was set aside for it stays spent.
    """
    return [
        replace(attempt, outcome="unknown", reason="cut_off", ended_at=now)
        for attempt in attempts
        if attempt.outcome == "started"
    ]


def items(attempts: Iterable[Attempt], *, alive: bool) -> tuple[RunItem, ...]:
    """Bring the calls of a run together by what they were made for, in the order they began."""
    grouped: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        grouped.setdefault((attempt.session_id, attempt.node_id), []).append(attempt)
    return tuple(_item(*place, calls, alive=alive) for place, calls in grouped.items())


def report(run: RunRecord, attempts: Sequence[Attempt], now: datetime) -> RunReport:
    """Give the run with its items."""
    record = with_current_outcome(run, now)
    return RunReport(record, items(attempts, alive=record.outcome == "running"))


def _item(session_id: str, node_id: str, calls: Sequence[Attempt], *, alive: bool) -> RunItem:
    return RunItem(
        id=node_id,
        session_id=session_id,
        state=_state(calls[-1], alive=alive),
        attempts=len(calls),
        reasons=tuple(call.reason or call.outcome for call in calls if call.outcome != "ok"),
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        seconds=sum(_seconds(call) for call in calls),
        model=calls[-1].model,
        cost=add_costs(*(call.cost for call in calls)),
    )


def _state(last: Attempt, *, alive: bool) -> ItemState:
    if last.outcome == "ok":
        return "ok"
    if last.outcome == "started":
        return "running" if alive else "unknown"
    return "unknown" if last.outcome == "unknown" else "failed"


def _seconds(call: Attempt) -> float:
    if call.ended_at is None or call.outcome == "unknown":
        return 0.0
    return max(0.0, (call.ended_at - call.started_at).total_seconds())


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
