"""A wrong argument of any public call is refused at once, by an error of hiermem's own family.

Each table row names a call and a parameter with values that once came through as a bare TypeError
or AttributeError, or were taken without a word.
"""

import asyncio
import inspect
import math
import threading
from datetime import UTC, datetime

import pytest

from hiermem import (
    AsyncMemory,
    AsyncSpace,
    BankPolicy,
    CompressionTrigger,
    ConfigError,
    ContextBudget,
    ContextWindowManager,
    HierarchyConfig,
    HiermemError,
    LevelConfig,
    Limits,
    Memory,
    Message,
    NotFoundError,
    UpdatePolicy,
    UsageError,
)
from hiermem.importers import Conversation
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import Arrival, AsyncWorker, RecallFilters, SearchFilters, Span, TenantFilters

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)
NOT_A_SWITCH = ("yes", None, 1)
NOT_A_COUNT = ("1", -1, 1.5, True, math.nan)
NOT_A_NAME = (5, None, "", "\ud800", "x\0", "n" * 513)
NOT_A_SCOPE = (5, "", b"ada", "\ud800", "x\0", "n" * 513, ["ada"], True)
NOT_A_MOMENT = ("now", 5, NOON.replace(tzinfo=None), datetime.max.replace(tzinfo=UTC))
NOT_A_CONTEXT = (5, "s", [], {})
NOT_METADATA = (
    5, "user", ["user"], [("user", "ada")], {5: "ada"}, {"user": 5}, {"user": None}, {"": "ada"},
    {"u" * 513: "ada"}, {"user": "a" * 513}, {"user": "\ud800"}, {"us\0er": "ada"},
    {f"key-{number}": "" for number in range(65)},
)  # fmt: skip
FILTERS = {
    "span": (5, "01", (1,), (1, 2, 3), (2, 1), (-1, 2), ("0", "1"), (0.0, 1.0), {0: 1}),
    "since": NOT_A_MOMENT,
    "until": NOT_A_MOMENT,
    "threads": (5, b"main", [5], ["\ud800"], ["\0"], ["n" * 513]),
    "roles": (5, "bogus", b"user", [5], ["user", "bogus"], [None]),
    "tags": (5, b"x", [5], ["\ud800"], [None]),
    "entities": (5, b"x", [5], ["\ud800"], [None]),
    "semantic_dedup": NOT_A_SWITCH,
}


class BadEmbedder:
    """Has what an embedder has, and something wrong with it."""

    def __init__(self, name="bad", dimension=8, weight=1.0):
        self.name, self.dimension, self.weight = name, dimension, weight

    async def embed(self, texts, *, kind):
        raise AssertionError("nothing is asked of it")


class BadLLM:
    """Has what a model has, and something wrong with it."""

    def __init__(self, name="bad", context_window=None, overhead_tokens=None, prices=None):
        self.name, self.context_window, self.remote = name, context_window, False
        self.overhead_tokens, self.prices = overhead_tokens, prices

    async def complete(self, request):
        raise AssertionError("nothing is asked of it")


