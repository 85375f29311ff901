"""``os.fork()``: the child is told to open a store of its own, and no process loses a message.

Each case is a process of its own, because the test run itself must not be forked.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from scripts import Scripts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")

Run: TypeAlias = Callable[..., None]
COMMON = """
import asyncio, os, sys, threading, time
from hiermem import AsyncMemory, Limits, Memory, Message, UpdatePolicy
from hiermem.errors import ForkedProcessError, HiermemError
path = sys.argv[1]

def forked(work):
    "Run work in a child; return what it returned, as text."
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(there, answer.encode())
        os._exit(0)
    os.close(there)
    answer = os.read(here, 10_000).decode()
    os.waitpid(child, 0)
    return answer

def texts(memory):
    return [message.content for message in memory.session("a").messages()]
"""


@pytest.fixture
def run(scripts: Scripts, tmp_path: Path) -> Run:
    """Return what runs a script in a process of its own, with the path of a file to make."""

    def running(script: str, *arguments: object) -> None:
        words = map(str, (tmp_path / "chat.db", *arguments))
        done = scripts.run("-c", COMMON + textwrap.dedent(script), *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    return running


def test_every_use_of_a_memory_in_a_child_says_to_open_it_there(run: Run) -> None:
    """Without the error the child waits for threads that only its parent has."""
    run(
        """
        memory = Memory.open(path)
        session = memory.session("a")
        session.append(Message.user("from the parent"))
        worker = memory.worker()
        other = memory.for_tenant("b")
        uses = {
            "append": lambda: session.append(Message.user("x")),
            "messages": session.messages,
            "sessions": memory.sessions,
            "context": lambda: session.context(2_000),
            "space": lambda: memory.space("p", rules="- a.md: x").notes(),
            "worker": worker.start,
            "for_tenant": lambda: memory.for_tenant("c"),
            "sessions of another tenant": other.sessions,
            "close another tenant": other.close,
            "close": memory.close,
        }
        for name, use in uses.items():
            answer = forked(use)
            assert answer.startswith("ForkedProcessError"), (name, answer)
            assert "open it in this process" in answer, answer
        session.append(Message.user("and again"))
        assert texts(memory) == ["from the parent", "and again"]
        memory.close()
        """
    )


def test_an_asynchronous_memory_says_so_too(run: Run) -> None:
    """Its store has threads of its own, and a store of somebody else may have a socket."""
    run(
        """
        from hiermem.stores.memory import MemoryStore
        async def opened(store=None):
            if store is not None:
                return AsyncMemory(store=store)
            return await AsyncMemory.open(path)
        async def append(memory):
            await memory.session("a").append(Message.user("x"))
        for store in (None, MemoryStore()):
            memory = asyncio.run(opened(store))
            for use in (lambda: append(memory), memory.close):
                answer = forked(lambda: asyncio.run(use()))
                assert answer.startswith("ForkedProcessError"), answer
            asyncio.run(memory.close())
        """
    )


def test_leaving_a_with_block_in_the_child_hides_no_error_of_the_child(run: Run) -> None:
    """The child has nothing to close there; its own exit code and error have to come through."""
    run(
        """
        with Memory.open(path) as memory:
            memory.session("a").append(Message.user("x"))
            child = os.fork()
            if child == 0:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            assert texts(memory) == ["x"]
        async def main():
            async with AsyncMemory.open(path) as memory:
                answer = forked(lambda: memory)
            return answer
        asyncio.run(main())
        """
    )


def test_a_file_that_the_parent_has_open_is_refused_in_the_child(run: Run) -> None:
    """SQLite would let either of them remove the log that the other is writing to."""
    run(
        """
        memory = Memory.open(path)
        memory.session("a").append(Message.user("parent"))
        assert texts(memory) == ["parent"]
        refused = forked(lambda: Memory.open(path))
        assert refused.startswith("ForkedProcessError"), refused
        assert "fork before opening it" in refused, refused
        assert forked(lambda: Memory.open(path + "2").close()) == "None"
        memory.session("a").append(Message.user("parent, after the fork"))
        memory.close()
        def child():
            with Memory.open(path) as own:
                own.session("a").append(Message.user("child, when it is closed"))
        assert forked(child) == "None"
        with Memory.open(path) as again:
            assert len(texts(again)) == 3
            assert again.check().ok
        """
    )


def test_every_use_of_a_file_in_a_child_says_to_open_it_there(run: Run) -> None:
    """Its locks and connections are the parent's."""
    run(
        """
        from pathlib import Path
        from hiermem.stores.sqlite import SQLiteStore
        from hiermem.records.tables import Commit, Key
        counter = Key("counters", ("t", "k", "n"))
        add = Commit(adds={counter: 1})
        for place in (path, ":memory:"):
            store = asyncio.run(SQLiteStore.open(place))
            for use in (lambda: store.commit(add), lambda: store.read([counter], []), store.now,
                        store.check, store.scrub, lambda: store.backup(Path("copy")), store.close):
                answer = forked(lambda: asyncio.run(use()))
                assert answer.startswith("ForkedProcessError"), (use, answer)
            assert asyncio.run(store.commit(add)) and asyncio.run(store.check()) == []
            asyncio.run(store.close())
        """
    )


