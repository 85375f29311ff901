"""The commands do what an application would do with the same calls, and fail in one line."""

import builtins
import json
import re
import sys

import pytest
from commands import run
from stand_ins import talk as turns

from hiermem import Memory, Message
from hiermem.cli import main


@pytest.fixture
def talk(tmp_path):
    """A file of 60 messages, with a terminal escape and a reversed text in one of them."""
    lines = [{"role": role, "content": f"Message {n} costs {n * 17} EUR."}
             for n, role in enumerate(["user", "assistant"] * 30)]  # fmt: skip
    lines[58]["content"] = "red \x1b[31malert\u202e reversed, 997 EUR"
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture
def db(tmp_path, talk):
    """A memory that holds those messages and has its summaries made."""
    path = tmp_path / "memory.db"
    run("import", talk, "--session", "talk", "--db", path)
    run("update", "--db", path)
    return path


def test_a_changed_line_is_a_new_message_and_said_to_be(tmp_path, talk):
    """Broken if a corrected file could not be read again, or moved messages in silence."""
    path = tmp_path / "memory.db"
    run("import", talk, "--db", path)
    talk.write_text(talk.read_text("utf-8").replace("Message 3 ", "Message three "), "utf-8")
    result = run("import", talk, "--db", path)
    assert "new 1, held 59, late 1, " in result.stdout
    assert "three" not in result.output, "a note never holds message text"


def test_a_transcript_goes_in_under_its_own_session_and_title(tmp_path):
    talk = tmp_path / "meeting.txt"
    talk.write_text("Ada: Shall we?\nMarvin: If we must.\nAda: Good.\n", encoding="utf-8")
    path = tmp_path / "memory.db"
    run("import", talk, "--db", path, "-s", "m1", "--title", "Plans", "--assistant", "Marvin")
    assert run("sessions", "--db", path).stdout.splitlines()[1].split()[:2] == ["Plans", "3"]
    with Memory.open(path) as memory:
        roles = [each.role for each in memory.session("m1").messages()]
    assert roles == ["user", "assistant", "user"]


def test_a_long_session_is_listed_from_its_top_down(tmp_path):
    path = tmp_path / "memory.db"
    with Memory.open(path) as memory:
        memory.session("long").append(turns(800, "Point {n}.", created_at=None))
    printed = run("show", "--db", path).stdout
    assert len(printed.splitlines()) < 100
    assert "L1.0 " not in printed
    assert "not listed; --level 1 lists all" in printed
    assert "L1.79 " in run("show", "--db", path, "--level", 1).stdout


def test_a_dry_run_says_what_the_update_then_does(tmp_path, talk):
    """Broken, a plan names other work than is done, up to a level or in all."""
    path = tmp_path / "memory.db"
    run("import", talk, "--db", path)
    plan = run("update", "--db", path, "--dry-run").stdout
    assert "L1 6, L2 1" in plan
    assert "calls 1, calls max 1, " in plan, "a model that is asked once is asked once"
    assert "made 6" in run("update", "--db", path, "--level", 1).stdout
    assert "1 summary to be made: hiermem update" in run("show", "--db", path).stdout
    assert "made 1" in run("update", "--db", path).stdout
    assert "nothing to make" in run("update", "--db", path).stdout
    assert "nothing to make" in run("update", "--db", path, "--dry-run").stdout


def test_the_context_is_that_of_the_library(db):
    with Memory.open(db) as memory:
        wanted = memory.session("talk").context(3_000)
    asked = ("context", "--db", db, "--max-tokens", 3_000)
    for form in ("openai", "anthropic"):
        told = json.loads(run(*asked, "--format", form).stdout)
        assert told == getattr(wanted, f"to_{form}")()
    assert "60 messages" in run(*asked, "--explain").stdout


@pytest.mark.parametrize("form", ["text", "openai", "anthropic"])
def test_a_message_cannot_steer_the_terminal(db, form):
    printed = run("context", "--db", db, "--format", form).stdout
    assert "alert" in printed
    assert "\x1b" not in printed
    assert "\u202e" not in printed


def test_show_draws_the_levels_and_lists_the_summaries(db):
    printed = run("show", "--db", db).stdout
    assert "60 messages, sealed: L1 6, L2 1" in printed
    assert all(name in printed for name in ("L2.0", "L1.0", "L1.5"))
    assert "\x1b" not in printed
    full = run("show", "--db", db, "--node", "L1.0").stdout
    assert "messages  10" in full
    assert "Message 0" in full
    assert run("sessions", "--db", db).stdout.splitlines()[1].split()[:2] == ["talk", "60"]


def test_with_several_sessions_one_must_be_chosen(db):
    with Memory.open(db) as memory:
        memory.session("other").append(Message.user("hello"))
    result = run("show", "--db", db, code=2)
    assert "there are 2 sessions; name one, such as 'other', or @last" in result.stderr
    assert "other" in run("show", "other", "--db", db).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "--db", "missing.db"], "missing.db"),
        (["context", "--db", "{db}", "--max-tokens", "50"], "it needs at least"),
        (["context", "--db", "{db}", "--session", "nobody"], "nobody"),
        (["show", "--db", "{db}", "--node", "L7.0"], "L7.0"),
        (["show", "--db", "{talk}"], "talk.jsonl"),
    ],
)
def test_a_fault_is_one_line_on_standard_error_and_exit_code_1(
    db, talk, arguments, says, monkeypatch
):
    monkeypatch.chdir(db.parent)
    result = run(*(each.format(db=db, talk=talk) for each in arguments), code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr
    assert not (db.parent / "missing.db").exists(), "reading must not create a file"


def test_without_the_extra_the_command_names_it(monkeypatch, capsys):
    original = builtins.__import__

    def missing(name, *rest, **named):
        if name.partition(".")[0] in ("typer", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *rest, **named)

    for name in [each for each in sys.modules if each.startswith("hiermem.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "hiermem-memory[cli]" in capsys.readouterr().err


def test_the_demo_says_what_it_covers_and_searches_the_whole_conversation():
    """The decision stands in the middle; the hits are marked in their words."""
    printed = run("demo").stdout
    for said in ("351 messages", "cover 100% of 348 messages", "by quarter, oldest first",
                 "a line or more of", "3 messages later", "Saved against sending everything:",
                 "sliding window"):  # fmt: skip
        assert said in " ".join(printed.split())
    assert "\x1b" not in printed
    searched = printed[printed.index("4. Searched") : printed.index("5. 3 messages later")]
    assert "Decision 8: *SQLite* *instead* of *PostgreSQL*" in searched
    assert int(re.search(r"recall returns (\d+)\s+of\s+15", searched).group(1)) >= 12


@pytest.mark.thorough
def test_a_demo_that_is_kept_can_be_looked_at_and_is_not_run_into_twice(tmp_path):
    path = tmp_path / "demo.db"
    assert "L3 2" in run("demo", "--db", path).stdout
    assert "L3.0" in run("show", "--db", path).stdout
    assert "holds the demo already" in run("demo", "--db", path, code=2).stderr
    assert "nothing to make" not in run("update", "--db", path).stdout
    assert "nothing to make" in run("update", "--db", path).stdout
