"""The commands ``bank …`` say and do what an application could, and print nothing that acts."""

import json
import re
import shutil
from functools import partial

import commands
import pytest
from object_server import SECRET, serving

from hiermem import Memory
from hiermem.testing.llms import ScriptedLLM

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"


run = partial(commands.run, "bank")


@pytest.fixture
def db(tmp_path):
    """A memory with one space, two notes waiting."""
    rules = tmp_path / "rules.md"
    rules.write_text(RULES, encoding="utf-8")
    path = tmp_path / "bank.db"
    for text in ("SQLite works since 12 May.", "Chose SQLite: \x1b[31mone file\u202e."):
        run("note", text, "--db", path, "--space", "x", "--rules", rules, "--agent", "dev\x1b[1m")
    return path


def test_notes_go_into_the_bank_and_come_out(db):
    assert "live notes  2" in run("show", "--db", db).stdout
    told = run("show", "--notes", "--db", db).stdout
    assert "SQLite works since 12 May." in told
    assert "\x1b" not in told
    dry = run("consolidate", "--dry-run", "--db", db).stdout
    assert "2 notes would be consolidated" in dry
    assert "+++ b/progress.md" in dry
    assert "12 May" in dry
    assert "\x1b" not in dry
    assert "live notes  2" in run("show", "--db", db).stdout, "a dry run wrote something"
    done = run("consolidate", "--db", db).stdout
    assert re.search(r"message +2 notes consolidated", done)
    assert re.search(r"files created +decisions.md, progress.md", done)
    assert "--- " not in done
    told = run("consolidate", "--db", db).stdout
    assert re.search(r"nothing_to_do *\nmessage +No new notes to consolidate", told)
    with Memory.open(db) as memory:
        text = memory.space("x").read("progress.md")
    shown = run("show", "progress.md", "--db", db).stdout
    assert "12 May" in shown
    assert shown.split() == text.replace("\x1b", "").replace("\u202e", "").split()
    assert "\x1b" not in run("show", "decisions.md", "--db", db).stdout
    assert run("show", "--synthesis", "--db", db).stdout.strip()
    assert run("show", "--rules", "--db", db).stdout.strip() == RULES
    assert run("show", "--list", "--db", db).stdout == "x\n"
    told = run("show", "--db", db).stdout
    assert "live notes" not in told
    assert re.search(r"(?m)^name +lines  characters$", told)


def test_a_consolidation_is_undone_with_its_notes(db):
    run("consolidate", "--db", db)
    assert "live notes" not in run("show", "--db", db).stdout
    told = run("rollback", "0", "--restore-notes", "--db", db).stdout
    assert re.search(r"restored +\S+, \S+\n", told)
    assert re.search(r"live notes +2", run("show", "--db", db).stdout)


def test_dropped_and_unplaced_notes_are_shown(db, monkeypatch):
    assert "no note was dropped" in run("show", "--dropped", "--db", db).stderr
    for _ in range(5):
        run("note", "And more.", "--db", db)
    drop = {"note": 2, "reason": "progress.md \x1b[31msays it"}
    llm = ScriptedLLM(
        script=lambda _: json.dumps({"bank_files": [], "dropped": [drop], "synthesis": ""})
    )
    monkeypatch.setattr("hiermem.cli.options.Model.llm", lambda *_, **__: llm)
    told = run("consolidate", "--db", db, code=3).stdout
    assert "1 dropped of these" in told
    assert re.search(r"  dev\S* +progress.md", told)
    assert "progress.md says it" in told.replace("[31m", "")
    assert len(re.search(r"unplaced +(\d.+?) *\n", told)[1].split(", ")) == 6
    shown = run("show", "--dropped", "--db", db).stdout
    assert "says it" in shown
    assert "\x1b" not in told + shown
    assert re.search(r"live notes +6", run("show", "--db", db).stdout)


def test_the_history_goes_back_and_forth(db):
    run("consolidate", "--db", db)
    run("note", "It works on 13 May too.", "--db", db)
    run("consolidate", "--db", db)
    told = run("history", "--db", db).stdout
    assert told.count("consolidation") == 2
    assert "13 May" in run("diff", "--db", db).stdout
    assert "13 May" not in run("diff", "0", "1", "--db", db).stdout
    assert re.search(r"to +1 *\n", run("rollback", "1", "--db", db).stdout)
    assert re.search(r"rollback +1 ", run("history", "--db", db).stdout)
    files = " ".join(
        run("show", each, "--db", db).stdout for each in ("progress.md", "decisions.md")
    )
    assert "13 May" not in files
    old = [run("show", each, "--revision", "2", "--db", db).stdout
           for each in ("progress.md", "decisions.md")]  # fmt: skip
    assert "13 May" in " ".join(old)


