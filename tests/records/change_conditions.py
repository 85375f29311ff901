"""The conditions on what changes, removes and copies: transactions, rewrites, forks, erasure.

Each test holds one sentence of ``hiermem.protocols.TenantStore`` or of the effects that it takes;
its name says what would break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from samples import (
    NOW,
    changed,
    contents,
    deciding,
    delete,
    derive,
    keyed,
    node,
    plain,
    refused,
    remade,
    rewriting,
    run,
    said,
    stored,
    to,
    was,
    write,
    writing,
)
from segment_conditions import Conditions, DecisionError, condition

from hiermem.protocols import TenantStore
from hiermem.types import JsonPart, Message, SessionRecord, StoredMessage, ToolCall
from hiermem.types import transaction as tx


async def _echoing(tenant: TenantStore, session: str) -> list[int]:
    """Return the indices with echoes, as a decision about the session sees them."""

    def decide() -> tx.Deciding[list[int]]:
        found: list[int] = yield session, "echoes"
        return tx.Batch(found)

    return await tenant.transact(decide)


class ChangeConditions(Conditions):
    """Transactions, rewrites, copies, removal."""

    @condition
    async def test_a_read_is_of_one_state(self, tenant: TenantStore) -> None:
        """What is written meanwhile is in all of the answers or in none."""
        await write(tenant, "s", ["0"])
        await write(tenant, "t", ["0"])

        async def grow() -> None:
            for number in range(30):
                await write(tenant, "st"[number % 2], [str(number)])

        growing = asyncio.create_task(grow())
        needs = ("session", tx.NeedMessages(0, 99))
        asked: list[tx.SessionNeed] = [(name, need) for need in needs for name in ("s", "t")]
        while not growing.done():
            one, other, messages, others = await tenant.read(asked)
            assert (one.messages, other.messages) == (len(messages), len(others))
            assert 0 <= one.messages - other.messages <= 1
            await asyncio.sleep(0)
        await growing
        assert await tenant.read([]) == []

    @condition
    async def test_a_transaction_reads_what_the_handle_reads(self, tenant: TenantStore) -> None:
        """Every need is answered as the method of the same meaning answers."""
        nodes = (node(0), node(1), replace(node(0, 2), children=("L1.0", "L1.1")))
        event = tx.LogEvent("flush", 1, NOW)
        await write(tenant, "s", keyed("a", "b", "c"), nodes=nodes, events=(event,))
        await write(tenant, "s", nodes=(node(7),), tree=1)
        await write(tenant, "s", flags=((0, "a"), (2, "a")))
        await write(tenant, "f", copy=tx.Copy("s", 1), record={"forked_from": "s", "forked_at": 1})
        await tenant.tree("s").write_nodes([remade(node(0))])
        await derive(tenant, "s")
        views = [tx.ViewRecord("s", "v", "state"), tx.ViewRecord("s", "w", "state")]
        wanted = (("L1.0", 1), ("L1.9", 1))
        needs: list[tuple[tx.Need, Any]] = [
            ("session", await tenant.session("s")),
            ("forks", await tenant.forks("s")),
            (tx.NeedMessages(1, 9), await tenant.messages("s", 1, 9)),
            (tx.NeedMessages(0, 9, "side"), []),
            ("events", await tenant.events("s")),
            ("echoes", []),
            (tx.NeedNodes(("L1.1", "L2.0")), await tenant.tree("s").nodes(["L1.1", "L2.0"])),
            (tx.NeedNodes(("L1.7",), 1), await tenant.tree("s", 1).nodes(["L1.7"])),
            (tx.NeedLevel(1, 0, 1), await tenant.tree("s").level(1, 0, 1)),
            (tx.NeedLevel(1, 0, 9, 1), await tenant.tree("s", 1).level(1, 0, 9)),
            (tx.NeedCovering("main", 12), await tenant.tree("s").covering("main", 12)),
            (tx.NeedCovering("main", 72, 1), await tenant.tree("s", 1).covering("main", 72)),
            (tx.NeedCovering("main", 0, None, 9), await tenant.tree("s").covering("main", 0)),
            (tx.NeedCovering("main", 0, None, 12), await tenant.tree("s").level(1, 0)),
            (tx.NeedCovering("main", 10, None, 90), await tenant.tree("s").level(1, 1)),
            (tx.NeedRevisions(wanted), await tenant.tree("s").revisions(wanted)),
            (tx.NeedRevisions(wanted, 1), []),
            (tx.NeedViews(), views),
            (tx.NeedViews(("w", "none", "w")), views[1:]),
            (tx.NeedFlagged("a", 1), await tenant.flagged("s", "a", limit=1)),
            (tx.NeedRecords("k"), await tenant.records("k", scope="s")),
        ]
        assert all(expected for need, expected in needs if expected != [])

        asked = [(name, need) for name in ("s", "none") for need, _ in needs]

        def decide() -> tx.Deciding[list[Any]]:
            answers: list[Any] = []
            for one in asked:
                answers += [(yield one)]
            both: tuple[Any, ...] = yield tuple(asked)
            (one,) = yield (asked[0],)
            assert (one, (yield ())) == (both[0], ())
            return tx.Batch([answers, list(both)])

        for found in (*await tenant.transact(decide), await tenant.read(asked)):
            assert found[: len(needs)] == [expected for _, expected in needs]
            assert found[len(needs) :] == [None, *([[]] * (len(needs) - 1))]

    @condition
    async def test_no_write_comes_into_a_transaction(self, tenant: TenantStore) -> None:
        """Of fifty at once, each decides on what the one before it left."""

        def counted() -> tx.Deciding[int]:
            one = yield "s", "session"
            two = yield "t", "session"
            count: int = one.messages if one else 0
            assert count == (two.messages if two else 0)
            text = [f"{count}"]
            return tx.Batch(count, (changed("s", one, text), changed("t", two, text)))

        counts, _ = await asyncio.gather(
            asyncio.gather(*(tenant.transact(counted) for _ in range(40))),
            asyncio.gather(*(write(tenant, "u", ["x"]) for _ in range(10))),
        )
        assert sorted(counts) == list(range(40))
        for name in ("s", "t"):
            assert await said(tenant, name) == [f"{n}" for n in range(40)]

    @condition
    async def test_a_run_counts_only_if_its_answers_hold(self, tenant: TenantStore) -> None:
        """A write that changes an answer comes after the decision, or the decision runs again."""
        await write(tenant, "s", keyed("a"))
        await write(tenant, "f", keyed("a"), record={"forked_from": "s"})

        def torn(name: str, need: tx.Need) -> tx.Deciding[int]:
            answer: Any = yield "s", need
            record: SessionRecord = answer[0] if isinstance(answer, list) else answer
            for _ in range(50):  # a store that lets others write meanwhile does so here
                yield "other", "session"
            found: list[StoredMessage] = yield name, tx.NeedMessages(0, 99)
            if len(found) != record.messages:
                raise DecisionError("the run saw two states")
            return tx.Batch(len(found), (changed(name, record, [f"after {len(found)}"]),))

        needs: tuple[tuple[str, tx.Need], ...] = (("s", "session"), ("f", "forks"))
        for name, need in needs:
            first, _, second = await asyncio.gather(
                tenant.transact(partial(torn, name, need)),
                write(tenant, name, ["beside"]),
                tenant.transact(partial(torn, name, need)),
            )
            texts = await said(tenant, name)
            assert sorted([first, second, texts.index("beside")]) == [1, 2, 3]
            assert [texts[first], texts[second]] == [f"after {first}", f"after {second}"]

    @condition
    async def test_only_the_last_run_of_a_decision_counts(self, tenant: TenantStore) -> None:
        """What the last run decides is returned and written, once."""
        runs: list[SessionRecord | None] = []

        def decide() -> tx.Deciding[int]:
            record: SessionRecord | None = yield "s", "session"
            runs.append(record)
            return tx.Batch(len(runs), (changed("s", record, [f"run {len(runs)}"]),))

        assert await tenant.transact(decide) == len(runs) > 0
        assert await said(tenant, "s") == [f"run {len(runs)}"]

    @condition
    async def test_a_transaction_that_raises_writes_nothing(self, tenant: TenantStore) -> None:
        """Its error comes out unchanged, and nothing is written."""
        await write(tenant, "s", keyed("x"))
        error = DecisionError("no")

        def early() -> tx.Deciding[None]:
            raise error

        def late() -> tx.Deciding[None]:
            assert (yield "s", "session") is not None
            raise error

        for decide in (early, late):
            async with refused(tenant, DecisionError) as caught:
                await tenant.transact(decide)
            assert caught.value is error
        before = await contents(tenant)
        assert await tenant.transact(deciding()) == "decided"

        def fine() -> tx.Deciding[str]:
            assert (yield "s", "session") is not None
            return tx.Batch("fine")

        assert await tenant.transact(fine) == "fine"
        assert await contents(tenant) == before

    @condition
    async def test_a_transaction_is_whole_or_absent(self, tenant: TenantStore) -> None:
        """If one session's changes are refused, no session's are made, and nothing is deleted."""
        await write(tenant, "s", keyed("x"))
        await write(tenant, "gone", keyed("y"))
        good = writing("s", ["more"], nodes=(node(0),))
        fresh = writing("fresh", keyed("new"))
        bad: list[Callable[..., tx.Changes[Any]]] = [
            writing("t", keyed("x"), flags=((9, "lost"),)),
            writing("t", keyed("x"), record={"id": "other"}),
            writing("t", keyed("x"), rewrites=rewriting(1, "lost", "edit")),
            writing("t", keyed("x"), parents=(("L1.0", "L2.0"),)),
            writing("t", copy=tx.Copy("none", 0)),
        ]
        for wrong in bad:
            steps = (("s", good), ("fresh", fresh), ("t", wrong))
            async with refused(tenant):
                await tenant.transact(deciding(*steps, delete=["gone"], runs=[run("r")]))

    @condition
    async def test_a_transactions_effects_come_in_order(self, tenant: TenantStore) -> None:
        """A session may come twice, then sessions are deleted, then runs are written."""
        await write(tenant, "gone", keyed("y"))
        first = writing("s", keyed("x"), nodes=(node(0),))
        second = writing("s", ["z"], parents=(("L1.0", "L2.0"),))
        late = writing("gone", ["late"])
        idle = writing("idle", keyed("never"))
        done = await tenant.transact(
            deciding(
                ("s", first), ("s", second), ("gone", late),
                ("idle", lambda seen: replace(idle(seen), session=None)),
                delete=["gone", "unknown"], runs=[run("r", subject="gone", kind="erasure")],
            )
        )  # fmt: skip
        assert done == "decided"
        assert await said(tenant) == ["x", "z"]
        assert [one.parent for one in await tenant.tree("s").nodes(["L1.0"])] == ["L2.0"]
        assert [one.id for one in await tenant.sessions()] == ["s"]
        assert [one.id for one in await tenant.runs(subject="gone")] == ["r"]

    @condition
    async def test_an_edit_keeps_what_stood_there(self, tenant: TenantStore) -> None:
        """Versions come oldest first; a mark touches none, nor do others' edits."""
        await write(tenant, "s", keyed("a", "b", "c"))
        (original,) = await tenant.messages("s", 1, 2)
        await write(tenant, "s", rewrites=rewriting(1, "B", "edit", tokens=3, flags=("f",)))
        await write(tenant, "s", rewrites=rewriting(1, "B", "mark", size=4, slices=(1,)))
        both = (*rewriting(1, "beta", "edit"), *rewriting(0, "A", "edit"))
        await write(tenant, "s", rewrites=both)
        assert await said(tenant) == ["A", "beta", "c"]
        assert await was(tenant, 1) == ["b", "B"]
        found = await tenant.versions("s", 1)
        assert plain(found[0]) == plain(original)
        assert (found[1].size, found[1].slices) == (4, (1,))
        assert [await was(tenant, index) for index in (0, 2, 3, -1)] == [["a"], [], [], []]
        assert await tenant.versions("t", 1) == []
        seen = await write(tenant, "s", keys=["key-1"])
        assert dict(seen.keys) == {"key-1": tx.KeyEntry(1, "print-1")}
        (shown,) = await tenant.messages("s", 1, 2)
        assert plain(shown) == plain(to(1, "beta"))

    @condition
    async def test_an_erasure_takes_every_version(self, tenant: TenantStore) -> None:
        """Neither the message nor an earlier version is left; the key stays reserved."""
        texts = ["a", "b", "c", "d", "e"]
        for name in ("s", "t"):
            await write(tenant, name, keyed(*texts))
            for index, text in enumerate(texts):
                await write(tenant, name, rewrites=rewriting(index, text.upper(), "edit"))
        # Two that follow one another, and one alone.
        erased = [rewriting(index, "", "erase", state="erased") for index in (0, 1, 3)]
        await write(tenant, "s", rewrites=[one for each in erased for one in each])
        assert await said(tenant) == ["", "", "C", "", "E"]
        states = [one.state for one in await tenant.messages("s", 0, 9)]
        assert states == ["erased", "erased", "live", "erased", "live"]
        assert [await was(tenant, index) for index in range(5)] == [[], [], ["c"], [], ["e"]]
        seen = await write(tenant, "s", keys=[f"key-{index}" for index in range(5)])
        prints = {key: (entry.index, entry.fingerprint) for key, entry in seen.keys.items()}
        kept = {f"key-{index}": (index, f"print-{index}") for index in (2, 4)}
        assert prints == {f"key-{index}": (index, None) for index in (0, 1, 3)} | kept
        # Another session's messages are not affected.
        assert await was(tenant, 0, "t") == ["a"]
        assert (await write(tenant, "t", keys=["key-0"])).keys["key-0"].fingerprint == "print-0"

    @condition
    async def test_what_came_back_is_found(self, tenant: TenantStore) -> None:
        """Messages with echoes, now or before an edit, are found; a mere imitation is not."""
        echoing = replace(stored("a MEMORY"), echoes=((2, 8),))
        much = stored(
            Message.assistant(
                (JsonPart({"echoes": [[0, 1]]}),),
                tool_calls=(ToolCall("c", "f", '{"echoes":[[0,1]]}'),),
                metadata={"echoes": [[2, 8]]},
            )
        )
        plain_one = stored(Message.user('{"echoes":[[2,8]]}', metadata={"echoes": [[2, 8]]}))
        said = [plain_one, echoing, much, replace(much, echoes=((0, 1), (3, 4))), echoing, echoing]
        await write(tenant, "t", [plain_one])
        await write(tenant, "s", said)
        await write(tenant, "u", said[:2])
        assert await _echoing(tenant, "s") == [1, 3, 4, 5]
        # An edit to it, an edit from it, an erasure, a quarantine.
        echoed: dict[str, Any] = {"echoes": ((2, 8),)}
        rewrites = (
            *rewriting(0, "a MEMORY", "edit", **echoed),
            *rewriting(1, "a MEMORY", "mark", **echoed, state="quarantined"),
            *rewriting(4, "nothing", "edit"),
            *rewriting(5, "", "erase"),
        )
        await write(tenant, "s", rewrites=rewrites)
        assert await _echoing(tenant, "s") == [0, 1, 3, 4]
        # What it was before still counts when it is marked.
        await write(tenant, "s", rewrites=rewriting(4, "nothing", "mark"))
        assert await _echoing(tenant, "s") == [0, 1, 3, 4]
        await write(tenant, "s", rewrites=rewriting(4, "", "erase", state="erased"))
        await write(tenant, "f", [echoing], copy=tx.Copy("s", 2), record={"forked_from": "s"})
        assert await _echoing(tenant, "f") == [0, 1, 2]
        await delete(tenant, "f")
        found = [await _echoing(tenant, name) for name in ("s", "t", "u", "f", "S")]
        assert found == [[0, 1, 3], [], [1], [], []]

    @condition
    async def test_a_rewrite_needs_its_message(self, tenant: TenantStore) -> None:
        """UsageError if the index holds none; one appended by the same write exists."""
        await write(tenant, "s", keyed("a"))
        await write(tenant, "t", keyed("a", "b", "c"))
        for index in (-1, 2, 1 << 32, (1 << 32) + 1):
            for kind in ("edit", "erase", "mark"):
                async with refused(tenant):
                    await write(tenant, "s", ["b"], rewrites=rewriting(index, "!", kind))
        await write(tenant, "s", ["b"], rewrites=rewriting(1, "B", "edit"))
        assert await said(tenant) == ["a", "B"]
        assert await was(tenant, 1) == ["b"]
