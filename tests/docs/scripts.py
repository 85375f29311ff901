"""Scripts are run each in a process of its own, which begins with the library loaded.

A process loads the library and the token vocabulary in a second. One process does so once here, and
forks a child for every script. The child is as fresh as a process that was started: nothing of
another script is in it.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def wait_for(port: int) -> None:
    """Wait until a server listens."""
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


class Scripts:
    """The process that has the library loaded; a context manager."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._server.pid, signal.SIGKILL)  # with a script that hangs, if there is one
        self._server.communicate()

    def run(
        self, *words: str, cwd: Path, env: dict[str, str] | None = None, stdin: str = os.devnull
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python *words``, a file or -c and code, and return what ``subprocess`` would."""
        with TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            asked = {
                "words": words,
                "cwd": str(cwd),
                "env": dict(os.environ) if env is None else env,
                "streams": [stdin, str(out), str(err)],
            }
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(
                words, status, out.read_text("utf-8"), err.read_text("utf-8")
            )


def accept() -> list[str]:
    """Fork a child for each script that is asked for; return its words, in the child alone."""
    import hiermem.api.memory  # noqa: F401
    from hiermem.tokens import default_counter

    default_counter().count("loads the vocabulary")
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        child = os.fork()
        if child:
            sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
            sys.stdout.flush()
            continue
        for number, path in enumerate(asked["streams"]):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        return asked["words"]
    sys.exit()


if __name__ == "__main__":
    sys.argv = accept()
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
