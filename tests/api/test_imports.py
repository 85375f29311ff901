"""An import loads the public classes and the values of their calls; a call loads what it runs."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

IMPORT = "from hiermem import Memory, Message"
HELLO = f"""
{IMPORT}
from tempfile import TemporaryDirectory
with TemporaryDirectory() as place, Memory.open(f"{{place}}/chat.db") as memory:
    session = memory.session("first")
    session.append(Message.user("Hello, the budget is 40 EUR."))
    session.context()
"""
#: What serves other calls than an append and a context: each is loaded by the calls it serves.
OTHERS = (
    "hiermem.bank", "hiermem.calls.call", "hiermem.calls.run", "hiermem.changes.change",
    "hiermem.changes.erase", "hiermem.embedders", "hiermem.extraction.extract",
    "hiermem.extraction.plan", "hiermem.fleet", "hiermem.importers", "hiermem.published",
    "hiermem.remote", "hiermem.search.index", "hiermem.search.search", "hiermem.search.select",
    "hiermem.stores.memory", "hiermem.stores.postgres", "hiermem.summaries.checks",
    "hiermem.summaries.metrics", "hiermem.summaries.plan", "hiermem.summaries.update",
    "hiermem.testing", "hiermem.text.facts",
    "hiermem.types.bank", "hiermem.upkeep", "hiermem.view", "hiermem.work.turns",
    "aiolimiter", "numpy", "psycopg", "pytest", "regex", "rich", "snowballstemmer", "tenacity",
    "tiktoken", "typer",
)  # fmt: skip
#: What an append and a context run beside the public classes, their values and decisions.
ADAPTERS = ("hiermem.models", "hiermem.stores", "sqlite3")


def run(code: str, *arguments: object) -> list[str]:
    """Run ``code`` in a fresh interpreter, and return the words that it prints."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def loaded(code: str) -> set[str]:
    return set(run(f"{code}\nimport sys; print(*sys.modules)"))


def of(rooms, modules) -> list[str]:
    return sorted(
        m for m in modules if any(m == room or m.startswith(f"{room}.") for room in rooms)
    )


def test_an_import_loads_nothing_that_an_append_and_a_context_do_not_run():
    """Broken, every program that imports a class pays for all that its calls might run."""
    modules = loaded(IMPORT)
    assert of((*OTHERS, *ADAPTERS), modules) == []
    assert of(["hiermem"], modules - loaded(HELLO)) == []


def test_a_first_hello_loads_what_its_calls_run_alone():
    """Broken, every chat pays for summaries, searches, extractions and banks at its first word."""
    modules = loaded(HELLO)
    assert of(OTHERS, modules) == []
    assert set(ADAPTERS) <= modules, "one was renamed, so that nothing is shown of it"
    renamed = [room for room in OTHERS if room.startswith("hiermem.") and not find_spec(room)]
    assert renamed == []


def test_an_import_builds_no_model():
    """Building one makes pydantic read the metadata of every package that is installed."""
    more = loaded(IMPORT) - loaded("from pydantic import BaseModel, Field; import asyncio")
    assert not {"importlib.metadata", "email.message"} & more


#: First calls of each kind: each loads and builds something that no other does.
CALLS = f"""
{IMPORT}
from hiermem.tokens import TiktokenCounter
def append(memory): memory.session("a").append(Message.user("The pump leaks."))
CALLS = [
    append,
    lambda memory: memory.session("a").context(),
    lambda memory: memory.session("a").search("pump"),
    lambda memory: memory.update_all(),
    lambda memory: memory.check(),
    lambda memory: memory.graph.entity("pump"),
    lambda memory: memory.spaces(),
    lambda memory: memory.session("a").tri_vector(),
    lambda memory: (append(memory), memory.session("a").update()),
    lambda memory: (append(memory), memory.session("a").extract()),
    lambda memory: (append(memory), memory.session("a").erase([0])),
    lambda memory: memory.space("s", rules="- a.md: all").note("The pump leaks.", agent="a"),
    lambda memory: memory.to_html(),
    lambda memory: TiktokenCounter().count("\\u0435\\u0308 \\U0001f1e6 " * 3000),
]
"""
TOGETHER = f"""
{CALLS}
from threading import Barrier, Thread
together, done = Barrier(len(CALLS)), []
def first(call):
    together.wait()
    with Memory.open(":memory:") as memory:
        call(memory)
        done.append(call)
threads = [Thread(target=first, args=(call,), daemon=True) for call in CALLS]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
print(len(CALLS) - len(done))
"""


def test_first_calls_of_several_threads_load_their_rooms_together():
    """Broken, a call of one thread meets a module that another thread has half loaded."""
    assert run(TOGETHER) == ["0"]


#: A thread makes a first call; children that are forked meanwhile make the same one.
FORKS = """
import faulthandler, os, sys, tempfile, threading, time
import hiermem
number, count, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def first(place):
    exec(CODE, names := {})
    with names["Memory"].open(place) as memory:
        names["CALLS"][number % len(names["CALLS"])](memory)
with tempfile.TemporaryDirectory() as folder:
    thread = threading.Thread(target=first, args=[f"{folder}/a.db"])
    thread.start()
    children = []
    for each in range(count):
        time.sleep(pause)
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(200, exit=True)  # ends one that waits for ever
            first(f"{folder}/{each}.db")
            os._exit(0)
        children.append(child)
    broken = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    thread.join()
print(broken)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_child_forked_beside_a_first_call_makes_it_too(share):
    """Broken, it meets modules half loaded, or waits for a lock that nobody holds any more."""
    children = 5
    for number in range(share(140, plain=15) // children):
        # The pauses differ, so that the forks meet a call at other places each time.
        broken = run(f"CODE = {CALLS!r}\n{FORKS}", number, children, 0.01 + number % 7 * 0.02)
        assert broken == ["0"], number


#: The same of an application's module that takes a while, and of a fork inside an import.
OWN = """
import os, sys, tempfile, threading, time
import hiermem
with tempfile.TemporaryDirectory() as folder:
    sys.path.insert(0, folder)
    with open(f"{folder}/slow_own.py", "w") as file:
        file.write("import time, sys; sys.begun = True; time.sleep(300)")
    with open(f"{folder}/forks_own.py", "w") as file:
        file.write(
            "import os, threading\\n"
            "threading.Thread(target=__import__, args=['forks_own'], daemon=True).start()\\n"
            "child = os.fork()\\n"
            "if child == 0: os._exit(0)\\n"
            "os.waitpid(child, 0)\\n"
        )
    import forks_own
    threading.Thread(target=__import__, args=["slow_own"], daemon=True).start()
    while not hasattr(sys, "begun"): time.sleep(0.001)
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
    print("slow_own" in sys.modules and sys.modules["slow_own"].__spec__._initializing, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_fork_waits_neither_for_a_module_of_the_application_nor_for_itself():
    """Broken, a process that imports its server in a thread cannot fork while that runs."""
    assert run(OWN) == ["True"]
