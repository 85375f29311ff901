"""A bank in object storage, whatever comes between: one whole revision, and never an older one."""

import asyncio
import hashlib
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import UsageError
from hiermem.bank import object_io
from hiermem.bank.exchange import (
    META,
    SYNTHESIS,
    ExchangedBank,
    Pointer,
    load,
    read_options,
    read_pointer,
    read_url,
    text_hash,
)
from hiermem.errors import FileError

NAMES = {"a.md", "b.md", "c.md"}
URL = read_url("s3://bank/team")


class Died(BaseException):
    """A process that is gone."""


class Shelf:
    """Objects in a dict; between two requests anything may happen, and a client may die."""

    def __init__(self, luck: Random) -> None:
        self.held: dict[str, bytes] = {}
        self.luck, self.check = luck, lambda: None

    def client(self, lives: int = 10**9, loses: float = 0.0):
        return Client(self, lives, loses)


class Client:
    """One exporter's or reader's way to the shelf; it dies at its request number ``lives``.

    Of its answers the share ``loses`` is lost.
    """

    url = URL

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
            lost = FileError("no answer")
            lost.retryable = True
            raise lost

    async def get(self, key, *, most):
        await self._turn()
        data = self.shelf.held.get(key)
        self._answered()
        if data is None:
            return None
        return data if len(data) <= most else None, version_of(data)

    async def put(self, key, data, *, over, content_type):
        await self._turn()
        found = self.shelf.held.get(key)
        right = over is None or over == ({} if found is None else version_of(found))
        if right:
            self.shelf.held[key] = data
        self._answered()
        return right

    async def delete(self, key):
        await self._turn()
        self.shelf.held.pop(key, None)
        self._answered()


def version_of(data: bytes) -> dict[str, str]:
    """As with S3, the version is made from the content alone."""
    return {"e_tag": hashlib.sha256(data).hexdigest()}


def texts(number: int) -> dict[str, str]:
    """Give the files of a revision; some are the same in several, and some come and go."""
    files = {"a.md": f"a {number}\n", "b.md": f"b {number // 3}\n"}
    if number % 4 < 3:
        files["c.md"] = f"c {number % 2}\n"
    return files


def bank_of(number: int, *, owner="o", overwrite=False, bank=None):
    held = bank or texts(number)
    hashes = {name: text_hash(text) for name, text in held.items()}
    pointer = Pointer("x", owner, number, hashes)
    return ExchangedBank(pointer, NAMES, held, {}, overwrite)


async def exported(storage, number: int, **more):
    return await object_io.export_to(storage, bank_of(number, **more))


async def loaded(storage):
    return (await object_io.read_from(storage, NAMES))[1]


def pointer_of(shelf: Shelf) -> Pointer | None:
    found = shelf.held.get(f"team/{META}")
    return read_pointer(found.decode()) if found else None


def whole(shelf: Shelf) -> None:
    """Check what is promised at every moment: the pointer names files that are there."""
    if (pointer := pointer_of(shelf)) is not None:
        held = {name: shelf.held[f"team/{pointer.key(name)}"].decode() for name in pointer.files}
        assert held == texts(pointer.revision)


def at_once(patch) -> None:
    """Wait no time between tries."""
    for name in ("_PAUSES", "_BETWEEN"):
        patch.setattr(object_io, name, (0.0, 0.0))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    at_once(monkeypatch)


