"""A plain function as a model: whatever its shape; nobody else waits for one that blocks."""

import asyncio
import functools
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import CancelledError

import pytest
from kinds import of_kind
from stand_ins import talk as turns

from hiermem import AsyncMemory, Limits, Memory, Message, UpdatePolicy
from hiermem.calls.rate_limit import state_of
from hiermem.errors import ConfigError, ModelError, UsageError
from hiermem.models.function import FunctionLLM
from hiermem.protocols import LLM, LLMRequest, LLMResponse
from hiermem.testing.llms import write
from hiermem.tokens import FunctionCounter

#: More than the threads that asyncio's own pool may have on any machine.
MANY = 40
REQUEST = LLMRequest(
    task="summarise",
    messages=(),
    inputs=(),
    target_tokens=10,
    max_tokens=15,
    counter=FunctionCounter(len, name="chars"),
)
WAIT = 60


async def waiting(request):
    return f"at most {request.max_tokens}"


class Answering:
    async def __call__(self, request):
        return LLMResponse("from an object", model="own")


@pytest.mark.parametrize(
    ("function", "text", "by"),
    [
        (lambda request: "text", "text", "mine"),
        (waiting, "at most 15", "mine"),
        (functools.partial(waiting), "at most 15", "mine"),
        (Answering(), "from an object", "own"),
    ],
)
async def test_functions_coroutines_and_objects_are_all_taken(function, text, by):
    model = FunctionLLM(function, name="mine", context_window=100)
    assert isinstance(model, LLM)
    assert (model.name, model.context_window, model.remote) == ("mine", 100, True)
    answer = await model.complete(REQUEST)
    assert (answer.text, answer.model) == (text, by)


@pytest.mark.parametrize("wrong", [{"name": ""}, {"context_window": 0}, {"function": "x"}])
async def test_what_is_no_model_or_no_answer_is_refused(wrong):
    with pytest.raises((ConfigError, UsageError)):
        FunctionLLM(**{"function": waiting} | wrong)
    with pytest.raises(UsageError, match="returned int"):
        await FunctionLLM(lambda request: 7).complete(REQUEST)


class Hanging:
    """A function whose calls return once they are let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Semaphore(0)
        self.running = 0
        self.most = 0
        self._guard = threading.Lock()

    def __call__(self, request: LLMRequest) -> str:
        with self._guard:
            self.running += 1
            self.most = max(self.most, self.running)
        self.began.release()
        self.go.wait()
        with self._guard:
            self.running -= 1
        return write(request)

    def wait_for(self, calls: int) -> None:
        for _ in range(calls):
            assert self.began.acquire(timeout=WAIT)


def talk(count: int) -> list[Message]:
    return turns(count, lambda n: f"Step {n} takes {n * 7} seconds. " * 9)


@pytest.fixture
def hanging():
    function = Hanging()
    yield function
    function.go.set()


async def test_hanging_calls_hold_up_neither_searches_nor_appends_of_others(hanging):
    """They once shared a pool of a few threads with everything else."""
    policy = UpdatePolicy(concurrency=MANY, batch_delay=0)
    async with AsyncMemory.open(":memory:", llm=hanging, update_policy=policy) as memory:
        await memory.session("a").append(talk(10 * MANY))
        await memory.session("b").append(talk(100))
        update = asyncio.create_task(memory.session("a").update())
        await asyncio.to_thread(hanging.wait_for, MANY)
        assert await asyncio.wait_for(memory.session("b").search("step 4"), WAIT)
        await asyncio.wait_for(memory.session("b").append(Message.user("word " * 60_000)), WAIT)
        hanging.go.set()
        assert (await update).made > MANY


@pytest.mark.parametrize("remote", [True, False])
async def test_a_deadline_holds_whatever_the_function_does(hanging, remote):
    llm = FunctionLLM(hanging, remote=remote)
    policy = UpdatePolicy(batch_delay=0)
    async with AsyncMemory.open(":memory:", llm=llm, update_policy=policy) as memory:
        session = memory.session("a")
        await session.append(talk(40))
        report = await asyncio.wait_for(session.update(limits=Limits(deadline=0.2)), WAIT)
        assert report.stopped == "deadline"
        assert (await session.status()).unfinished[1] > 0
        assert await session.search("step 4")


def test_closing_a_memory_does_not_wait_for_the_function(hanging):
    policy = UpdatePolicy(batch_delay=0, drain=0.1)
    memory = Memory.open(":memory:", llm=hanging, update_policy=policy)
    memory.session("a").append(talk(40))
    memory.worker(poll=0.01).start()
    hanging.wait_for(1)
    closing = threading.Thread(target=memory.close, daemon=True)
    closing.start()
    closing.join(WAIT)
    assert not closing.is_alive()
    assert hanging.running


@pytest.mark.thorough
def test_a_process_ends_while_its_function_hangs():
    """A pool's threads are joined at the end of a process; the process would never end."""
    script = """
        import threading
        from hiermem import Limits, Memory, Message, UpdatePolicy
        policy = UpdatePolicy(batch_delay=0, drain=0.1)
        never = threading.Event()
        with Memory.open(":memory:", llm=lambda request: never.wait(), update_policy=policy) as m:
            m.session("a").append(Message.user("Pump 3 is on. " * 60) for _ in range(20))
            report = m.session("a").update(limits=Limits(deadline=0.2))
            assert report.stopped == "deadline"
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=WAIT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("remote", [True, False])
async def test_abandoned_calls_are_bounded(hanging, remote):
    """A thread for every call that was ever given up would fill the process."""
    llm = FunctionLLM(hanging, remote=remote)
    policy = UpdatePolicy(batch_delay=0, concurrency=4, retries=2)
    async with AsyncMemory.open(":memory:", llm=llm, update_policy=policy) as memory:
        session = memory.session("a")
        await session.append(talk(80))
        for seen in (4, 8, 12):
            update = asyncio.create_task(session.update())
            await asyncio.to_thread(hanging.wait_for, 4)
            update.cancel()
            await asyncio.wait([update], timeout=WAIT)
            assert (update.cancelled(), llm.abandoned_calls) == (True, seen)
        report = await asyncio.wait_for(session.update(limits=Limits(deadline=60)), WAIT)
        assert (report.stopped, report.tokens, hanging.most) == ("model_down", 0, 12)
        # The function returns: there is nothing to wait for, and the work is done.
        hanging.go.set()
        for thread in list(llm._abandoned.values()):
            await asyncio.to_thread(thread.join, WAIT)
        assert llm.abandoned_calls == 0
        state_of(llm).down_until = 0.0
        assert (await asyncio.wait_for(session.update(), WAIT)).made > 0
        assert (await session.status()).unfinished[1] == 0


@pytest.mark.parametrize(
    "raised",
    [
        SystemExit(3), StopIteration(), KeyboardInterrupt(), asyncio.CancelledError(),
        CancelledError(),
    ],
)  # fmt: skip
async def test_no_exception_of_the_function_ends_the_event_loop(raised):
    """A ``sys.exit`` in it would end the memory's own thread, and every caller would wait."""

    def function(request):
        raise raised

    with pytest.raises(RuntimeError, match=type(raised).__name__):
        await FunctionLLM(function).complete(REQUEST)


async def test_a_process_without_threads_to_spare_is_told_to_try_again(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(ModelError, check=of_kind("transient")) as found:
        await FunctionLLM(lambda request: "x").complete(REQUEST)
    assert found.value.charged is False
