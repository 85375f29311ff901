"""A mark tells whether a process has ended, and says nothing of what cannot be known."""

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hiermem import Memory, Message
from hiermem.api.sync import LoopThread
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
    place, _, _ = process_mark().rpartition(":")
    assert has_ended(f"{place}:1"), "another process has that number now"


def test_on_windows_a_blocking_memory_and_the_server_have_a_loop_that_psycopg_takes(monkeypatch):
    """Broken, no PostgreSQL store opens there: psycopg refuses the loop that is the default."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(asyncio, "new_event_loop", None)  # the default loop is not taken
    loop = LoopThread()

    async def running():
        return asyncio.get_running_loop()

    try:
        assert isinstance(loop.call(running()), asyncio.SelectorEventLoop)
    finally:
        loop.close()


@pytest.mark.parametrize("has_it", [True, False])
def test_copies_and_exports_reach_the_disk_on_macos(has_it, tmp_path, monkeypatch):
    """Broken, a backup or a bank that is said to be durable is lost in a power cut there."""
    fully, plainly = set(), set()

    def full(number, command):
        assert command == 51
        fully.add(str(Path(f"/proc/self/fd/{number}").readlink()))
        if not has_it:
            raise OSError(errno.ENOTSUP, "not on this file system")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", plainly.add)
    (tmp_path / "backup").mkdir()
    with Memory.open(tmp_path / "a.db") as memory:
        memory.session("s").append(Message.user("x"))
        memory.backup(tmp_path / "backup" / "b.db")
        space = memory.space("s", rules="- progress.md: what works")
        space.note("It works.")
        space.consolidate()
        space.export(tmp_path / "bank")
    assert {str(tmp_path / "backup"), str(tmp_path / "bank")} <= fully
    assert bool(plainly) is not has_it
