"""When a worker comes back: a failed text waits as long whoever remembers that it failed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hiermem.core.summaries.due import due_by_nodes, pause_after
from hiermem.core.summaries.plan import UpdateReport
from hiermem.core.summaries.retries import NodeBackoff
from hiermem.types import Span

sys.path.append(str(Path(__file__).parent))
from test_status import node


@pytest.mark.parametrize("failures", [1, 2, 3, 30])
def test_a_failed_text_is_due_when_a_worker_that_saw_it_fail_would_ask_again(failures):
    """Broken, the list of what is due and a worker's memory disagree: one waits for nothing."""
    failed = replace(node(status="failed"), attempts=failures)
    delay = due_by_nodes([failed]).delay
    backoff = NodeBackoff()
    for _ in range(failures):
        backoff.record_outcome(failed, 0.0)
    assert backoff.is_backed_off(failed, delay - 0.01)
    assert not backoff.is_backed_off(failed, delay)


def test_a_text_whose_inputs_changed_or_that_was_made_is_asked_for_at_once():
    failed = node(status="failed")
    backoff = NodeBackoff()
    backoff.record_outcome(failed, 0.0)
    assert backoff.is_backed_off(failed, 1.0)
    for changed in ({"dirty": True}, {"forced": True}, {"revision": 7}, {"span": Span(0, 99)}):
        assert not backoff.is_backed_off(replace(failed, **changed), 1.0), changed
    backoff.record_outcome(node(status="active", revision=1), 2.0)
    assert not backoff.is_backed_off(failed, 2.0)


@pytest.mark.parametrize(
    ("report", "seconds"),
    [
        (UpdateReport(stopped="session_calls"), 300),
        (UpdateReport(stopped="tenant_tokens", by_level={1: 3}), 300),
        (UpdateReport(stopped="model_down", retry_after=17.0), 17),
        (UpdateReport(stopped="turn"), 0),
        (UpdateReport(stopped="deadline", by_level={1: 3}), 0),
        (UpdateReport(by_level={1: 1}), 0),
        (UpdateReport(), 30),
    ],
)
def test_what_ended_a_turn_says_how_long_the_session_is_left_alone(report, seconds):
    assert pause_after(report) == seconds
