"""What a client does with a memory from its first message to its erasure, and what one may try."""

import asyncio
import json

import anyio
from mcp.shared.exceptions import MCPError

from hiermem.mcp.tools import CORE

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"
ALL_PARAMETERS = {
    "slug": "trip", "strategy": "full", "windowChars": 2_000, "minFlushChars": 500,
    "overlapChars": 100, "groupChars": 4_000, "wiggle": 0.25, "ratioOnly": True, "concurrency": 2,
    "batchDelayMs": 0, "sealPolicy": "hybrid", "flushAfterMs": 1_200_000, "max_calls": 500,
    "max_tokens": 10_000_000,
}  # fmt: skip


def said(n):
    price = 40 + n
    if n % 2:
        return (
            f"Booked cabin {n} of the ferry Hesper for {price} EUR; it leaves on {1 + n % 28} May."
        )
    return f"Please book cabin {n + 1} of the ferry Hesper, and tell Ada what it costs."


def talk(start, stop):
    roles = ("user", "assistant")
    return [
        {"role": roles[n % 2], "content": said(n), "key": f"k{n}", "name": "Ada"}
        if n % 2 == 0
        else {"role": roles[n % 2], "content": said(n), "key": f"k{n}"}
        for n in range(start, stop)
    ]


async def ask(client, name, **arguments):
    """Call a tool that must succeed, and return what it found."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


async def refused(client, name, arguments):
    """Call a tool that must refuse, and return what it says."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, (name, result.structured_content)
    return result.content[0].text


async def found(client, **query):
    """Search, and return what was found."""
    return (await ask(client, "search_memory", **query))["passages"]


async def read(client, uri):
    (content,) = (await client.read_resource(uri)).contents
    return content.text


async def settled(client, session):
    """Wait until a session has no summary to be made, and the run that made them has ended."""
    with anyio.fail_after(60):
        while True:
            queue = (await ask(client, "memory_metrics", session=session))["queue"]
            runs = (await ask(client, "run_logs", session=session))["runs"]
            if not queue and "running" not in [run["outcome"] for run in runs]:
                return
            await asyncio.sleep(0.1)


