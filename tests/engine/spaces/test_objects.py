"""A bank in object storage, whatever comes between: one whole revision, and never an older one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import drawn

from hiermem import UsageError
from hiermem.core.spaces import objects
from hiermem.core.spaces.folder import COMPANIONS, MANIFEST, ExchangedBank
from hiermem.engine.spaces import object_io
from hiermem.engine.spaces.object_io import ObjectPlace, StoredObject
from hiermem.errors import FolderError

NAMES = {"a.md", "b.md", "c.md"}
URL = objects.read_url("s3://bank/team")


class Died(BaseException):
    """A process that is gone."""


class Shelf:
    """Objects in a dict; between two requests anything may happen, and a client may die."""

    def __init__(self, luck: Random) -> None:
        self.held: dict[str, tuple[bytes, str, dict[str, str]]] = {}
        self.luck, self.count, self.check = luck, 0, lambda: None

    def client(self, lives: int = 10**9, loses: float = 0.0):
        return Client(self, lives, loses)


class Client:
    """One exporter's or reader's way to the shelf; it dies at its request number ``lives``.

    Of its answers the share ``loses`` is lost.
    """

    def __init__(self, shelf: Shelf, lives: int, loses: float) -> None:
        self.shelf, self.lives, self.loses, self.made = shelf, lives, loses, 0

    async def _turn(self) -> None:
        self.made += 1
        if self.made > self.lives:
            raise Died
        for _ in range(self.shelf.luck.randrange(4)):
            await asyncio.sleep(0)

    def _answered(self) -> None:
        self.shelf.check()
        if self.shelf.luck.random() < self.loses:
            lost = FolderError("no answer")
            lost.retryable = True
            raise lost

    async def get(self, key, *, most):
        await self._turn()
        found = self.shelf.held.get(key)
        self._answered()
        if found is None:
            return None
        data, version, metadata = found
        return StoredObject(data if len(data) <= most else None, {"e_tag": version}, metadata)

    async def put(self, key, data, *, replacing, metadata=None, content_type=""):
        await self._turn()
        found = self.shelf.held.get(key)
        if (found and found[1]) != (replacing and replacing["e_tag"]):
            self._answered()
            return None
        self.shelf.count += 1
        # As with S3, the version is made from the content alone.
        version = objects.content_hash(data)
        self.shelf.held[key] = (data, version, dict(metadata or {}))
        self._answered()
        return {"e_tag": version}

    async def delete(self, key):
        await self._turn()
        self.shelf.held.pop(key, None)
        self._answered()

    async def list(self, prefix):
        await self._turn()
        keys = sorted(key for key in self.shelf.held if key.startswith(prefix))
        for at in range(0, len(keys), 2):
            yield [(key, datetime.now(UTC)) for key in keys[at : at + 2]]
            await self._turn()


def texts(number: int) -> dict[str, str]:
    """Give the files of a revision; some are the same in several, and some come and go."""
    files = {"a.md": f"a {number}\n", "b.md": f"b {number // 3}\n"}
    if number % 4 < 3:
        files["c.md"] = f"c {number % 2}\n"
    return files


async def exported(storage, number: int, *, owner="o", overwrite=False, bank=None):
    exchanged = ExchangedBank(
        "x", NAMES | COMPANIONS, bank or texts(number), {}, overwrite, number, owner
    )
    return await object_io.export_to(ObjectPlace(URL, storage), exchanged)


async def loaded(storage, bank=None):
    exchanged = ExchangedBank("x", NAMES, bank or {})
    return await object_io.read_from(ObjectPlace(URL, storage), exchanged)


def manifest_of(shelf: Shelf) -> dict | None:
    found = shelf.held.get(f"team/{MANIFEST}")
    return json.loads(found[0]) if found else None


def whole(shelf: Shelf) -> None:
    """Check what is promised at every moment: the manifest names objects that are there."""
    if (manifest := manifest_of(shelf)) is None:
        return
    held = {
        name: shelf.held[f"team/objects/{key}"][0].decode()
        for name, key in manifest["objects"].items()
    }
    assert held == texts(manifest["revision"])


@pytest.fixture
def at_once(monkeypatch):
    """Wait no time between tries."""
    monkeypatch.setattr(object_io, "_FIRST_PAUSE", 0)


@drawn(1_500, 40)
@given(
    seed=st.integers(0, 2**32),
    revisions=st.lists(st.integers(1, 12), min_size=2, max_size=10),
    lives=st.lists(st.integers(1, 60), min_size=10, max_size=10),
    loses=st.sampled_from((0.0, 0.05)),
)
def test_exporters_that_come_between_each_other_and_die_end_right(seed, revisions, lives, loses):
    """Broken, a manifest names what another's cleaning took away, or an older revision wins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_io, "_FIRST_PAUSE", 0)

        async def run():
            shelf = Shelf(Random(seed))
            seen = [0]

            def check():
                whole(shelf)
                now = (manifest_of(shelf) or {"revision": 0})["revision"]
                assert now >= seen[0], "an older revision replaced a newer one"
                seen[0] = now

            shelf.check = check

            async def one(at, number):
                # Every third lives on, the others die somewhere.
                life = 10**9 if at % 3 == 0 else lives[at]
                try:
                    await exported(shelf.client(life, loses), number)
                except Died:
                    return 0
                return number

            async def read():
                try:
                    plan, found = await loaded(shelf.client(loses=loses))
                except FolderError as error:
                    assert "holds no bank" in str(error)
                    return
                assert found in [texts(number) for number in revisions]
                assert set(plan.created) == set(found)

            done = await asyncio.gather(
                *(one(at, number) for at, number in enumerate(revisions)),
                *(read() for _ in range(3)),
            )
            most = max(each for each in done if each is not None)
            assert manifest_of(shelf)["revision"] >= most
            # One more export of the newest makes good what the dead left behind.
            last = max(manifest_of(shelf)["revision"], *revisions)
            await exported(shelf.client(), last)
            copies = {
                key.removeprefix("team/"): data.decode()
                for key, (data, _, _) in shelf.held.items()
                if key.endswith(".md")
            }
            assert copies == texts(last)
            named = {f"team/objects/{key}" for key in manifest_of(shelf)["objects"].values()}
            left = {key for key in shelf.held if key.startswith("team/objects/")}
            assert {key for key in left if "probe-" not in key} == named
            assert (await loaded(shelf.client()))[1] == texts(last)

        asyncio.run(run())


