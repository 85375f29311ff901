"""A bank on S3 servers: exported, loaded, fought over, refused and interrupted."""

import asyncio
import json
import logging
import sys
import traceback

import pytest
from object_server import SECRET, serving
from object_servers import RULES, URL, make_revisions, opened

from hiermem import AsyncMemory, ConfigError, FileError, UsageError
from hiermem.bank import object_io
from hiermem.stores.memory import MemoryStore

pytest.importorskip("obstore", reason="obstore is in the extra object-store")


@pytest.fixture(
    scope="module", params=["small", "moto", pytest.param("seaweedfs", marks=pytest.mark.thorough)]
)
def options(request, tmp_path_factory):
    """Run one server for all tests of this module; each test takes a prefix of its own."""
    with opened(request.param, tmp_path_factory.mktemp("server") / "data") as options:
        yield options


@pytest.fixture
def server(monkeypatch):
    """Run a server that a test can make misbehave; nothing waits long between tries."""
    monkeypatch.setattr(object_io, "_PAUSES", (0.001, 0.01))
    with serving("bank") as server:
        yield server


async def fresh(text="SQLite works"):
    space = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    await space.note(text, category="progress")
    await space.consolidate()
    return space


@pytest.fixture
async def space():
    return await fresh()


async def texts(space) -> dict[str, str]:
    return {name: await space.read(name) for name in await space.files()}


@pytest.fixture(scope="module")
def lines(tmp_path_factory, share):
    """Make one store, as it was at each of its revisions."""
    folder = tmp_path_factory.mktemp("lines")
    asyncio.run(make_revisions(folder, share(12, 5)))
    return folder


async def test_a_bank_goes_there_and_comes_back(space, options):
    """Another machine has it from there, whole; what it loaded once it loads no more."""
    url = f"{URL}/there and back"
    done = await space.export(url, options=options)
    assert (done.folder, done.revision) == (url, 1)
    assert done.written == ("decisions.md", "progress.md")
    other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    took = await other.load(url, options=options)
    assert took.created == ("decisions.md", "progress.md")
    assert await texts(other) == await texts(space)
    assert (await other.load(url, options=options)).revision is None
    await space.note("it works twice", category="progress")
    await space.consolidate()
    assert (await space.export(url, options=options)).written == ("progress.md",)
    assert (await space.export(url, options=options)).written == ()
    assert (await other.load(url, options=options)).updated == ("progress.md",)
    assert await texts(other) == await texts(space)
    with pytest.raises(UsageError, match="another space"):
        await other.export(url, options=options)
    with pytest.raises(UsageError, match="'x'"):
        await AsyncMemory(store=MemoryStore()).space("y", rules=RULES).load(url, options=options)


async def test_of_many_exporters_at_once_the_last_revision_wins(lines, options, share):
    """48 of 12 revisions in a thorough run.

    Broken, an older revision replaces a newer one, or a reader has files of two.
    """
    url, last, each = f"{URL}/many", share(12, 5), share(4, 2)
    async with AsyncMemory.open(lines / "1.db") as memory:
        await memory.space("x").export(url, options=options)
    read: list[dict[str, str]] = []
    over = asyncio.Event()

    async def exporting(number: int):
        async with AsyncMemory.open(lines / f"{number}.db") as memory:
            space = memory.space("x")
            found = await asyncio.gather(*(space.export(url, options=options) for _ in range(each)))
            return number, await texts(space), found

    async def reading():
        while not over.is_set():
            other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
            await other.load(url, options=options)
            read.append(await texts(other))
            await asyncio.sleep(0.05)

    readers = asyncio.gather(*(reading() for _ in range(2)))
    done = await asyncio.gather(*(exporting(number) for number in range(1, last + 1)))
    over.set()
    await readers
    states = {number: held for number, held, _ in done}
    assert read
    assert all(held in states.values() for held in read), "a reader had files of two revisions"
    for number, _, found in done:
        assert all(it.superseded_by is None or it.superseded_by > number for it in found)
    other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    await other.load(url, options=options)
    assert await texts(other) == states[last]


@pytest.mark.parametrize("obeyed", [set(), {"If-None-Match"}, {"If-Match"}])
async def test_a_server_that_ignores_conditions_holds_the_last_export(space, server, obeyed):
    """Of two at the same moment the later write stays; one after the other is right."""
    server.conditions = obeyed
    await space.export(URL, options=server.options)
    await space.note("it works twice", category="progress")
    await space.consolidate()
    assert (await space.export(URL, options=server.options)).written == ("progress.md",)
    other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    await other.load(URL, options=server.options)
    assert await texts(other) == await texts(space)