NOT_LIMITS = (5, (1, 2), {"calls": 1}, UpdatePolicy())
NOT_SECONDS = ("1", -1, math.nan, math.inf, True, 10**400)
SESSION_CALLS = {
    "join": {"space": (*NOT_A_NAME, "no-such-space")},
    "set_metadata": {"metadata": (*NOT_METADATA, None)},
    "set_title": {"title": (5, b"x", "\ud800", "\0", "n" * 513)},
    "search": {
        "query": (5, None, b"x", ["x"]),
        "limit": (*NOT_A_COUNT, None),
        "levels": (5.0, "0", b"0", [-1], [1.5], [True], ["0"], -1, True),
        **FILTERS,
    },
    "recall": {
        "query": (5, None, b"x", ["x"]),
        "max_tokens": (*NOT_A_COUNT, None),
        "neighbours": (*NOT_A_COUNT, None),
        "beside": NOT_A_CONTEXT,
        **FILTERS,
    },
    "embed": {},
    "sync": {
        "messages": (5, None, "Hello", b"x", [5], [{"text": "Hello"}]),
        "on_rewrite": ("bogus", 5, None, ["fork"]),
    },
    "delete": {"forks": ("bogus", 5, None, ["all"])},
    "edit": {
        "index": (*NOT_A_COUNT, None, 10**30),
        "content": (5, None, b"x", "\ud800", "x\0", ["x"]),
    },
    "pin": {"indices": (None, "0", [-1], [1.5], True, ["0"], [10**30])},
    "unpin": {"indices": (None, "0", [-1], [1.5], True, ["0"], [10**30])},
    "versions": {"index": (*NOT_A_COUNT, None, 10**30)},
    "erase": {
        "indices": (1.5, None, "0", b"0", [-1], [1.5], [True], ["0"], [10**30], range(10**12)),
        "forks": ("bogus", 5, None, ["all"]),
    },
    "quarantine": {
        "indices": (1.5, None, "0", b"0", [-1], [1.5], [True], ["0"], [10**30], range(10**12)),
        "forks": ("bogus", 5, None, ["all"]),
    },
    "fork": {
        "new_id": (*NOT_A_NAME, "s"),
        "at": (*NOT_A_COUNT, 10**30),
        "title": (5, "\ud800", "t" * 513),
    },
    "recompress": {
        "level": ("x", 0, -1, 1.5, True, None),
        "span": (
            5,
            "01",
            (1,),
            (1, 2, 3),
            (2, 1),
            (-1, 2),
            ("0", "1"),
            (0.0, 1.0),
            {0: 1},
            range(2),
            bytearray(b"01"),
            {0, 1},
            iter((0, 1)),
            Span(-1, 2),
            Span(2, 1),
        ),
    },
    "reconfigure": {"config": (5, None, {}, "tokens")},
    "update": {
        "strategy": ("bogus", 5, None, ["full"]),
        "level": ("1", 0, -1, 1.5, True, math.nan),
        "wait": NOT_A_SWITCH,
        "on_progress": (5, "print"),
        "limits": NOT_LIMITS,
        "concurrency": (*NOT_A_COUNT, 0, 257),
        "batch_delay": ("1", -1, math.nan, math.inf, True),
        "config": (5, {}, "tokens", HierarchyConfig()),  # it goes with strategy="full" alone
        "dry_run": NOT_A_SWITCH,
    },
    "to_html": {"text": NOT_A_SWITCH, "query": (5, b"x", ["x"])},
    "context": {
        "max_tokens": ("x", 0, -1, 1.5, None, True),
        "query": (5, b"x", ["x"]),
        "recall_tokens": NOT_A_COUNT,
        "profile": (5, "code-reviewer", {"levels": [1]}),
        "system": (5, "\ud800", "\0", ["a"]),
        "tools": (5, None, "abc", {"name": "a"}, ["abc"], [{"a": {1}}], [{"a": "\ud800"}]),
        "view": NOT_A_NAME,
        "strategy": ("best", 5, None, ["cut"]),
        "sticky": NOT_A_SWITCH,
        "cache_cold": NOT_A_SWITCH,
        "allow_omission": NOT_A_SWITCH,
        "reserve_for_messages": NOT_A_COUNT,
        "reserve_for_output": (*NOT_A_COUNT, None),
    },
    "expand": {
        "node": (5, None, "", "\ud800", "L9.9", object()),
        "depth": ("x", 0, -1, 1.5, True, math.nan),
    },
    "messages": {"start": (*NOT_A_COUNT, None, "a"), "stop": NOT_A_COUNT},
    "summaries": {"level": ("x", 0, -1, 1.5, True)},
    "runs": {"limit": (*NOT_A_COUNT, None)},
    "metrics": {"prices": (5, "x", {"input": 1}, (1, 2))},
    "feedback": {
        "target": (5, None, "", "\ud800", "L9.9", object(), ["L1.0"]),
        "score": ("1", -0.1, 1.1, math.nan, math.inf, True, None, 10**400),
        "note": (5, None, "\ud800", "\0", "n" * 4_001),
    },
    "extract": {
        "options": (5, "x", {"a": 1}),
        "on_progress": (5, "print"),
        "limits": NOT_LIMITS,
    },
    "tick": {"now": ("now", None, 5, NOON.replace(tzinfo=None), datetime.max.replace(tzinfo=UTC))},
    "append": {"messages": (5, None, "hello", b"x", {"text": "Hi"}, [5], [None])},
}
SPACE_CALLS = {
    "about": {"text": (5, b"x", "\ud800", "x\0")},
    "forget": {
        "text": (5, None, b"x", "\ud800", "x\0", "", "it"),
        "authors": ("bogus", 5, None, ["all"]),
        "dry_run": NOT_A_SWITCH,
    },
    "note": {
        "text": (5, None, b"x", "", " \n", "\ud800", "x\0"),
        "agent": (5, None, b"x", "\ud800", "a" * 513),
        "category": (5, None, b"x", "\ud800", "a" * 513),
        "tags": (5, None, "abc", b"abc", [5], [""], ["\ud800"], {"a": 1}, ["t"] * 65),
        "timestamp": ("now", 5, NOON.replace(tzinfo=None), datetime.max.replace(tzinfo=UTC)),
        "sources": (5, None, "s", b"s", ["s"], [("s",)], [("s", -1)], [("s", 1.5)], [("s", True)],
                    [("", 0)], [(5, 0)], [("no-such-session", 0)], [("s", 10**30)],
                    [("s", n) for n in range(1_025)]),
    },
    "consolidate": {
        "dry_run": NOT_A_SWITCH,
        "limits": NOT_LIMITS,
    },
    "notes": {"state": ("bogus", 5, None, ["live"])},
    "read": {
        "name": (5, None, "", "a.txt", "../a.md", "\ud800.md", "no-such.md"),
        "revision": (*NOT_A_COUNT, 10**30),
    },
    "history": {"limit": (*NOT_A_COUNT, None)},
    "diff": {"since": (*NOT_A_COUNT, 10**30), "until": (*NOT_A_COUNT, 10**30)},
    "rollback": {"to": (*NOT_A_COUNT, None, 10**30), "restore_notes": NOT_A_SWITCH},
    "export": {
        "folder": (5, None, "", b"x", "a\0b", "ftp://a/b", "s3://", "s3://k:s@bucket/x"),
        "overwrite": NOT_A_SWITCH,
        "options": (5, "x", {}, {"region": "a folder has no options"}, {"region": None}),
    },
    "load": {
        "folder": (5, None, "", b"x", "a\0b", "no-such-folder", "ftp://a/b", "s3://"),
        "overwrite": NOT_A_SWITCH,
        "options": (5, "x", {}, {"region": "a folder has no options"}, {"region": None}),
    },
    "runs": {"limit": (*NOT_A_COUNT, None)},
}  # fmt: skip
MEMORY_CALLS = {
    "backup": {"path": (5, None, "", b"x", "a\0b")},
    "copy_to": {
        "target": (5, None, "", b"x", "a\0b", ":memory:"),
        "session": (5, "", "\ud800", "x\0", "n" * 513),
        "space": (5, "", "\ud800", "x\0", "n" * 513),
        "all_tenants": NOT_A_SWITCH,
        "on_progress": (5, "print", b"x"),
    },
    "for_tenant": {"tenant": NOT_A_NAME},
    "space": {
        "name": NOT_A_NAME,
        "rules": (5, b"a.md", "", "no file", "\ud800 a.md"),
        "person": (5, "", b"Ada", "\ud800", "n" * 513),
        "learn": (5, "yes", True),
    },
    "join": {
        "space": (*NOT_A_NAME, "no-such-space"),
        "sessions": (5, None, "s", b"s", {"s": 1}, [5], [""], ["no-such-session"]),
    },
    "session": {
        "session_id": NOT_A_NAME,
        "title": (5, "\ud800", "t" * 513),
        "participants": (5, None, "Ada", b"Ada", {"a": 1}, [5], [""]),
        "metadata": NOT_METADATA,
        "space": NOT_A_SCOPE,
        "on_bad_text": ("bogus", 5, None, ["refuse"]),
    },
    "import_chats": {
        "conversations": (
            5,
            None,
            "chat.json",
            b"x",
            {"a": 1},
            [5],
            [None],
            [Message.user("x")],
            [Conversation("", None, (), format="text")],
            [Conversation("\ud800", None, (), format="text")],
            [Conversation("c", "t" * 513, (), format="text")],
            [Conversation("c", None, ("x",), format="text")],
            [Conversation("c", None, ({"role": "user"},), format="text", branching=True)],
        ),
        "on_progress": (5, "print"),
    },
    "sessions": {
        "after": tuple(name for name in NOT_A_NAME if name is not None),
        "limit": (*NOT_A_COUNT, 0, None),
        "metadata": NOT_METADATA,
        "space": NOT_A_SCOPE,
        "order_by": ("bogus", 5, None, ["created"]),
    },
    "find": {
        "name": (5, None, b"x", "no-such-session"),
        "space": NOT_A_SCOPE,
        "whole": NOT_A_SWITCH,
    },
    "families": {
        "words": (5, None, "abc", [5]),
        "metadata": NOT_METADATA,
        "space": NOT_A_SCOPE,
        "apart": NOT_A_SWITCH,
        "limit": (*NOT_A_COUNT, 0),
    },
    "count_sessions": {"metadata": NOT_METADATA, "space": NOT_A_SCOPE},
    "search": {
        **{
            name: values
            for name, values in SESSION_CALLS["search"].items()
            if name not in ("levels", "span", "tags")
        },
        "metadata": NOT_METADATA,
        "space": NOT_A_SCOPE,
    },
    "recall": {
        **{
            name: values
            for name, values in SESSION_CALLS["recall"].items()
            if name not in ("beside", "span", "tags")
        },
        "metadata": NOT_METADATA,
        "space": NOT_A_SCOPE,
    },
    "runs": SESSION_CALLS["runs"],
    "run": {"run_id": (*NOT_A_NAME, "no-such-run")},
    "update_all": {
        **{
            name: values
            for name, values in SESSION_CALLS["update"].items()
            if name not in ("level", "wait", "concurrency", "batch_delay", "config")
        },
        "search_index": NOT_A_SWITCH,
    },
    "to_html": SESSION_CALLS["to_html"],
    "worker": {
        "limits": NOT_LIMITS,
        "poll": (*NOT_SECONDS, None),
        "all_tenants": (1, "yes", None),
    },
    "list_due": {
        "limit": (*NOT_A_COUNT, 0, None),
    },
    "tenants": {"after": (5, b"x"), "limit": (*NOT_A_COUNT, 0, None)},
}
PARTS = {
    "tenant": NOT_A_NAME,
    "llm": (
        5,
        "gpt",
        *(BadLLM(name=name) for name in NOT_A_NAME),
        *(BadLLM(context_window=number) for number in (0, *NOT_A_COUNT)),
        *(BadLLM(overhead_tokens=number) for number in NOT_A_COUNT),
        BadLLM(prices=5),
    ),
    "embedder": (
        5,
        "minilm",
        object(),
        BadEmbedder(name=""),
        BadEmbedder(name=5),
        BadEmbedder(dimension=0),
        BadEmbedder(dimension=True),
        BadEmbedder(weight="x"),
    ),
    "search_policy": (5, {}),
    "token_counter": ("x", 5, object()),
    "config": (5, {}, "tokens", LevelConfig(target_ratio=0.5, style="detailed")),
    "update_policy": (5, {}),
    "context_policy": (5, {}),
    "bank_policy": (5, {}),
    "prompts": (5, "x", ["x"], {5: "x"}, {"bogus": "x"}, {"summarise.l1.mine": 5}),
    "clock": (5, None, "now"),
}
NEEDED = {
    "import_chats": {"conversations": ()},
    "copy_to": {"target": "never-made.db"},
    "sync": {"messages": []},
    "search": {"query": "remark"},
    "recall": {"query": "remark"},
    "expand": {"node": "L1.0"},
    "session": {"session_id": "s"},
    "find": {"name": "s"},
    "feedback": {"target": "L1.0", "score": 0.5},
    "edit": {"index": 0, "content": "x"},
    "erase": {"indices": [0]},
    "quarantine": {"indices": [0]},
    "fork": {"new_id": "f"},
    "recompress": {"level": 1},
    "note": {"text": "x"},
    "read": {"name": "progress.md"},
    "rollback": {"to": 0},
    "export": {"folder": "never-made"},
    "load": {"folder": "no-such-folder"},
    "space": {"name": "x"},
    "join": {"space": "no-such-space", "sessions": ["s"]},
    "forget": {"text": "x"},
}