@drawn(1_500, 40)
@given(
    seed=st.integers(0, 2**32),
    revisions=st.lists(st.integers(1, 12), min_size=2, max_size=10),
    lives=st.lists(st.integers(1, 60), min_size=10, max_size=10),
    loses=st.sampled_from((0.0, 0.05)),
)
def test_exporters_that_come_between_each_other_and_die_end_right(seed, revisions, lives, loses):
    """Broken, a pointer names what another's cleaning took away, or an older revision wins."""
    with pytest.MonkeyPatch.context() as patch:
        at_once(patch)

        async def run():
            shelf = Shelf(Random(seed))
            seen = [0]

            def check():
                whole(shelf)
                now = found.revision if (found := pointer_of(shelf)) else 0
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
                    found = await loaded(shelf.client(loses=loses))
                except FileError as error:
                    assert "has no bank" in str(error)
                    return
                assert found in [texts(number) for number in revisions]

            done = await asyncio.gather(
                *(one(at, number) for at, number in enumerate(revisions)),
                *(read() for _ in range(3)),
            )
            most = max(each for each in done if each is not None)
            assert pointer_of(shelf).revision >= most
            last = max(pointer_of(shelf).revision, *revisions)
            await exported(shelf.client(), last)
            assert await loaded(shelf.client()) == texts(last)

        asyncio.run(run())


async def test_what_a_replaced_pointer_named_is_deleted():
    shelf = Shelf(Random(0))
    for number in (1, 2, 5):
        await exported(shelf.client(), number)
        pointer = pointer_of(shelf)
        named = {f"team/{pointer.key(name)}" for name in pointer.files}
        assert shelf.held.keys() == {f"team/{META}", *named}
    assert (await exported(shelf.client(), 2)).superseded_by == 5
    assert (await exported(shelf.client(), 5)).written == ()
    assert len(shelf.held) == 1 + len(texts(5))


async def test_the_bank_of_another_store_is_not_replaced():
    """Revision numbers of two stores say nothing about which is newer."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 7)
    for number in (7, 9):
        with pytest.raises(UsageError, match="another space"):
            await exported(shelf.client(), number, owner="restored elsewhere")
    with pytest.raises(UsageError, match="different revision 7"):
        await exported(shelf.client(), 7, bank=texts(8))
    assert pointer_of(shelf).revision == 7
    assert (await exported(shelf.client(), 6, overwrite=True)).superseded_by == 7
    await exported(shelf.client(), 2, owner="new", overwrite=True)
    assert (pointer_of(shelf).revision, pointer_of(shelf).owner) == (2, "new")
    whole(shelf)


@pytest.mark.parametrize("owner", ["o", "another"])
async def test_a_file_that_both_revisions_of_one_number_have_is_kept(owner):
    """Its key is the same in both, so that deleting the replaced one would damage the new one."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 1)
    other = {**texts(1), "a.md": "changed\n"}
    await exported(shelf.client(), 1, owner=owner, bank=other, overwrite=True)
    assert await loaded(shelf.client()) == other
    assert len(shelf.held) == 1 + len(other), "the file that was replaced is left there"


async def test_damage_is_said_not_loaded():
    """Half a revision, or one that somebody changed, would become the bank's."""
    shelf = Shelf(Random(1))
    await exported(shelf.client(), 1)
    key = f"team/{pointer_of(shelf).key('a.md')}"
    for wrong in (b"forged\n", b"\xff", None):
        shelf.held |= {key: wrong} if wrong else {}
        if wrong is None:
            del shelf.held[key]
        with pytest.raises(FileError, match=r"a\.md differs"):
            await loaded(shelf.client())
    await exported(shelf.client(), 1, overwrite=True)
    whole(shelf)
    assert await loaded(shelf.client()) == texts(1)
    shelf.held[f"team/{META}"] = b'{"format": 2}'
    for call in (loaded(shelf.client()), exported(shelf.client(), 2)):
        with pytest.raises(FileError, match="or foreign"):
            await call


async def test_a_pointer_names_no_key_outside_the_banks_files():
    """Anybody may have written it: else a load reads, and an export deletes, what is another's."""
    shelf = Shelf(Random(1))
    name, digest = "../other/secret", text_hash("x")
    secret = f"team/{name}/1-{digest}"
    shelf.held[secret] = b"x"
    pointer = {"space": "x", "owner": "o", "revision": 1, "files": {name: digest}}
    shelf.held[f"team/{META}"] = json.dumps(pointer).encode()
    assert await loaded(shelf.client()) == {}
    await exported(shelf.client(), 2)
    assert secret in shelf.held


