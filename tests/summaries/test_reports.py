"""What several plans of updates add up to."""

from hiermem.summaries.reports import UpdatePlan, add_plans


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