def rows(table):
    return [
        pytest.param(call, name, value, id=f"{call}-{name}-{str(value)[:12]!a}")
        for call, parameters in table.items()
        for name, values in parameters.items()
        for value in values
    ]


def parts():
    return [
        pytest.param(name, value, id=f"{name}-{str(value)[:12]!a}")
        for name, values in PARTS.items()
        for value in values
    ]


def invoke(owner, call, name, value):
    if name == "messages":
        return getattr(owner, call)(value)
    method = getattr(owner, call)
    needed = {one: value for one, value in NEEDED.get(call, {}).items() if takes(method, one)}
    return method(**{**needed, name: value})


def takes(method, name):
    return name in inspect.signature(method).parameters


def fill():
    return [Message.user(f"remark {n}", created_at=NOON) for n in range(12)]


@pytest.fixture(scope="module")
def memory():
    with Memory(store=MemoryStore()) as found:
        found.session("s").append(fill())
        yield found


@pytest.mark.parametrize(("call", "name", "value"), rows(SESSION_CALLS))
def test_a_session_refuses_it(memory, call, name, value):
    with pytest.raises(HiermemError):
        invoke(memory.session("s"), call, name, value)


@pytest.mark.parametrize(("call", "name", "value"), rows(SPACE_CALLS))
def test_a_space_refuses_it(memory, call, name, value):
    with pytest.raises(HiermemError):
        invoke(memory.space("x", rules="progress.md: what works"), call, name, value)


