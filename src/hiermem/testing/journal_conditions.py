"""The conditions on runs, attempts and views.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hiermem.protocols import TenantStore
from hiermem.testing.conditions import Conditions, condition
from hiermem.testing.samples import NOW, attempt, run
from hiermem.types.transaction import ViewRecord


class JournalConditions(Conditions):
    """Runs, attempts and views."""

    @condition
    async def test_runs_come_newest_first(self, tenant: TenantStore) -> None:
        """Runs come in the reverse order of their first insertion.

        Neither their clock nor their id changes it.
        """
        for place, id_ in enumerate(("m", "z", "a", "y", "b")):
            await tenant.put_run(run(id_, subject="mixed"))
            assert (await tenant.runs())[0].id == id_, place
        assert [one.id for one in await tenant.runs(subject="mixed")] == ["b", "y", "a", "z", "m"]
        for number in range(5):
            await tenant.put_run(
                run(
                    f"r{number}",
                    subject="odd" if number % 2 else "even",
                    started_at=NOW - timedelta(days=number),
                )
            )
        ended = run("r1", subject="odd", outcome="ok", ended_at=NOW, detail={"made": [1, {}]})
        await tenant.put_run(ended)
        newest = ["r4", "r3", "r2", "r1", "r0"]
        assert [one.id for one in await tenant.runs()] == [*newest, "b", "y", "a", "z", "m"]
        assert [one.id for one in await tenant.runs(limit=2)] == ["r4", "r3"]
        assert [one.id for one in await tenant.runs(subject="even")] == ["r4", "r2", "r0"]
        assert await tenant.runs(subject="odd", limit=9) == [
            run("r3", subject="odd", started_at=NOW - timedelta(days=3)),
            ended,
        ]
        assert await tenant.runs(subject="od") == []
        assert await tenant.runs(limit=0) == []

    @condition
    async def test_a_runs_detail_is_the_readers_own(self, tenant: TenantStore) -> None:
        """Changing what was read changes nothing stored."""
        detail = {"made": [1]}
        await tenant.put_run(run("r", detail=detail))
        detail["made"].append(2)
        for _ in range(2):
            (found,) = await tenant.runs()
            assert found.detail == {"made": [1]}
            found.detail["made"].append(3)

    @condition
    async def test_attempts_come_in_the_order_they_started(self, tenant: TenantStore) -> None:
        """Attempts come in the order of their first insertion; ending one does not move it.

        Neither their clock nor their id changes it.
        """
        tries = [
            attempt(
                f"a{5 * number % 7}",
                run_id=f"run{number % 2}",
                session_id="s" if number < 4 else "t",
                started_at=NOW - timedelta(days=number),
            )
            for number in range(6)
        ]
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
    async def test_a_view_is_replaced_by_session_and_name(self, tenant: TenantStore) -> None:
        """A view is kept under its session and name together."""
        assert await tenant.view("s", "default") is None
        views = [ViewRecord("s", "default", "1"), ViewRecord("s", "other", "2")]
        views += [ViewRecord("t", "default", "3"), ViewRecord("s", "Default", "")]
        for view in views:
            await tenant.put_view(view)
        assert [await tenant.view(view.session_id, view.name) for view in views] == views
        await tenant.put_view(ViewRecord("s", "default", "x" * 70_000))
        assert await tenant.view("s", "default") == ViewRecord("s", "default", "x" * 70_000)
        assert await tenant.view("t", "default") == views[2]
        assert await tenant.view("t", "other") is None
