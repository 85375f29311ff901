"""What a context shows of each quarter, against a plain count."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hiermem.context import selection as shown
from hiermem.types.ranges import ranges_of

INDICES = st.sets(st.integers(-2, 70))


@given(
    total=st.integers(0, 60),
    verbatim=INDICES,
    excerpted=INDICES,
    summarised=INDICES,
    gone=st.sets(st.integers(0, 60)),
)
def test_each_message_counts_once_in_its_quarter_unless_it_is_gone(
    total, verbatim, excerpted, summarised, gone
):
    found = shown.of(
        verbatim=verbatim,
        excerpted=excerpted,
        summarised=summarised,
        total=total,
        gone=ranges_of(gone),
    )
    live = set(range(total)) - gone
    assert set(found.messages) == (verbatim | excerpted | summarised) & live
    for number, quarter in enumerate(found.by_quarter):
        inside = live & set(range(total * number // 4, total * (number + 1) // 4))
        assert quarter.messages == len(inside)
        assert quarter.verbatim == len(verbatim & inside)
        assert quarter.excerpted == len((excerpted - verbatim) & inside)
        assert quarter.summarised == len((summarised - excerpted - verbatim) & inside)


@given(numbers=st.lists(st.integers(0, 40)))
def test_runs_hold_the_numbers_and_do_not_touch(numbers):
    runs = ranges_of(numbers)
    assert [n for begin, end in runs for n in range(begin, end)] == sorted(set(numbers))
    assert all(before[1] < after[0] for before, after in pairwise(runs))
