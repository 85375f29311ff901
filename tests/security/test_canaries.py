"""No text, message key or secret of an adapter gets into a log, an error or a journal."""

import asyncio
import logging
import traceback
from dataclasses import asdict
from datetime import datetime
from functools import partial

import pytest
from kinds import of_kind
from sampling import crossed, params
from stand_ins import START, memory_over, store_of
from stand_ins import talk as turns

from hiermem import AsyncMemory, HierarchyConfig, Limits, LLMResponse, Message, UpdatePolicy
from hiermem.convert import from_anthropic, from_openai
from hiermem.errors import BudgetTooSmallError, ConflictError, HiermemError, ModelError
from hiermem.testing.faults import FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import ApproximateCounter
from hiermem.types import JsonPart, TextPart, ToolCall

CANARY = "Kanarienvogel7731"
CONFIG = HierarchyConfig.by_tokens(target=300, max_messages=6)
POLICY = UpdatePolicy(batch_delay=0, retries=0, max_attempts=2)


def chain(error):
    """Give the error with all that stands behind it."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def assert_clean(error):
    for each in chain(error):
        assert CANARY not in str(each), f"{type(each).__name__}: {each}"
        assert CANARY not in repr(each)
        assert not any(CANARY in note for note in getattr(each, "__notes__", ()))
    shown = "".join(traceback.format_exception(error))
    # A line of this file may name the canary's variable, never its value.
    assert CANARY not in shown


@pytest.fixture
def heard(caplog):
    """All that was logged at DEBUG or above must be free of the canary, tracebacks included."""
    caplog.set_level(logging.DEBUG)
    for name in ("hiermem", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    yield caplog
    form = logging.Formatter("%(name)s %(message)s")
    for record in caplog.records:
        assert CANARY not in form.format(record), record.getMessage()
        assert CANARY not in str(record.args)


async def opened(kind, tmp_path, **settings):
    store = await store_of(kind, tmp_path / "m.db")
    if "plan" in settings:
        store = FaultyStore(store, settings.pop("plan"))
    return memory_over(store, **{"config": CONFIG, "update_policy": POLICY} | settings)


talk = partial(
    turns, said=lambda n: f"{CANARY} in turn {n} " + " ".join(f"word{n}x{k}" for k in range(60)),
    key=f"{CANARY}-key-{{n}}", name=f"{CANARY}-name", created_at=START, metadata={"note": CANARY},
)  # fmt: skip


WRONG = {
    "nul": lambda: [Message.user(f"{CANARY}\x00")],
    "surrogate": lambda: [Message.user(f"{CANARY}\ud800")],
    "nul in a part": lambda: [Message.user((TextPart(f"{CANARY}\x00"),))],
    "nul in a key": lambda: [Message.user("x", key=f"{CANARY}\x00")],
    "long key": lambda: [Message.user("x", key=CANARY * 60)],
    "long name": lambda: [Message.user("x", name=CANARY * 60)],
    "long thread": lambda: [Message.user("x", thread=CANARY * 60)],
    "bad json part": lambda: [Message.user((JsonPart({CANARY: float("inf")}),))],
    "bad metadata": lambda: [Message.user("x", metadata={CANARY: {CANARY}})],
    "bad call": lambda: [Message.assistant(tool_calls=[ToolCall(f"{CANARY}\x00", "n")])],
    "bad arguments": lambda: [Message.assistant(tool_calls=[ToolCall("c", "n", f"{CANARY}\x00")])],
    "text": lambda: [CANARY],
    "dict": lambda: [{"role": CANARY, "content": CANARY}],
    "other content": lambda: [Message.user(("a", CANARY))],
    "other part": lambda: [Message.user([{"text": CANARY}])],
    "calls of a user": lambda: [Message("user", CANARY, tool_calls=(ToolCall(CANARY, CANARY),))],
    "naive time": lambda: [Message.user(CANARY, created_at=datetime(2024, 1, 1))],  # noqa: DTZ001
    "openai": lambda: from_openai([{"role": "user", "content": {CANARY: CANARY}}]),
    "openai calls": lambda: from_openai([{"role": "assistant", "tool_calls": [CANARY]}]),
    "anthropic": lambda: from_anthropic([{"role": "user", "content": [{"type": CANARY}, 7]}]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("what", WRONG)
async def test_a_refused_message_is_not_quoted(kind, what, tmp_path, heard):
    memory = await opened(kind, tmp_path)
    with pytest.raises(HiermemError) as caught:
        await memory.session("s").append(WRONG[what]())
    assert_clean(caught.value)
    await memory.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_conflict_names_the_message_and_not_its_key(kind, tmp_path, heard):
    memory = await opened(kind, tmp_path)
    session = memory.session("s")
    await session.append(talk(4))
    with pytest.raises(ConflictError, check=of_kind("key")) as caught:
        await session.append(Message.user(f"{CANARY} other", key=f"{CANARY}-key-2"))
    assert_clean(caught.value)
    assert caught.value.key == f"{CANARY}-key-2", "the application still learns which it was"
    assert caught.value.index == 2
    await memory.close()


class Crashing(ScriptedLLM):
    """An adapter that puts the prompt and its own secret into whatever it raises or answers."""

    def __init__(self, fault):
        super().__init__(remote=fault is not ValueError)
        self.fault = fault

    async def complete(self, request):
        words = f"{CANARY} sk-{CANARY}: {request.messages[-1].content}"
        if isinstance(self.fault, type):
            raise self.fault(words)
        if self.fault == "nested":
            try:
                int(words)
            except ValueError as error:
                raise ModelError(words, kind="transient") from error
        if self.fault == "nothing":
            return None
        return LLMResponse({
            "refusal": f"I'm sorry, but I can't help with {CANARY}.",
            "long": f"{CANARY} " * request.max_tokens * 2,
            "surrogate": f"{CANARY} \ud800 \x00",
        }[self.fault])  # fmt: skip


MODEL_FAULTS = [
    "refusal", "long", "nothing", "surrogate", "nested", ModelError, ValueError, KeyError,
    TimeoutError, ConnectionResetError, HiermemError,
]  # fmt: skip


@pytest.mark.parametrize(("fault", "kind"), crossed(MODEL_FAULTS, ["memory", "sqlite"]))
async def test_what_a_model_raised_is_named_and_not_quoted(kind, fault, tmp_path, heard):
    """Nodes, attempts and runs say what went wrong in our words alone."""
    memory = await opened(kind, tmp_path, llm=Crashing(fault))
    session = memory.session("s", title=CANARY, participants=[CANARY])
    await session.append(talk(40))
    for _ in range(3):
        report = await session.update()
        assert report.made == 0
        assert CANARY not in str(report)
    for summary in await session.summaries():
        assert CANARY not in str(summary.node)
        assert summary.degraded or not summary.made
    journal = await memory._handle.store.attempts()
    assert journal
    assert CANARY not in str([asdict(attempt) for attempt in journal])
    assert CANARY not in str([asdict(run) for run in await memory.runs()])
    await memory.close()


@pytest.mark.parametrize("kind", params(["sqlite", "memory"], 1))
async def test_failures_of_the_store_quote_nothing(kind, tmp_path, heard, every):
    """A fault at each of the first sites of an append, an update and a context."""
    for number in range(0, 60, every(3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = FaultPlan({number: "fail", number + 1: "fail"})
        memory = await opened(kind, folder, plan=plan)
        session = memory.session("s", title=CANARY)
        for work in (
            lambda session=session: session.append(talk(14)),
            lambda session=session: session.append(talk(16)),
            lambda session=session: session.update(),
            lambda session=session: session.update(wait=False),
            lambda session=session: session.context(2_000),
        ):
            try:
                await work()
            except HiermemError as error:
                assert_clean(error)
        await asyncio.sleep(0)
        await memory.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_errors_of_use_quote_nothing(kind, tmp_path, heard):
    memory = await opened(kind, tmp_path)
    session = memory.session("s", title=CANARY)
    await session.append(talk(30))
    await session.update()
    other = AsyncMemory(
        store=memory._resources.store, token_counter=ApproximateCounter(), config=CONFIG
    )
    uses = [
        lambda: session.context(50),
        lambda: session.context(50, allow_omission=True),
        lambda: session.context(10, system=f"{CANARY} " * 40),
        lambda: session.context(10, tools=[{"name": CANARY, "x": "y " * 40}]),
        lambda: session.expand("L9.9"),
        lambda: session.tick(datetime(2024, 1, 1)),  # noqa: DTZ001
        lambda: session.update(limits=Limits(calls=-1)),
        lambda: other.session("s").append(talk(1)),
        lambda: other.session("s").context(100),
        lambda: memory.session("nobody").delete(),
        lambda: session.messages(-1),
        lambda: session.summaries(0),
    ]
    for closed in (None, session, memory):
        if closed:
            await closed.close()
            uses = [lambda: session.append(Message.user(f"{CANARY} late"))]
        for use in uses:
            with pytest.raises(HiermemError) as caught:
                await use()
            assert_clean(caught.value)


async def test_an_ordinary_run_logs_no_content(tmp_path, heard):
    memory = await opened("sqlite", tmp_path)
    session = memory.session("s", title=CANARY, participants=[CANARY])
    await session.append(talk(60))
    await session.update()
    await session.context(2_000)
    with pytest.raises(BudgetTooSmallError):
        await session.context(40)
    await session.close()
    await memory.close()
    assert any(record.name.startswith("hiermem") for record in heard.records)