HASHES = st.sampled_from([text_hash("x"), "", "0" * 63, 5, None])


@drawn(50)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "space": st.sampled_from(["x", 5]), "owner": st.sampled_from(["o", None]),
            "revision": st.sampled_from([1, -1, True, 1.5, "1"]),
            "files": st.dictionaries(st.text(max_size=4), HASHES) | st.just([1]),
        },
    )
)  # fmt: skip
def test_a_pointer_is_data(value):
    found = read_pointer(json.dumps(value))
    fit = (
        len(value) == 4
        and (value["space"], value["owner"]) == ("x", "o")
        and value["revision"] is not True
        and value["revision"] == 1
        and isinstance(value["files"], dict)
        and all(each == text_hash("x") for each in value["files"].values())
    )
    assert (found is not None) == fit
    assert read_pointer("[" * 100_000) is read_pointer("{") is read_pointer('"x"') is None


TEXTS = st.sampled_from(["one\n", "two\n", "two\r\n", "three\n"])


@drawn(200)
@given(
    st.dictionaries(st.sampled_from(sorted(NAMES)), TEXTS),
    st.dictionaries(st.sampled_from(sorted(NAMES)), TEXTS | st.none()),
    st.dictionaries(st.sampled_from(sorted(NAMES)), TEXTS.map(text_hash)),
    st.sets(st.sampled_from(sorted(NAMES))),
    st.booleans(),
)
def test_a_load_takes_nothing_over_what_the_bank_changed_since(bank, found, known, newer, over):
    """Else what a consolidation said would be gone from the bank, and nobody would be told."""
    held, both = Pointer("x", "o", 1, known), set()
    for name, text in found.items():
        if text is not None and name in bank and text_hash(text) != text_hash(bank[name]):
            both |= {name} if name in newer and known.get(name) != text_hash(text) else set()
    ours = bank_of(2, bank=bank or {"z.md": ""}, overwrite=over)
    if both and not over:
        with pytest.raises(UsageError, match="changed both"):
            load(ours, found, held, newer, place="there")
        return
    told, taken = load(ours, found, held, newer, place="there")
    for name, text in found.items():
        if text is None:
            assert name not in taken
            continue
        same = name in bank and text_hash(bank[name]) == text_hash(text)
        stale = not over and name in newer and name in bank
        assert (name in taken) == (not same and not stale)
    assert {*told.created, *told.updated} == taken.keys()
    assert SYNTHESIS not in taken


@pytest.mark.parametrize(
    "given",
    ["s3://", "s3:///x", "s3://AKID:SECRET@bank/x", "s3://bank/../x", "s3://bank/a//b",
     "s3://ban k/x",
     "s3://bank/x?secret=SECRET", "s3://bank/x#SECRET", "http://bank/SECRET", "file:///SECRET",
     "s3://bank/a\0b", f"s3://bank/{'x' * 600}", "s3://bank/ x", "s3://SECRET:9000/x",
     {"secret_access_key": b"SECRET"}, {"SECRET key": 1}, {5: "SECRET"}, [("a", "SECRET")],
     {"endpoint": None}],
)  # fmt: skip
def test_a_url_and_options_of_no_use_are_refused_without_repeating_them(given):
    """They may hold credentials, and an error goes into logs."""
    with pytest.raises(UsageError, match="URL" if isinstance(given, str) else "options") as told:
        (read_url if isinstance(given, str) else read_options)(given)
    assert "SECRET" not in str(told.value)


def test_a_path_is_no_url_and_a_url_that_became_one_is_refused():
    """Broken if a bank were exported into a folder "s3:" beside the program."""
    for path in ("bank", "./s3/x", "/tmp/a:b", "C:\\bank", "s3:bank", 5, None):
        assert read_url(path) is None
    with pytest.raises(UsageError, match="loses a slash"):
        read_url(Path("s3://bank/x"))
