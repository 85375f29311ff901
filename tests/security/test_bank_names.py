"""A bank file's name comes from a model, and no name leaves the folder or looks like another one.

Reliability: 60 hostile names and 10,000 drawn ones; nothing outside the folder changes.
"""

import json
import os
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from sampling import params

from hiermem import Memory
from hiermem.bank import folder_io
from hiermem.bank.exchange import META, ExchangedBank, Pointer, plan, text_hash
from hiermem.bank.rules import check_file_name, fold, names_in
from hiermem.protocols import LLMRequest
from hiermem.testing.llms import ScriptedLLM

Share = Callable[[int], int]

HOSTILE = (
    # paths, in every notation
    "../evil.md", "../../etc/passwd.md", "..\\evil.md", "a/../../evil.md", "/etc/cron.d/evil.md",
    "/evil.md", "\\\\host\\share\\evil.md", "C:\\evil.md", "C:evil.md", "sub/evil.md",
    "sub\\evil.md", "./../evil.md", "~/evil.md", "~root/evil.md", "file:///tmp/evil.md",
    "..", ".", "...md", "..md", ".md", "a..md", "%2e%2e%2fevil.md", "..%2fevil.md",
    "..%c0%afevil.md",
    "..\uff0fevil.md", "\uff0e\uff0e\uff0fevil.md", "\u2024\u2024/evil.md", "a\u2215b.md",
    "a\u2044b.md",
    # what is hidden, a device, a stream or an option
    ".bashrc.md", ".git/hooks/evil.md", ".hiermem-bank.json", "con.md", "NUL.md", "COM1.md",
    "lpt9.txt.md", "aux .md", "COM\u00b9.md", "evil.md:stream.md", "evil.md::$DATA", "-rf.md",
    # what a reader cannot see, or sees otherwise
    "pro\u200bgress.md", "progress\u202edm.md", "progress.md\x00.txt", "progress\n.md",
    "progress\t.md",
    "\ufeffprogress.md", "progress\u00ad.md", "\u3164.md", "progress\ufe0f.md",
    "progress\U000e0061.md", "e\u0301clair.md", "\ufb01le.md", "\uff50rogress.md",
    # other endings, blanks, wild cards, sizes
    "progress.md.exe", "progress.MD", "progress.md ", " progress.md", "progress .md", "*.md",
    "a" * 300 + ".md", "\u00fc" * 150 + ".md", "", " ",
)  # fmt: skip
#: Pieces that drawn names are made of: what is allowed, and what means something to some system.
PIECES = (
    "a", "B", "7", "notes", "progress", "é", "ü", "日本", "ع", "-", "_", ".", " ", "(", ")", "+",
    ",", "&", "..", "/", "\\", ":", "*", "?", "\"", "<", ">", "|", "~", "%2f", "\0", "\n", "\u200b",
    "\u202e", "\u0301", "\u00ad", "\ufe0f", "con", "nul", "com1", ".md", ".md", ".md", ".git", "$",
    "`", "\uff0f", "\u2044", "\ud800", "#", "'",
)  # fmt: skip
RULES = "# Files\n- progress.md: what works\n- decisions.md: why"


