"""What must cost what it returns does: the steps of SQLite's machine are counted, not the time."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from editing import regenerating

from hiermem import AsyncMemory
from hiermem.stores.sqlite import SQLiteStore, files, reads, trees
from hiermem.stores.sqlite import trees as due
from hiermem.stores.sqlite.reads import Part
from hiermem.testing.samples import node, stored, write
from hiermem.types import Message
from hiermem.types.transaction import Block, Rewrite


def steps_of(path, work):
    """Count the steps, in tens, that ``work`` takes on a connection to the file."""
    return steps_of_and(path, work)[0]


def steps_of_and(path, work):
    """Count the steps, and return what ``work`` does."""
    counted = 0

    def count():
        nonlocal counted
        counted += 1
        return 0

    with closing(files.connect(path, busy_timeout=1)) as connection:
        work(connection)  # the schema is read once
        connection.set_progress_handler(count, 10)
        result = work(connection)
    return counted, result


async def long_session(path, count):
    """Make a session of so many windows, all but two of them made, and a few blocks."""
    store = await SQLiteStore.open(path)
    tenant = store.tenant("t")
    nodes = tuple(node(n, status="active" if n > 1 else "pending") for n in range(count))
    await write(tenant, "s", [Message.user(str(n)) for n in range(count)], nodes=nodes)
    await write(tenant, "fork", record={"forked_from": "s"})
    for n in range(count // 10):
        labels = {"all": "all", "few": "few"} if n in (2, 5) else {"all": "all"}
        await write(tenant, f"other-{n}", record={"metadata": labels})
    return store


def list_of(connection, **how):
    how = {"after": None, "limit": 3, "metadata": {}, "order_by": "created", **how}
    return reads.sessions(Part(connection, "t"), **how)


@pytest.mark.parametrize(
    "work",
    [
        lambda c: trees.covering(Part(c, ("t", "s", None)), "main", 15),
        lambda c: trees.covering(Part(c, ("t", "s", None)), "main", 985),
        lambda c: trees.unfinished(Part(c, ("t", "s", None)), 1, after=-1, limit=9),
        lambda c: reads.forks(Part(c, "t"), "s"),
        list_of,
        lambda c: list_of(c, after="other-3"),
        lambda c: list_of(c, order_by="last_activity"),
        lambda c: list_of(c, order_by="last_activity", after="other-3"),
        lambda c: list_of(c, metadata={"all": "all"}, after="other-3"),
        lambda c: list_of(c, metadata={"all": "all", "few": "few"}),
        lambda c: list_of(c, metadata={"few": "few"}, order_by="last_activity"),
        lambda c: reads.count_sessions(Part(c, "t"), metadata={"few": "few"}),
        lambda c: reads.count_sessions(Part(c, "t"), metadata={"all": "all", "few": "few"}),
        lambda c: reads.versions(Part(c, "t"), "s", 5),
        lambda c: reads.flagged(Part(c, "t"), "s", "none", limit=5),
    ],
    ids=[
        "covering",
        "covering the end",
        "unfinished",
        "forks",
        "first page",
        "next page",
        "first active",
        "next active",
        "filtered",
        "filtered twice",
        "filtered active",
        "count filtered",
        "count filtered twice",
        "versions",
        "flagged",
    ],
)
async def test_a_read_costs_what_it_returns(tmp_path, work):
    """Twenty times the session: not one and a half times the steps."""
    counts = []
    for size in (100, 2_000):
        store = await long_session(tmp_path / f"{size}.db", size)
        await store.close()
        counts.append(steps_of(tmp_path / f"{size}.db", work))
    assert counts[1] <= 1.5 * counts[0] + 2


async def test_a_look_for_work_costs_the_same_however_much_is_due_later(tmp_path):
    """Broken, every look reads all sessions with an open window that a limit of time will close."""
    now, counts = datetime(2026, 1, 1, tzinfo=UTC), []
    for size in (100, 2_000):
        path = tmp_path / f"{size}.db"
        store = await SQLiteStore.open(path, clock=lambda: now + timedelta(hours=9))
        names = [f"s{n}" for n in range(size)]
        for name in names:
            await write(store.tenant("t"), name)
        await store.tenant("t").put_due(names)
        await store.close()
        assert len(steps_of_and(path, lambda c: due.listed(c, now, 9, None, None))[1]) == 9
        for tenant in (None, "t"):
            steps, found = steps_of_and(path, lambda c, t=tenant: due.listed(c, now, 9, t))
            assert found == []
            counts.append(steps)
    assert max(counts) <= 1.5 * min(counts) + 2


async def test_a_rewrite_costs_the_same_in_a_long_session(tmp_path):
    """Editing a message touches its own row, whatever the session holds."""
    counts = []
    for size in (100, 2_000):
        store = await long_session(tmp_path / f"{size}.db", size)
        tenant = store.tenant("t")
        await tenant.put_blocks("s", [Block("index", 0, 50, b"x")], epoch=0)
        counted = 0

        def count():
            nonlocal counted
            counted += 1
            return 0

        said = (Rewrite(stored(Message.user("new")), "edit"),)
        await write(tenant, "s", rewrites=said)
        await store.write(lambda t, count=count: t.connection.set_progress_handler(count, 10))
        await write(tenant, "s", rewrites=said)
        await store.write(lambda t: t.connection.set_progress_handler(None, 10))
        await store.close()
        counts.append(counted)
    assert counts[1] <= 1.5 * counts[0] + 2


@pytest.mark.thorough
async def test_an_edit_its_update_and_a_recompress_cost_what_they_touch(tmp_path, monkeypatch):
    """P6: eight times the session, and SQLite does not twice the work for one changed message."""
    counted = 0

    def count():
        nonlocal counted
        counted += 1
        return 0

    def watched(*args, **settings):
        connection = connect(*args, **settings)
        connection.set_progress_handler(count, 50)
        return connection

    connect = files.connect
    monkeypatch.setattr(files, "connect", watched)
    found = []
    for size in (500, 4_000):
        memory = await AsyncMemory.open(tmp_path / f"{size}.db")
        session = memory.session("s")
        said = [Message("assistant" if n % 2 else "user", f"Word {n}.") for n in range(size)]
        await session.append(said)
        await session.update()
        works = []
        for work in (
            lambda s=session, n=size // 2: regenerating(s).edit(n, "Another."),
            session.update,
            lambda s=session: s.recompress(1, (0, 2)),
        ):
            counted = 0
            await work()
            works.append(counted)
        found.append(works)
        await memory.close()
    small, large = found
    assert all(most <= 2 * least + 20 for least, most in zip(small, large, strict=True)), found
