"""Decides what updates report, of one session and of all: progress, work done, work planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hiermem.types.brief import Brief
from hiermem.types.transaction import Cost

WorkerState: TypeAlias = Literal["new", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdatePlan(Cost):
    """The work that an update would do; nothing was written and no model was called.

    ``calls`` and ``tokens_out`` are exact if every answer is fit and of the size that is asked for;
    ``tokens_in`` and, if the model has prices, ``cost`` are then right to 10 %. ``calls_max`` is
    the most if each answer is asked for once more; calls repeated because the provider failed come
    on top. ``by_level`` counts the nodes that get a text, ``reused`` those of them that need no
    call because the same inputs were summarised before. ``seconds`` is an estimate that respects
    the limits per minute.
    """

    _added = ("calls", "tokens_in", "tokens_out", "calls_max", "reused", "seconds")

    calls_max: int = 0
    by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    reused: int = 0
    reused_by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdateCounts(Cost):
    """The nodes that updates worked on, what their calls took, and what ended them, if anything."""

    _added = (
        "calls", "tokens_in", "tokens_out", "made", "reused", "failed", "degraded", "unknown",
        "shortened",
    )  # fmt: skip
    _idle = " nothing to do"

    made: int = 0
    reused: int = 0
    failed: int = 0
    degraded: int = 0
    unknown: int = 0
    shortened: int = 0
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdateReport(UpdateCounts):
    """The work that an update did.

    ``made``, ``reused``, ``degraded`` and ``failed`` count nodes, each node once: it got a new
    text, an earlier text, the extractive stand-in, or no new text. A stand-in that stays after
    another try is degraded too. ``by_level`` counts the first three by level. ``shortened`` counts
    the made texts that are an answer without some of its lines, as it was too long or cut off.
    ``calls`` are requests to the model, ``tokens_in`` and ``tokens_out`` their tokens, ``cost``
    their cost if the model has prices. ``unknown`` are requests cut off or timed out; whether they
    were charged is not known. ``stopped`` names the cap that ended the run. It is "model_down" if
    the provider kept failing; ``retry_after`` is then the number of seconds until it may be asked
    again, and ``last_error`` says why its last call failed. ``swapped`` is True if the tree of a
    full re-pack serves now. If not, the next re-pack continues this one, or starts from the
    beginning if the session was reconfigured in between. An update with nothing to do is no run:
    nothing is journalled, and ``run_id`` is None. ``more`` is True if ``update_one`` left something
    that can be made at once.
    """

    run_id: str | None = None
    by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    swapped: bool = False
    retry_after: float | None = None
    last_error: str | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class UpdateProgress(Brief):
    """The progress of an update. ``by_level`` holds (done, total) for each level that has work.

    ``done`` are the nodes that the run is finished with, ``total`` those that it works on.
    """

    done: int
    total: int
    by_level: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BatchProgress(Brief):
    """The progress of an update of all sessions.

    ``done`` of ``total`` sessions are finished. ``session_id`` is the session reported on and
    ``nodes`` its progress; None when it ended.
    """

    done: int
    total: int
    session_id: str
    nodes: UpdateProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchReport(UpdateCounts):
    """The work that an update of all sessions did.

    ``sessions`` is the number of sessions to update. ``updated`` of them are now as complete as
    possible, and ``failures`` names the errors that ended a session's update, and why a space did
    not learn. ``learnt`` is the number of messages and notes that spaces took in. Any other session
    was not reached: ``stopped`` names the cap, or is "model_down" where the provider kept failing;
    it may be asked again in ``retry_after`` seconds, and ``last_error`` says why its last call
    failed. The other figures are sums of the sessions' reports.
    """

    sessions: int = 0
    updated: int = 0
    learnt: int = 0
    by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    retry_after: float | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkerStatus(UpdateCounts):
    """The present work of a background worker, and its work since it was started.

    ``active`` sessions are being updated. ``resting`` ones wait for some time to pass: their last
    turn here ended in an error, or left vectors to make. ``in_flight`` are model calls. ``stopped``
    names the cap that stops the worker, or is "model_down" while the provider is not called.
    ``last_error`` is the name of the newest error that ended a session's turn, or says why the
    model is down.
    """

    state: WorkerState = "new"
    active: int = 0
    resting: int = 0
    in_flight: int = 0
    turns: int = 0
    last_error: str | None = None


def add_report(total: BatchReport, report: UpdateReport) -> BatchReport:
    """Add one session's report."""
    return replace(
        total + report,
        by_level=_sum_of(total.by_level, report.by_level),
        retry_after=report.retry_after or total.retry_after,
        last_error=report.last_error or total.last_error,
    )


def add_plans(plans: Iterable[UpdatePlan]) -> UpdatePlan:
    """Add up the plans of updates; the time is that of one update after the other."""
    total = UpdatePlan()
    for plan in plans:
        total = replace(
            total + plan,
            by_level=_sum_of(total.by_level, plan.by_level),
            reused_by_level=_sum_of(total.reused_by_level, plan.reused_by_level),
        )
    return total


def _sum_of(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    """Return the sums of two counts by level, lowest level first."""
    levels = sorted(first.keys() | second.keys())
    return {level: first.get(level, 0) + second.get(level, 0) for level in levels}
