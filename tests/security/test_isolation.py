"""P12 through the public face: names are only names, and tenants never see one another."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from stand_ins import WordCounter

from hiermem import (
    AsyncMemory,
    ContextWindowManager,
    HierarchyConfig,
    HiermemError,
    InvalidMessageError,
    Message,
    NotFoundError,
    UpdatePolicy,
)
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.testing.strategies import HOSTILE_NAMES

CONFIG = HierarchyConfig.by_tokens(target=100, max_messages=4)
NAMES = [
    *HOSTILE_NAMES,
    "a'--",
    'a"; DELETE FROM session; --',
    "a' OR '1'='1",
    "a*",
    "a?",
    "[a]",
    "a\\",
    "../../etc/passwd",
    "C:\\con",
    "/",
    ".",
    "a\n",
    "a\r\n",
    "\ta",
    "a\x01",
    "a\x7f",
    "a\u200b",
    "\u202ea",
    "\ufeffa",
    "a\u0300",
    "\u212b",
    "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}",
    "open/L1/main",
    "L1.0",
    "default",
    "None",
    "-1",
    "1e3",
    "{}",
    "%s",
    "%(x)s",
    "{0}",
    "$(id)",
    "x" * 512,
    "x" * 511 + "y",
    "\U0001f600" * 512,
]
BAD = ["", "x" * 513, "a\x00", "\x00", "\ud800", "a\udfffb"]


def memory_over(store, tenant, **how):
    return AsyncMemory(
        store=store,
        tenant=tenant,
        token_counter=WordCounter(),
        config=CONFIG,
        update_policy=UpdatePolicy(batch_delay=0),
        **how,
    )


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    kind = MemoryStore() if request.param == "memory" else await SQLiteStore.open(tmp_path / "m.db")
    yield kind
    await kind.close()


async def fill(memory, session_id, mark, count=14):
    session = memory.session(session_id)
    await session.append(
        Message("user" if n % 2 == 0 else "assistant", f"{mark} number {n} of what they said here")
        for n in range(count)
    )
    await session.update()
    return session


async def everything(memory, session_id):
    """Read all that a tenant can reach of a session, as one text."""
    session = memory.session(session_id)
    found = [str(stored.content) for stored in await session.messages()]
    found += [summary.text for summary in await session.summaries()]
    found.append((await session.context(5_000, sticky=False)).to_text())
    found += [str(run) for run in await session.runs()]
    for summary in await session.summaries():
        found += [str(part) for part in await session.expand(summary, depth=None)]
    return "\n".join(found)


async def test_every_name_is_a_session_a_thread_and_a_key_of_its_own(store, every):
    memory = memory_over(store, "t")
    sessions = NAMES[:: every(8)]
    for number, name in enumerate(sessions):
        session = memory.session(name, title=f"about {number}", participants=[name])
        sent = [
            Message.user(f"mark{number:03} under {n}", key=other, thread=other, name=other)
            for n, other in enumerate(NAMES)
        ]
        assert await session.append(sent) == list(range(len(NAMES)))
        assert await session.append(sent) == list(range(len(NAMES)))
        if number % 8 == 0:
            await session.flush()
            await session.update()
    assert [record.id for record in await memory.sessions()] == sessions
    for number, name in enumerate(sessions):
        session = memory.session(name)
        stored = await session.messages()
        assert [each.thread for each in stored] == NAMES
        assert [each.key for each in stored] == NAMES
        assert [each.name for each in stored] == NAMES
        status = await session.status()
        assert status.participants == (name,)
        threads = {summary.thread for summary in await session.summaries(1)}
        threads |= {window.thread for window in status.open_windows}
        assert threads == set(NAMES)
        seen = await everything(memory, name)
        assert seen.count("mark") == seen.count(f"mark{number:03}")


@pytest.mark.parametrize("bad", [*BAD, None, 7, b"bytes", ["a"]], ids=ascii)
async def test_a_name_that_is_none_is_refused_everywhere(store, bad):
    memory = memory_over(store, "t")
    await fill(memory, "s", "mark", count=2)
    with pytest.raises(InvalidMessageError):
        memory_over(store, bad)
    with pytest.raises(InvalidMessageError):
        ContextWindowManager(store, tenant=bad)
    with pytest.raises(InvalidMessageError):
        memory.session(bad)
    with pytest.raises(InvalidMessageError):
        memory.session("s", participants=[bad])
    for wrong in (
        lambda: Message.user("x", thread=bad),
        lambda: Message.user("x", key=bad) if bad is not None else None,
        # An empty speaker's name is what some clients send; it is one like any other.
        lambda: Message.user("x", name=bad) if bad not in (None, "") else None,
    ):
        with pytest.raises(HiermemError):
            await memory.session("s").append(wrong())
    assert (await memory.session("s").status()).messages == 2


@pytest.mark.parametrize(
    "bad", ["a\x00", "\ud800", "x" * 1_000_000, 7, b"b"], ids=lambda b: ascii(b)[:12]
)
async def test_a_title_keeps_to_the_text_policy(store, bad):
    with pytest.raises(HiermemError):
        await memory_over(store, "t").session("s", title=bad).append(Message.user("x"))
    assert await memory_over(store, "t").session("s").messages() == []


async def test_the_manager_reads_its_own_tenant_alone(store):
    for name in ("a", "A", "a."):
        await fill(memory_over(store, name), f"of-{name}", "mark")
    for name in ("a", "A", "a."):
        manager = ContextWindowManager(store, tenant=name, token_counter=WordCounter())
        assert (await manager.select_optimal_context(f"of-{name}")).messages == 14
        for other in {"a", "A", "a."} - {name}:
            assert (await manager.select_optimal_context(f"of-{other}")).messages == 0
            with pytest.raises(NotFoundError):
                await manager.expand("L1.0", session_id=f"of-{other}")


async def test_a_text_made_for_one_tenant_is_not_reused_for_another(store):
    """The same conversation costs the second tenant its own calls: no cache leads across."""
    calls = []
    for name in ("a", "A"):
        llm = ScriptedLLM()
        memory = memory_over(store, name, llm=llm)
        session = memory.session("s")
        await session.append(
            Message.user(" ".join(f"word{n}x{k}" for k in range(60))) for n in range(12)
        )
        await session.flush()
        report = await session.update()
        assert report.reused == 0
        calls.append(llm.calls)
    assert calls[0] == calls[1] > 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(HOSTILE_NAMES[:8]),
        st.sampled_from(HOSTILE_NAMES[:6]),
        st.sampled_from(["append", "append", "append", "update", "context", "flush", "close"]),
        st.integers(1, 8),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@drawn(40)
@given(steps=STEPS)
async def test_two_tenants_with_names_alike_never_see_each_other(kind, steps):
    with tempfile.TemporaryDirectory() as root:
        store = MemoryStore() if kind == "memory" else await SQLiteStore.open(Path(root) / "m.db")
        said: dict[tuple[str, str], list[str]] = {}
        closed = set()
        for tenant, session_id, step, count in steps:
            session = memory_over(store, tenant).session(session_id)
            place = (tenant, session_id)
            if step == "append" and place not in closed:
                owner = f"mark-{tenant!a}-{session_id!a}-"
                texts = [f"{owner} {n} said so" for n in range(count)]
                # The same keys everywhere: they must not meet.
                start = len(said.get(place, []))
                await session.append(
                    Message.user(text, key=f"k{start + n}") for n, text in enumerate(texts)
                )
                said.setdefault(place, []).extend(texts)
            elif place in said and step in ("update", "context"):
                await (session.update() if step == "update" else session.context(4_000))
            elif place in said and step in ("flush", "close") and place not in closed:
                await getattr(session, step)()
                closed |= {place} if step == "close" else set()
            elif place not in said and step != "append":
                assert await session.messages() == []
        for tenant in HOSTILE_NAMES[:8]:
            memory = memory_over(store, tenant)
            own = {session for name, session in said if name == tenant}
            assert {record.id for record in await memory.sessions()} == own
            assert {run.subject for run in await memory.runs()} <= own
            for session_id in HOSTILE_NAMES[:6]:
                if session_id not in own:
                    assert await memory.session(session_id).messages() == []
                    continue
                stored = await memory.session(session_id).messages()
                assert [each.content for each in stored] == said[tenant, session_id]
                seen = await everything(memory, session_id)
                owner = f"mark-{tenant!a}-{session_id!a}-"
                assert seen.count("mark-") == seen.count(owner)
                record = await memory.session(session_id).status()
                assert record.closed == ((tenant, session_id) in closed)
        await store.close()


async def test_every_name_is_a_tenant_of_its_own(store, every):
    """All of them live in one store; each reads its own mark and nobody else's."""
    memories = {name: memory_over(store, name) for name in NAMES[:: every(2)]}
    for number, memory in enumerate(memories.values()):
        assert await memory.sessions() == []
        await fill(memory, "s", f"mark{number:03}")
    for number, (name, memory) in enumerate(memories.items()):
        assert memory.tenant == name
        assert [record.id for record in await memory.sessions()] == ["s"]
        assert len(await memory.runs()) == 1
        seen = await everything(memory, "s")
        assert f"mark{number:03}" in seen
        assert seen.count("mark") == seen.count(f"mark{number:03}"), f"{name!r} sees another's"
