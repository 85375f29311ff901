"""A bank in a plain folder: nothing outside it, nothing of others, nothing lost on either side."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from hiermem import AsyncMemory, FileError, UsageError
from hiermem.bank import folder_io
from hiermem.bank import space as space_engine
from hiermem.bank.exchange import META, SYNTHESIS, text_hash
from hiermem.stores.memory import MemoryStore

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"
BESIDE = {META, SYNTHESIS}


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
        ".git/HEAD": b"ref: x\n", "README.md": b"# Ours\r\n", "src.py": b"\x00\xff",
        "Progress.MD": b"",
    }  # fmt: skip
    for name, data in theirs.items():
        (repository / name).write_bytes(data)
    done = await space.export(repository)
    assert done.written == ("decisions.md", "progress.md")
    found = everything(repository)
    assert {name: found[name] for name in theirs} == theirs
    assert set(found) == {*theirs, "progress.md", "decisions.md", *BESIDE}
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
    held = {name: text_hash(path.read_text()) for name in ("decisions.md", "progress.md", SYNTHESIS)
            if (path := tmp_path / name)}  # fmt: skip
    assert figures["files"] == held
    (tmp_path / SYNTHESIS).write_text("mine\n")
    assert (await space.load(tmp_path)).revision is None
    with pytest.raises(UsageError, match=SYNTHESIS):
        await space.export(tmp_path)
    assert (tmp_path / SYNTHESIS).read_text() == "mine\n"
    own = AsyncMemory(store=MemoryStore()).space("x", rules=f"- {SYNTHESIS}: what works")
    await own.note("the bank's own")
    await own.consolidate()
    done = await own.export(tmp_path / "own")
    assert done.written == (SYNTHESIS,), "a bank's file of that name comes first"
    assert (tmp_path / "own" / SYNTHESIS).read_text() == await own.read(SYNTHESIS)


async def grown(space, text="it works twice"):
    await space.note(text, category="progress")
    await space.consolidate()


@pytest.mark.parametrize("data", [b"by hand\n", b"\xff\xfe", b"a\x00b", b"x" * 262_145])
async def test_an_export_is_refused_over_what_it_did_not_write(space, tmp_path, data):
    """An edit by hand is not committed yet; writing over it would lose it for good."""
    await space.export(tmp_path)
    mine = tmp_path / "progress.md"
    mine.write_bytes(data)
    await grown(space)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=r"progress\.md .* changed since the last export"):
        await space.export(tmp_path)
    assert everything(tmp_path) == before, "half an export"
    (tmp_path / "decisions.md").write_text("fine")
    with pytest.raises(UsageError, match=r"progress\.md"):
        await space.load(tmp_path)
    assert (await space.meta()).revision == 2, "half a load"
    (tmp_path / "decisions.md").write_bytes(before["decisions.md"])
    done = await space.export(tmp_path, overwrite=True)
    assert done.written == ("progress.md",)
    assert mine.read_text() == await space.read("progress.md")


@pytest.mark.parametrize("name", ["progress.md", SYNTHESIS, META])
async def test_a_file_that_was_there_before_is_somebody_elses(space, tmp_path, name):
    """Without a pointer nobody can know that a file was the bank's."""
    (tmp_path / name).write_text("my own notes\n")
    with pytest.raises(UsageError, match=name):
        await space.export(tmp_path)
    assert everything(tmp_path) == {name: b"my own notes\n"}


async def test_a_file_that_left_the_bank_leaves_the_folder(space, tmp_path):
    await space.export(tmp_path)
    (tmp_path / "decisions.md").write_text("kept by hand")
    await space.rollback(to=0)
    with pytest.raises(UsageError, match=r"decisions\.md"):
        await space.export(tmp_path)
    (tmp_path / "decisions.md").unlink()
    assert (await space.export(tmp_path)).removed == ("progress.md",)
    assert set(everything(tmp_path)) == {META}


async def test_a_later_revision_of_the_space_is_never_replaced(space, tmp_path):
    """A late exporter would turn the folder back."""
    await space.export(tmp_path)
    pointer = json.loads((tmp_path / META).read_text())
    (tmp_path / META).write_text(json.dumps(pointer | {"revision": 7}))
    before = everything(tmp_path)
    await grown(space)
    done = await space.export(tmp_path, overwrite=True)
    assert (done.superseded_by, done.written) == (7, ())
    assert everything(tmp_path) == before


