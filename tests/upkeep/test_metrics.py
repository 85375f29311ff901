"""Figures are worked out of what is on record, and are missing where nothing is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Prices, UsageError
from hiermem.summaries.metrics import Feedback, Served, level_metrics, measure
from hiermem.types.transaction import NodeTally, Spent

STATUSES = ["pending", "generating", "active", "failed"]


@st.composite
def tallies(draw):
    """Draw sums as a store may give them: what is made is part of what there is."""
    found = []
    for level in range(1, draw(st.integers(1, 4)) + 1):
        for status in draw(st.lists(st.sampled_from(STATUSES), unique=True, max_size=4)):
            count = draw(st.integers(1, 50))
            made = draw(st.integers(0, count))
            tokens = count * draw(st.integers(1, 3_000))
            made_in = tokens * made // count
            found.append(
                NodeTally(
                    level,
                    status,
                    count=count,
                    made=made,
                    degraded=draw(st.integers(0, made)),
                    dirty=(dirty := draw(st.integers(0, made))),
                    pending=draw(st.integers(0, dirty)),
                    input_tokens=tokens,
                    made_input_tokens=made_in,
                    made_tokens=draw(st.integers(0, made_in)),
                    reused=draw(st.integers(0, made)),
                    duration_ms=draw(st.integers(0, 10_000)),
                    measured=(measured := draw(st.integers(0, made))),
                    fidelity=measured * draw(st.floats(0, 1)),
                )
            )
    return found


@given(found=tallies(), opened=st.integers(0, 5_000), spent=st.integers(0, 10**9))
def test_shares_are_shares_and_sums_are_sums(found, opened, spent):
    """A compression above 1 or a negative loss would be nonsense in every dashboard."""
    sealed = sum(tally.input_tokens for tally in found if tally.level == 1)
    figures = measure(
        "s",
        messages=10,
        open_tokens=opened,
        cover_tokens=sealed // 3,
        tallies=found,
        spent=Spent(tokens_in=spent, tokens_out=spent),
        prices=Prices(2, 8, context=3),
    )
    assert figures.tokens == sealed + opened
    assert figures.nodes == sum(tally.count for tally in found)
    assert figures.queue == sum(
        tally.pending if tally.status == "active" else tally.count for tally in found
    )
    assert 0 <= figures.dirty_share <= 1
    for level in figures.levels:
        assert level.nodes == sum(level.by_status.values())
        if level.compression is not None:
            assert 0 <= level.compression <= 1
    if figures.summary_quality_score is not None:
        assert math.isclose(figures.summary_quality_score + figures.information_loss, 1)
    assert figures.tokens_saved == sealed - sealed // 3
    assert math.isclose(figures.cost_saved, figures.tokens_saved * 3 / 1e6)
    assert math.isclose(figures.cost_spent, spent * 10 / 1e6)


def test_nothing_on_record_gives_no_figure():
    """A zero that was never measured would be read as a measurement."""
    figures = measure("s", messages=0, open_tokens=0, cover_tokens=0, tallies=[])
    assert (figures.compression, figures.summary_quality_score, figures.information_loss) == (
        None,
        None,
        None,
    )
    assert (figures.cost_saved, figures.cost_spent, figures.prefix_reuse) == (None, None, None)
    assert figures.feedback.mean is None
    assert (figures.queue, figures.dirty_share) == (0, 0.0)
    (level,) = level_metrics([NodeTally(1, "pending", count=3, input_tokens=90)])
    assert (level.compression, level.seconds, level.fidelity) == (None, None, None)


def test_the_score_hides_no_level():
    """Broken if many good summaries of level 1 would make a bad level 3 look well."""
    tallies = [
        NodeTally(1, "active", count=90, made=90, measured=80, fidelity=80.0),
        NodeTally(2, "active", count=9, made=9, measured=9, fidelity=4.5),
        NodeTally(3, "active", count=2, made=2, measured=0),
    ]
    found = measure("s", messages=1, open_tokens=0, cover_tokens=0, tallies=tallies)
    assert [level.fidelity for level in found.levels] == [1.0, 0.5, None]
    assert (found.summary_quality_score, found.information_loss) == (0.75, 0.25)


def test_what_was_reused_does_not_shorten_the_time():
    """Ten texts of which nine were found again took the time of one."""
    tally = NodeTally(1, "active", count=10, made=10, reused=9, duration_ms=3_000)
    (level,) = level_metrics([tally])
    assert level.seconds == 3.0


def test_the_input_price_stands_in_for_that_of_contexts():
    figures = measure(
        "s",
        messages=1,
        open_tokens=0,
        cover_tokens=0,
        tallies=[NodeTally(1, "active", count=1, input_tokens=1_000_000)],
        prices=Prices(input=2, output=8),
        feedback=Feedback(2, 1.5),
        served=Served(2, 1_000, 400),
    )
    assert (figures.cost_saved, figures.feedback.mean, figures.prefix_reuse) == (2.0, 0.75, 0.4)


@pytest.mark.parametrize("price", [-1, math.nan, math.inf, "1", None, True, [1]])
@pytest.mark.parametrize("name", ["input", "output", "context"])
def test_what_is_no_price_is_refused(name, price):
    if (name, price) == ("context", None):
        return
    with pytest.raises(UsageError, match=name):
        Prices(**{"input": 1, "output": 1, name: price})
