"""What an update of all sessions adds up to."""

from hypothesis import given
from hypothesis import strategies as st

from hiermem.summaries.reports import BatchReport, UpdatePlan, UpdateReport, add_plans, add_report

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
    total = BatchReport()
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