@pytest.mark.parametrize(("call", "name", "value"), rows(MEMORY_CALLS))
def test_a_memory_refuses_it(memory, call, name, value):
    with pytest.raises(HiermemError):
        invoke(memory, call, name, value)


@pytest.mark.parametrize(("name", "value"), parts())
def test_no_memory_or_manager_is_made_of_it(name, value):
    with pytest.raises(UsageError):
        Memory(store=MemoryStore(), **{name: value})
    with pytest.raises(UsageError):
        AsyncMemory(store=MemoryStore(), **{name: value})
    with pytest.raises(UsageError):
        Memory.open(":memory:", **{name: value})
    if name in inspect.signature(ContextWindowManager).parameters:
        with pytest.raises(UsageError):
            ContextWindowManager(RecordStore(MemoryStore()), **{name: value})


@pytest.mark.parametrize("store", [5, None, "chat.db", object()])
def test_what_is_no_store_is_refused(store):
    for make in (Memory, AsyncMemory, ContextWindowManager):
        with pytest.raises(UsageError):
            make(store=store)


@pytest.mark.parametrize("path", [5, None, b"chat.db", "", "a\0b", ["chat.db"]])
async def test_what_is_no_path_is_refused(path):
    with pytest.raises(UsageError):
        await AsyncMemory.open(path)
    with pytest.raises(UsageError):
        await asyncio.to_thread(Memory.open, path)
    with pytest.raises(UsageError):
        await asyncio.to_thread(lambda: Memory.open(":memory:", create="no"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in UpdatePolicy.model_fields for value in ("1", "yes", [])),
        *(
            (name, True)
            for name, field in UpdatePolicy.model_fields.items()
            if field.annotation is not bool
        ),
        ("concurrency", 2.0),
        ("tenant_calls", 10.0),
        ("follow_strategy", 1),
    ],
)
def test_a_policy_converts_nothing(name, value):
    """What is taken for something else is a cap that is not the one that was meant."""
    with pytest.raises(ConfigError, match=name):
        UpdatePolicy(**{name: value})


