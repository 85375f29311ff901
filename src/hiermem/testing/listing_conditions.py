"""The conditions on lists: a tenant's sessions in pages, and the tenants of a store.

Each test holds one sentence of ``hiermem.protocols``; its name says what would break.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from hiermem.protocols import TenantStore
from hiermem.testing.conditions import Conditions, condition, store_condition
from hiermem.testing.samples import NOW, attempt, deciding, run, write
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import Message
from hiermem.types.transaction import RecordWrite, ViewRecord

#: Pairs that a store confuses if it compares keys with values, by prefix, by case or as JSON.
_LABELS: tuple[Mapping[str, str], ...] = (
    {"user": "ada"},
    {"user": "ada", "app": "web"},
    {"ada": "user"},
    {"user": "Ada"},
    {"user": "ada "},
    {"user": ""},
    {},
    {"User": "ada", "app": "web"},
    {'us"er': "a'da", "\N{SNOWMAN}": "\N{GRINNING FACE}"},
    {"user": "ada", "app": "web", "more": "ada"},
)


async def _ids(tenant: TenantStore, **how: Any) -> list[str]:
    return [record.id for record in await tenant.sessions(**how)]


async def _paged(tenant: TenantStore, limit: int, **how: Any) -> list[str]:
    """Return the ids of all pages, one after the other."""
    found: list[str] = []
    while page := await _ids(tenant, after=found[-1] if found else None, limit=limit, **how):
        assert len(page) <= limit
        found += page
    return found


class ListingConditions(Conditions):
    """Sessions in pages, by creation and by last activity, filtered by metadata; tenants."""

    @condition
    async def test_sessions_come_in_pages(self, tenant: TenantStore) -> None:
        """Pages of any size hold together every session once, and none is longer than asked."""
        for name in HOSTILE_NAMES:
            await write(tenant, name)
        everything = list(HOSTILE_NAMES)
        for limit in (1, 2, 7, len(everything), 500):
            assert await _paged(tenant, limit) == everything
            assert await _paged(tenant, limit, order_by="last_activity") == everything[::-1]
        assert await tenant.count_sessions() == len(everything)
        assert await _ids(tenant, limit=0) == []
        assert await _ids(tenant, limit=-1) == []
        for number in range(101 - len(everything)):
            await write(tenant, f"more-{number}")
        assert len(await _ids(tenant)) == 100
        assert await tenant.count_sessions() == 101

    @condition
    async def test_a_page_begins_after_a_session_that_exists(self, tenant: TenantStore) -> None:
        """Where the last session of a page was deleted meanwhile, the list begins again."""
        for name in "abcd":
            await write(tenant, name)
        assert await _ids(tenant, after="b") == ["c", "d"]
        assert await _ids(tenant, after="d") == []
        for order in ("created", "last_activity"):
            begun = await _ids(tenant, order_by=order)
            assert await _ids(tenant, after="none", order_by=order) == begun
        await tenant.transact(deciding(delete=["b"]))
        assert await tenant.count_sessions() == 3
        assert await _ids(tenant, after="b") == ["a", "c", "d"]
        # A session created under the old name is a new one, and the last.
        await write(tenant, "b")
        assert await _ids(tenant, after="b") == []
        assert await _ids(tenant, after="c") == ["d", "b"]

    @condition
    async def test_a_session_created_meanwhile_moves_no_page(self, tenant: TenantStore) -> None:
        """Between two pages sessions are created and written to; each comes once, in its place."""
        for name in ("m", "c", "x", "a"):
            await write(tenant, name)
        found = await _ids(tenant, limit=2)
        for name in ("b", "n"):
            await write(tenant, name, record={"created_at": NOW - timedelta(days=9)})
        await write(tenant, "m", [Message.user("again")])
        while page := await _ids(tenant, after=found[-1], limit=2):
            found += page
        assert found == ["m", "c", "x", "a", "b", "n"]

    @condition
    async def test_the_last_active_session_comes_first(self, tenant: TenantStore) -> None:
        """The order follows the record's last activity, whatever was created or written when."""
        for place, name in enumerate("abcde"):
            await write(tenant, name, record={"last_activity": NOW + timedelta(days=place)})
        await write(tenant, "e", [Message.user("no activity of its own")])
        assert await _ids(tenant, order_by="last_activity") == ["e", "d", "c", "b", "a"]
        await write(tenant, "b", record={"last_activity": NOW + timedelta(days=3, microseconds=1)})
        assert await _ids(tenant, order_by="last_activity") == ["e", "b", "d", "c", "a"]
        assert await _ids(tenant) == list("abcde")
        # Of two at the same time, the one created later comes first.
        await write(tenant, "a", record={"last_activity": NOW + timedelta(days=4)})
        assert await _ids(tenant, order_by="last_activity") == ["e", "a", "b", "d", "c"]
        assert await _paged(tenant, 1, order_by="last_activity") == ["e", "a", "b", "d", "c"]
        assert await _ids(tenant, order_by="last_activity", after="b", limit=1) == ["d"]

    @condition
    async def test_metadata_select_sessions(self, tenant: TenantStore) -> None:
        """A session is listed if its metadata hold every given pair, and none but these are."""
        for place, labels in enumerate(_LABELS):
            later = NOW + timedelta(minutes=place * 7 % 11)
            await write(tenant, f"s{place}", record={"metadata": labels, "last_activity": later})
        records = {record.id: record for record in await tenant.sessions()}
        assert [records[f"s{place}"].metadata for place in range(len(_LABELS))] == list(_LABELS)
        for wanted in (*_LABELS, {"none": "none"}, {"user": "ada", "none": "none"}):
            holding = [
                id_ for id_, one in records.items() if wanted.items() <= one.metadata.items()
            ]
            assert await tenant.count_sessions(metadata=wanted) == len(holding)
            active = sorted(holding, key=lambda id_: records[id_].last_activity, reverse=True)
            for limit in (1, 2, 99):
                assert await _paged(tenant, limit, metadata=wanted) == holding
                found = await _paged(tenant, limit, metadata=wanted, order_by="last_activity")
                assert found == active
            # The session that a page begins after need not be among the selected ones.
            after = holding[holding.index("s5") + 1 :] if "s5" in holding else [
                id_ for id_ in holding if int(id_[1:]) > 5
            ]  # fmt: skip
            assert await _ids(tenant, after="s5", metadata=wanted) == after

    @condition
    async def test_metadata_are_replaced_as_a_whole(self, tenant: TenantStore) -> None:
        """What a later record does not hold selects the session no more; nor does a deleted one."""
        await write(tenant, "s", record={"metadata": {"user": "ada", "app": "web"}})
        await write(tenant, "s", [Message.user("x")])
        assert await _ids(tenant, metadata={"app": "web"}) == ["s"]
        await write(tenant, "s", record={"metadata": {"user": "bela"}})
        assert (await tenant.sessions())[0].metadata == {"user": "bela"}
        for gone in ({"app": "web"}, {"user": "ada"}, {"user": "ada", "app": "web"}):
            assert await _ids(tenant, metadata=gone) == []
            assert await tenant.count_sessions(metadata=gone) == 0
        await tenant.transact(deciding(delete=["s"]))
        await write(tenant, "s")
        assert await _ids(tenant, metadata={"user": "bela"}) == []
        assert (await tenant.sessions())[0].metadata == {}

    @store_condition
    async def test_metadata_select_within_the_tenant(self, path: Path) -> None:
        """Neither a filter nor an order returns a session of another tenant, nor a count."""
        labels, pairs = {"user": "ada"}, {"user": "ada", "app": "web"}
        async with self.opened(path) as store:
            for name in HOSTILE_NAMES:
                await write(store.tenant(name), f"of {name}", record={"metadata": pairs})
            for name in HOSTILE_NAMES:
                tenant = store.tenant(name)
                for metadata in (None, labels, pairs):
                    assert await tenant.count_sessions(metadata=metadata) == 1
                for order in ("created", "last_activity"):
                    assert await _ids(tenant, order_by=order) == [f"of {name}"]
                    assert await _ids(tenant, metadata=labels, order_by=order) == [f"of {name}"]
                    # A session of another tenant is no place to begin after.
                    foreign = f"of {HOSTILE_NAMES[name == HOSTILE_NAMES[0]]}"
                    assert await _ids(tenant, after=foreign, order_by=order) == [f"of {name}"]

    @store_condition
    async def test_a_store_lists_its_tenants(self, path: Path) -> None:
        """A tenant is listed if anything of it is stored, by name, code point by code point."""
        async with self.opened(path) as store:
            assert await store.tenants() == []
            for name in HOSTILE_NAMES:
                await write(store.tenant(name), "s")
            await store.tenant("record").put_records([RecordWrite("k", "s", "key", "body")])
            await store.tenant("run").put_run(run("r"))
            await store.tenant("view").put_view(ViewRecord("s", "v", ""))
            await store.tenant("call").tree("s").write_nodes([], attempts=[attempt("a")])
            assert await store.tenant("reader").sessions() == []
            named = sorted([*HOSTILE_NAMES, "record", "run", "view", "call"])
            assert await store.tenants() == named
            for limit in (1, 3, 99):
                found: list[str] = []
                last: str | None = None
                while page := await store.tenants(after=last, limit=limit):
                    assert len(page) <= limit
                    found += page
                    last = page[-1]
                assert found == named
            assert await store.tenants(limit=0) == []
            assert await store.tenants(after="recor") == [
                name for name in named if name > "recor"
            ]  # fmt: skip
            await store.tenant("a").erase_all()
            await store.tenant("record").put_records([RecordWrite("k", "s", "key", None)])
            gone = [name for name in named if name not in ("a", "record")]
            assert await store.tenants() == gone
