"""The measure itself: what it is held to tell apart."""

from linear import TIMES, is_linear, repeated


def test_linear_work_is_told_from_quadratic():
    """Broken, every test that rests on it passes whatever the work costs."""
    assert is_linear(range, lambda given: [n for n in given for _ in range(50)], size=5_000)
    assert not is_linear(range, lambda given: [n for n in given for _ in given], size=700)


def test_a_repeated_unit_has_the_size_that_was_asked_for():
    assert [repeated("abc", size) for size in (0, 2, 3, 7)] == ["", "ab", "abc", "abcabca"]
    assert TIMES**2 > 2 * 2.6**2, "linear and quadratic work lie far apart"