async def life(client):
    """Lead a session and a space from the first message to the erasure, by every tool."""
    first = await ask(client, "append_messages", session="trip", messages=talk(0, 100), title="May")
    again = await ask(client, "append_messages", session="trip", messages=talk(90, 150))
    assert (first["first"], first["last"], again["first"], again["last"]) == (0, 99, 90, 149)
    await ask(
        client,
        "append_messages",
        session="work",
        messages=[{"role": "user", "content": "The printer in room 5 needs toner 39A."}],
    )

    # Level 1 is made when the tool answers, the rest behind it.
    done = await ask(client, "summaries_update", session="trip")
    assert done["state"] == "running"
    assert set(done["report"]["by_level"]) == {"1"}
    await settled(client, "trip")
    first, behind = (await ask(client, "run_logs", session="trip"))["runs"][::-1]
    assert first["id"] == done["jobId"] == done["report"]["run_id"]
    assert sorted(behind["detail"]["by_level"]) == ["2", "3"]
    assert json.loads(await read(client, done["log"]))["runs"] == [first]
    assert done["jobId"] in await read(client, "logs://runs")

    plan = await ask(client, "summaries_update", **ALL_PARAMETERS, dryRun=True)
    progress = []

    async def note(done, total, _message):
        progress.append((done, total))

    result = await client.call_tool(
        "summaries_update", {**ALL_PARAMETERS, "wait": True}, progress_callback=note
    )
    made = result.structured_content
    assert made["reconfigured"]
    assert made["report"]["swapped"]
    assert made["report"]["by_level"] == plan["plan"]["by_level"]
    assert made["report"]["calls"] == plan["plan"]["calls"]
    assert progress
    assert progress[-1][0] <= progress[-1][1]

    context = await ask(
        client, "select_context", session="trip", max_tokens=2_000, query="cabin 33"
    )
    assert context["coverage"] == 1.0
    assert context["total_tokens"] <= 2_000
    assert context["messages"] == 150
    assert 33 in context["recalled"] or said(33) in context["text"], context["text"]
    hits = await found(client, query="cabin 33 Hesper", session="trip")
    assert hits[0]["id"] in ("m32", "m33")
    (summary,) = await found(client, query="cabin 33", session="trip", levels=[1], limit=1)
    parts = (await ask(client, "expand_summary", session="trip", id=summary["id"]))["passages"]
    assert [part["text"] for part in parts] == [said(part["first"]) for part in parts]

    # In all conversations: the answer is in another one.
    hits = await found(client, query="Which toner does the printer need?", limit=3)
    assert (hits[0]["session"], hits[0]["id"]) == ("work", "m0")
    assert "needs toner 39A" in hits[0]["text"]

    note = await ask(
        client, "live_note", space="office", text="Ada pays by invoice.", category="decision",
        agent="clerk", tags=["money"], rules=RULES,
    )  # fmt: skip
    # What a note leaves open is not told: a model would read it again and again.
    filled = {name: field for name, field in note.items() if field}
    assert (await ask(client, "bank_read", space="office"))["notes"] == [filled]
    outcome = await ask(client, "bank_consolidate", space="office")
    assert (outcome["status"], outcome["notes_remaining"]) == ("ok", 0)
    assert sorted((await ask(client, "bank_read"))["spaces"]) == ["me", "office"]
    files = (await ask(client, "bank_read", space="office"))["files"]
    texts = [(await ask(client, "bank_read", space="office", file=file))["text"] for file in files]
    assert any("Ada pays by invoice." in text for text in texts)
    assert await read(client, f"hiermem://bank/office/{files[0]}") == texts[0]

    extracted = await ask(client, "extract_session", session="trip", most=1)
    assert extracted["report"]["outcome"] == "ok"
    assert len(extracted["tri_vector"]["entities"]) == 1 <= extracted["entities"]
    measured = await ask(client, "memory_metrics", session="trip")
    assert measured["messages"] == 150
    assert measured["queue"] == 0
    assert {one["id"] for one in (await ask(client, "list_sessions"))["sessions"]} >= {
        "trip", "work",
    }  # fmt: skip
    assert "Hesper" in await read(client, "hiermem://session/trip")

    receipt = await ask(client, "erase_messages", session="trip", messages=[33])
    assert receipt["removed"]["messages"] == 1
    for where in ({"session": "trip"}, {}):
        hits = await found(client, query="What is cabin 33?", **where)
        assert ("trip", "m33") not in [(each["session"], each["id"]) for each in hits]
    await ask(client, "erase_session", session="trip", confirm="trip")
    assert "trip" not in await read(client, "hiermem://sessions")
    kinds = {run["kind"] for run in (await ask(client, "run_logs", limit=100))["runs"]}
    assert "erasure" in kinds


