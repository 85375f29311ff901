"""The conditions on sessions, messages, keys, flags and events.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

from samples import (
    NOW,
    changed,
    node,
    plain,
    refused,
    rewriting,
    stored,
    write,
    writing,
)
from segment_conditions import Conditions, DecisionError, condition

from hiermem.errors import UsageError
from hiermem.protocols import TenantStore
from hiermem.types import FilePart, ImagePart, JsonPart, Message, SessionRecord, TextPart, ToolCall
from hiermem.types import transaction as tx


def _refuses(_: tx.Snapshot) -> tx.Changes[tx.Snapshot]:
    raise DecisionError


class SessionConditions(Conditions):
    """Sessions and their logs."""

    @condition
    async def test_the_record_comes_back_as_written(self, tenant: TenantStore) -> None:
        """Every field of a session's record is kept, and a later write replaces all of them."""
        first = SessionRecord(
            "s", "Title \N{SNOWMAN}", ("Ada", "assistant"), '{"a":1}', "counter", NOW,
            NOW + timedelta(hours=1), metadata={"user": "ada"}, state="[1]", version=1, epoch=3,
            tree=2, build='{"at":1}', forked_from="t", forked_at=7,
        )  # fmt: skip
        await tenant.mutate("s", lambda _: tx.Changes(None, session=first))
        assert await tenant.session("s") == first
        later = NOW + timedelta(days=1)
        second = SessionRecord("s", None, (), "{}", "other", later, later, closed=True, version=2)
        await tenant.mutate("s", lambda _: tx.Changes(None, session=second))
        assert await tenant.session("s") == second

    @condition
    async def test_the_snapshot_is_what_is_stored(self, tenant: TenantStore) -> None:
        """A decision sees the present record, and of the keys asked for those that exist."""
        first = await write(tenant, "s", [Message.user("x", key="k1")], keys=["k1"])
        assert first.session is None
        assert dict(first.keys) == {}
        await write(tenant, "s", [Message.user("y", key="k2")])
        third = await write(tenant, "s", keys=["k2", "k3"])
        assert third.session is not None
        assert (third.session.messages, third.session.version) == (2, 2)
        assert dict(third.keys) == {"k2": tx.KeyEntry(1, "print-1")}

    @condition
    async def test_a_session_is_created_once(self, tenant: TenantStore) -> None:
        """Of forty first writes at once, one finds no session, and each finds the one before it."""

        def first() -> tx.Deciding[int]:
            record: SessionRecord | None = yield "new", "session"
            return tx.Batch(record.version if record else 0, (changed("new", record, ["x"]),))

        async def one(number: int) -> int:
            if number % 2:
                return await tenant.transact(first)
            seen = await write(tenant, "new", ["x"])
            return seen.session.version if seen.session else 0

        assert sorted(await asyncio.gather(*map(one, range(40)))) == list(range(40))
        assert [message.index for message in await tenant.messages("new", 0, 99)] == list(range(40))

    @condition
    async def test_contradicting_changes_are_refused_whole(self, tenant: TenantStore) -> None:
        """UsageError, and not even the part of the write that was right takes effect."""
        await write(tenant, "s", [Message.user("x", key="taken")])
        good = writing("s", ["a", "b"])

        def wrong(**fields: Any) -> Callable[[tx.Snapshot], tx.Changes[tx.Snapshot]]:
            return lambda snapshot: replace(good(snapshot), **fields)

        def index(snapshot: tx.Snapshot) -> tx.Changes[tx.Snapshot]:
            changes = good(snapshot)
            return replace(changes, messages=(changes.messages[0], changes.messages[0]))

        other = SessionRecord("other", None, (), "{}", "c", NOW, NOW, messages=3, version=2)
        again = (("new", tx.KeyEntry(1, "p")), ("taken", tx.KeyEntry(2, "p")))
        for decide in (
            writing("s", ["a", "b"], record={"version": 1}),
            index,
            wrong(session=other),
            wrong(keys=again),
            wrong(keys=(again[0], again[0])),
            wrong(flags=((0, "fine"), (99, "lost"))),
            wrong(nodes=(node(0),), parents=(("L1.0", "L2.0"), ("L1.9", "L2.0"))),
        ):
            async with refused(tenant):
                await tenant.mutate("s", decide)

    @condition
    async def test_no_write_comes_between_snapshot_and_commit(self, tenant: TenantStore) -> None:
        """Fifty appends at once number their messages without gap or double."""
        await asyncio.gather(*(write(tenant, "s", [f"{n}", f"{n} again"]) for n in range(50)))
        found = await tenant.messages("s", 0, 1000)
        assert [one.index for one in found] == list(range(100))
        said = [str(one.content) for one in found]
        assert sorted(said[::2], key=int) == [str(n) for n in range(50)]
        assert said[1::2] == [f"{first} again" for first in said[::2]]

    @condition
    async def test_a_refused_write_hurts_no_other(self, tenant: TenantStore) -> None:
        """Of writes made at once, those that fail are undone alone; the others stand."""
        await write(tenant, "s", [Message.user("x", key="taken")])

        attempts: list[Awaitable[tx.Snapshot]] = []
        for n in range(0, 30, 3):
            attempts.append(tenant.mutate("s", _refuses))
            attempts.append(write(tenant, "s", [Message.user(f"{n + 1}", key="taken")]))
            attempts.append(write(tenant, "s", [f"{n + 2}"]))
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [DecisionError, UsageError, tx.Snapshot] * 10
        said = {str(one.content) for one in await tenant.messages("s", 0, 99)}
        assert said == {"x", *(f"{n}" for n in range(2, 30, 3))}

    @condition
    async def test_a_cancelled_write_is_whole_or_absent(self, tenant: TenantStore) -> None:
        """A write whose task is cancelled took effect as a whole or not at all."""
        for _ in range(20):
            task = asyncio.ensure_future(write(tenant, "s", ["a", "b"], nodes=(node(0),)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await write(tenant, "s", ["end"])
        found = await tenant.messages("s", 0, 99)
        assert [one.index for one in found] == list(range(len(found)))
        assert [one.content for one in found[:-1]] == ["a", "b"] * (len(found) // 2)

    @condition
    async def test_a_range_of_messages_is_half_open(self, tenant: TenantStore) -> None:
        """``start`` is in, ``stop`` is out, and what does not exist is left out."""
        await write(tenant, "s", [*map(str, range(12))])
        for start, stop in (
            (0, 0), (0, 1), (3, 5), (11, 12), (11, 99), (12, 20), (0, 10**9), (5, 2),
        ):  # fmt: skip
            found = await tenant.messages("s", start, stop)
            assert [one.index for one in found] == list(range(12))[start:stop]

    @condition
    async def test_every_message_comes_back_verbatim(self, tenant: TenantStore) -> None:
        """Every field of every shape of message is returned as it came."""
        given = [stored(message, **fields) for message, fields in _SHAPES]
        await write(tenant, "s", given, claim=False)
        found = await tenant.messages("s", 0, 999)
        for place, (one, back) in enumerate(zip(given, found, strict=True)):
            assert plain(back) == plain(replace(one, index=place))

    @condition
    async def test_flags_are_added_once_and_in_order(self, tenant: TenantStore) -> None:
        """A flag is added to what the message has, not twice, and to that message alone."""
        await write(tenant, "s", [stored("x", flags=("a",)), Message.user("y")])
        await write(tenant, "s", ["z"], flags=((0, "b"), (2, "c"), (0, "a")))
        await write(tenant, "s", flags=((0, "c"), (0, "c")))
        found = await tenant.messages("s", 0, 9)
        assert [one.flags for one in found] == [("a", "b", "c"), (), ("c",)]
        assert [one.content for one in found] == ["x", "y", "z"]

    @condition
    async def test_messages_with_a_flag_are_found(self, tenant: TenantStore) -> None:
        """The newest with exactly that flag come first, up to the limit, of that session alone."""
        marked = [stored(text, flags=(flag,)) for text, flag in zip("xyz", "aba", strict=True)]
        await write(tenant, "s", [*marked, Message.user('"a"', metadata={"flags": ["a"]})])
        await write(tenant, "t", [stored("other", flags=("a",))])
        await write(tenant, "s", flags=((1, "ab"), (1, 'a"b'), (3, "c")))
        await write(tenant, "s", flags=((3, "x,b,y"), (3, "b\\"), (3, '\\"b"'), (3, ',"b"')))
        await write(tenant, "s", rewrites=rewriting(2, "Z", "edit", flags=("a", "b")))
        found = [await tenant.flagged("s", flag, limit=9) for flag in ("a", "b", 'a"b', "", "A")]
        assert [[one.index for one in each] for each in found] == [[2, 0], [2, 1], [1], [], []]
        assert found[0] == (await tenant.messages("s", 0, 9))[2::-2]
        assert [one.index for one in await tenant.flagged("s", "a", limit=1)] == [2]
        assert [one.index for one in await tenant.flagged("s", "b", limit=1)] == [2]
        assert await tenant.flagged("s", "a", limit=0) == []
        assert await tenant.flagged("S", "a", limit=9) == []

    @condition
    async def test_events_come_in_the_order_written(self, tenant: TenantStore) -> None:
        """Neither time nor place in the log moves an event."""
        events = [
            tx.LogEvent("flush", 3, NOW),
            tx.LogEvent("close", 1, NOW - timedelta(days=1), "why"),
            tx.LogEvent("tick", 2, NOW + timedelta(days=1)),
        ]
        await write(tenant, "s", events=tuple(events[:1]))
        await write(tenant, "t", events=(tx.LogEvent("reopen", 0, NOW),))
        await write(tenant, "s", events=tuple(events[1:]))
        assert await tenant.events("s") == events


_EAST = NOW.astimezone(timezone(timedelta(hours=5, minutes=45)))
_SHAPES: list[tuple[Message, dict[str, Any]]] = [
    (Message.user(""), {}),
    (Message.system("rules", name="system"), {"state": "quarantined"}),
    (Message.user("hi", name="Ada", thread="side", key="k", created_at=_EAST), {}),
    (Message.assistant("", tool_calls=[ToolCall("1", "f", '{"a": 1}'), ToolCall("2", "g")]), {}),
    (Message.assistant("x", tool_calls=[ToolCall("", "", "not json", "custom")]), {}),
    (Message.tool("result", tool_call_id="1", name="f"), {"flags": ("late_result",)}),
    (Message("tool", "empty", tool_call_id=""), {}),
    (Message("tool", "orphan"), {"flags": ("orphan_result", "b")}),
    (Message.user(()), {}),
    (Message.user((TextPart("a"), TextPart(""))), {"tokens": 2**40, "size": 0}),
    (Message.user((ImagePart("https://x/y.png"), ImagePart("data:", "low"))), {}),
    (Message.user((FilePart("id"), FilePart("id", "name", "text/plain"))), {}),
    (Message.user((JsonPart({"deep": [{"a": None, "b": [1.5, True, "\N{SNOWMAN}"]}]}),)), {}),
    (Message.user("m", metadata={"openai": {"refusal": None}, "n": [1, {"x": "y"}]}), {}),
    (Message.user("long"), {"slices": (5, 10), "echoes": ((0, 3), (7, 9))}),
    (Message.user("", created_at=NOW.replace(year=1, month=1, day=2)), {"state": "erased"}),
    (Message.user("", created_at=NOW.replace(year=9999)), {"hash": "any text"}),
]
