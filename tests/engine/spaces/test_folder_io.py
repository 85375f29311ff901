"""A bank in a plain folder: nothing outside it, nothing of others, nothing lost on either side."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem import AsyncMemory, FolderError, UsageError
from hiermem.core.spaces import folder as mirror
from hiermem.core.spaces import record as kept
from hiermem.core.spaces.folder import (
    COMPANIONS,
    MANIFEST,
    META,
    SYNTHESIS,
    ExchangedBank,
    Manifest,
    text_hash,
)
from hiermem.engine.spaces import folder_io
from hiermem.engine.spaces.records import SpaceContext
from hiermem.stores.memory import MemoryStore

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"
NAMES = ("a.md", "b.md", "c.md")


@pytest.fixture
async def space():
    """A space with two files, made from one note."""
    space = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    await space.note("SQLite works", category="progress")
    await space.consolidate()
    return space


def everything(folder: Path) -> dict[str, bytes]:
    """Give all files below a folder with what is in them."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


async def test_an_export_touches_its_own_files_alone(space, tmp_path):
    """Pointed at a repository, it must leave all that is not the bank's byte for byte."""
    repository = tmp_path / "repo"
    (repository / ".git").mkdir(parents=True)
    theirs = {
        ".git/HEAD": b"ref: x\n",
        "README.md": b"# Ours\r\n",
        "src.py": b"\x00\xff",
        "Progress.MD": b"",
    }
    for name, data in theirs.items():
        (repository / name).write_bytes(data)
    done = await space.export(repository)
    assert done.written == ("decisions.md", "progress.md")
    found = everything(repository)
    assert {name: found[name] for name in theirs} == theirs
    assert set(found) == {*theirs, "progress.md", "decisions.md", MANIFEST, *COMPANIONS}
    assert found["progress.md"].decode() == await space.read("progress.md")
    times = {name: (repository / name).stat().st_mtime_ns for name in found}
    again = await space.export(repository)
    assert (again.written, again.unchanged) == ((), ("decisions.md", "progress.md"))
    assert {name: (repository / name).stat().st_mtime_ns for name in found} == times


async def test_synthesis_and_figures_lie_beside_the_files(space, tmp_path):
    """People read them there; what is theirs under such a name stays, and none is ever loaded."""
    await space.export(tmp_path)
    assert (tmp_path / SYNTHESIS).read_text().rstrip("\n") == await space.synthesis()
    figures = json.loads((tmp_path / META).read_text())
    assert (figures["revision"], figures["notes_processed"]) == (1, 1)
    assert figures["files"] == ["decisions.md", "progress.md"]
    (tmp_path / SYNTHESIS).write_text("mine\n")
    assert (await space.load(tmp_path)).revision is None
    await space.note("it works twice")
    await space.consolidate()
    assert (await space.export(tmp_path)).kept == (SYNTHESIS,)
    assert (tmp_path / SYNTHESIS).read_text() == "mine\n"
    assert json.loads((tmp_path / META).read_text())["revision"] == 2
    own = AsyncMemory(store=MemoryStore()).space("x", rules=f"- {SYNTHESIS}: what works")
    await own.note("the bank's own")
    await own.consolidate()
    done = await own.export(tmp_path / "own")
    assert done.written == (SYNTHESIS,), "a bank's file of that name comes first"
    assert (tmp_path / "own" / SYNTHESIS).read_text() == await own.read(SYNTHESIS)


async def test_a_file_that_somebody_changed_is_left_alone(space, tmp_path):
    """An edit by hand is not committed yet; writing over it would lose it for good."""
    await space.export(tmp_path)
    mine = tmp_path / "progress.md"
    mine.write_text("by hand\n")
    await space.note("it works twice")
    await space.consolidate()
    done = await space.export(tmp_path)
    assert done.kept == ("progress.md",)
    assert mine.read_text() == "by hand\n"
    loaded = await space.load(tmp_path)
    assert (loaded.conflicts, loaded.revision) == (("progress.md",), None)
    done = await space.export(tmp_path, overwrite=True)
    assert done.written == ("progress.md",)
    assert mine.read_text() == await space.read("progress.md")


async def test_a_file_that_was_there_before_is_somebody_elses(space, tmp_path):
    """Without a manifest nobody can know that a file was the bank's."""
    (tmp_path / "progress.md").write_text("my own notes\n")
    done = await space.export(tmp_path)
    assert (done.written, done.kept) == (("decisions.md",), ("progress.md",))
    assert (tmp_path / "progress.md").read_text() == "my own notes\n"