async def test_an_export_that_was_cut_off_is_in_no_later_ones_way(space, tmp_path, monkeypatch):
    """It wrote files and no pointer; they are the bank's all the same."""
    await space.export(tmp_path)
    await grown(space)
    real = folder_io._Folder.write

    def dies(folder, name, text):
        if name == META:
            raise OSError(28, "No space left on device")
        real(folder, name, text)

    monkeypatch.setattr(folder_io._Folder, "write", dies)
    with pytest.raises(FileError, match="No space left"):
        await space.export(tmp_path)
    monkeypatch.undo()
    assert "twice" in (tmp_path / "progress.md").read_text()
    await grown(space, "it works three times")
    assert "progress.md" in (await space.export(tmp_path)).written


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
    assert (await space.load(tmp_path)).revision is None, "only the bank changed"
    assert (await space.export(tmp_path)).written


async def test_what_changed_on_both_sides_is_refused(space, tmp_path):
    """Nothing is merged here; and what a consolidation said must not go silently."""
    await space.export(tmp_path)
    (tmp_path / "progress.md").write_text("by hand\n")
    (tmp_path / "decisions.md").write_text("by hand too\n")
    await grown(space)
    with pytest.raises(UsageError, match=r"progress\.md changed both"):
        await space.load(tmp_path)
    assert (await space.meta()).revision == 2
    done = await space.load(tmp_path, overwrite=True)
    assert done.updated == ("decisions.md", "progress.md")


async def test_a_load_during_an_export_is_not_taken_back_by_it(space, tmp_path, monkeypatch):
    """Else the file is written over by what it was before, and the next load takes that in."""
    await space.export(tmp_path)
    by_hand = tmp_path / "progress.md"
    by_hand.write_text("changed by hand\n")
    real, loads = space_engine._export_to_folder, []

    async def meanwhile(*given):
        if not loads:
            loads.append(await space.load(tmp_path))
        return await real(*given)

    monkeypatch.setattr(space_engine, "_export_to_folder", meanwhile)
    with pytest.raises(UsageError, match="last export"):
        await space.export(tmp_path)
    assert by_hand.read_text() == await space.read("progress.md") == "changed by hand\n"
    assert (await space.export(tmp_path)).unchanged == ("decisions.md", "progress.md")


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
    for name, target in (("progress.md", secret), (META, secret), (SYNTHESIS, outside / "none")):
        (folder / name).symlink_to(target)
        calls = [space.export(folder, overwrite=True), space.export(folder)]
        calls += [space.load(folder)] if name != SYNTHESIS else []
        for call in calls:
            with pytest.raises(FileError, match=f"{name} in .* is no plain file"):
                await call
        (folder / name).unlink()
    link = tmp_path / "link"
    link.symlink_to(outside)
    for place in (link, f"{link}/"):
        for call in (space.export(place), space.load(place)):
            with pytest.raises(FileError):
                await call
    assert everything(outside) == {"secret": b"secret"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_what_is_no_plain_file_is_said_so(space, tmp_path, make):
    """Opening a pipe would wait for ever; a folder of that name is somebody's."""
    make(tmp_path / "progress.md")
    for call in (space.export(tmp_path, overwrite=True), space.load(tmp_path)):
        with pytest.raises(FileError, match="no plain file"):
            await asyncio.wait_for(call, 20)


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
    with pytest.raises(UsageError, match="conflict marker") as told:
        await space.load(folder, overwrite=overwrite)
    assert min(before) in str(told.value)
    assert {name: await space.read(name) for name in before} == before
    fit = "# P\n\nA heading\n=======\n\n> > quoted\n"
    (folder / min(before)).write_text(fit, encoding="utf-8")
    assert min(before) in (await space.load(folder)).updated


async def test_a_folder_that_cannot_be_had_is_said(space, tmp_path):
    """The caller is told which folder and why, in one of our errors."""
    for folder in (5, None, "", "a\0b", b"x"):
        for call in (space.export(folder), space.load(folder)):
            with pytest.raises(UsageError):
                await call
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(FileError, match="file"):
            await space.export(place)
    with pytest.raises(FileError, match="gone"):
        await space.load(tmp_path / "gone")


async def test_another_spaces_folder_is_refused(space, tmp_path):
    """Two banks in one folder would write over each other's files."""
    await space.export(tmp_path)
    other = AsyncMemory(store=MemoryStore()).space("y", rules=RULES)
    for call in (other.export(tmp_path), other.load(tmp_path)):
        with pytest.raises(UsageError, match="'x'"):
            await call


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
    with pytest.raises(FileError, match="No space left"):
        await space.export(tmp_path)
    monkeypatch.undo()
    assert target.read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {
        "progress.md", "decisions.md", *BESIDE,
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
    with pytest.raises(FileError):
        await space.export(link)
    await space.rollback(to=0)
    assert (await space.export(tmp_path)).removed == ("decisions.md", "progress.md")
