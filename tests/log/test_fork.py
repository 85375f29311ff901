"""Forks: they share what they share, cost no call for it, and are whole by themselves."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import of_kind
from logbook import CONFIGS, START, Words, bounds, logs, opened, place, play, ways
from sampling import drawn
from session_fixture import COUNTER, SessionFixture, messages, text
from test_edit import LATER, Editor
from tree_builder import check_tree, tree_of

from hiermem.changes import change
from hiermem.config import HierarchyConfig
from hiermem.errors import ConflictError, NotFoundError, UsageError
from hiermem.handle import state_from
from hiermem.log import append as ingest
from hiermem.log.append import fork
from hiermem.summaries.update import recompress
from hiermem.testing.llms import ScriptedLLM
from hiermem.tree.status import is_unfinished
from hiermem.types import ImagePart, Message, ToolCall
from hiermem.upkeep.run_check import check

_KINDS = st.sampled_from(
    [
        (), ("edit",), ("edit", "edit", "erase", "quarantine"), ("edit", "erase", "repack"),
        ("edit", "edit", "quarantine", "repack", "reconfigure"),
        ("edit", "erase", "quarantine", "reconfigure", "reconfigure"),
        ("erase", "erase", "erase", "edit"),
    ]
)  # fmt: skip


class NeverTheSame(ScriptedLLM):
    """Says everything in a new way each time that it is asked."""

    async def complete(self, request):
        response = await super().complete(request)
        way = str(self.calls).translate(str.maketrans("0123456789", "abcdefghij"))
        return replace(response, text=f"{response.text}\n- told the {way} way")


def shape(nodes):
    return {id_: (bounds(node), node.parent, node.unit) for id_, node in nodes.items()}


def ending_before(nodes, stop):
    """Give the nodes over the windows up to the first one that does not end before a message."""
    windows = sorted((n for n in nodes.values() if n.level == 1), key=lambda node: node.ordinal)
    count = next((n.ordinal for n in windows if n.span.stop > stop), len(windows))
    return {id_: node for id_, node in nodes.items() if node.windows[1] <= count}


@drawn(20)
@given(
    log=logs(),
    config=st.sampled_from(["tokens", "message", "chars", "off", "large"]),
    way=ways,
    seed=st.integers(0, 1000),
    kinds=_KINDS,
    at=st.integers(0, 1000),
)
async def test_a_fork_has_what_is_sealed_before_it_and_is_whole(log, config, way, seed, kinds, at):
    """Broken, a fork loses or doubles a message, moves a bound, or pays for a text again."""
    if not log:
        return
    editor = Editor(seed, kinds=kinds, each=0.5 if kinds else 0.0)

    async def end(session):
        handle = session._handle
        record = await handle.store.session("s")
        stop = at % (record.messages + 1)
        await fork(handle, "s", "f", at=stop)
        found = await check(handle)
        assert not found.findings
        if "reconfigure" not in kinds and stop:
            await check_tree(handle.store, "f", Words())
        theirs = await handle.store.messages("s", 0, stop)
        mine = await handle.store.messages("f", 0, stop)
        assert [m.message for m in mine] == [m.message for m in theirs]
        nodes, forked = [await tree_of(handle.store, name) for name in "sf"]
        for id_, node in ending_before(nodes, stop).items():
            other = forked[id_]
            assert bounds(other) == bounds(node)
            if node.revision:
                kept = (node.revision, "active", node.dirty, node.degraded)
                assert (other.revision, other.status, other.dirty, other.degraded) == kept
        # A fork of a fork is a fork.
        await fork(handle, "f", "g")
        assert shape(await tree_of(handle.store, "g")) == shape(forked)
        assert (await handle.store.session("g")).state == (await handle.store.session("f")).state

    async with place("memory") as where:
        await play(log, where, (CONFIGS | LATER)[config], way, look=editor, at_end=end)


@drawn(25)
@given(log=logs(events=False), config=st.sampled_from(["tokens", "chars"]), at=st.integers(0, 1000))
async def test_a_fork_goes_on_as_a_session_would_that_never_had_the_rest(log, config, at):
    """Broken, what came after the fork leaves a trace in it."""
    if not log:
        return
    stop = at % len(log)
    async with place("memory") as where:
        memory = await opened(where, CONFIGS[config])
        handle = memory._handle
        handle.clock = lambda: START
        await memory.session("s").append(log)
        await fork(handle, "s", "f", at=stop)
        await memory.session("f").append(log[stop:])
        mine, theirs = [state_from((await handle.store.session(name)).state) for name in "fs"]
        assert mine == theirs
        assert shape(await tree_of(handle.store, "f")) == shape(await tree_of(handle.store, "s"))
        flags = [[m.flags for m in await handle.store.messages(name, 0, len(log))] for name in "fs"]
        assert flags[0] == flags[1]
        await memory.close()


async def test_a_fork_made_before_an_edit_and_one_after_it():
    """Broken, a fork shows what was not there when it was made, or misses what was."""
    fixture = SessionFixture()
    await fixture.say(messages(40))
    await fixture.update()
    await fork(fixture.handle, "s", "early", at=25)
    await change.edit(fixture.handle, "s", 3, text(999))
    await fork(fixture.handle, "s", "late", at=25)
    (early,) = await fixture.tenant.messages("early", 3, 4)
    (late,) = await fixture.tenant.messages("late", 3, 4)
    assert (early.content, late.content) == (text(3), text(999))
    assert [old.content for old in await fixture.tenant.versions("late", 3)] == [text(3)]
    nodes = await tree_of(fixture.tenant, "late")
    assert (nodes["L1.0"].revision, nodes["L1.0"].dirty) == (1, True)
    assert (nodes["L1.1"].revision, nodes["L1.1"].dirty) == (1, False)


async def test_a_fork_between_asking_for_a_text_anew_and_making_it():
    """Broken, the fork's parents tell of children's texts that are not there, or it pays."""
    fixture, llm = SessionFixture(), NeverTheSame()
    await fixture.say(messages(160))
    await fixture.update(llm)
    assert await recompress(fixture.handle, "s", 1, (0, 20))
    await fork(fixture.handle, "s", "f")
    texts = {id_: node.revision for id_, node in (await tree_of(fixture.tenant, "f")).items()}
    before = llm.calls
    await fixture.update(llm, session="f")
    assert llm.calls == before
    nodes = await tree_of(fixture.tenant, "f")
    assert {id_: node.revision for id_, node in nodes.items()} == texts
    assert set(texts.values()) == {1}
    assert not any(map(is_unfinished, nodes.values()))


async def test_an_exchange_group_that_is_open_at_the_fork_can_still_get_its_result():
    fixture = SessionFixture()
    call = Message.assistant(tool_calls=[ToolCall("c1", "find")])
    await fixture.say([Message.user("Look."), call, Message.user("Never mind.")])
    await fork(fixture.handle, "s", "f", at=2)
    await fixture.say([Message.tool("42", tool_call_id="c1")], session="f")
    found = await fixture.tenant.messages("f", 0, 3)
    assert [stored.flags for stored in found] == [(), (), ()]
    assert (await fixture.tenant.messages("s", 1, 2))[0].flags == ("missing_result",)


@pytest.mark.parametrize("then", ["nothing", "edit", "quarantine", "full"])
async def test_what_is_over_the_limit_and_cannot_be_cut_is_one_slice_in_a_fork_too(then):
    """Broken, an image under a small limit makes a fork impossible, or the check accuse."""
    fixture = SessionFixture(config=HierarchyConfig.by_tokens(target=100, max_messages=None))
    image = Message.user([ImagePart("u" * 400)], created_at=START)
    await fixture.say(messages(2, words=8))
    await fixture.say([image, *messages(9, start=2, words=8), image])
    (stored,) = await fixture.tenant.messages("s", 2, 3)
    assert stored.size > fixture.config.hard_limit
    assert not stored.slices
    await fixture.update()
    if then == "edit":
        await change.edit(fixture.handle, "s", 2, "Short.")
    elif then == "quarantine":
        await change.erase(fixture.handle, "s", [2], kind="quarantine")
    elif then == "full":
        assert (await fixture.update(strategy="full")).swapped
    await fork(fixture.handle, "s", "f", at=8)
    await check_tree(fixture.tenant, "f", COUNTER)


async def test_a_fork_of_a_closed_session_is_open():
    fixture = SessionFixture()
    await fixture.say(messages(25))
    await ingest.happen(fixture.handle, "s", "close")
    await fork(fixture.handle, "s", "f")
    assert not (await fixture.tenant.session("f")).closed
    await fixture.say(messages(3, start=25), session="f")
    assert (await check(fixture.handle)).ok


async def test_what_cannot_be_forked_is_refused():
    fixture = SessionFixture()
    await fixture.say(messages(4))
    with pytest.raises(NotFoundError):
        await fork(fixture.handle, "s", "f", at=5)
    with pytest.raises(NotFoundError):
        await fork(fixture.handle, "t", "f")
    with pytest.raises(ConflictError, check=of_kind("exists")):
        await fork(fixture.handle, "s", "s")
    with pytest.raises(UsageError):
        await fork(fixture.handle, "s", "f", at=-1)
    assert await fixture.tenant.session("f") is None
