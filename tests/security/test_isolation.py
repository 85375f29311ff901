"""P12 through the public face: names are only names, and tenants never see one another."""

import pytest
from message_strategies import HOSTILE_NAMES
from stand_ins import WordCounter, talk
from stand_ins import memory_over as over

from hiermem import ContextWindowManager, HierarchyConfig, Message
from hiermem.errors import HiermemError, InvalidMessageError, NotFoundError
from hiermem.testing.llms import ScriptedLLM

CONFIG = HierarchyConfig.by_tokens(target=100, max_messages=4)
NAMES = [
    *HOSTILE_NAMES, "a'--", 'a"; DELETE FROM session; --', "a' OR '1'='1", "a*", "a?", "[a]", "a\\",
    "../../etc/passwd", "C:\\con", "/", ".", "a\n", "a\r\n", "\ta", "a\x01", "a\x7f", "a\u200b",
    "\u202ea", "\ufeffa", "a\u0300", "\u212b", "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}",
    "open/L1/main", "L1.0", "default", "None", "-1", "1e3", "{}", "%s", "%(x)s", "{0}", "$(id)",
    "x" * 512, "x" * 511 + "y", "\U0001f600" * 512,
]  # fmt: skip
BAD = ["", "x" * 513, "a\x00", "\x00", "\ud800", "a\udfffb"]


def memory_over(store, tenant, **how):
    return over(store, tenant=tenant, config=CONFIG, **how)


async def fill(memory, session_id, mark, count=14):
    session = memory.session(session_id)
    await session.append(talk(count, mark + " number {n} of what they said here"))
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
    for wrong in (
        lambda: memory_over(store, bad),
        lambda: ContextWindowManager(store, tenant=bad),
        lambda: memory.session(bad),
        lambda: memory.session("s", participants=[bad]),
    ):
        with pytest.raises(InvalidMessageError):
            wrong()
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
