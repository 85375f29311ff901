"""P2: a key seen before with the same content is a no-op; with other content it is refused."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import of_kind
from logbook import (
    CONFIGS,
    Failing,
    Way,
    finish,
    happen,
    image,
    logs,
    messages_of,
    opened,
    place,
    play,
)
from message_strategies import HOSTILE_NAMES
from sampling import drawn

from hiermem import ConflictError, Message, StoreError, TextPart, ToolCall
from hiermem.testing.faults import FaultPlan

KINDS = ["memory", "sqlite-memory", "sqlite"]


@pytest.mark.parametrize("kind", KINDS)
@drawn(30)
@given(
    log=logs(most=6, longest=12), seed=st.integers(0, 10_000), name=st.sampled_from(sorted(CONFIGS))
)
async def test_p2_sending_again_what_was_sent_changes_nothing(kind, log, seed, name):
    """A client that repeats itself, late and out of order, gets the first indices and no twin."""
    luck, config = Random(seed), CONFIGS[name]
    async with place("memory") as at:
        once = await play(log, at, config, Way())
    async with place(kind) as at:
        memory = await opened(at, config)
        sent: list[Message] = []
        for entry in log:
            session = memory.session("s")
            if not isinstance(entry, Message):
                await happen(session, entry)
                continue
            # The new one stands among old ones, which do not have to come in their order.
            again = luck.sample(range(len(sent)), min(len(sent), luck.choice([0, 0, 1, 5])))
            front, back = again[: len(again) // 2], again[len(again) // 2 :]
            batch = [*(sent[n] for n in front), entry, entry, *(sent[n] for n in back)]
            indices = await session.append(batch)
            assert indices == [*front, len(sent), len(sent), *back]
            sent.append(entry)
            if at.lasts and luck.random() < 0.03:
                await memory.close()
                memory = await opened(at, config)
        if log:
            session = memory.session("s")
            assert await session.append(sent) == list(range(len(sent)))
            assert await finish(memory) == once
        await memory.close()


OTHERS = [
    lambda m: replace(m, content="other"),
    lambda m: replace(m, role="user" if m.role == "system" else "system", tool_calls=(),
                      tool_call_id=None),
    lambda m: replace(m, name="somebody else"),
    lambda m: replace(m, thread="another strand"),
    lambda m: replace(m, content=(TextPart("other"),)),
    lambda m: replace(m, role="assistant", tool_call_id=None,
                      tool_calls=(*m.tool_calls, ToolCall("c", "n"))),
]  # fmt: skip
SAME = [
    lambda m: replace(m, created_at=m.created_at + timedelta(days=1)),
    lambda m: replace(m, created_at=None),
    lambda m: replace(m, metadata={"sent": "again"}),
]


@drawn(100)
@given(
    log=logs(most=5, longest=10),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["memory", "memory", "sqlite"]),
)
async def test_p2_a_key_with_other_content_is_refused_and_nothing_is_written(log, seed, kind):
    luck, sent = Random(seed), messages_of(log)
    async with place(kind) as at:
        await play(log, at, CONFIGS["tokens"], Way(batches=(50,)), finished=False)
        if not sent:
            return
        memory = await opened(at, CONFIGS["tokens"])
        session = memory.session("s")
        before = await image(memory)
        for _ in range(3):
            place_, change = luck.randrange(len(sent)), luck.choice(OTHERS)
            fresh = [Message.user("fresh", key=f"f{n}") for n in range(2)]
            batch = [*fresh, change(sent[place_])]
            luck.shuffle(batch)
            with pytest.raises(ConflictError, check=of_kind("key")) as caught:
                await session.append(batch)
            assert caught.value.index == place_
            assert caught.value.key == sent[place_].key
            assert await image(memory) == before
            assert await session.append(luck.choice(SAME)(sent[place_])) == [place_]
            assert await image(memory) == before
        await memory.close()


async def test_p2_two_different_messages_under_one_key_in_one_call_are_refused():
    async with place("memory") as at:
        memory = await opened(at, CONFIGS["tokens"])
        session = memory.session("s")
        with pytest.raises(ConflictError, check=of_kind("key")):
            await session.append(Message.user("one", key="k"), Message.user("two", key="k"))
        assert await session.append(Message.user("two", key="k")) == [0]


@pytest.mark.parametrize("kind", KINDS)
async def test_p2_keys_are_per_session_and_compared_code_point_by_code_point(kind):
    async with place(kind) as at:
        memory = await opened(at, CONFIGS["tokens"])
        keys = [*HOSTILE_NAMES, "k" * 512]
        for name in ("s", "S"):
            session = memory.session(name)
            sent = [Message.user(f"said under {n}", key=key) for n, key in enumerate(keys)]
            assert await session.append(sent) == list(range(len(keys)))
            assert await session.append(reversed(sent)) == list(reversed(range(len(keys))))
        await memory.close()


@pytest.mark.parametrize("kind", KINDS[:2])
async def test_p2_without_a_key_there_is_no_idempotence(kind):
    async with place(kind) as at:
        memory = await opened(at, CONFIGS["tokens"])
        session = memory.session("s")
        assert await session.append([Message.user("again")] * 3) == [0, 1, 2]
        await memory.close()


@drawn(60)
@given(log=logs(events=False, most=6), seed=st.integers(0, 10_000))
async def test_p2_a_client_that_retries_what_failed_ends_up_with_each_message_once(log, seed):
    """The store fails before or after the commit; the client sends again until it works."""
    luck = Random(seed)
    async with place("memory") as at:
        once = await play(log, at, CONFIGS["tokens"], Way())
    if not log:
        return
    async with place("memory") as at:
        plan = FaultPlan({n: luck.choice(["fail", "busy"]) for n in luck.sample(range(80), 25)})
        memory = await opened(Failing(at, plan), CONFIGS["tokens"])
        for first in range(0, len(log), 3):
            for _ in range(100):
                try:
                    indices = await memory.session("s").append(log[first : first + 3])
                except StoreError:
                    continue
                assert indices == list(range(first, min(first + 3, len(log))))
                break
        memory = await opened(at, CONFIGS["tokens"])
        assert await finish(memory) == once