async def test_a_server_that_is_gone_leaves_the_old_revision(space, server):
    """The error says that another try may succeed; the bank there is what it was."""
    await space.export(URL, options=server.options)
    before = dict(server.buckets["bank"])
    await space.note("more works", category="progress")
    await space.consolidate()
    server.answer = lambda method, key: 503 if method == "PUT" else None
    with pytest.raises(FileError, match="answered 503") as told:
        await space.export(URL, options=server.options)
    assert told.value.retryable
    server.answer = lambda method, key: None
    assert {key: server.buckets["bank"][key] for key in before} == before
    assert (await space.export(URL, options=server.options)).written == ("progress.md",)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
async def test_no_error_and_no_log_holds_a_key(space, server, status, caplog):
    """Servers repeat what was signed, and the package repeats what servers say."""
    caplog.set_level(logging.DEBUG)
    server.answer = lambda method, key: status
    for call in (space.export, space.load):
        with pytest.raises(FileError) as told:
            await call(URL, options=server.options)
        error = told.value
        whole = "".join(traceback.format_exception(error)) + repr(error) + str(error.__dict__)
        while error is not None:
            whole += f"{error!r} {error}"
            error = error.__cause__ or error.__context__
        assert SECRET not in whole
        assert "AKID" not in whole
        assert URL in whole
    assert SECRET not in caplog.text
    assert "AKID-OF" not in caplog.text


@pytest.mark.parametrize(
    "options",
    [{"no_such_option": SECRET}, {"endpoint": "http://127.0.0.1:1", "secret_access_key": SECRET},
     {"allow_http": SECRET}, {"timeout": SECRET}, {"virtual_hosted_style_request": SECRET}],
)  # fmt: skip
async def test_wrong_options_are_refused_without_their_values(space, options):
    with pytest.raises((UsageError, FileError)) as told:
        await space.export(URL, options=options)
    whole = "".join(traceback.format_exception(told.value))
    assert SECRET not in whole.replace(f'SECRET = "{SECRET}"', "")
    assert told.value.__context__ is None


@pytest.mark.parametrize("name", ["bucket", "aws_bucket", "bucket_name", "container_name"])
async def test_the_bucket_is_that_of_the_url(space, server, name):
    """Broken if a bank went where no report and no receipt of an erasure says."""
    with pytest.raises(UsageError, match="only in the URL"):
        await space.export(URL, options={**server.options, name: "other"})


async def test_a_timeout_is_a_number_of_seconds_too(space, server, monkeypatch):
    """Broken, a number would be refused, or taken for another unit."""
    import obstore.store

    made, open_store = [], obstore.store.from_url

    def recorded(*given, **settings):
        made.append(open_store(*given, **settings))
        return made[-1]

    monkeypatch.setattr(obstore.store, "from_url", recorded)
    done = await space.export(
        URL, options={**server.options, "timeout": 9, "connect_timeout": "2s"}
    )
    assert done.written == ("decisions.md", "progress.md")
    (store,) = made
    took = store.client_options
    assert (took["timeout"], took["connect_timeout"]) == ("9s", "2s")


async def test_memory_lasts_as_long_as_the_process(space, tmp_path):
    """It is for trials; folders take no options, and neither does it."""
    await space.export("memory://trial/x")
    other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    assert (await other.load("memory://trial/x")).created == ("decisions.md", "progress.md")
    with pytest.raises(FileError, match="has no bank"):
        await other.load("memory://another/x")
    for place in ("memory://trial/x", str(tmp_path)):
        with pytest.raises(UsageError, match="options"):
            await space.export(place, options={"region": "x"})


async def test_without_the_package_the_extra_is_named(space, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"hiermem-memory\[object-store\]"):
        await space.export(URL)


async def test_what_a_server_holds_is_read_by_people(space, server):
    """The pointer says which revision lies there, and the files are Markdown to a browser."""
    await space.export(URL, options=server.options)
    held = server.buckets["bank"]
    pointer = json.loads(held["team/x/_meta.json"][0])
    assert (pointer["space"], pointer["revision"], pointer["notes_processed"]) == ("x", 1, 1)
    key = f"team/x/progress.md/1-{pointer['files']['progress.md']}"
    assert held[key][0].decode() == await space.read("progress.md")
    assert held[key][1]["content-type"].startswith("text/markdown")
    assert SECRET not in str(server.buckets)