async def test_only_what_it_wrote_and_nobody_changed_is_removed(space, tmp_path):
    """A file that left the bank leaves the folder, unless somebody worked on it."""
    await space.export(tmp_path)
    (tmp_path / "decisions.md").write_text("kept by hand")
    await space.rollback(to=0)
    done = await space.export(tmp_path)
    assert (done.removed, done.kept) == (("progress.md",), ("decisions.md",))
    assert set(everything(tmp_path)) == {"decisions.md", MANIFEST, META}


async def test_a_folder_is_watched_by_loading_it_again(space, tmp_path):
    """Each change by hand becomes a revision; what did not change makes none."""
    await space.export(tmp_path)
    assert (await space.load(tmp_path)).revision is None
    for number in (1, 2):
        (tmp_path / "progress.md").write_text(f"changed {number}\r\n")
        done = await space.load(tmp_path)
        assert (done.updated, done.revision) == (("progress.md",), 1 + number)
        assert await space.read("progress.md") == f"changed {number}\n"
        assert f"+changed {number}" in done.diff
        assert (await space.load(tmp_path)).revision is None
    assert (await space.history())[0].kind == "load"
    (tmp_path / "decisions.md").unlink()
    assert (await space.load(tmp_path)).revision is None, "a missing file emptied the bank"
    assert (await space.export(tmp_path)).written == ("decisions.md",)
    await space.note("it works again")
    await space.consolidate()
    assert (await space.load(tmp_path)).conflicts == (), "only the bank changed"
    assert (await space.export(tmp_path)).kept == ()


async def test_a_load_during_an_export_is_not_taken_back_by_it(space, tmp_path, monkeypatch):
    """Else the file is written over by what it was before, and the next load takes that in."""
    await space.export(tmp_path)
    by_hand = tmp_path / "progress.md"
    by_hand.write_text("changed by hand\n")
    read, loads = SpaceContext.of_kind, []

    async def meanwhile(records, kind):
        if kind == kept.LOADED and not loads:
            loads.append(kind)
            assert (await space.load(tmp_path)).updated == ("progress.md",)
        return await read(records, kind)

    monkeypatch.setattr(SpaceContext, "of_kind", meanwhile)
    await space.export(tmp_path)
    assert loads
    assert by_hand.read_text() == "changed by hand\n"
    await space.load(tmp_path)
    assert await space.read("progress.md") == "changed by hand\n"


async def test_an_existing_bank_comes_in_from_a_folder(tmp_path):
    """A team's files become the bank; what the rules do not name stays outside."""
    (tmp_path / "progress.md").write_bytes("\ufeff# Progress\r\n\r\n- pump 7 ✓\r\n".encode())
    (tmp_path / "README.md").write_text("not of the bank")
    space = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
    done = await space.load(tmp_path)
    assert (done.created, done.revision) == (("progress.md",), 1)
    assert await space.files() == ["progress.md"]
    assert await space.read("progress.md") == "# Progress\n\n- pump 7 ✓\n"
    await space.note("pump 8 works")
    outcome = await space.consolidate()
    assert outcome.lines_removed == 0
    assert "pump 7 ✓" in await space.read("progress.md")


