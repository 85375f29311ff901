"""What people ask of a memory first, over Python, the command line and MCP, of one file."""

import json

import pytest
from lives import ask
from typer.testing import CliRunner

from hiermem import AsyncMemory, Limits, Memory
from hiermem.cli.app import app
from hiermem.mcp import memory_server
from mcp import Client

CHATS = {
    "march": ("2026-03-02", [
        "I live in Leeds, near the canal. Always answer in metric units.",
        "My ex phoned about the flat.",
    ]),
    "may": ("2026-05-04", ["We decided to take the ferry Hesper.", "What did your ex say?"]),
    "july": ("2026-07-06", ["I moved, and now I live in Bristol."]),
}  # fmt: skip


def command(db, *words):
    done = CliRunner().invoke(app, [*map(str, words), "--db", str(db)])
    assert done.exit_code == 0, done.output
    return done.stdout.replace("*", "")  # around words of the question


@pytest.fixture
def db(tmp_path):
    """Return a file into which the chats were imported; the second line of May is an answer."""
    for name, (day, texts) in CHATS.items():
        rows = [
            {"role": ("user", "assistant")[text.startswith("What")], "content": text,
             "created_at": f"{day}T10:0{n}:00Z"}
            for n, text in enumerate(texts)
        ]  # fmt: skip
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        command(tmp_path / "m.db", "import", path)
    return tmp_path / "m.db"


def in_order(text, *parts):
    """Return whether the parts stand in a text, each after the one before."""
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


KNOWN = ("Always answer in metric units.", "july", "may", "march")
DECIDED = "We decided to take the ferry Hesper."
MOVED = ("I moved, and now I live in Bristol.", "I live in Leeds")


async def test_every_door_answers_what_a_person_asks_first(db):
    """Broken, one way in knows what another does not, or an old answer outweighs the newer."""
    lived, decided = "Where do I live?", "What did we decide last week?"
    with Memory.open(db) as memory:
        me = memory.space("me")
        assert in_order("\n".join(line.text for line in me.about()), *KNOWN)
        assert DECIDED in memory.search(decided, space="me")[0].text
        assert in_order(memory.recall(lived, 1_000, space="me").text, *reversed(MOVED))
        new = memory.session("new", space="me")
        new.append({"role": "user", "content": lived})
        assert in_order(new.context(2_000, query=lived).to_text(), KNOWN[0], *reversed(MOVED))
    assert in_order(command(db, "about"), *KNOWN)
    assert "ferry Hesper" in command(db, "search", decided).splitlines()[1]
    assert in_order(command(db, "search", lived, "--tokens", 1_000), *reversed(MOVED))
    assert in_order(command(db, "context", "new", "--query", lived), *reversed(MOVED))
    async with (
        memory_server(AsyncMemory.open(db), limits=Limits(calls=0)) as server,
        Client(server) as client,
    ):
        listed = await ask(client, "search_memory")
        assert in_order(str(listed["known"]), *KNOWN)
        hits = (await ask(client, "search_memory", query=decided))["passages"]
        assert DECIDED in str(hits[0])
        await ask(client, "remember", text="I live in Bath.")
        answer = str(await ask(client, "search_memory", query=lived))
        assert in_order(answer, "I live in Bath.", *MOVED), "notes first, the newest before others"
        context = await ask(client, "select_context", session="new", query=lived)
        assert in_order(context["text"], KNOWN[0], *reversed(MOVED))


@pytest.mark.parametrize("door", ["python", "command", "mcp"])
async def test_every_door_forgets_one_thing_in_all_conversations(db, door):
    """Broken, a way in leaves what was to be forgotten, or takes more than it says."""
    mine, other = "My ex phoned about the flat.", "Assistant: What did your ex say?"
    if door == "python":
        with Memory.open(db) as memory:
            report = memory.space("me").forget("ex")
        assert [line.text for line in report.gone] == [mine]
        assert [line.text for line in report.unproven] == [other]
    elif door == "command":
        erased, _, left = command(db, "forget", "ex", "--yes").partition("left, may say")
        assert mine in erased
        assert other in left
    else:
        server = memory_server(AsyncMemory.open(db), limits=Limits(calls=0))
        async with server as served, Client(served) as client:
            done = await ask(client, "remember", forget="ex")
            assert (done["erased"], done["left"]) == ([mine], [other])
    with Memory.open(db) as memory:
        assert "phoned" not in memory.recall("Who phoned about the flat?", 1_000, space="me").text
        texts = [
            str(message.content)
            for record in memory.sessions(space="me")
            for message in memory.session(record.id).messages()
        ]
        left = (DECIDED, *MOVED[:1], other.removeprefix("Assistant: "))
        assert sum(text in texts for text in left) == 3
        assert memory.check().ok
