"""The conditions on records.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import asyncio

import pytest

from hiermem.errors import UsageError
from hiermem.protocols import TenantStore
from hiermem.testing.conditions import Conditions, condition
from hiermem.testing.samples import NOW, attempt
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types.transaction import Record, RecordWrite


class RecordConditions(Conditions):
    """Small documents by kind, scope and key."""

    @condition
    async def test_a_record_is_known_by_kind_scope_and_key(self, tenant: TenantStore) -> None:
        """Records that differ in one of the three, however little, do not touch one another."""
        names = HOSTILE_NAMES[:12]
        writes = [RecordWrite("k", scope, key, scope + key) for scope in names for key in names]
        writes += [RecordWrite("K", "a", "a", "other"), RecordWrite("k%", "a", "a", "more")]
        assert await tenant.put_records(writes) is True
        assert len(await tenant.records("k")) == len(names) ** 2
        assert await tenant.records("K") == [Record("K", "a", "a", "other", 1)]
        for name in names:
            of_scope = await tenant.records("k", scope=name)
            assert {(one.scope, one.body) for one in of_scope} == {(name, name + k) for k in names}
            of_key = await tenant.records("k", key=name)
            assert {(one.key, one.body) for one in of_key} == {(name, s + name) for s in names}
            both = await tenant.records("k", scope=name, key="a ")
            assert both == [Record("k", name, "a ", name + "a ", 1)]
        assert await tenant.records("none") == []

    @condition
    async def test_records_come_by_scope_then_key(self, tenant: TenantStore) -> None:
        """The order is that of code points, whatever was written first; a limit takes the first."""
        keys = ["b", "B", "a\U0001f642", "a\uffee", "", "10", "9", "a", "aa", "\u00e9", "e\u0301"]
        for scope in ("t", "s", "S"):
            await tenant.put_records([RecordWrite("k", scope, key, "") for key in keys])
        expected = [(scope, key) for scope in ("S", "s", "t") for key in sorted(keys)]
        assert [(one.scope, one.key) for one in await tenant.records("k")] == expected
        assert [one.key for one in await tenant.records("k", scope="s")] == sorted(keys)
        assert [one.scope for one in await tenant.records("k", key="9")] == ["S", "s", "t"]
        assert len(await tenant.records("k", limit=12)) == 12
        assert [(o.scope, o.key) for o in await tenant.records("k", limit=12)] == expected[:12]
        assert await tenant.records("k", limit=0) == []
        assert await tenant.records("k", limit=-1) == []

    @condition
    async def test_a_version_counts_the_writes(self, tenant: TenantStore) -> None:
        """A record is replaced whole, one version higher; after a deletion it begins at 1."""
        for version, body in enumerate(("", "x" * 70_000, '{"a": 1}'), start=1):
            assert await tenant.put_records([RecordWrite("k", "s", "key", body)]) is True
            assert await tenant.records("k") == [Record("k", "s", "key", body, version)]
        assert await tenant.put_records([RecordWrite("k", "s", "key", None)]) is True
        assert await tenant.records("k") == []
        assert await tenant.put_records([RecordWrite("k", "s", "key", None)]) is True
        assert await tenant.put_records([RecordWrite("k", "s", "key", "new", 0)]) is True
        assert await tenant.records("k") == [Record("k", "s", "key", "new", 1)]
        assert await tenant.put_records([]) is True

    @condition
    async def test_an_expectation_that_fails_keeps_all_of_them_out(
        self, tenant: TenantStore
    ) -> None:
        """If one version is not as expected, no write of the call counts, nor any deletion."""
        await tenant.put_records([RecordWrite("k", "s", key, "1") for key in "abc"])
        await tenant.put_records([RecordWrite("k", "s", "a", "2", 1)])
        before = await tenant.records("k")
        assert [one.version for one in before] == [2, 1, 1]
        for wrong in (
            RecordWrite("k", "s", "a", "3", 1),
            RecordWrite("k", "s", "a", "3", 3),
            RecordWrite("k", "s", "a", "3", 0),
            RecordWrite("k", "s", "d", "3", 1),
            RecordWrite("k", "s", "a", None, 1),
            RecordWrite("k", "t", "a", "3", 2),
            RecordWrite("K", "s", "a", "3", 2),
        ):
            good = [RecordWrite("k", "s", "b", "x", 1), RecordWrite("k", "s", "c", None, 1)]
            for place in range(3):
                writes = [*good[:place], wrong, *good[place:]]
                assert await tenant.put_records(writes) is False
                assert await tenant.records("k") == before
        right = [RecordWrite("k", "s", "a", None, 2), RecordWrite("k", "s", "d", "new", 0)]
        assert await tenant.put_records(right) is True
        assert [(one.key, one.version) for one in await tenant.records("k")] == [
            ("b", 1), ("c", 1), ("d", 1),
        ]  # fmt: skip

    @condition
    async def test_long_names_are_compared_in_full(self, tenant: TenantStore) -> None:
        """Two kinds, scopes or keys of the allowed length that differ in the last code point only.

        A name of 512 astral characters has 2,048 bytes in UTF-8, more than some indexes hold.
        """
        long = "\N{GRINNING FACE}" * 511
        names = [long + last for last in ("a", "A", "\N{GRINNING FACE}", "\N{WINKING FACE}")]
        places = [
            place for name in names
            for place in (("k", "s", name), ("k", name, "key"), (name, "s", "key"))
        ]  # fmt: skip
        places += [("k", names[0], name) for name in names] + [("k", "s", long)]
        for number, place in enumerate(places):
            assert await tenant.put_records([RecordWrite(*place, str(number), 0)]) is True
        for number, place in enumerate(places):
            kind, scope, key = place
            found = await tenant.records(kind, scope=scope, key=key)
            assert found == [Record(*place, str(number), 1)]
            assert Record(*place, str(number), 1) in await tenant.records(kind, key=key)
            assert Record(*place, str(number), 1) in await tenant.records(kind, scope=scope)
        assert [one.key for one in await tenant.records("k", scope="s")] == sorted([*names, long])
        last = RecordWrite("k", "s", names[3], None, 1)
        assert await tenant.put_records([last]) is True
        assert [one.key for one in await tenant.records("k", scope="s")] == sorted(
            [*names[:3], long]
        )

    @condition
    async def test_a_write_goes_with_records_that_stand(self, tenant: TenantStore) -> None:
        """If one is gone, or has another body or version, nothing of the call counts."""
        await tenant.put_records([RecordWrite("k", "s", key, "1") for key in "ab"])
        await tenant.put_records([RecordWrite("k", "s", "a", "2", 1)])
        first, second = await tenant.records("k")
        writes = [RecordWrite("k", "s", "c", "new", 0), RecordWrite("k", "s", "b", None, 1)]
        for wrong in (
            Record("k", "s", "a", "2", 1),
            Record("k", "s", "a", "1", 2),
            Record("k", "t", "a", "2", 2),
            Record("K", "s", "a", "2", 2),
            Record("k", "s", "none", "2", 2),
        ):
            for standing in ([wrong], [first, wrong], [wrong, first]):
                assert await tenant.put_records(writes, standing=standing) is False
                assert await tenant.put_records([], standing=standing) is False
                assert await tenant.records("k") == [first, second]
        # Records that the call itself writes are compared as they were before.
        assert await tenant.put_records(writes, standing=[first, second]) is True
        assert [(one.key, one.version) for one in await tenant.records("k")] == [("a", 2), ("c", 1)]
        assert await tenant.put_records(writes[:1], standing=[first]) is False

    @condition
    async def test_attempts_go_with_the_records(self, tenant: TenantStore) -> None:
        """Attempts are journalled in the transaction of the records, and only if these count."""
        claim = RecordWrite("k", "s", "a", "mine", 0)
        assert await tenant.put_records([claim], attempts=[attempt("a1")]) is True
        assert await tenant.put_records([claim], attempts=[attempt("a2")]) is False
        right = RecordWrite("k", "s", "b", "mine", 0)
        gone = [Record("k", "s", "none", "", 1)]
        assert await tenant.put_records([right], standing=gone, attempts=[attempt("a3")]) is False
        assert await tenant.put_records([right], epochs={"s": 0}, attempts=[attempt("a4")]) is False
        assert await tenant.attempts() == [attempt("a1")]
        ended = attempt("a1", outcome="ok", ended_at=NOW)
        assert await tenant.put_records([right], attempts=[ended]) is True
        assert await tenant.attempts() == [ended]

    @condition
    async def test_impossible_record_writes_are_refused(self, tenant: TenantStore) -> None:
        """Two writes of one record, or an expected version below 0, raise and write nothing."""
        first = RecordWrite("k", "s", "a", "1")
        for writes in (
            [first, RecordWrite("k", "s", "a", "2")],
            [first, RecordWrite("k", "s", "b", "2"), RecordWrite("k", "s", "a", None)],
            [first, RecordWrite("k", "s", "b", "2", -1)],
        ):
            with pytest.raises(UsageError):
                await tenant.put_records(writes)
            assert await tenant.records("k") == []

    @condition
    async def test_of_writers_at_once_one_wins(self, tenant: TenantStore) -> None:
        """Of several writes that expect the same version exactly one counts."""
        for version in range(4):
            outcomes = await asyncio.gather(
                *(
                    tenant.put_records([RecordWrite("k", "s", "a", str(n), version)])
                    for n in range(8)
                )
            )
            assert sorted(outcomes) == [False] * 7 + [True]
            (found,) = await tenant.records("k")
            assert found == Record("k", "s", "a", str(outcomes.index(True)), version + 1)
