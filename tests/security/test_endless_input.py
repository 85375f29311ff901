"""Devices without an end, and a process without file descriptors: typed errors, bounded memory."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such device")

#: With less memory than an unbounded read would take in a second.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from hiermem.cli.app import app
app()
"""


@pytest.fixture(scope="module")
def run(scripts):
    """Return what runs a command over a folder's file, with an endless standard input."""
    return lambda folder, arguments: scripts.run(
        "-c", LIMITED, *arguments, "--db", str(folder / "chat.db"), cwd=folder, stdin="/dev/zero"
    )


@pytest.fixture(scope="module")
def noted(run, tmp_path_factory) -> Path:
    """Return the file of a space that holds a note."""
    folder = tmp_path_factory.mktemp("noted")
    rules = folder / "rules.md"
    rules.write_text("- a.md: x\n")
    done = run(folder, ["bank", "note", "first", "--space", "p", "--rules", str(rules)])
    assert done.returncode == 0, done.stderr
    return folder / "chat.db"


@pytest.mark.parametrize(
    "typed",
    ["bank note - --space p", "bank note n --space q --rules /dev/zero", "import /dev/zero"],
)
def test_a_command_reads_an_endless_file_up_to_its_cap(run, tmp_path: Path, noted, typed) -> None:
    shutil.copy(noted, tmp_path)
    done = run(tmp_path, typed.split())
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="the limit is that of POSIX")
@pytest.mark.thorough
def test_a_memory_without_file_descriptors_says_so(tmp_path: Path) -> None:
    script = """
        import os, resource, sys
        from hiermem import Memory, Message, StoreError
        Memory.open(sys.argv[1]).close()  # loads what it needs
        held = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 20
        for more in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (held + more, 4096))
            try:
                with Memory.open(sys.argv[1]) as memory:
                    memory.session("a").append(Message.user("x"))
            except StoreError as error:
                assert str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        with Memory.open(sys.argv[1]) as memory:
            memory.session("a").append(Message.user("y"))
            assert memory.check().ok
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), str(tmp_path / "chat.db")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
    assert "never awaited" not in done.stderr