async def test_an_export_may_die_at_every_request(at_once):
    """The revision before it stays whole until the new one is, and the next export goes on."""
    clean = Shelf(Random(0))
    counting = clean.client()
    await exported(counting, 1)
    switched = []
    for lives in range(counting.made + 12):
        shelf = Shelf(Random(lives))
        shelf.check = lambda shelf=shelf: whole(shelf)
        await exported(shelf.client(), 1)
        with contextlib.suppress(Died):
            await exported(shelf.client(lives), 5)
        found = (await loaded(shelf.client()))[1]
        assert found in (texts(1), texts(5))
        switched.append(found == texts(5))
        await exported(shelf.client(), 5)
        assert (await loaded(shelf.client()))[1] == texts(5)
    assert switched == sorted(switched), "a request after the switch took it back"
    assert {True, False} == set(switched)


async def test_a_late_copy_does_not_replace_a_later_one(at_once):
    """An exporter that slept after its switch finds the copies of the next revision."""
    shelf = Shelf(Random(1))
    slow = shelf.client()
    real, waits = slow.put, []

    async def put(key, data, **more):
        if key == "team/a.md" and not waits:
            waits.append(key)
            await exported(shelf.client(), 2)
        return await real(key, data, **more)

    slow.put = put
    plan = await exported(slow, 1)
    assert waits
    assert (plan.kept, plan.superseded_by) == ((), None)
    assert shelf.held["team/a.md"][0] == b"a 2\n"
    assert manifest_of(shelf)["revision"] == 2


async def test_what_a_person_made_of_a_copy_is_kept_and_loaded(at_once):
    """It is in no bank yet; the revision is whole all the same."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 1)
    shelf.held["team/a.md"] = (b"by hand\n", "v", {})
    plan, found = await loaded(shelf.client(), texts(1))
    assert (plan.updated, found) == (("a.md",), {"a.md": "by hand\n"})
    plan = await exported(shelf.client(), 2)
    assert plan.kept == ("a.md",)
    assert shelf.held["team/a.md"][0] == b"by hand\n"
    whole(shelf)
    plan, found = await loaded(shelf.client(), texts(2))
    assert (plan.conflicts, found) == (("a.md",), {})
    plan = await exported(shelf.client(), 2, overwrite=True)
    assert plan.written == ("a.md",)
    assert shelf.held["team/a.md"][0] == b"a 2\n"


async def test_copies_are_known_without_metadata(at_once):
    """Some storages drop it; the manifest's hashes say the same of all but concurrent exports."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 1)
    for key, (data, version, _) in list(shelf.held.items()):
        shelf.held[key] = (data, version, {})
    plan = await exported(shelf.client(), 2)
    assert (plan.kept, plan.written) == ((), ("a.md", "c.md"))