def drawn(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    return [
        "".join(chance.choices(PIECES, k=chance.randrange(1, 7))) + chance.choice(("", ".md"))
        for _ in range(count)
    ]


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def test_none_of_sixty_hostile_names_is_let_in_or_repeated() -> None:
    assert len(set(HOSTILE)) >= 60
    for name in HOSTILE:
        told, stem = check_file_name(name), name.removesuffix(".md").strip()
        assert told is not None, name
        assert len(stem) < 4 or stem not in told


@pytest.mark.parametrize(
    "name",
    ["progress.md", "activeContext.md", "tech_debt-2.md", "README.md", "2024 notes (old).md",
     "日本語.md", "über-uns.md", "_index.md", "ملاحظات.md", "हिन्दी.md"],
)  # fmt: skip
def test_ordinary_names_of_all_scripts_are_let_in(name: str) -> None:
    """Somebody who cannot name a file in their own script would be shut out by a safe rule."""
    assert check_file_name(name) is None
    assert list(names_in(f"The file `{name.replace(' ', '_').replace('(', '').replace(')', '')}`"))


def test_a_drawn_name_that_is_let_in_is_one_flat_name_everywhere(share: Share) -> None:
    """A name that any system reads as a path, a device or a hidden file would leave the folder."""
    let_in = [name for name in drawn(6, share(10_000, 2_000)) if check_file_name(name) is None]
    assert len(let_in) > share(300, 60)  # or the rule says nothing
    for name in let_in:
        assert PurePosixPath(name).name == name == PureWindowsPath(name).name
        assert not PureWindowsPath(name).drive
        assert os.path.normpath(name) == name
        assert name.endswith(".md")
        assert name[0] not in ". -"
        assert unicodedata.is_normalized("NFC", name)
        assert len(name.encode()) <= 255
        assert all(char.isprintable() for char in name)
        stem = name.split(".")[0].strip().lower()
        assert stem not in {"con", "prn", "aux", "nul", "com1"}


def test_a_folder_of_drawn_names_holds_them_and_nothing_else(tmp_path: Path, share: Share) -> None:
    """The names go through the real writer: one that the rule lets in can be kept."""
    folder = tmp_path / "deep" / "bank"
    folder.parent.mkdir()
    (tmp_path / "outside.md").write_text("mine")
    once = {fold(name): name for name in drawn(7, share(10_000)) if check_file_name(name) is None}
    bank = {name: f"# {number}\n" for number, name in enumerate(once.values())}
    before = tree(tmp_path)
    pointer = Pointer("x", "o", 1, {name: text_hash(text) for name, text in bank.items()})
    written = ExchangedBank(pointer, bank.keys(), bank)
    folder_io.read_from(str(folder), written.touched, create=True)
    write, remove, _ = plan(written, {})
    folder_io.write_to(str(folder), written, write, remove, point=True)
    after = tree(tmp_path)
    assert {path.name for path in folder.iterdir()} == {*bank, META}
    inside = {str(path.relative_to(tmp_path)) for path in folder.iterdir()}
    assert {name for name in after if name not in inside} == {*before, str(Path("deep", "bank"))}


@pytest.mark.parametrize("name", params(HOSTILE, 20), ids=lambda name: ascii(name)[:40])
def test_a_hostile_name_in_an_answer_is_asked_about_once_and_then_refused(
    name: str, tmp_path: Path
) -> None:
    file = {"filename": name, "content": "# Owned\n", "notes": [1]}
    text = json.dumps({"bank_files": [file], "synthesis": "Owned."})
    llm = ScriptedLLM(script=lambda _: text)
    inside = tmp_path / "folder" / "bank"
    with Memory.open(":memory:", llm=llm) as memory:
        space = memory.space("x", rules=RULES)
        space.note("We chose SQLite.")
        told = space.consolidate()
        assert told.status == "error"
        assert [note.text for note in space.notes()] == ["We chose SQLite."]
        assert space.files() == []
        space.export(inside)
    assert llm.calls == 2
    repair = llm.requests[1].messages[-1].content
    reasons = ("name cannot be used", "rules name no such file", "holds a NUL")
    assert any(reason in repair for reason in reasons)
    assert len(name) < 4 or name not in told.message
    assert {*tree(tmp_path)} <= {"folder", str(Path("folder", "bank")),
                                 str(Path("folder", "bank", META))}  # fmt: skip


def test_drawn_names_in_answers_make_no_file_but_those_of_the_rules(share: Share) -> None:
    """A hundred names an answer: whatever the model calls its files, the rules say which exist."""
    names = [name for name in drawn(8, share(12_000)) if "\ud800" not in name and "\0" not in name]
    assert len(names) >= share(10_000)
    batches = [names[at : at + 100] for at in range(0, len(names), 100)]
    queue = iter(batches)

    def answer(_: LLMRequest) -> str:
        mine = {"content": "# Mine\n", "notes": [1]}
        files = [mine | {"filename": name} for name in next(queue, [])]
        return json.dumps({"bank_files": files, "synthesis": "Mine."})

    with Memory.open(":memory:", llm=ScriptedLLM(script=answer)) as memory:
        space = memory.space("x", rules=RULES)
        for number in range(len(batches) // 2):  # each is asked about once more
            space.note(f"Note {number}.")
            space.consolidate()
            assert {*space.files()} <= {"progress.md", "decisions.md"}
