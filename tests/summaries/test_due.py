"""When a session is due: a failed text waits, and so does what ended a turn."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hiermem.summaries.due import due_by_nodes, pause_after
from hiermem.summaries.reports import UpdateReport

sys.path.append(str(Path(__file__).parent))
from test_status import node


@pytest.mark.parametrize(("failures", "seconds"), [(1, 15), (2, 30), (3, 60), (30, 3600)])
def test_a_failed_text_is_due_later_each_time(failures, seconds):
    """Broken, a worker asks for a failed text without a pause, or leaves it alone for ever."""
    failed = replace(node(status="failed"), attempts=failures)
    assert due_by_nodes([failed]).total_seconds() == seconds


@pytest.mark.parametrize(
    ("report", "seconds"),
    [
        (UpdateReport(stopped="session_calls"), 300),
        (UpdateReport(stopped="tenant_tokens", by_level={1: 3}), 300),
        (UpdateReport(stopped="model_down", retry_after=17.0), 17),
        (UpdateReport(stopped="deadline", by_level={1: 3}), 0),
        (UpdateReport(by_level={1: 1}), 0),
        (UpdateReport(), 30),
    ],
)
def test_what_ended_a_turn_says_how_long_the_session_is_left_alone(report, seconds):
    assert pause_after(report) == seconds