async def everyday(client):
    """Say what people say to an assistant, by the tools that it has: each takes one call."""
    assert [each.name for each in (await client.list_tools()).tools] == list(CORE)
    kept = await ask(client, "remember", text="I like tea")
    assert kept["remembered"] == "I like tea"
    await ask(client, "remember", text="Ada's flight leaves on 9 May at noon")
    await ask(client, "append_messages", session="c1", messages=talk(0, 60), title="The ferry")
    hits = await found(client, query="What did we say about cabin 33?")
    assert (hits[0]["title"], hits[0]["session"]) == ("The ferry", "c1")
    assert hits[0]["text"] in (said(32), said(33))
    for asked in ({"query": "What do I like to drink: tea?"}, {}):
        known = (await ask(client, "search_memory", **asked))["known"]
        assert "I like tea" in [each["text"] for each in known if each["place"] == "note"]

    gone = await ask(client, "remember", forget="that I like tea")
    assert gone["erased"] == ["I like tea"]
    assert "tea" not in str(await ask(client, "search_memory", query="drink", limit=50))
    moved = await ask(client, "remember", text="Ada's flight leaves at one", forget="Ada's flight")
    assert moved["erased"] == ["Ada's flight leaves on 9 May at noon"]
    everything = await ask(client, "search_memory")
    assert "leaves at one" in str(everything)
    assert "noon" not in str(everything)

    # The server makes the summaries itself.
    with anyio.fail_after(60):
        while not await found(client, query="cabin", session="c1", levels=[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.25)


HOSTILE = {
    "no such tool": ("drop_tables", {}),
    "no such argument": ("list_sessions", {"tenant": "other"}),
    "an oversize message": ("append_messages", {"session": "h", "messages": [{"role": "user",
     "content": "x" * 1_000_001}]}),
    "messages that are too large together": ("append_messages", {"session": "h",
     "messages": [{"role": "user", "content": "x" * 900_000}] * 4}),
    "too many messages": ("append_messages", {"session": "h", "messages": [{"role": "user",
     "content": ""}] * 501}),
    "an oversize name": ("memory_metrics", {"session": "n" * 513}),
    "a NUL in a name": ("append_messages", {"session": "a\0b", "messages": [{"role": "user",
     "content": ""}]}),
    "a lone surrogate": ("append_messages", {"session": "h", "messages": [{"role": "user",
     "content": "a\0b"}]}),
    "a text for a number": ("select_context", {"session": "h", "max_tokens": "many"}),
    "a number for a text": ("search_memory", {"session": "h", "query": 5}),
    "a budget without end": ("select_context", {"session": "h", "max_tokens": 10**15}),
    "a negative index": ("erase_messages", {"session": "h", "messages": [-1]}),
    "an unknown role": ("append_messages", {"session": "h", "messages": [{"role": "root",
     "content": "obey"}]}),
    "a naive time": ("append_messages", {"session": "h", "messages": [{"role": "user",
     "content": "", "created_at": "2024-05-01T10:00:00"}]}),
    "another folder": ("bank_read", {"space": "h", "file": "../../etc/passwd"}),
    "an absolute path": ("bank_read", {"space": "h", "file": "/etc/passwd"}),
    "another space": ("bank_read", {"space": "../default", "file": "progress.md"}),
    "another session's confirmation": ("erase_session", {"session": "trip", "confirm": "work"}),
    "two names for one session": ("summaries_update", {"session": "h", "slug": "h"}),
    "nothing to remember": ("remember", {}),
    "no word to forget": ("remember", {"forget": "the"}),
    "a title for a confirmation": ("erase_session", {"session": "The trip", "confirm": "The trip"}),
    "levels of all sessions": ("search_memory", {"query": "ferry", "levels": [1]}),
    "no session": ("summaries_update", {"strategy": "full"}),
    "sizes that fit no session": ("summaries_update", {"slug": "nobody", "windowChars": 500}),
    "a window of nothing": ("summaries_update", {"slug": "h", "windowChars": 0}),
    "a missing run": ("run_logs", {"id": "../../../etc/passwd"}),
}  # fmt: skip
PATHS = (
    "hiermem://bank/h/..%2F..%2Fetc%2Fpasswd", "hiermem://bank/..%2Fh/progress.md",
    "logs://..%2F..%2Fetc%2Fpasswd", "file:///etc/passwd", "hiermem://session/" + "n" * 600,
)  # fmt: skip


async def attack(client):
    """Try what a hostile client may, fifty calls at once; all is refused with a sentence."""
    await ask(client, "append_messages", session="h", messages=talk(0, 40))
    told = await asyncio.gather(
        *(refused(client, name, arguments) for name, arguments in HOSTILE.values())
    )
    for what, text in zip(HOSTILE, told, strict=True):
        assert 10 < len(text) < 2_000, what
        assert "Traceback" not in text, what
        assert "root:" not in text, what
    for uri in PATHS:
        try:
            await client.read_resource(uri)
        except MCPError as error:
            assert "root:" not in str(error)
        else:
            raise AssertionError(f"{uri} was read")
    answers = await asyncio.gather(
        *(ask(client, "append_messages", session=f"h{n % 5}", messages=[said_by(n)])
          for n in range(50))
    )  # fmt: skip
    assert sorted(one["first"] for one in answers) == sorted([*range(10)] * 5)
    # Cancelled half-way: as soon as there is progress, and once before there is any.
    for upto in (1, 0):
        await cancelled(client, upto)
    update = await ask(client, "summaries_update", session="h", wait=True)
    assert update["report"]["failed"] == 0
    assert (await ask(client, "memory_metrics", session="h"))["queue"] == 0


def said_by(n):
    return {"role": "user", "content": f"flood {n}", "key": f"flood-{n}"}


async def cancelled(client, upto):
    """Begin an update and go away after ``upto`` notifications of its progress, if any come."""
    with anyio.CancelScope() as scope:
        seen = 0

        async def note(_done, _total, _message):
            nonlocal seen
            seen += 1
            if seen >= upto:
                scope.cancel()

        if not upto:
            asyncio.get_running_loop().call_later(0.005, scope.cancel)
        await client.call_tool(
            "summaries_update",
            {"session": "h", "strategy": "full", "windowChars": 400 + upto, "wait": True},
            progress_callback=note,
        )
