"""The conditions on dumps: a session leaves one store and arrives whole in another.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hiermem.calls.claim import Claim, write_claim
from hiermem.errors import (
    NotFoundError,
    SecretMismatchError,
    SessionExistsError,
    UsageError,
)
from hiermem.protocols import Store, TenantStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.samples import (
    NOW,
    attempt,
    contents,
    delete,
    node,
    refused,
    remade,
    run,
    stored,
    write,
)
from hiermem.testing.segment_conditions import Conditions, path_condition, store_condition
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import FilePart, ImagePart, JsonPart, Message, StoredMessage, TextPart, ToolCall
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
    reference = MemoryStore().tenant("t")
    await _fill(reference, messages=messages)
    return reference, await _dumped(reference)


async def _restored(rows: Sequence[tx.StoredRow]) -> TenantStore:
    """Return a tenant of the reference that holds what was dumped."""
    reference = MemoryStore().tenant("t")
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
            async with refused(tenant, SessionExistsError):
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
        first, second = MemoryStore().tenant("t"), MemoryStore().tenant("t")
        for source, session in ((first, "s"), (first, "s2"), (second, "s3")):
            await _fill(source, session)
        async with self.opened(path) as target:
            tenant = target.tenant("t")
            await tenant.restore(_in_pages(await _dumped(first)))
            await tenant.restore(_in_pages(await _dumped(first, "s2")))
            async with refused(tenant, SecretMismatchError):
                await tenant.restore(_in_pages(await _dumped(second, "s3")))
            assert await tenant.secret() == await first.secret()
        async with self.opened(path.with_name("other")) as target:
            secret = await target.tenant("t").secret()
            await target.tenant("another").put_view(tx.ViewRecord("s", "v", ""))
            with pytest.raises(SecretMismatchError):
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
            async with refused(tenant, SessionExistsError):
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