async def test_the_bank_of_another_store_is_not_replaced(at_once):
    """Revision numbers of two stores say nothing about which is newer."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 7)
    for number in (7, 9):
        with pytest.raises(UsageError, match="another store"):
            await exported(shelf.client(), number, owner="restored elsewhere")
    with pytest.raises(UsageError, match="another revision 7"):
        await exported(shelf.client(), 7, bank=texts(8))
    assert manifest_of(shelf)["revision"] == 7
    assert (await exported(shelf.client(), 6)).superseded_by == 7
    await exported(shelf.client(), 2, owner="new", overwrite=True)
    assert (manifest_of(shelf)["revision"], manifest_of(shelf)["generation"]) == (2, 2)
    whole(shelf)


async def test_damage_is_said_not_loaded(at_once):
    """Half a revision, or one that somebody changed, would become the bank's."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 1)
    key = "team/objects/" + manifest_of(shelf)["objects"]["a.md"]
    del shelf.held["team/a.md"]
    shelf.held[key] = (b"forged\n", "v", {})
    with pytest.raises(UsageError, match=r"damaged.*a\.md"):
        await loaded(shelf.client())
    del shelf.held[key]
    with pytest.raises(FolderError, match="damaged"):
        await loaded(shelf.client())
    await exported(shelf.client(), 1, overwrite=True)
    whole(shelf)
    assert (await loaded(shelf.client()))[1] == texts(1)
    shelf.held[f"team/{MANIFEST}"] = (b'{"format": 2}', "v", {})
    for call in (loaded(shelf.client()), exported(shelf.client(), 2)):
        with pytest.raises(UsageError, match="cannot be read"):
            await call


@settings(max_examples=50)
@given(st.text(max_size=9), st.text("0129af/.", max_size=70))
def test_a_manifest_names_no_key_outside_its_objects(name, key):
    """Anybody may have written it: else a load reads, and cleaning deletes, what is another's."""
    text = json.dumps(
        {"format": 1, "space": "x", "revision": 1, "owner": "o", "generation": 1,
         "objects": {name: key}}
    )  # fmt: skip
    with pytest.raises(UsageError, match="cannot be read"):
        objects.read_manifest(text, space="x", known={name}, place="s3://bank")


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://AKID:SECRET@bank/x", "s3://bank/../x", "s3://bank/a//b",
     "s3://ban k/x",
     "s3://bank/x?secret=SECRET", "s3://bank/x#SECRET", "http://bank/SECRET", "file:///SECRET",
     "s3://bank/a\0b", f"s3://bank/{'x' * 600}", "s3://bank/ x", "s3://SECRET:9000/x"],
)  # fmt: skip
def test_a_url_of_no_use_is_refused_without_repeating_it(url):
    """It may hold credentials, and an error goes into logs."""
    with pytest.raises(UsageError) as told:
        objects.read_url(url)
    assert "SECRET" not in str(told.value)


@pytest.mark.parametrize("path", ["bank", "./s3/x", "/tmp/a:b", "C:\\bank", "s3:bank", 5, None])
def test_a_path_is_no_url(path):
    assert objects.read_url(path) is None


def test_a_url_that_became_a_path_is_no_folder():
    """Broken if a bank were exported into a folder "s3:" beside the program."""
    with pytest.raises(UsageError, match="a path makes one slash"):
        objects.read_url(Path("s3://bank/x"))


@pytest.mark.parametrize(
    "options",
    ["SECRET", {"secret_access_key": b"SECRET"}, {"SECRET key": 1}, {5: "SECRET"},
     [("a", "SECRET")], {"endpoint": None}],
)  # fmt: skip
def test_options_of_no_use_are_refused_without_repeating_them(options):
    with pytest.raises(UsageError, match="option") as told:
        objects.read_options(options)
    assert "SECRET" not in str(told.value)
