"""Decides what an update of all of a tenant's sessions reports: progress, work done, work planned.

It only adds up the reports of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hiermem.summaries.plan import UpdateCounts, UpdatePlan, UpdateProgress, UpdateReport
from hiermem.types.brief import Brief

WorkerState: TypeAlias = Literal["new", "running", "stopping", "stopped"]


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
    possible, and ``failures`` names the errors that ended a session's update. Any other session was
    not reached: ``stopped`` names the cap, or is "model_down" where the provider kept failing; it
    may be asked again in ``retry_after`` seconds, and ``last_error`` says why its last call failed.
    The other figures are sums of the sessions' reports.
    """

    sessions: int = 0
    updated: int = 0
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
            calls_max=total.calls_max + plan.calls_max,
            by_level=_sum_of(total.by_level, plan.by_level),
            reused_by_level=_sum_of(total.reused_by_level, plan.reused_by_level),
            reused=total.reused + plan.reused,
            seconds=total.seconds + plan.seconds,
        )
    return total


def _sum_of(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    """Return the sums of two counts by level, lowest level first."""
    return {
        level: first.get(level, 0) + second.get(level, 0)
        for level in sorted(first.keys() | second.keys())
    }
