"""The conditions on what stands beside the log: runs, attempts, views, records, blocks, epochs.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from samples import NOW, attempt, delete, run, write
from segment_conditions import Conditions, condition

from hiermem.errors import UsageError
from hiermem.protocols import TenantStore
from hiermem.types.transaction import Block, Record, RecordWrite, ViewRecord


class RecordConditions(Conditions):
    """Runs, attempts, views; small documents by kind, scope and key; guarded writes, and blocks."""

    @condition
    async def test_runs_come_newest_first(self, tenant: TenantStore) -> None:
        """Runs come in the reverse order of their first insertion.

        Neither their clock nor their id changes it.
        """
        for place, id_ in enumerate(("m", "z", "a", "y", "b")):
            await tenant.put_run(run(id_, subject="mixed"))
            assert (await tenant.runs())[0].id == id_, place
        assert [one.id for one in await tenant.runs(subject="mixed")] == ["b", "y", "a", "z", "m"]
        numbered = [
            run(f"r{n}", subject=("even", "odd")[n % 2], started_at=NOW - timedelta(days=n))
            for n in range(5)
        ]
        for one in numbered:
            await tenant.put_run(one)
        ended = run("r1", subject="odd", outcome="ok", ended_at=NOW, detail={"made": [1, {}]})
        await tenant.put_run(ended)
        newest = ["r4", "r3", "r2", "r1", "r0"]
        assert [one.id for one in await tenant.runs()] == [*newest, "b", "y", "a", "z", "m"]
        assert [one.id for one in await tenant.runs(limit=2)] == ["r4", "r3"]
        assert [one.id for one in await tenant.runs(subject="even")] == ["r4", "r2", "r0"]
        assert await tenant.runs(subject="odd", limit=9) == [numbered[3], ended]
        assert await tenant.runs(subject="od") == []
        assert await tenant.runs(limit=0) == []

    @condition
    async def test_attempts_come_in_the_order_they_started(self, tenant: TenantStore) -> None:
        """Attempts come in the order of their first insertion; ending one does not move it.

        Neither their clock nor their id changes it.
        """
        tries = [
            attempt(f"a{5 * n % 7}", run_id=f"run{n % 2}", started_at=NOW - timedelta(days=n))
            for n in range(6)
        ]
        tries[4:] = [replace(one, session_id="t") for one in tries[4:]]
        await write(tenant, "s", [])
        await tenant.tree("s").write_nodes([], attempts=tries[:3])
        await tenant.tree("s").write_nodes([], attempts=tries[3:])
        tries[1] = replace(
            tries[1], outcome="rejected", reason="empty", tokens_in=9, tokens_out=5, ended_at=NOW,
            cached_tokens=4, reasoning_tokens=3, cost=0.1,
        )  # fmt: skip
        await tenant.tree("s").write_nodes([], attempts=[tries[1]])
        assert await tenant.attempts() == tries
        assert await tenant.attempts(limit=2) == tries[:2]
        assert await tenant.attempts(run_id="run1") == tries[1::2]
        assert await tenant.attempts(session_id="t") == tries[4:]
        assert await tenant.attempts(run_id="run1", session_id="s") == [tries[1], tries[3]]
        assert await tenant.attempts(run_id="run") == []
        assert await tenant.attempts(limit=0) == []

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
        assert await tenant.records("k", limit=0) == []

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
                assert await tenant.put_records([*good[:place], wrong, *good[place:]]) is False
                assert await tenant.records("k") == before
        right = [RecordWrite("k", "s", "a", None, 2), RecordWrite("k", "s", "d", "new", 0)]
        assert await tenant.put_records(right) is True
        assert [(one.key, one.version) for one in await tenant.records("k")] == [
            ("b", 1), ("c", 1), ("d", 1),
        ]  # fmt: skip

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
            writes = [RecordWrite("k", "s", "a", str(n), version) for n in range(8)]
            outcomes = await asyncio.gather(*(tenant.put_records([one]) for one in writes))
            assert sorted(outcomes) == [False] * 7 + [True]
            (found,) = await tenant.records("k")
            assert found == Record("k", "s", "a", str(outcomes.index(True)), version + 1)

    @condition
    async def test_a_write_of_an_earlier_epoch_does_not_land(self, tenant: TenantStore) -> None:
        """Views, records and blocks are refused if the epoch moved or the session is gone."""
        await write(tenant, "s", ["x"], record={"epoch": 2})
        await write(tenant, "t", ["x"])
        view, block = ViewRecord("s", "v", "1"), Block("index", 0, 1, b"1")
        record = RecordWrite("k", "s", "a", "1")

        async def tried(epoch: int, *, other: int = 0) -> list[bool]:
            epochs = {"s": epoch, "t": other}
            return [
                await tenant.put_view(view, epoch=epoch),
                await tenant.put_records([record], epochs=epochs),
                await tenant.put_blocks("s", [block], epoch=epoch),
            ]

        for epoch in (1, 3, -1):
            assert await tried(epoch) == [False] * 3
        assert await tenant.view("s", "v") is None
        assert await tenant.records("k") == []
        assert await tenant.blocks("s", "index") == []
        assert await tried(2) == [True] * 3
        assert await tried(2, other=1) == [True, False, True]
        await write(tenant, "s", record={"epoch": 3})
        assert await tried(2) == [False] * 3
        assert await tenant.records("k") == [Record("k", "s", "a", "1", 1)]
        await delete(tenant, "s")
        for epoch in (0, 3):
            assert await tried(epoch) == [False] * 3
        assert await tenant.put_records([record], epochs={"none": 0}) is False
        assert await tenant.view("s", "v") is None
