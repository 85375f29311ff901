"""How long something is left alone: longer each time, and never too long."""

import pytest

from hiermem.calls.run_report import TEXT, back_off, patience


@pytest.mark.parametrize(("failures", "seconds"), [(0, 15), (1, 15), (2, 30), (3, 60), (500, 3600)])
def test_a_failure_is_left_alone_for_longer_each_time(failures, seconds):
    assert back_off(failures, TEXT) == seconds


def test_a_call_that_was_late_is_given_more_time():
    assert [patience(timeouts) for timeouts in range(3)] == [1.0, 2.0, 2.0]
