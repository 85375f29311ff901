"""The measure itself: what it is held to tell apart."""

import pytest
from linear import ALPHABETS, TIMES, drawn, is_linear, repeated
from sampling import params

from hiermem import Memory, Message


def test_linear_work_is_told_from_quadratic():
    """Broken, every test that rests on it passes whatever the work costs."""
    assert is_linear(range, lambda given: [n for n in given for _ in range(50)], size=5_000)
    assert not is_linear(range, lambda given: [n for n in given for _ in given], size=700)


def test_a_repeated_unit_has_the_size_that_was_asked_for():
    assert [repeated("abc", size) for size in (0, 2, 3, 7)] == ["", "ab", "abc", "abcabca"]
    assert TIMES**2 > 2 * 2.6**2, "linear and quadratic work lie far apart"


@pytest.mark.parametrize("alphabet", params(list(ALPHABETS), 3))
def test_one_long_run_costs_time_in_proportion_to_its_length(alphabet):
    """Broken, one message of some kind of characters stops a process for minutes."""

    def live(run: str) -> None:
        with Memory.open(":memory:") as memory:
            session = memory.session("s")
            session.append([Message.user(run), *[Message.user(f"Ok {n}.") for n in range(20)]])
            session.search("the pump")

    assert is_linear(lambda size: drawn(alphabet, size), live, size=20_000, slack=0.05)
