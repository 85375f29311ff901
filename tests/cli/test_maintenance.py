"""``runs``, ``metrics``, ``erase`` and ``check`` say what is so, and take nothing back unasked."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from commands import run
from rich.console import Console

from hiermem import HierarchyConfig, Memory, Message, UpdatePolicy
from hiermem.cli.screen import out
from hiermem.cli.tables import metrics_table
from hiermem.models.function import FunctionLLM
from hiermem.stores.sqlite import SQLiteStore
from hiermem.summaries.metrics import measure
from hiermem.types.transaction import NodeTally

SECRET = "zebra-4711"


@pytest.fixture
def db(tmp_path):
    """A memory of one session with a fork, all summaries made."""
    path = tmp_path / "memory.db"
    with Memory.open(path) as memory:
        session = memory.session("talk")
        session.append(
            Message("user" if n % 2 == 0 else "assistant", f"Message {n} costs {n * 17} EUR.")
            for n in range(60)
        )
        session.append(Message.user(f"the code is {SECRET} \x1b[31m"))
        session.update()
        session.fork("branch", at=61)
    return path


def test_runs_are_listed_and_told_item_by_item(db):
    told = run("runs", "--db", db).stdout
    assert "update" in told
    assert "talk" in told
    (only,) = json.loads(run("runs", "--db", db, "-s", "talk", "--json").stdout)["runs"]
    assert (only["kind"], only["outcome"], only["subject"]) == ("update", "ok", "talk")
    told = run("runs", "--run", only["id"], "--db", db).stdout
    assert "update of talk: ok" in told
    items = json.loads(run("runs", "--run", only["id"], "--db", db, "--json").stdout)["items"]
    assert all(item["state"] == "ok" for item in items)
    assert (
        "run 'nothing' does not exist" in run("runs", "--run", "nothing", "--db", db, code=1).stderr
    )


def test_an_id_is_never_broken_and_its_beginning_will_do(db, monkeypatch):
    """An id that is cut in two by the table can be copied by nobody."""
    with Memory.open(db) as memory:
        memory.session("a long name of a session, " * 10).append(Message.user("Hello."))
        memory.session("a long name of a session, " * 10).erase([0])
        runs = memory.runs()
    told = run("runs", "--db", db).stdout.splitlines()
    assert [line.split()[0] for line in told[1:]] == [each.id for each in runs]
    for columns in ("40", "80"):
        for module in ("output", "tables"):
            monkeypatch.setattr(f"hiermem.cli.{module}.out", _terminal(int(columns)))
        told = run("runs", "--db", db).stdout
        for each in runs:
            assert each.id[:12] in told
    monkeypatch.undo()
    whole = run("runs", "--run", runs[0].id, "--db", db).stdout
    assert run("runs", "--run", runs[0].id[:9], "--db", db).stdout == whole
    monkeypatch.setattr("hiermem.changes.change.uuid.uuid4", lambda: _Named(runs[0].id[:9] + "0"))
    run("erase", "3", "--db", db, "-s", "talk", "--yes")
    assert "2 runs begin with" in run("runs", "--run", runs[0].id[:9], "--db", db, code=2).stderr


class _Named:
    def __init__(self, name):
        self.hex = name


def _terminal(columns):
    def out(*, error=False, whole=False):
        stream = sys.stderr if error else sys.stdout
        return Console(file=stream, width=columns, force_terminal=True, color_system=None)

    return out


def test_what_came_of_an_erasure_can_be_read(db):
    run("erase", "60", "3-5", "--db", db, "-s", "talk", "--yes")
    told = run("runs", "--db", db, "-s", "talk").stdout
    assert "erase, 8 messages, " in told
    assert "summaries" in told
    (newest, *_) = json.loads(run("runs", "--db", db, "--json").stdout)["runs"]
    told = run("runs", "--run", newest["id"], "--db", db).stdout
    assert "erasure of talk: ok" in told
    assert "\nmessages 3-5, 60\n" in told
    told = run("runs", "--db", db, "-s", "branch").stdout
    assert "erase" in told
    told = run("delete", "talk", "--db", db, "--yes").stdout
    assert "removed: 1 session, 118 messages, " in told
    assert "erase session, 1 session, 118 messages, " in run("runs", "--db", db).stdout


def test_the_runs_of_a_session_that_is_not_there_are_not_none(db):
    for command in ("runs", "show", "context", "update"):
        said = run(command, "-s", "tlak", "--db", db, code=1).stderr
        assert "there is no session 'tlak'; there is talk" in " ".join(said.split())
    run("delete", "branch", "--db", db, "--yes")
    assert "erase session" in run("runs", "--db", db).stdout
    assert "branch" not in run("runs", "--db", db).stdout


def test_nothing_is_said_of_a_configuration_that_nobody_gave(tmp_path):
    path = tmp_path / "chars.db"
    with Memory.open(path, config=HierarchyConfig.by_chars()) as memory:
        memory.session("s").append(Message.user("Hello."))
    commands = """
