"""What an update of all sessions adds up to, and where it begins again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.summaries.plan import UpdatePlan, UpdateReport
from hiermem.summaries.reports import BatchReport, add_plans, add_report, resume
from hiermem.types.transaction import RunRecord

reports = st.builds(
    UpdateReport,
    run_id=st.just("r"),
    made=st.integers(0, 9),
    reused=st.integers(0, 9),
    failed=st.integers(0, 9),
    degraded=st.integers(0, 9),
    by_level=st.dictionaries(st.integers(1, 4), st.integers(1, 9)),
    calls=st.integers(0, 9),
    tokens_in=st.integers(0, 99),
    tokens_out=st.integers(0, 99),
    unknown=st.integers(0, 3),
)


@given(st.lists(reports, max_size=6))
def test_a_batch_is_the_sum_of_its_sessions(given_):
    total = BatchReport(run_id="b")
    for report in given_:
        total = add_report(total, report)
    for name in ("made", "reused", "failed", "degraded", "calls", "tokens", "unknown"):
        assert getattr(total, name) == sum(getattr(report, name) for report in given_)
    assert sum(total.by_level.values()) == sum(sum(r.by_level.values()) for r in given_)
    assert list(total.by_level) == sorted(total.by_level)


def test_plans_add_up():
    plan = add_plans(
        [
            UpdatePlan(calls=2, calls_max=8, by_level={1: 2}, seconds=1.5),
            UpdatePlan(calls=1, by_level={1: 1, 2: 1}, reused=1, reused_by_level={2: 1}),
        ]
    )
    assert (plan.calls, plan.calls_max, plan.reused, plan.seconds) == (3, 8, 1, 1.5)
    assert plan.by_level == {1: 3, 2: 1}
    assert plan.reused_by_level == {2: 1}


def run(outcome, through, purpose="full"):
    detail = {"purpose": purpose, "through": through}
    return RunRecord("r", "update", "", datetime(2024, 1, 1, tzinfo=UTC), None, outcome, detail)


@pytest.mark.parametrize(
    ("runs", "skipped"),
    [
        ([], 0),
        ([run("interrupted", "b")], 2),
        ([run("partial", "a")], 1),
        ([run("error", "c")], 3),
        ([run("interrupted", None)], 0),
        ([run("ok", "c"), run("interrupted", "b")], 0),
        ([run("interrupted", "b", purpose="other")], 0),
        ([run("interrupted", "c", purpose="other"), run("interrupted", "a")], 1),
        ([run("interrupted", "gone")], 0),
    ],
)
def test_it_begins_again_after_the_last_session_that_the_same_batch_was_through_with(runs, skipped):
    assert resume(runs, purpose="full", marks=["a", "b", "c"]) == skipped