@pytest.mark.parametrize("name", BankPolicy.model_fields)
def test_a_bank_policy_converts_nothing(name):
    """A limit that was read from a text is one that nobody chose."""
    for value in ("1", [], True):
        with pytest.raises(ConfigError, match=name):
            BankPolicy(**{name: value})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("calls", NOT_A_COUNT), ("tokens", NOT_A_COUNT), ("deadline", NOT_SECONDS)],
)
def test_limits_convert_nothing(name, wrong):
    """A limit that was read from a text is one that nobody chose."""
    for value in wrong:
        with pytest.raises(ConfigError, match=name):
            Limits(**{name: value})


def test_a_policy_takes_whole_seconds():
    policy = UpdatePolicy(batch_delay=0, lease=5, tenant_calls=None, follow_strategy=True)
    assert (policy.batch_delay, policy.lease) == (0, 5)


async def test_a_worker_refuses_a_time_that_is_none():
    found = AsyncMemory(store=MemoryStore())
    async with found.worker() as worker:
        for value in NOT_SECONDS:
            with pytest.raises(UsageError, match="timeout"):
                await worker.drain(value)
            with pytest.raises(UsageError, match="timeout"):
                await worker.stop(value)
        assert worker.status.state == "running"
    await found.close()


async def test_every_parameter_of_the_calls_is_in_the_tables():
    """A parameter that is added later must be added here as well."""
    faces = (
        (AsyncMemory, MEMORY_CALLS),
        (type(_a_session()), SESSION_CALLS),
        (AsyncSpace, SPACE_CALLS),
        (AsyncWorker, {"drain": {"timeout": ()}, "stop": {"timeout": ()}}),
    )
    for owner, table in faces:
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            if name.startswith("_"):
                continue
            told = set(inspect.signature(member).parameters) - {"self"}
            if "filters" in told:
                kind = SearchFilters if name == "search" else RecallFilters
                kind = TenantFilters if owner is AsyncMemory else kind
                told = told - {"filters"} | set(kind.__annotations__)
            assert told == set(table.get(name, {})), name
    assert set(inspect.signature(AsyncMemory).parameters) == {"store", *PARTS}