def test_object_storage_is_exported_to_and_loaded(db, tmp_path, monkeypatch):
    """Keys come from the environment; nothing that is printed holds an option's value."""
    pytest.importorskip("obstore")
    for name, value in {
        "ACCESS_KEY_ID": "AKID",
        "SECRET_ACCESS_KEY": SECRET,
        "REGION": "x",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    run("consolidate", "--db", db)
    with serving("bank") as server:
        there = ("s3://bank/x", "--option", f"endpoint={server.endpoint}", "--option")
        allowed = (*there, "allow_http=true")
        for how in ("written", "unchanged"):
            told = run("export", *allowed, "--db", db).stdout
            assert re.search(rf"{how} +decisions.md, progress.md", told)
        older = tmp_path / "older.db"
        shutil.copyfile(db, older)
        run("note", "It works on 13 May too.", "--db", db)
        run("consolidate", "--db", db)
        assert re.search(r"written +\S+ *\n", run("export", *allowed, "--db", db).stdout)
        assert re.search(r"unchanged +\S+, \S+", run("load", *allowed, "--db", db).stdout)
        failed = run("export", *allowed, "--db", older, code=1)
        assert "later revision 2, not 1" in failed.stderr
        for wrong in (f"secret_access_keys={SECRET}", SECRET):
            failed = run("export", *there, wrong, "--db", db, code=2)
            assert SECRET not in failed.output


def test_a_folder_is_exported_to_and_loaded(db, tmp_path):
    run("consolidate", "--db", db)
    folder = tmp_path / "bank"
    assert re.search(r"written +\S+, \S+", run("export", folder, "--db", db).stdout)
    (folder / "progress.md").write_text("by hand\n", encoding="utf-8")
    failed = run("export", folder, "--db", db, code=2)
    assert "progress.md in" in failed.stderr
    assert re.search(r"updated +progress.md", run("load", folder, "--db", db).stdout)
    assert run("show", "progress.md", "--db", db).stdout == "by hand\n"
    assert re.search(r"unchanged +\S+, \S+", run("export", folder, "--db", db).stdout)


def test_what_is_wrong_is_said(db, tmp_path):
    for arguments, words, code in (
        (("show", "nothing.md", "--db", db), "no file 'nothing.md'", 1),
        (("show", "../x", "--db", db), "invalid bank file name", 2),
        (("show", "--space", "y", "--db", db), "does not exist", 1),
        (("note", "  ", "--db", db), "empty", 2),
        (("show", "--db", tmp_path / "none.db"), "there is no memory", 1),
        (("rollback", "9", "--db", db), "no revision 9", 1),
    ):
        assert words in run(*arguments, code=code).stderr
    other = tmp_path / "other.md"
    other.write_text("- else.md", encoding="utf-8")
    clash = run("note", "x", "--db", db, "--space", "x", "--rules", other, code=1)
    assert "the rules of space" in clash.stderr
    run("note", "x", "--db", db, "--space", "y", "--rules", other)
    assert "choose one with --space: x, y" in run("show", "--db", db, code=2).stderr
    run("note", "-", "--db", db, "--space", "y", given="from a pipe")
    assert "from a pipe" in run("show", "--notes", "--space", "y", "--db", db).stdout


def test_a_space_is_erased_after_leave_was_given(db, tmp_path):
    """There is no way back, so nobody who did not say so may get there."""
    run("consolidate", "--db", db)
    run("export", tmp_path / "out", "--db", db)
    assert "Pass --yes" in run("erase", "--db", db, code=2).output
    assert run("show", "--list", "--db", db).stdout == "x\n"
    told = run("erase", "--db", db, "--yes").stdout
    assert {"spaces 1", "notes 2", "files 2", "revisions 1"} <= set(re.findall(r"\w+ \d", told))
    assert str(tmp_path / "out") in told.replace("\n", "")
    assert re.search(r"scrubbed +yes", told)
    assert run("show", "--list", "--db", db).stdout == ""
    assert "does not exist" in run("erase", "--space", "x", "--db", db, "--yes", code=1).output