async def test_links_are_never_followed(space, tmp_path):
    """A link that somebody put there must not carry a write, or a read, out of the folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "progress.md").symlink_to(secret)
    (folder / "decisions.md").symlink_to(outside / "not-there")
    done = await space.export(folder, overwrite=True)
    assert set(done.kept) == {"decisions.md", "progress.md"}
    assert (await space.load(folder)).skipped == ("decisions.md", "progress.md")
    assert everything(outside) == {"secret": b"secret"}
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).symlink_to(secret)
    for call in (space.export(folder), space.load(folder)):
        with pytest.raises(FolderError):
            await call
    link = tmp_path / "link"
    link.symlink_to(outside)
    for place in (link, f"{link}/"):
        for call in (space.export(place), space.load(place)):
            with pytest.raises(FolderError):
                await call
    assert everything(outside) == {"secret": b"secret"}


async def test_what_is_no_plain_file_is_left_alone(space, tmp_path):
    """Opening a pipe would wait for ever; a folder of that name is somebody's."""
    os.mkfifo(tmp_path / "progress.md")
    (tmp_path / "decisions.md").mkdir()
    done = await asyncio.wait_for(space.export(tmp_path, overwrite=True), 20)
    assert set(done.kept) == {"decisions.md", "progress.md"}
    assert (await space.load(tmp_path)).skipped == ("decisions.md", "progress.md")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a\x00b", b"x" * 262_145], ids=["utf8", "nul", "long"]
)
async def test_a_file_that_is_no_text_loads_nothing(space, tmp_path, data):
    """Half a load would leave a bank that nobody wrote."""
    (tmp_path / "decisions.md").write_text("fine")
    (tmp_path / "progress.md").write_bytes(data)
    with pytest.raises(UsageError, match=r"progress\.md"):
        await space.load(tmp_path)
    assert (await space.meta()).revision == 1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "merged",
    ["<<<<<<< HEAD\n- one\n=======\n- two\n>>>>>>> other\n",
     "# P\r\n\r\n<<<<<<< mine\r\n- one\r\n||||||| base\r\n=======\r\n- two\r\n>>>>>>> b\r\n",
     "# P\n\n- one\n>>>>>>> 3f2a (the other)\n"],
)  # fmt: skip
async def test_a_merge_that_is_not_finished_is_not_loaded(space, tmp_path, merged, overwrite):
    """Neither side was chosen; and no other file of the folder goes in without it."""
    folder = tmp_path / "bank"
    await space.export(folder)
    before = {name: await space.read(name) for name in await space.files()}
    for name, held in before.items():
        (folder / name).write_text(f"{held}- by hand\n", encoding="utf-8")
    (folder / min(before)).write_bytes(merged.encode())
    with pytest.raises(UsageError, match="conflict markers of a merge") as told:
        await space.load(folder, overwrite=overwrite)
    assert min(before) in str(told.value)
    assert {name: await space.read(name) for name in before} == before
    fit = "# P\n\nA heading\n=======\n\n> > quoted\n"
    (folder / min(before)).write_text(fit, encoding="utf-8")
    assert min(before) in (await space.load(folder)).updated


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a\x00b", b"x" * 262_145], ids=["utf8", "nul", "long"]
)
async def test_a_file_that_is_no_text_is_in_no_exports_way(space, tmp_path, data):
    """It is somebody's like any other change: kept and named, and replaced where that is asked."""
    bad = tmp_path / "progress.md"
    bad.write_bytes(data)
    done = await space.export(tmp_path)
    assert (done.written, done.kept) == (("decisions.md",), ("progress.md",))
    assert bad.read_bytes() == data
    assert (await space.export(tmp_path, overwrite=True)).written == ("progress.md",)
    assert bad.read_text() == await space.read("progress.md")
    bad.write_bytes(data)
    await space.rollback(to=0)
    assert (await space.export(tmp_path)).kept == ("progress.md",)
    assert bad.read_bytes() == data


async def test_a_manifest_that_is_no_text_says_nothing(space, tmp_path):
    """As one that is damaged in any other way: what is there counts as somebody's."""
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe")
    (tmp_path / "progress.md").write_text("somebody's")
    assert (await space.export(tmp_path)).kept == ("progress.md",)


@pytest.mark.parametrize("folder", [5, None, "", "a\0b", b"x"])
async def test_a_folder_is_a_path(space, folder):
    for call in (space.export(folder), space.load(folder)):
        with pytest.raises(UsageError):
            await call


async def test_a_folder_that_cannot_be_had_is_said(space, tmp_path):
    """The caller is told which folder and why, in one of our errors."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(FolderError, match="file"):
            await space.export(place)
    with pytest.raises(FolderError, match="gone"):
        await space.load(tmp_path / "gone")


async def test_another_spaces_folder_is_refused(space, tmp_path):
    """Two banks in one folder would write over each other's files."""
    await space.export(tmp_path)
    other = AsyncMemory(store=MemoryStore()).space("y", rules=RULES)
    for call in (other.export(tmp_path), other.load(tmp_path)):
        with pytest.raises(UsageError, match="'x'"):
            await call


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[" * 100_000, "null", '{"format": 2}', '{"format": 1, "files": 3}',
        '{"format": 1}',
        json.dumps({"format": 1, "space": 5, "revision": True, "files": {"progress.md": "x"}}),
        json.dumps({"format": 1, "space": "x", "files": {"../../up.md": ["h"], "a/b.md": ["h"]}}),
    ],
)  # fmt: skip
async def test_a_manifest_is_data(space, tmp_path, text):
    """Anybody may have written it: it can make nothing be removed, nor anything outside be read."""
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "up.md").write_text("outside")
    (folder / MANIFEST).write_text(text)
    (folder / "progress.md").write_text("somebody's")
    done = await space.export(folder)
    assert (done.written, done.kept, done.removed) == (("decisions.md",), ("progress.md",), ())
    assert (tmp_path / "up.md").read_text() == "outside"


