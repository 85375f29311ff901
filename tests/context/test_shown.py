"""What a context shows of each quarter, against a plain count."""

from hypothesis import given
from hypothesis import strategies as st

from hiermem import ContextSelection
from hiermem.types import Span
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
    found = ContextSelection(
        "s", 0, 0, total, 1.0, (),
        verbatim=tuple(Span(index, index + 1) for index in verbatim if index >= 0),
        _excerpted=ranges_of(excerpted), _summarised=ranges_of(summarised), _gone=ranges_of(gone),
    ).shown  # fmt: skip
    live = set(range(total)) - gone
    assert set(found.messages) == (verbatim | excerpted | summarised) & live
    for number, quarter in enumerate(found.by_quarter):
        inside = live & set(range(total * number // 4, total * (number + 1) // 4))
        assert quarter.messages == len(inside)
        assert quarter.verbatim == len(verbatim & inside)
        assert quarter.excerpted == len((excerpted - verbatim) & inside)
        assert quarter.summarised == len((summarised - excerpted - verbatim) & inside)
