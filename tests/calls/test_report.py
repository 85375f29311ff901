"""A run is told with what it tried; one that stopped breathing is told as cut off."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hiermem.calls.budget import cut_off
from hiermem.calls.report import report, with_current_outcome
from hiermem.types.transaction import Attempt, RunRecord

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)


def run(outcome="running", **detail):
    return RunRecord("r", "update", "s", NOON, outcome=outcome, detail=detail)


def call(number, node, outcome, reason="", seconds=2):
    begun = NOON + timedelta(seconds=number)
    ended = None if outcome == "started" else begun + timedelta(seconds=seconds)
    return Attempt(
        f"a{number}", "r", "s", node, number, "model-1", begun, outcome, reason, 100, 10, ended
    )


@pytest.mark.parametrize(
    ("detail", "outcome"),
    [
        ({"alive_until": (NOON + timedelta(seconds=9)).isoformat()}, "running"),
        ({"alive_until": NOON.isoformat()}, "interrupted"),
        ({}, "interrupted"),
        ({"alive_until": 5}, "interrupted"),
        ({"alive_until": "soon"}, "interrupted"),
        ({"alive_until": "2024-03-15T13:00:00"}, "interrupted"),
    ],
)
def test_a_run_that_gives_no_sign_of_life_was_cut_off(detail, outcome):
    """Shown as running for ever, it would be waited for for ever."""
    assert with_current_outcome(run(**detail), NOON).outcome == outcome
    ended = run("partial", **detail)
    assert with_current_outcome(ended, NOON) == ended


def test_only_calls_that_did_not_end_are_unknown_and_what_was_set_aside_stays_spent():
    """Broken, a call that was answered counts as lost, or a cap forgets what may be charged."""
    later = NOON + timedelta(minutes=5)
    calls = [call(1, "L1.0", "ok"), call(2, "L1.1", "started"), call(3, "L1.1", "error", "timeout")]
    (lost,) = cut_off(calls, later)
    assert (lost.id, lost.outcome, lost.reason, lost.ended_at) == (
        "a2", "unknown", "cut_off", later,
    )  # fmt: skip
    assert (lost.tokens_in, lost.tokens_out) == (100, 10)


def test_the_calls_of_one_summary_are_one_item():
    """Item by item: how often, why it failed, what it took, and how it ended."""
    found = report(
        run("partial", queue=7, dirty_share=0.25),
        [
            call(1, "L1.0", "rejected", "too_long"),
            call(2, "L1.1", "ok"),
            call(3, "L1.0", "ok"),
            call(4, "L1.2", "error", "timeout"),
            call(5, "L1.3", "unknown", "cut_off"),
            call(6, "L1.4", "started"),
        ],
        NOON,
    )
    states = {item.id: (item.state, item.calls, item.reasons) for item in found.items}
    assert states == {
        "L1.0": ("ok", 2, ("too_long",)), "L1.1": ("ok", 1, ()),
        "L1.2": ("failed", 1, ("timeout",)), "L1.3": ("unknown", 1, ("cut_off",)),
        "L1.4": ("unknown", 1, ("started",)),
    }  # fmt: skip
    assert [item.id for item in found.items][:2] == ["L1.0", "L1.1"]
    assert (found.calls, found.tokens_in, found.tokens_out) == (6, 600, 60)
    assert (found.queue, found.dirty_share) == (7, 0.25)
    # Nobody knows how long the two took that have no end of their own.
    assert found.latency == 8 / 6
    assert found.items[0].seconds == 4.0


def test_what_is_in_the_making_is_running_while_its_run_is():
    alive = run(alive_until=(NOON + timedelta(seconds=9)).isoformat())
    found = report(alive, [call(1, "L1.0", "started")], NOON)
    assert (found.outcome, found.items[0].state) == ("running", "running")
    assert found.seconds is None
    assert report(run(), [], NOON).latency is None


def test_an_answer_that_was_taken_is_no_failure():
    """Broken, a summary that serves is listed as failed, because one before it was not fit."""
    for outcomes, state, reasons in (
        ("rejected ok", "ok", 1),
        ("rejected rejected", "failed", 2),
        ("rejected started", "unknown", 2),
    ):
        calls = [call(n, "L1.0", said, "vague") for n, said in enumerate(outcomes.split(), 1)]
        (item,) = report(run("ok"), calls, NOON).items
        assert (item.state, len(item.reasons)) == (state, reasons)


def test_no_time_is_negative():
    """Broken, a clock that was set back during a run makes it take less than nothing."""
    late = call(1, "L1.0", "ok")
    early = replace(late, started_at=NOON, ended_at=NOON - timedelta(hours=1))
    found = report(
        replace(run("ok"), started_at=NOON, ended_at=NOON - timedelta(hours=1)), [early], NOON
    )
    assert (found.seconds, found.latency, found.items[0].seconds) == (0.0, 0.0, 0.0)
