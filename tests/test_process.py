"""A mark tells whether a process has ended, and says nothing of what cannot be known."""

import subprocess
import sys

import pytest

from hiermem.process import has_ended, process_mark

pytestmark = pytest.mark.skipif(not process_mark(), reason="this platform shows no processes")


def test_a_process_has_ended_when_it_is_gone_and_not_before():
    """Broken, the work of a living process is taken over, or that of a dead one waits a minute."""
    said = "from hiermem.process import process_mark; print(process_mark(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", said], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        mark = child.stdout.readline().strip()
        assert mark != process_mark()
        assert not has_ended(mark)
        child.kill()
    assert has_ended(mark)
    assert not has_ended(process_mark())


def test_of_a_process_elsewhere_nothing_is_known():
    """Its number means another process here: a living one would be taken for dead."""
    for mark in (None, "", 7, "elsewhere:1:2", "::", "a", process_mark() + "0:x"):
        assert not has_ended(mark), mark


def test_a_number_that_another_process_has_now_is_not_the_same():
    place, _, _ = process_mark().rpartition(":")
    assert has_ended(f"{place}:1")