def test_forks_beside_appending_and_reading_threads_lose_nothing(run: Run) -> None:
    """A fork waits for no read or write, and takes no lock of the parent's along."""
    run(
        """
        memory = Memory.open(path)
        stop, wrong, counts = threading.Event(), [], [0, 0, 0]
        def work(number):
            session = memory.session("a")
            try:
                while not stop.is_set():
                    session.append(Message.user(f"{number}/{counts[number]}"))
                    counts[number] += 1
                    session.messages(0, 5)
            except Exception as error:
                wrong.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        def child():
            with Memory.open(f"{path}.{os.getpid()}") as own:
                own.session("b").append(Message.user("child"))
        answers = [forked(child) for _ in range(8)]
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert answers == ["None"] * 8, answers
        assert len(texts(memory)) == sum(counts)
        assert memory.check().ok
        memory.close()
        """
    )


def test_a_child_counts_no_call_of_its_parent(run: Run) -> None:
    """The calls in flight at the fork end in the parent alone, and would block the child's."""
    run(
        """
        from hiermem.models.function import FunctionLLM
        from hiermem.testing.llms import write
        began, go = threading.Semaphore(0), threading.Event()
        def answer(request):
            if os.getpid() == home:
                began.release()
                go.wait()
            return write(request)
        home = os.getpid()
        model = FunctionLLM(answer)
        policy = UpdatePolicy(batch_delay=0, concurrency=1)
        def filled(place):
            memory = Memory.open(place, llm=model, update_policy=policy)
            memory.session("a").append(
                (Message.assistant if n % 2 else Message.user)(f"Pump {n} is on. " * 20)
                for n in range(20)
            )
            return memory
        memory = filled(path)
        thread = threading.Thread(target=memory.session("a").update)
        thread.start()
        began.acquire()
        def child():
            with filled(path + "2") as own:
                return own.session("a").update(limits=Limits(deadline=30)).made
        made = forked(child)
        assert int(made) > 0, made
        go.set()
        thread.join()
        memory.close()
        """
    )


@pytest.mark.parametrize(
    ("module", "work"),
    [
        ("tiktoken", "default_counter().count('één twee')"),
        ("hiermem.search.select", "found()"),
        ("numpy", "found()"),
    ],
)
def test_a_fork_while_a_thread_loads_a_module_leaves_a_child_that_works(
    tmp_path: Path, module: str, work: str
) -> None:
    """Broken, the child waits for ever for the import that a thread of its parent had begun."""
    script = f"""
        from hiermem.tokens import default_counter
        class Slow:
            "An import that takes its time."
            def find_spec(self, name, path=None, target=None):
                if name == "{module}":
                    begun.set()
                    time.sleep(0.5)
        def found():
            with Memory.open(f"{{path}}.{{os.getpid()}}") as memory:
                return 3 + len(memory.search("x"))
        begun = threading.Event()
        sys.meta_path.insert(0, Slow())
        loading = threading.Thread(target=lambda: {work})
        loading.start()
        assert begun.wait(30)
        assert forked(lambda: {work}) == "3"
        loading.join()
        """
    words = ["-c", COMMON + textwrap.dedent(script), str(tmp_path / "chat.db")]
    subprocess.run([sys.executable, "-W", "ignore", *words], timeout=60, check=True)
