"""The conditions on copies, forks and dumps, and on removal: deleting, erasing a tenant, scrubbing.

Each test holds one sentence of ``hiermem.protocols.TenantStore`` or of the effects that it takes;
its name says what would break.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from message_strategies import HOSTILE_NAMES
from samples import (
    NOTHING,
    NOW,
    attempt,
    changed,
    contents,
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
    was,
    write,
)
from segment_conditions import (
    Conditions,
    condition,
    path_condition,
    store_condition,
)

from hiermem.calls.claim import Claim, write_claim
from hiermem.errors import ConflictError, NotFoundError, UsageError
from hiermem.protocols import Store, TenantStore
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    SessionRecord,
    StoredMessage,
    TextPart,
    ToolCall,
)
from hiermem.types import transaction as tx

#: More messages than one page of a dump has rows.
_MANY = 1_200


async def _dumped(tenant: TenantStore, session: str = "s") -> list[tx.StoredRow]:
    """Return the rows of a dump, as they come out of a file of JSON lines."""
    rows = [row async for page in await tenant.dump(session) for row in page]
    found: list[tx.StoredRow] = [json.loads(json.dumps(row)) for row in rows]
    return found


async def _in_pages(
    rows: Sequence[tx.StoredRow], size: int = 300
) -> AsyncIterator[list[tx.StoredRow]]:
    for start in range(0, len(rows), size):
        yield list(rows[start : start + size])


async def _fill(tenant: TenantStore, session: str = "s", *, messages: int = 3) -> None:
    """Write a session that has something of everything."""
    parts = (TextPart("a"), ImagePart("b", "low"), FilePart("c", "d", "e"), JsonPart({"f": [1]}))
    odd = NOW.astimezone(NOW.tzinfo) - timedelta(days=700_000)
    given: list[Message | StoredMessage] = [
        Message.user("first \N{GRINNING FACE} \N{SNOWMAN}", key="key-0", name="Ada"),
        stored(Message("assistant", parts, metadata={"x": [1.5, None, {"y": True}]},
                       tool_calls=(ToolCall("id", "name", "{}"),))),
        stored(Message.user("late", created_at=odd, thread="side"), slices=(1,), echoes=((0, 2),)),
        *(Message.user(f"more {number}") for number in range(messages - 3)),
    ]  # fmt: skip
    record: dict[str, Any] = {
        "title": "Title", "participants": ("Ada",), "metadata": {"user": "ada"}, "tree": 5,
        "last_activity": NOW + timedelta(hours=1), "epoch": 3, "build": "{}",
    }  # fmt: skip
    await write(
        tenant, session, given, record=record, flags=((0, "odd"),),
        nodes=tuple(node(number) for number in range(3)),
        events=(tx.LogEvent("flush", 2, NOW, "detail"),),
    )  # fmt: skip
    for number in range(2):
        said = replace(stored(Message.user(f"edit {number}", key="key-0")), index=0)
        await write(tenant, session, rewrites=(tx.Rewrite(said, "edit"),))
    await write(tenant, session, nodes=(node(0),), tree=6)
    await tenant.tree(session).write_nodes([remade(node(2), input_hash="h2")])
    first = remade(node(0), input_hash="h1", extras={"a": {"b": [1]}}, anchors=("x", "y"))
    await tenant.tree(session).write_nodes(
        [first], attempts=[attempt(f"a-{session}", session_id=session, cost=0.25)]
    )
    await tenant.tree(session).write_nodes([remade(first.node, input_hash="h0", fidelity=0.5)])
    await tenant.tree(session, 6).write_nodes([remade(node(0), input_hash="h1")])
    await tenant.put_run(run(f"r-{session}", subject=session, detail={"n": [1]}))
    await tenant.put_view(tx.ViewRecord(session, "v", "state"))
    await tenant.put_records([tx.RecordWrite("k", session, key, "body") for key in HOSTILE_NAMES])
    await tenant.put_records([tx.RecordWrite("k", session, "a", "another")])
    await tenant.put_blocks(session, [tx.Block("index", 0, 2, bytes(range(256)))], epoch=3)


async def _filled(messages: int = 3) -> tuple[TenantStore, list[tx.StoredRow]]:
    """Return a tenant of the reference with such a session, and its dump."""
    reference = RecordStore(MemoryStore()).tenant("t")
    await _fill(reference, messages=messages)
    return reference, await _dumped(reference)


async def _restored(rows: Sequence[tx.StoredRow]) -> TenantStore:
    """Return a tenant of the reference that holds what was dumped."""
    reference = RecordStore(MemoryStore()).tenant("t")
    await reference.restore(_in_pages(rows))
    return reference


class DumpConditions(Conditions):
    """Dumping a session and restoring it, in this store and in the reference."""

    @path_condition
    async def test_a_dumped_session_is_restored_as_it_was(self, path: Path) -> None:
        """From this store to the reference and back, every read returns the same."""
        async with self.opened(path) as source:
            tenant = source.tenant("t")
            await _fill(tenant, messages=_MANY)
            before, secret = await contents(tenant), await tenant.secret()
            rows = await _dumped(tenant)
        reference = await _restored(rows)
        assert await contents(reference) == before
        again = await _dumped(reference)
        async with self.opened(path.with_name("other")) as target:
            tenant = target.tenant("t")
            assert await tenant.secret() != secret
            await tenant.restore(_in_pages(again))
            assert await contents(tenant) == before
            assert await tenant.secret() == secret
            # It is a session like any other.
            await write(tenant, "s", [Message.user("next", key="key-1")])
            with pytest.raises(UsageError):
                await write(tenant, "s", [Message.user("taken", key="key-0")])
        if "durable" in target.capabilities:
            async with self.opened(path.with_name("other")) as target:
                assert await target.tenant("t").secret() == secret
                assert len(await target.tenant("t").messages("s", 0, 9_999)) == _MANY + 1

    @store_condition
    async def test_a_dump_holds_its_session_alone(self, source: Store) -> None:
        """Nothing of another session or tenant is in the rows, however similar the names."""
        await _fill(source.tenant("t"))
        rows = await _dumped(source.tenant("t"))
        for session in ("S", "s ", "s%"):
            await _fill(source.tenant("t"), session)
        await _fill(source.tenant("T"))
        assert await _dumped(source.tenant("t")) == rows

    @path_condition
    async def test_a_dump_is_of_one_state(self, path: Path) -> None:
        """What is written while the pages are read is in none of them, or in all."""
        async with self.opened(path) as source:
            tenant = source.tenant("t")
            await _fill(tenant, messages=_MANY)
            rows: list[tx.StoredRow] = []
            expected: dict[str, Any] = {}
            async for page in await tenant.dump("s"):
                if not rows:
                    expected = await contents(tenant)
                rows += page
                number = len(rows)
                await write(tenant, "s", [f"meanwhile {number}"], nodes=(node(number),))
                await tenant.put_view(tx.ViewRecord("s", f"w-{number}", "meanwhile"))
                await tenant.put_run(run(f"late-{number}", subject="s"))
        assert await contents(await _restored(rows)) == expected

    @path_condition
    async def test_claims_stay_behind(self, path: Path) -> None:
        """A claim is in no record of a copy."""
        async with self.opened(path) as source:
            tenant = source.tenant("t")
            await write(tenant, "s", nodes=(node(0),))
            claim = write_claim(Claim("run", NOW, "item"))
            for key, body in (("held", claim), ("made", "{}")):
                await tenant.put_records([tx.RecordWrite("chunk", "s", key, body)])
            rows = await _dumped(tenant)
        async with self.opened(path.with_name("other")) as target:
            tenant = target.tenant("t")
            await tenant.restore(_in_pages(rows))
            assert [one.key for one in await tenant.records("chunk")] == ["made"]

    @store_condition
    async def test_a_restore_is_whole_or_nothing(self, target: Store) -> None:
        """Rows that are cut off, doubled, altered or of another format leave no trace."""
        reference, rows = await _filled()
        kinds = [row["kind"] for row in rows]
        assert set(kinds) == {
            "dump", "session", "message", "version", "key", "event", "node", "revision", "view",
            "record", "run", "attempt", "block", "end",
        }  # fmt: skip

        async def broken() -> AsyncIterator[list[tx.StoredRow]]:
            yield rows[:9]
            raise ConnectionResetError

        wrong = [[], rows[:1], rows[1:], rows[:-1], rows[:9], [*rows, rows[-1]]]
        for place in sorted({kinds.index(kind) for kind in set(kinds)}):
            before, row, after = rows[:place], rows[place], rows[place + 1 :]
            wrong += [[*before, *after], [*before, row, row, *after]]
            if "value" in row:
                value = row["value"]
                for bad in (None, {**value, "more": 1}, {**value, "class": "Other"}):
                    wrong.append([*before, {**row, "value": bad}, *after])
                wrong.append([*before, {**row, "kind": "other"}, *after])
        for name, given in (("format", 0), ("secret", "c2hvcnQ="), ("tenant", "T")):
            wrong.append([{**rows[0], name: given}, *rows[1:]])
        tenant = target.tenant("t")
        secret = await tenant.secret()
        for attempted in wrong:
            with pytest.raises(UsageError):
                await tenant.restore(_in_pages(attempted))
        with pytest.raises(ConnectionResetError):
            await tenant.restore(broken())
        assert await target.tenants() == []
        assert await tenant.secret() == secret
        await tenant.restore(_in_pages(rows))
        assert await contents(tenant) == await contents(reference)

    @path_condition
    async def test_a_restore_overwrites_nothing(self, path: Path) -> None:
        """A session, run, call, view or record of the same name stays; the restore is refused."""
        _, rows = await _filled()
        async with self.opened(path) as target:
            tenant = target.tenant("t")
            await tenant.restore(_in_pages(rows))
            async with refused(tenant, ConflictError):
                await tenant.restore(_in_pages(rows))
            with pytest.raises(NotFoundError):
                await tenant.dump("none")
        taken: tuple[Callable[[TenantStore], Awaitable[object]], ...] = (
            lambda tenant: tenant.put_run(run("r-s", subject="other")),
            lambda tenant: tenant.put_view(tx.ViewRecord("s", "v", "other")),
            lambda tenant: tenant.put_records([tx.RecordWrite("k", "s", "ß", "other")]),
            lambda tenant: tenant.tree("other").write_nodes([], attempts=[attempt("a-s")]),
        )
        for number, put in enumerate(taken):
            async with self.opened(path.with_name(f"taken-{number}")) as target:
                tenant = target.tenant("t")
                # The store has the dump's secret, so that only the name is in the way.
                await target.tenant("first").restore(_in_pages(_of_tenant("first", rows)))
                await put(tenant)
                async with refused(tenant):
                    await tenant.restore(_in_pages(rows))
                assert await tenant.session("s") is None
                assert await tenant.messages("s", 0, 9) == []

    @path_condition
    async def test_a_secret_goes_with_a_copy_and_is_never_replaced(self, path: Path) -> None:
        """A store that holds data, of whichever tenant, takes no session of another secret."""
        first, second = (
            RecordStore(MemoryStore()).tenant("t"),
            RecordStore(MemoryStore()).tenant("t"),
        )
        for source, session in ((first, "s"), (first, "s2"), (second, "s3")):
            await _fill(source, session)
        async with self.opened(path) as target:
            tenant = target.tenant("t")
            await tenant.restore(_in_pages(await _dumped(first)))
            await tenant.restore(_in_pages(await _dumped(first, "s2")))
            async with refused(tenant, ConflictError):
                await tenant.restore(_in_pages(await _dumped(second, "s3")))
            assert await tenant.secret() == await first.secret()
        async with self.opened(path.with_name("other")) as target:
            secret = await target.tenant("t").secret()
            await target.tenant("another").put_view(tx.ViewRecord("s", "v", ""))
            with pytest.raises(ConflictError):
                await target.tenant("t").restore(_in_pages(await _dumped(first)))
            assert await target.tenant("t").secret() == secret
            assert await target.tenants() == ["another"]

    @path_condition
    async def test_what_belongs_to_no_session_is_dumped_by_the_empty_id(self, path: Path) -> None:
        """Views, records, runs and calls of other names go over; those of sessions do not."""
        async with self.opened(path) as source:
            tenant = source.tenant("t")
            await _fill(tenant)
            sessions = await _dumped(tenant)
            assert [row["kind"] for row in await _dumped(tenant, "")] == ["dump", "end"]
            await _put_free(tenant)
            assert await _dumped(tenant) == sessions
            rows = await _dumped(tenant, "")
            assert [row["kind"] for row in rows[1:-1]] == ["view", "record", "record", "run",
                                                           "attempt"]  # fmt: skip
            before = await _read_free(tenant)
        async with self.opened(path.with_name("other")) as target:
            tenant = target.tenant("t")
            await tenant.restore(_in_pages(rows))
            assert await _read_free(tenant) == before
            with pytest.raises(UsageError):
                await tenant.restore(_in_pages(rows))
            await tenant.restore(_in_pages(sessions))
            await tenant.put_run(run("free-2", subject="gone"))
            await tenant.put_records([tx.RecordWrite("store-copy", "", "a", "this store's own")])
            await tenant.restore(_in_pages(rows), replaces=0)
            assert await _read_free(tenant) == before
            assert await _dumped(tenant) == sessions
            assert len(await tenant.records("store-copy")) == 1

    @store_condition
    async def test_a_restore_replaces_the_version_that_it_names_alone(self, target: Store) -> None:
        """A session gives way to the rows that name its version, wholly, and to no others."""
        reference, first = await _filled()
        await write(reference, "s", ["later"])
        later, wanted = await _dumped(reference), await contents(reference)
        tenant = target.tenant("t")
        await tenant.restore(_in_pages(first))
        version = first[1]["value"]["version"]
        for wrong in (None, version - 1, version + 1):
            async with refused(tenant, ConflictError):
                await tenant.restore(_in_pages(later), replaces=wrong)
        await tenant.restore(_in_pages(later), replaces=version)
        assert await contents(tenant) == wanted
        # A session that is gone is no reason to refuse what would have replaced it.
        await delete(tenant, "s")
        await tenant.restore(_in_pages(later), replaces=version)
        assert await contents(tenant) == wanted

    @store_condition
    async def test_of_a_restore_that_is_cut_off_nothing_is_kept(self, target: Store) -> None:
        """Wherever it is cut off, the store is as it was, and whole rows are restored later."""
        reference, rows = await _filled(messages=_MANY)
        wanted = await contents(reference)

        async def cut(count: int) -> AsyncIterator[list[tx.StoredRow]]:
            async for page in _in_pages(rows[:count]):
                yield page
            raise ConnectionResetError

        tenant = target.tenant("t")
        empty = await contents(tenant)
        for count in (300, 700, len(rows) - 1):
            with pytest.raises(ConnectionResetError):
                await tenant.restore(cut(count))
            assert await contents(tenant) == empty
            assert await target.tenants() == []
        await tenant.restore(_in_pages(rows))
        with pytest.raises(ConnectionResetError):
            await tenant.restore(cut(len(rows) - 1), replaces=rows[1]["value"]["version"])
        assert await contents(tenant) == wanted


async def _put_free(tenant: TenantStore) -> None:
    """Write something of every kind that may belong to no session."""
    await tenant.put_view(tx.ViewRecord("gone", "v", "state"))
    await tenant.put_records([tx.RecordWrite("space", "", "a", "body")])
    await tenant.put_records([tx.RecordWrite("k", "x", "", "")])
    await tenant.put_run(run("free", subject="gone", detail={"kind": "erase_session"}))
    await tenant.tree("gone").write_nodes([], attempts=[attempt("a-free", session_id="gone")])


async def _read_free(tenant: TenantStore) -> list[Any]:
    """Read what ``_put_free`` wrote."""
    return [
        await tenant.view("gone", "v"),
        await tenant.records("space"),
        await tenant.records("k", scope="x"),
        await tenant.runs(subject="gone"),
        await tenant.attempts(session_id="gone"),
    ]


def _of_tenant(tenant: str, rows: Sequence[tx.StoredRow]) -> list[tx.StoredRow]:
    """Return the rows as those of another tenant of the same store."""
    return [{**rows[0], "tenant": tenant}, *rows[1:]]


_EVENT = tx.LogEvent("edit", 1, NOW, "[[1,2]]")


class RemovalConditions(Conditions):
    """Copies, forks, removal."""

    @condition
    async def test_a_copy_is_the_sources_own_part(self, tenant: TenantStore) -> None:
        """Messages, versions, keys and texts up to that place are copied, and are separate then."""
        await write(tenant, "s", keyed("a", "b", "c", "d", "e"), nodes=(node(0), node(1)))
        for index, text in ((0, "A"), (3, "D")):
            await write(tenant, "s", rewrites=rewriting(index, text, "edit"))
        await write(tenant, "s", rewrites=rewriting(1, "", "erase", state="erased"))
        first = remade(node(0), input_hash="h")
        await tenant.tree("s").write_nodes([first, remade(first.node), remade(node(1))])
        await tenant.put_blocks("s", [tx.Block("index", 0, 4, b"x")], epoch=0)
        before = await contents(tenant)
        fork = {"forked_from": "s", "forked_at": 3}
        revisions = (("L1.0", 2), ("L1.1", 1), ("L1.0", 2))
        await write(
            tenant, "f", [Message.user("own", key="key-3")], copy=tx.Copy("s", 3, revisions),
            nodes=(node(0, revision=2),), record=fork,
        )  # fmt: skip
        record = await tenant.session("f")
        assert record is not None
        assert (record.forked_from, record.forked_at, record.messages) == ("s", 3, 4)
        assert await said(tenant, "f") == ["A", "", "c", "own"]
        assert [await was(tenant, index, "f") for index in range(4)] == [["a"], [], [], []]
        source = await tenant.messages("s", 0, 3)
        assert [plain(o) for o in await tenant.messages("f", 0, 3)] == [plain(o) for o in source]
        found = await tenant.tree("f").revisions([("L1.0", 1), ("L1.0", 2), ("L1.1", 1)])
        assert found == await tenant.tree("s").revisions([("L1.0", 2), ("L1.1", 1)])
        assert [one.id for one in await tenant.tree("f").nodes(["L1.0", "L1.1"])] == ["L1.0"]
        assert await tenant.blocks("f", "index") == []
        seen = await write(tenant, "f", keys=[f"key-{n}" for n in range(5)])
        prints = {key: entry.fingerprint for key, entry in sorted(seen.keys.items())}
        assert list(prints) == [f"key-{n}" for n in range(4)]
        assert list(prints.values()) == ["print-0", None, "print-2", "print-3"]
        after = await contents(tenant)
        assert after["session s"]["forks"] == [await tenant.session("f")]
        after["session s"]["forks"] = []
        assert after["session s"] == before["session s"]
        # Erased here, it stays there.
        await write(tenant, "f", rewrites=rewriting(0, "", "erase"), forget=("L1.0",))
        assert await was(tenant, 0) == ["a"]
        assert len(await tenant.tree("s").revisions([("L1.0", 2)])) == 1
        await delete(tenant, "s")
        assert await said(tenant, "f") == ["", "", "c", "own"]

    @condition
    async def test_an_impossible_copy_is_refused(self, tenant: TenantStore) -> None:
        """Into a session that exists, beyond the source's end, of what it does not have."""
        await write(tenant, "s", keyed("a", "b"), nodes=(node(0),))
        await write(tenant, "t", keyed("a"))
        await tenant.tree("s").write_nodes([remade(node(0))])
        for name, copy in (
            ("t", tx.Copy("s", 1)),
            ("new", tx.Copy("none", 0)),
            ("new", tx.Copy("s", 3)),
            ("new", tx.Copy("s", -1)),
            ("new", tx.Copy("s", 1, (("L1.0", 2),))),
            ("new", tx.Copy("s", 1, (("L1.0", 1), ("L1.1", 1)))),
        ):
            async with refused(tenant):
                await write(tenant, name, copy=copy)
        async with refused(tenant):  # a key that the copy brings
            await write(tenant, "new", [Message.user("x", key="key-1")], copy=tx.Copy("s", 2))

    @condition
    async def test_forks_are_found_by_their_exact_source(self, tenant: TenantStore) -> None:
        """In the order of creation, and none of a session whose name looks alike."""
        for name, source in (("c", "s"), ("a", "S"), ("b", "s"), ("d", "c"), ("e", None)):
            await write(tenant, name, record={"forked_from": source})
        assert [one.id for one in await tenant.forks("s")] == ["c", "b"]
        assert [one.id for one in await tenant.forks("S")] == ["a"]
        assert [one.id for one in await tenant.forks("c")] == ["d"]
        assert [await tenant.forks(name) for name in ("e", "s%", "")] == [[], [], []]
        await write(tenant, "b", record={"forked_from": "c"})
        assert [one.id for one in await tenant.forks("c")] == ["b", "d"]

    @condition
    async def test_a_deleted_session_leaves_nothing(self, tenant: TenantStore) -> None:
        """Everything under its name goes, nothing else does, and the name can be used again."""
        for name in ("s", "t", "S"):
            await write(tenant, name, keyed("a", "b"), nodes=(node(0),), events=(_EVENT,))
            await write(tenant, name, rewrites=rewriting(0, "A", "edit"))
            await write(tenant, name, nodes=(node(0),), tree=1)
            made = remade(node(0), input_hash=f"h-{name}")
            assert await tenant.tree(name).write_nodes([made]) == [True]
            await derive(tenant, name)
        before = await contents(tenant)
        await delete(tenant, "s")
        after = await contents(tenant)
        for kind in ("runs", "attempts"):
            assert after[kind] == [one for one in before[kind] if one.id[2:] != "s"]
        assert [one for one in after if one.startswith("session")] == ["session t", "session S"]
        assert all(after[f"session {name}"] == before[f"session {name}"] for name in ("t", "S"))
        assert await tenant.reusable("h-s") is None
        assert await tenant.records("k", scope="s") == []
        assert await tenant.view("s", "v") is None
        await write(tenant, "s", ["new"])
        fresh = (await contents(tenant))["session s"]
        await write(tenant, "compare", ["new"])
        other = (await contents(tenant))["session compare"]
        assert {**fresh, "record": None} == {**other, "record": None}

    @condition
    async def test_views_and_records_are_dropped_by_name(self, tenant: TenantStore) -> None:
        """Whatever the changes name goes, in this session alone; what does not exist is ignored."""
        for name in ("s", "t"):
            await write(tenant, name, keyed("a"))
            await derive(tenant, name)
        await tenant.put_records([tx.RecordWrite("K", "s", "a", "other kind")])
        await write(tenant, "s", drop_views=("v", "none"), drop_records=(("k", "a"), ("k", "none")))
        assert await tenant.view("s", "v") is None
        assert await tenant.view("s", "w") == tx.ViewRecord("s", "w", "state")
        assert await tenant.view("t", "v") == tx.ViewRecord("t", "v", "state")
        assert [(o.scope, o.key) for o in await tenant.records("k")] == [
            ("s", "b"), ("t", "a"), ("t", "b"),
        ]  # fmt: skip
        assert len(await tenant.records("K")) == 1

    @condition
    async def test_a_view_that_was_read_is_gone_with_what_drops_it(
        self, tenant: TenantStore
    ) -> None:
        """No read returns a view that was dropped, by name, with its session or with the tenant.

        A store may keep views at hand that were read. After an erasure they hold erased text.
        """
        view = tx.ViewRecord("s", "v", "erased words")

        def drop() -> tx.Deciding[None]:
            record: SessionRecord = yield "s", "session"
            return tx.Batch(None, (changed("s", record, drop_views=("v",)),))

        drops: dict[str, Callable[[], Awaitable[object]]] = {
            "by name": lambda: write(tenant, "s", drop_views=("v",)),
            "by a transaction": lambda: tenant.transact(drop),
            "with the session": lambda: delete(tenant, "s"),
            "with the tenant": tenant.erase_all,
        }
        for how, dropped in drops.items():
            if await tenant.session("s") is None:
                await write(tenant, "s", keyed("a"))
            assert await tenant.view("s", "v") is None
            assert await tenant.put_view(view) is True
            assert await tenant.view("s", "v") == await tenant.view("s", "v") == view
            await dropped()
            assert await tenant.view("s", "v") is None, how

    @condition
    async def test_records_and_journals_are_dropped_with_the_rest(
        self, tenant: TenantStore
    ) -> None:
        """By kind, scope and key, and by exact name; the runs of the decision come after."""
        for name in ("s", "S", "s%"):
            await write(tenant, name, keyed("a"))
            await derive(tenant, name)
        for kind, scope in (("K", "s"), ("k", "")):
            await tenant.put_records([tx.RecordWrite(kind, scope, "a", "1")])
        before = await contents(tenant)
        own = run("new", subject="s")

        def decide() -> tx.Deciding[str]:
            found = yield "s", tx.NeedRecords("k", everywhere=True)
            places = [(one.kind, one.scope, one.key) for one in found if one.key == "a"]
            return tx.Batch(
                "done", runs=(own,), drop_journals=("s", "none"),
                drop_records=(*places, ("k", "none", "a")),
            )  # fmt: skip

        assert await tenant.transact(decide) == "done"
        assert [(one.scope, one.key) for one in await tenant.records("k")] == [
            ("S", "b"), ("s", "b"), ("s%", "b"),
        ]  # fmt: skip
        assert len(await tenant.records("K")) == 1
        after = await contents(tenant)
        assert after["runs"] == [own, *(one for one in before["runs"] if one.subject != "s")]
        assert after["attempts"] == [one for one in before["attempts"] if one.session_id != "s"]
        assert len(after["attempts"]) < len(before["attempts"])
        assert after["session s"]["record"] == before["session s"]["record"]

    @condition
    async def test_an_erased_tenant_is_empty(self, tenant: TenantStore) -> None:
        """Everything goes, also what belongs to no session; the handle continues to work."""
        for name in ("s", "t"):
            await write(tenant, name, keyed("a", "b"), nodes=(node(0),))
            await tenant.tree(name).write_nodes([remade(node(0), input_hash="h")])
            await derive(tenant, name)
        await tenant.put_view(tx.ViewRecord("none", "v", "state"))
        await tenant.put_records([tx.RecordWrite("k", "", "a", "body")])
        await tenant.put_run(run("free", subject="tenant"))
        assert await tenant.erase_all() == 2
        assert await contents(tenant) == NOTHING
        assert await tenant.view("none", "v") is None
        assert await tenant.erase_all() == 0
        await write(tenant, "s", keyed("new"))
        assert await said(tenant) == ["new"]
        assert await tenant.tree("s").nodes(["L1.0"]) == []

    @condition
    async def test_scrubbing_changes_nothing_that_is_kept(self, tenant: TenantStore) -> None:
        """It says whether it is done, and if not, why; every read is the same afterwards."""
        await write(tenant, "s", keyed("a", "b"), nodes=(node(0),))
        await derive(tenant, "s")
        before = await contents(tenant)
        found = await tenant.scrub()
        assert isinstance(found, tx.Scrubbed)
        assert found.done == (not found.reason)
        assert await contents(tenant) == before
        await write(tenant, "s", ["c"])
        assert await said(tenant) == ["a", "b", "c"]
