"""A row that somebody else wrote into the file: refused by name, never believed, never a hang."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sampling import params

from hiermem import AsyncMemory, HierarchyConfig, Message
from hiermem.context.view import Seen, View
from hiermem.errors import StoreCorruptError

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)
CONFIG = HierarchyConfig.by_tokens(target=60, hard_limit=90)
SECRET = "PRIVATEROWCONTENT"
LONG = Message.user("The ferry leaves. " * 50)


async def make(path, count=60):
    async with AsyncMemory.open(path, config=CONFIG) as memory:
        session = memory.session("s")
        await session.append(
            Message.user(f"remark {n}: " + "the ferry leaves at noon " * 6,
                         created_at=NOON + timedelta(minutes=n))
            for n in range(count)
        )  # fmt: skip
        await session.update()
        return await session.context(1_500)


def edit(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        done = connection.execute(statement, values).rowcount
    assert done > 0, "the edit met no row"


async def reads(path, call):
    async with AsyncMemory.open(path, config=CONFIG) as memory:
        return await asyncio.wait_for(call(memory.session("s")), 20)


async def refused(path, call):
    with pytest.raises(StoreCorruptError) as caught:
        await reads(path, call)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


STATES = [
    "garbage", "[]", "null", "5", '""', "{}", '{"format":1}', '{"format":2}', "[" * 100_000,
    '{"format":1,"boundary":-1,"pieces":[],"opened":null,"serial":0}',
    '{"format":1,"boundary":3,"pieces":[],"opened":null,"serial":0}',
    '{"format":1,"boundary":0,"pieces":[],"opened":null,"serial":"x"}',
    '{"format":1,"boundary":0,"pieces":[5],"opened":null,"serial":0}',
    '{"format":1,"boundary":0,"pieces":[],"opened":5,"serial":0}',
    '{"blocks":[[1,2]],"count":0,"tokens":0,"digest":"x"}',
    '{"blocks":[],"count":"x","tokens":0,"digest":"x"}',
]  # fmt: skip


@pytest.mark.parametrize("state", params(STATES, 5), ids=range(len(STATES)))
async def test_an_unreadable_view_costs_a_cache_miss_and_nothing_else(tmp_path, state):
    path = tmp_path / "a.db"
    first = await make(path)
    assert any(block.kind == "view" for block in first.blocks)
    edit(path, "UPDATE views SET state = ?", state)
    again = await reads(path, lambda session: session.context(1_500))
    assert again.coverage == 1.0
    assert again.shared_prefix_tokens == 0
    assert View.from_json(state) is None
    assert Seen.from_json(state) is None


async def test_a_view_with_one_value_changed_is_never_a_raw_error(tmp_path):
    """Every value of a real state in turn, replaced by one of another kind."""
    path = tmp_path / "a.db"
    await make(path)
    connection = sqlite3.connect(path)
    states = [row[0] for row in connection.execute("SELECT state FROM views")]
    connection.close()
    views = [state for state in states if View.from_json(state)]
    assert views
    assert all(View.from_json(state) or Seen.from_json(state) for state in states)

    def changed(value):
        yield from (None, [], {}, "x", -1)
        if isinstance(value, dict):
            for key, held in value.items():
                yield {name: item for name, item in value.items() if name != key}
                for inner in changed(held):
                    yield {**value, key: inner}
        elif isinstance(value, list):
            for place, held in enumerate(value):
                for inner in changed(held):
                    yield [*value[:place], inner, *value[place + 1 :]]

    for state in states:
        for hostile in changed(json.loads(state)):
            text = json.dumps(hostile)
            for found in (View.from_json(text), Seen.from_json(text)):
                if found is not None:
                    assert type(found).from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "config", [SECRET, f'{{"target":"{SECRET}"}}', '{"target":0}', "{}", "[]", "null", ""]
)
async def test_a_garbled_configuration_is_damage_without_its_content(tmp_path, config):
    path = tmp_path / "a.db"
    await make(path)
    edit(path, "UPDATE sessions SET config = ?", config)
    for call in (
        lambda session: session.context(1_500),
        lambda session: session.update(),
        lambda session: session.append(Message.user("one more")),
        lambda session: session.flush(),
        lambda session: session.status(),
    ):
        await refused(path, call)


CHILDREN = (
    ["L2.0"], ["L3.0"], ["L1.0", "L2.0"],  # a circle, which must not be a hang
    # A child left out would be history left out; one named twice, history shown twice.
    ["L1.0"], ["L1.0"] * 5, ["L1.0", "L1.2"], ["L1.0", "L1.99"],
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE nodes SET level = 9 WHERE id = 'L1.0'",
        *(f"UPDATE nodes SET children = '{json.dumps(ids)}' WHERE id = 'L2.0'" for ids in CHILDREN),
    ],
)
async def test_children_that_do_not_cover_their_summary_are_damage(tmp_path, change):
    path = tmp_path / "a.db"
    await make(path)
    edit(path, change)
    await refused(path, lambda session: session.expand("L2.0", None))
    await refused(path, lambda session: session.forest())


async def test_a_message_missing_from_the_middle_is_damage(tmp_path):
    path = tmp_path / "a.db"
    await make(path)
    edit(path, "DELETE FROM messages WHERE message IN (3, 58)")
    await refused(path, lambda session: session.context(1_500))
    await refused(path, lambda session: session.context(100_000))
    await refused(path, lambda session: session.messages())
    await refused(path, lambda session: session.expand("L2.0", None))


async def test_a_message_whose_count_is_below_zero_is_read_and_a_check_names_it(tmp_path):
    """Broken, what a faulty counter once said of a message takes the message away."""
    path = tmp_path / "memory.db"
    await make(path)
    edit(path, "UPDATE messages SET tokens = -1 WHERE message = 7")
    assert len(await reads(path, lambda session: session.messages())) == 60
    async with AsyncMemory.open(path, config=CONFIG) as memory:
        assert "message 7" in {each.where for each in (await memory.check()).findings}
        assert (await memory.session("s").context(1_500)).messages


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("UPDATE nodes SET made = '[1,84' WHERE id = 'L1.0'", lambda session: session.status()),
        ("UPDATE nodes SET made = '[1]' WHERE id = 'L1.0'", lambda session: session.status()),
        ("UPDATE nodes SET made = '{}' WHERE id = 'L1.0'", lambda session: session.edit(0, "x")),
        ("UPDATE nodes SET input_tokens = 'x'", lambda session: session.status()),
        ("UPDATE nodes SET start = 'x', stop = 'y'", lambda session: session.context(1_500)),
        ("UPDATE heads SET turn = 'x:y'", lambda session: session.append(Message.user("more"))),
        ("UPDATE heads SET turn = 5", lambda session: session.append(Message.user("more"))),
        (
            "UPDATE due SET due_at = 'x'",
            lambda session: session.append([LONG] * 9),
        ),
        ("UPDATE sessions SET session = 'x'", lambda session: session.messages()),
    ],
)
async def test_a_column_that_nothing_could_have_written_is_damage(tmp_path, change, call):
    """Broken, an application meets an error of a parser, with what stood in the column."""
    path = tmp_path / "a.db"
    await make(path)
    edit(path, "INSERT OR REPLACE INTO due VALUES ('default', 's', 1, 1, 1, 0)")
    edit(path, change)
    await refused(path, call)