async def test_a_manifest_cannot_name_what_the_bank_never_had_for_removal(space, tmp_path):
    """A repository of somebody else may list any file of it, with the very hash it has."""
    texts = {"README.md": "# Read me\n", "progress.md": "as exported\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    listed = {name: [text_hash(text)] for name, text in texts.items()}
    (tmp_path / MANIFEST).write_text(json.dumps({"format": 1, "space": "x", "files": listed}))
    await space.rollback(to=0)
    done = await space.export(tmp_path)
    assert (done.removed, done.kept) == (("progress.md",), ())
    assert (tmp_path / "README.md").read_text() == texts["README.md"]


async def test_a_file_keeps_its_rights_and_leaves_nothing_beside_it(space, tmp_path, monkeypatch):
    """A write that fails half-way leaves the old file whole, and no other one."""
    await space.export(tmp_path)
    target = tmp_path / "progress.md"
    target.chmod(0o640)
    before = target.read_text()
    await space.note("more works")
    await space.consolidate()
    real = os.replace

    def fails(source, *rest, **more):
        if rest[0] == "progress.md":
            raise OSError(28, "No space left on device")
        return real(source, *rest, **more)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(FolderError, match="No space left"):
        await space.export(tmp_path)
    monkeypatch.undo()
    assert target.read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {
        "progress.md", "decisions.md", MANIFEST, *COMPANIONS,
    }  # fmt: skip
    assert (await space.export(tmp_path)).written == ("progress.md",)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "more works" in target.read_text()


async def test_systems_without_open_folders_do_the_same(space, tmp_path, monkeypatch):
    """Where names cannot be told relative to an open folder, whole paths serve."""
    monkeypatch.setattr(folder_io, "_HAS_DIR_FD", False)
    await space.export(tmp_path)
    (tmp_path / "progress.md").write_text("by hand")
    assert (await space.load(tmp_path)).updated == ("progress.md",)
    assert (await space.export(tmp_path)).unchanged == ("decisions.md", "progress.md")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(FolderError):
        await space.export(link)
    await space.rollback(to=0)
    assert (await space.export(tmp_path)).removed == ("decisions.md", "progress.md")


# -- the decisions alone

TEXTS = st.sampled_from(["one", "two", "three", "two\r\nlines", "two\nlines"])
BANKS = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(TEXTS, st.one_of(st.none(), TEXTS.map(text_hash))),
)
FOLDERS = st.dictionaries(st.sampled_from(NAMES), st.one_of(TEXTS, st.none(), st.just(False)))
FOLDERS_OF_ALL_KINDS = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(TEXTS, st.none(), st.just(False), st.builds(UsageError, TEXTS)),
)
MANIFESTS = st.builds(
    Manifest,
    st.just("x"),
    st.just(1),
    st.dictionaries(st.sampled_from(NAMES), st.lists(TEXTS.map(text_hash), max_size=2).map(tuple)),
)


def exchanged(bank, **more):
    texts = {name: text for name, (text, _) in bank.items()}
    loaded = {name: known for name, (_, known) in bank.items() if known is not None}
    return ExchangedBank("x", set(NAMES), texts, loaded, revision=1, **more)


@settings(max_examples=300)
@given(BANKS, FOLDERS_OF_ALL_KINDS, MANIFESTS)
def test_nothing_unknown_is_written_over_or_removed(bank, folder, manifest):
    """Whatever both sides hold: what an export takes away, the bank knew."""
    plan = mirror.export(exchanged(bank), folder, manifest)
    for name in (*plan.written, *plan.removed):
        theirs = folder.get(name)
        assert theirs is None or isinstance(theirs, str)
        known = {*manifest.files.get(name, ()), bank[name][1] if name in bank else None}
        assert theirs is None or text_hash(theirs) in known
    assert set(plan.removed) <= manifest.files.keys() - bank.keys()
    assert {*plan.written, *plan.unchanged, *plan.kept} >= bank.keys()
    after = folder | {name: bank[name][0] for name in plan.written}
    for name in plan.removed:
        del after[name]
    listed = {name: (text_hash(bank[name][0]),) for name in (*plan.written, *plan.unchanged)}
    kept = {name: manifest.files[name] for name in plan.kept if name in manifest.files}
    again = mirror.export(exchanged(bank), after, Manifest("x", 2, listed | kept))
    assert (again.written, again.removed) == ((), ()), "a second export has something left to do"


@settings(max_examples=300)
@given(BANKS, FOLDERS, MANIFESTS)
def test_a_load_takes_what_only_the_folder_changed(bank, folder, manifest):
    """What is taken replaces a text that was agreed on; both sides' changes are a conflict."""
    plan, texts = mirror.load(exchanged(bank), folder, manifest)
    assert texts.keys() == {*plan.created, *plan.updated}
    named = (*plan.created, *plan.updated, *plan.unchanged, *plan.conflicts, *plan.skipped)
    assert sorted(named) == sorted(name for name, text in folder.items() if text is not None)
    for name in plan.updated:
        known = {*manifest.files.get(name, ()), bank[name][1]}
        assert text_hash(bank[name][0]) in known
    for name in plan.conflicts:
        known = {*manifest.files.get(name, ()), bank[name][1]}
        assert not {text_hash(bank[name][0]), text_hash(folder[name])} & known
    again, _ = mirror.load(exchanged(bank, overwrite=True), folder, manifest)
    assert again.conflicts == ()