@pytest.mark.parametrize(
    ("call", "name"), [("search", "speaker"), ("recall", "levels"), ("recall", "Span")]
)
def test_a_filter_that_there_is_not_is_refused_by_name(memory, call, name):
    """A filter that was misspelt and passed over would let everything through."""
    with pytest.raises(UsageError, match=f"filter '{name}' does not exist.*entities, "):
        invoke(memory.session("s"), call, name, [0])


async def test_a_manager_takes_the_filters_of_a_search():
    store = RecordStore(MemoryStore())
    await AsyncMemory(store=store).session("s").append(fill())
    manager = ContextWindowManager(store)
    found = await manager.semantic_search("s", "remark", levels=[0], span=(2, 4))
    assert {message.index for message in found.recall} <= {2, 3}
    for name, values in {**FILTERS, "speaker": (5,)}.items():
        for value in values:
            with pytest.raises(UsageError):
                await manager.semantic_search("s", "remark", **{name: value})


def _a_session():
    return AsyncMemory(store=MemoryStore()).session("s")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message.assistant("x", tool_calls=None),
        lambda: Message.assistant("x", tool_calls=5),
        lambda: Message.assistant("x", tool_calls="abc"),
        lambda: Message.assistant("x", tool_calls=["abc"]),
        lambda: Message.user(5),
        lambda: Message.user(None),
        lambda: Message.user(b"x"),
        lambda: Message("bogus", "x"),
        lambda: Message.user("x", created_at="now"),
        lambda: Message.from_openai(5),
        lambda: CompressionTrigger(5),
        lambda: CompressionTrigger(None),
        lambda: CompressionTrigger(HierarchyConfig(), 0),
        lambda: CompressionTrigger(HierarchyConfig(), "2"),
    ],
)
def test_no_value_is_made_of_it(make):
    with pytest.raises(UsageError):
        make()


async def test_the_manager_refuses_it_too():
    store = RecordStore(MemoryStore())
    await AsyncMemory(store=store).session("s").append(fill())
    manager = ContextWindowManager(store)
    for bad in NOT_A_NAME:
        with pytest.raises(UsageError):
            await manager.select_optimal_context(bad)
    with pytest.raises(UsageError):
        ContextBudget(tools="abc")
    for budget in (5, {}, "8000", ContextBudget(system=5)):
        with pytest.raises(UsageError):
            await manager.select_optimal_context("s", budget)
    table = SESSION_CALLS["context"]
    for name in ("view", "strategy", "sticky", "cache_cold", "allow_omission"):
        for value in table[name]:
            with pytest.raises(UsageError):
                await manager.select_optimal_context("s", **{name: value})


async def test_a_number_beyond_any_store_gives_what_there_is():
    """A store's own numbers end at 64 bits; a larger one must not come out as its error."""
    async with AsyncMemory.open(":memory:") as memory:
        session = memory.session("s")
        await session.append(fill())
        assert await session.runs(limit=10**30) == await memory.runs(limit=10**30)
        assert await session.summaries(10**30) == []
        assert await session.messages(10**30) == []
        assert len(await session.messages(0, 10**30)) == 12
        assert len(await session.expand("L1.0", 10**30)) == 10