import sys
from hiermem.cli import main
for word in ("show", "metrics", "update"):
    sys.argv = ["hiermem", word, "--db", sys.argv[-1]]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
    ran = subprocess.run(
        [sys.executable, "-c", commands, path], capture_output=True, text=True, check=True
    )
    assert ran.stdout
    assert "configuration" not in ran.stderr


def test_the_file_can_be_scrubbed_again(db, monkeypatch):
    """Broken, whoever met a busy file has to erase something else to try again."""
    monkeypatch.setitem(SQLiteStore.open.__func__.__kwdefaults__, "busy_timeout", 0.2)
    with closing(sqlite3.connect(db)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM messages").fetchone()[0]
        told = run("erase", "60", "--db", db, "-s", "talk", "--yes", code=3).stdout
        assert "hiermem scrub" in told
        told = run("scrub", "--db", db, code=3).stdout
        assert "may still hold" in told
    told = run("scrub", "--db", db).stdout
    assert "holds no bytes of what was erased" in told
    assert SECRET.encode() not in _bytes(db)


def test_a_full_re_pack_is_told_to_be_one_and_whether_its_tree_serves(db):
    """Broken, nobody can see which of two full runs changed the tree."""
    with Memory.open(db) as memory:
        memory.session("talk").update(strategy="full", deadline=0.0)
        memory.session("talk").update(strategy="full")
        memory.session("talk").update()
    told = run("runs", "--db", db, "-s", "talk", "--json").stdout
    found = json.loads(told)["runs"]
    details = [each["detail"] for each in found]
    # The last update found nothing to do, and is no run.
    assert [detail.get("swapped") for detail in details] == [True, False, None]
    assert [detail.get("strategy") for detail in details] == ["full", "full", None]
    told = [run("runs", "--run", each["id"], "--db", db).stdout for each in found]
    assert ["the new tree serves" in each for each in told] == [True, False, False]
    assert ["the old tree still serves" in each for each in told] == [False, True, False]


def test_metrics_are_printed_with_and_without_prices(db):
    told = run("metrics", "--db", db, "-s", "talk").stdout
    assert "61 messages" in told
    assert "tokens not sealed yet" in told
    assert "spent" not in told
    with Memory.open(db) as memory:
        session = memory.session("talk")
        for score in (0.5, 1.0):
            session.feedback("L1.0" if score < 1 else "L1.1", score=score)
        session.context()
        session.context()
    told = run("metrics", "--db", db, "-s", "talk").stdout
    assert "feedback: mean 0.75 of 2 scores" in told
    assert "of a context is the unchanged beginning of the previous one" in told
    told = run("metrics", "--db", db, "-s", "talk", "--input-price", "2.5").stdout
    assert "a request" in told
    data = json.loads(run("metrics", "--db", db, "-s", "talk", "--json").stdout)
    assert data["messages"] == 61
    assert data["queue"] == 0
    assert [level["level"] for level in data["levels"]] == sorted(
        level["level"] for level in data["levels"]
    )
    run("metrics", "--db", db, "--input-price", "nan", code=2)


def test_the_score_names_the_level_that_keeps_least(capsys):
    """Broken, one figure for all levels hides that the highest lost most of the facts."""
    tallies = [
        NodeTally(1, "active", count=90, made=90, measured=80, fidelity=80.0),
        NodeTally(2, "active", count=9, made=9, measured=9, fidelity=8.1),
        NodeTally(3, "active", count=2, made=2, measured=2, fidelity=0.58),
    ]
    found = measure("s", messages=1, open_tokens=0, cover_tokens=0, tallies=tallies)
    out().print(metrics_table(found))
    assert "73 % of the anchors kept, at L3 29 %" in capsys.readouterr().out


def test_the_commands_say_one_number_of_what_is_to_be_made(tmp_path):
    """Broken, one command asks for an update that, by another, has nothing to make."""
    path = tmp_path / "some.db"
    refuses = FunctionLLM(lambda request: "I cannot help.", remote=True)
    said = [Message.user(f"Message {n}: pump {n} was set to {n * 7} rpm. " * 9) for n in range(30)]
    with Memory.open(path, llm=refuses, update_policy=UpdatePolicy(batch_delay=0)) as memory:
        session = memory.session("talk")
        session.append(said[:10])
        assert session.update().degraded == 1
        session.append(said[10:])
        left = session.metrics().queue
        assert left == sum(session.update(dry_run=True).by_level.values()) == 2
    shown, told = (run(word, "--db", path).stdout for word in ("show", "metrics"))
    for printed in (shown, told):
        assert "2 summaries to be made" in printed
        assert "1 summary degraded, to be asked for again later" in printed
    # Another model, the offline one, is not told to leave the third alone.
    assert "3 summaries to make" in run("update", "--db", path, "--dry-run").stdout
    assert "3 made" in run("update", "--db", path).stdout
    for word in ("show", "metrics"):
        printed = run(word, "--db", path).stdout
        assert "to be made:" not in printed
        assert "asked for again" not in printed


def test_nothing_is_erased_without_leave(db):
    """Whoever mistypes a session's name must not find it gone."""
    for words in (["3"], ["--everything"]):
        session = [] if words[0] == "--everything" or "-s" in words else ["-s", "talk"]
        result = run("erase", *words, *session, "--db", db, code=2)
        assert "--yes" in result.stderr
    with Memory.open(db) as memory:
        assert len(memory.sessions()) == 2
        assert all(stored.state == "live" for stored in memory.session("talk").messages())


def test_what_names_no_messages_is_refused(db):
    for words in ("", "3 --everything", "x", "9-3", "3-", "-s talk"):
        assert "error:" in run("erase", *words.split(), "--db", db, "--yes", code=2).stderr


def test_messages_are_erased_in_forks_too_and_out_of_the_file(db):
    """A secret that was erased must not be found in the file by anybody."""
    assert SECRET.encode() in _bytes(db)
    told = run("erase", "60", "3-5", "--db", db, "-s", "talk", "--yes").stdout
    assert "erased: 4 messages" in told
    assert "also in these forks, whose own messages stay: branch" in told
    assert "no trace of them is left in the file" in told
    assert SECRET.encode() not in _bytes(db)
    with Memory.open(db) as memory:
        for name in ("talk", "branch"):
            states = [stored.state for stored in memory.session(name).messages()]
            assert [n for n, state in enumerate(states) if state == "erased"] == [3, 4, 5, 60]
    run("update", "--db", db)
    run("check", "--db", db)
    told = run("erase", "60", "--db", db, "-s", "talk", "--yes").stdout
    assert told.startswith("already erased: 1 message\n")
    assert "other messages that repeat them stay" in told
    told = run("runs", "--db", db).stdout
    assert "erasure" in told


def test_messages_that_may_quote_what_went_are_named(db):
    """Broken, the command says that no trace is left while a message quotes it on."""
    with Memory.open(db) as memory:
        session = memory.session("talk")
        context = session.context(600, query="What does Message 3 cost?")
        record = next(block.text for block in context.blocks if "costs 51 EUR" in block.text)
        session.append(Message.user(f"You said: {record}"))
    told = run("erase", "3", "--db", db, "-s", "talk", "--yes").stdout
    assert "may quote it, please check: talk:message:61\n" in told
    assert "apart from that, no trace of them is left in the file" in told
    assert b"costs 51 EUR" in _bytes(db)
    told = run("erase", "61", "--db", db, "-s", "talk", "--yes").stdout
    assert "may quote" not in told
    assert b"costs 51 EUR" not in _bytes(db)


def test_forks_can_be_kept(db):
    told = run("erase", "3", "--db", db, "-s", "talk", "--forks", "keep", "--yes").stdout
    assert "still kept in: branch" in told
    with Memory.open(db) as memory:
        assert memory.session("branch").messages(3, 4)[0].state == "live"


def test_quarantined_messages_stay_readable(db):
    told = run("erase", "3", "--quarantine", "--db", db, "-s", "talk", "--yes").stdout
    assert "quarantined: 1 message" in told
    with Memory.open(db) as memory:
        (stored,) = memory.session("talk").messages(3, 4)
    assert (stored.state, stored.content) == ("quarantined", "Message 3 costs 51 EUR.")
    assert (
        "--quarantine"
        in run("erase", "--everything", "--quarantine", "--db", db, "--yes", code=2).stderr
    )


def test_everything_can_be_erased(db):
    told = run("erase", "--everything", "--db", db, "--yes").stdout
    assert "erased: everything" in told
    with Memory.open(db) as memory:
        assert memory.sessions() == []
    assert SECRET.encode() not in _bytes(db)


def test_check_says_what_is_kept_and_what_it_cannot_see(db):
    told = run("check", "--db", db).stdout
    assert "2 sessions, 122 messages" in told
    with Memory.open(db) as memory:
        report = memory.check()
    assert told.count("\nkept    ") == len(report.checked)
    assert "BROKEN" not in told
    # Numbers of promises are known to the project alone.
    assert not [code for code in (*report.checked, *report.not_shown) if f"{code}:" in told]
    assert re.search(r"\nkept    nothing lost\n        messages are without gaps", told)
    told = " ".join(told.split())
    assert (
        "prove them: batch invariance, seal once, bounded work, bounded spend, nothing is paid"
        in told
    )


def test_counts_agree_with_their_nouns_and_percent_is_written_in_one_way(db):
    """Broken, one reads "1 calls", and "40 %" next to "0%"."""
    with Memory.open(db) as memory:
        session = memory.session("talk")
        session.extract()
        session.extract()
        session.edit(3, "Message 3 is free.")
    told = [run(*words, "--db", db).stdout for words in (["runs"], ["metrics", "-s", "talk"])]
    assert re.search(r"\bextraction\b.* 1 call\b", told[0])
    assert re.search(r"\bextraction\b.* no calls *\n", told[0])
    assert " outdated" in told[1]
    assert not any(re.search(r"\b1 calls|\d%", each) for each in told)


def test_a_damaged_file_is_not_found_sound(db):
    """Exit code 1, and the promise that is broken is named."""
    with closing(sqlite3.connect(db)) as rows, rows:
        changed = rows.execute("UPDATE revisions SET text = text || ' Not at all.'").rowcount
        assert changed
    result = run("check", "--db", db, code=1)
    assert "BROKEN  good is never replaced by bad: " in result.stdout
    assert "Not at all" not in result.output
    data = json.loads(run("check", "--db", db, "--json", code=1).stdout)
    assert data["ok"] is False
    assert {finding["promise"] for finding in data["findings"]} >= {"P7"}


def _bytes(path):
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


def test_a_store_is_copied_and_what_changed_is_copied_again(db, tmp_path):
    """Broken, who moves to another store is told nothing, or something else than was done."""
    target = tmp_path / "moved.db"
    told = run("copy", db, target).stdout
    assert f"2 sessions of 1 tenant at {target}: 2 copied" in told
    with Memory.open(db) as memory:
        memory.session("talk").append(Message.user("later"))
        memory.for_tenant("other").session("s").append(Message.user("mine"))
    told = run("copy", db, target, "--tenant", "default").stdout
    assert "1 copied anew, 1 there already" in told
    told = json.loads(run("copy", db, target, "--tenant", "other", "-s", "s", "--json").stdout)
    assert (told["ok"], told["sessions"], told["copied"], told["messages"]) == (True, 1, 1, 1)
    with Memory.open(target) as memory:
        assert memory.session("talk").messages(61, 62)[0].content == "later"
        memory.session("talk").append(Message.user("another"))
    told = run("copy", db, target, "--json", code=1).stderr
    error = json.loads(told.splitlines()[-1])["error"]
    assert (error["type"], "'talk'" in error["message"]) == ("SessionDiffersError", True)
    assert "no session 'none'" in run("copy", db, target, "-s", "none", code=1).stderr
    run("copy", tmp_path / "none.db", target, code=1)
    run("copy", db, db, code=2)


def test_a_copy_takes_its_ends_from_the_environment(db, tmp_path, monkeypatch):
    """Broken, the password of a database would have to stand among the arguments of a process."""
    monkeypatch.setenv("HIERMEM_COPY_TO", str(tmp_path / "moved.db"))
    assert f"at {tmp_path / 'moved.db'}: 2 copied" in run("copy", db).stdout
    monkeypatch.setenv("HIERMEM_COPY_FROM", str(db))
    assert "2 there already" in run("copy").stdout
    monkeypatch.setenv("HIERMEM_COPY_TO", "postgresql://u:canary-4711@127.0.0.1:1/none")
    refused = run("copy", code=1)
    assert "canary-4711" not in refused.stdout + refused.stderr


def test_a_backup_is_made_once_and_named_by_an_erasure(db, tmp_path):
    target = tmp_path / "copy.db"
    copy = json.loads(run("backup", target, "--db", db, "--json").stdout)
    assert copy["place"] == str(target)
    assert "new file" in run("backup", target, "--db", db, code=2).stderr
    told = run("erase", "0", "--db", db, "-s", "talk", "--yes").stdout
    assert f"copies that may hold it (delete them, or erase there): {target}" in told
    with Memory.open(target) as memory:
        assert (
            memory.session("talk").messages(60, 61)[0].content.startswith(f"the code is {SECRET}")
        )
