"""A model that does not answer in time gets more time for one more call."""

from hiermem.core.calls.timeouts import patience


def test_a_call_that_was_late_is_given_more_time():
    assert [patience(timeouts) for timeouts in range(3)] == [1.0, 2.0, 2.0]