async def test_a_summary_alone_tells_the_manager_its_session():
    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store)
    session = memory.session("s")
    await session.append(fill())
    (summary,) = await session.summaries(1)
    manager = ContextWindowManager(store)
    assert await manager.expand(summary) == await session.expand(summary)
    assert await manager.expand(summary, None) == await session.expand(summary)
    assert await manager.expand("L1.0", session_id="s") == await session.expand(summary)
    with pytest.raises(UsageError, match="session_id"):
        await manager.expand("L1.0")
    with pytest.raises(UsageError, match="session"):
        await manager.expand(summary, session_id="another")
    with pytest.raises(NotFoundError):
        await manager.expand("L1.0", session_id="another")


def test_the_trigger_takes_a_stored_message_and_nothing_else(memory):
    trigger = CompressionTrigger(HierarchyConfig.by_tokens(target=5, hard_limit=5))
    session = memory.session("trigger")
    session.append(Message.user("hello there, how are you today", created_at=NOON))
    (stored,) = session.messages()
    assert trigger.check(None, stored) == trigger.check(None, Arrival.of(stored))
    for window, message in ((None, 5), (None, Message.user("x")), (5, stored), ("x", stored)):
        with pytest.raises(UsageError):
            trigger.check(window, message)


def levels(*styles):
    return HierarchyConfig(
        levels=tuple(LevelConfig(target_ratio=0.5, style=style) for style in styles)
    )


@pytest.mark.parametrize(
    ("styles", "told"),
    [
        (("bogus", "thematic", "executive"), r"level 1 .*summarise\.l1\.bogus"),
        (("detailed", "bogus", "executive"), r"level 2 .*summarise\.l2\.bogus"),
        (("detailed", "thematic"), r"level 3 .*summarise\.l3\.thematic"),
        (("detailed", "thematic", "executive", "odd"), r"level 4 .*summarise\.l3\.odd"),
    ],
)
def test_a_style_without_a_prompt_is_refused_at_construction(styles, told):
    """Found out at the first update, it would be a failure hours after the mistake."""
    with pytest.raises(ConfigError, match=told):
        Memory(store=MemoryStore(), config=levels(*styles))
    with pytest.raises(ConfigError, match=told):
        AsyncMemory(store=MemoryStore(), config=levels(*styles))


def test_a_style_with_a_prompt_of_ones_own_is_taken():
    text = "name: mine\nversion: 1\nsections: A*\n[system]\nSay it.\n[user]\n{{record}}\n"
    with Memory(
        store=MemoryStore(),
        config=levels("mine", "thematic", "executive"),
        prompts={"summarise.l1.mine": text},
    ) as memory:
        assert memory.tenant == "default"


def test_a_call_from_the_memorys_own_thread_is_refused_instead_of_hanging():
    """on_progress runs on the loop's thread: a call from there would wait for itself."""
    caught = []

    def work():
        with Memory(store=MemoryStore()) as memory:
            session = memory.session("s")
            session.append(fill())
            calls = [
                session.status,
                session.messages,
                session.update,
                lambda: session.append(Message.user("one more")),
                memory.sessions,
                memory.close,
            ]

            def progress(_):
                for call in calls:
                    try:
                        call()
                    except UsageError as error:
                        caught.append(str(error))

            session.update(on_progress=progress)
            assert len(session.messages()) == 12

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the call waits for its own thread"
    assert caught
    assert len(caught) % 6 == 0
    assert all("on_progress" in text for text in caught)


@pytest.mark.parametrize(
    ("argument", "members", "lacks"),
    [
        ("llm", {"name": "m", "remote": True, "complete": len}, "context_window"),
        ("llm", {"name": "m", "complete": len, "context_window": None}, "remote"),
        ("llm", {"complete": len, "__call__": len}, "name, context_window, remote"),
        ("llm", {"remote": True, "name": "m"}, "context_window, complete"),
        ("embedder", {"name": "e", "embed": len}, "dimension"),
        ("embedder", {"name": "e", "dimension": 3}, "embed"),
        ("embedder", {"embed": len}, "name, dimension"),
        ("token_counter", {"count": len}, "name"),
    ],
)
def test_an_adapter_with_a_missing_attribute_is_told_which(argument, members, lacks):
    """Broken, whoever wrote an adapter compares it with the Protocol by eye."""
    made = type("Mine", (), members)
    with pytest.raises(UsageError, match=rf"{argument} is Mine and lacks {lacks}; it must"):
        Memory.open(":memory:", **{argument: made()})
    with pytest.raises(UsageError, match=rf"{argument} is the class Mine; pass an object of it"):
        Memory.open(":memory:", **{argument: made})
