"""``runs``, ``metrics``, ``erase`` and ``check`` say what is so, and take nothing back unasked."""

from __future__ import annotations

import json
import sqlite3

import pytest
from typer.testing import CliRunner

from hiermem import Memory, Message
from hiermem.cli.app import app

runner = CliRunner()
SECRET = "zebra-4711"


def run(*arguments, code=0, **settings):
    result = runner.invoke(app, [str(each) for each in arguments], **settings)
    assert result.exit_code == code, result.output
    return result


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
    (only,) = json.loads(run("runs", "--db", db, "-s", "talk", "--format", "json").stdout)
    assert (only["kind"], only["outcome"], only["subject"]) == ("update", "ok", "talk")
    told = run("runs", only["id"], "--db", db).stdout
    assert "update of talk: ok" in told
    items = json.loads(run("runs", only["id"], "--db", db, "--format", "json").stdout)["items"]
    assert all(item["state"] == "ok" for item in items)
    assert "there is no run 'nothing'" in run("runs", "nothing", "--db", db, code=1).stderr


def test_a_full_re_pack_is_told_to_be_one_and_whether_its_tree_serves(db):
    """Broken, nobody can see which of two full runs changed the tree."""
    with Memory.open(db) as memory:
        memory.session("talk").update(strategy="full", deadline=0.0)
        memory.session("talk").update(strategy="full")
        memory.session("talk").update()
    told = run("runs", "--db", db, "-s", "talk", "--format", "json").stdout
    found = json.loads(told)
    details = [each["detail"] for each in found]
    assert [detail.get("swapped") for detail in details] == [None, True, False, None]
    assert [detail.get("strategy") for detail in details] == [None, "full", "full", None]
    told = [run("runs", each["id"], "--db", db).stdout for each in found]
    assert ["the new tree serves" in each for each in told] == [False, True, False, False]
    assert ["the old tree serves still" in each for each in told] == [False, False, True, False]


def test_metrics_are_printed_with_and_without_prices(db):
    told = run("metrics", "--db", db, "-s", "talk").stdout
    assert "61 messages" in told
    assert "spent" not in told
    told = run("metrics", "--db", db, "-s", "talk", "--input-price", "2.5").stdout
    assert "a request" in told
    data = json.loads(run("metrics", "--db", db, "-s", "talk", "--format", "json").stdout)
    assert data["messages"] == 61
    assert data["queue"] == 0
    assert [level["level"] for level in data["levels"]] == sorted(
        level["level"] for level in data["levels"]
    )
    run("metrics", "--db", db, "--input-price", "nan", code=2)


def test_nothing_is_erased_without_leave(db):
    """Whoever mistypes a session's name must not find it gone."""
    for words in (["3"], ["--whole", "-s", "talk"], ["--everything"]):
        session = [] if words[0] == "--everything" or "-s" in words else ["-s", "talk"]
        result = run("erase", *words, *session, "--db", db, code=1)
        assert "--yes" in result.stderr
    with Memory.open(db) as memory:
        assert len(memory.sessions()) == 2
        assert all(stored.state == "live" for stored in memory.session("talk").messages())


@pytest.mark.parametrize(
    "words",
    [[], ["3", "--whole"], ["--whole", "--everything"], ["x"], ["9-3"], ["3-"], ["-s", "talk"]],
)
def test_what_names_no_messages_is_refused(db, words):
    result = run("erase", *words, "--db", db, "--yes", code=1)
    assert "error:" in result.stderr


def test_messages_are_erased_in_forks_too_and_out_of_the_file(db):
    """A secret that was erased must not be found in the file by anybody."""
    assert SECRET.encode() in _bytes(db)
    told = run("erase", "60", "3-5", "--db", db, "-s", "talk", "--yes").stdout
    assert "erased: 4 messages" in told
    assert "reached the forks: branch" in told
    assert "the file holds none of it any more" in told
    assert SECRET.encode() not in _bytes(db)
    with Memory.open(db) as memory:
        for name in ("talk", "branch"):
            states = [stored.state for stored in memory.session(name).messages()]
            assert [n for n, state in enumerate(states) if state == "erased"] == [3, 4, 5, 60]
    run("update", "--db", db)
    run("check", "--db", db)
    told = run("erase", "60", "--db", db, "-s", "talk", "--yes").stdout
    assert "1 message had gone before" in told
    told = run("runs", "--db", db).stdout
    assert "erasure" in told


def test_forks_can_be_kept(db):
    told = run("erase", "3", "--db", db, "-s", "talk", "--forks", "keep", "--yes").stdout
    assert "still held by: branch" in told
    with Memory.open(db) as memory:
        assert memory.session("branch").messages(3, 4)[0].state == "live"


def test_quarantined_messages_stay_readable(db):
    told = run("erase", "3", "--quarantine", "--db", db, "-s", "talk", "--yes").stdout
    assert "quarantined: 1 message" in told
    with Memory.open(db) as memory:
        (stored,) = memory.session("talk").messages(3, 4)
    assert (stored.state, stored.content) == ("quarantined", "Message 3 costs 51 EUR.")
    assert (
        "goes with messages"
        in run("erase", "--whole", "--quarantine", "-s", "talk", "--db", db, "--yes", code=1).stderr
    )


def test_a_session_and_everything_can_be_erased(db):
    told = run("erase", "--whole", "-s", "branch", "--db", db, "--yes").stdout
    assert "erased: session 'branch'" in told
    told = run("erase", "--everything", "--db", db, "--yes").stdout
    assert "erased: everything" in told
    with Memory.open(db) as memory:
        assert memory.sessions() == []
    assert SECRET.encode() not in _bytes(db)


def test_check_says_what_is_kept_and_what_it_cannot_see(db):
    told = run("check", "--db", db).stdout
    assert "2 sessions, 122 messages" in told
    for promise in ("P1", "P2", "P3", "P5", "P7", "P8", "P11", "P12", "P13"):
        assert f"\n{promise:<5} kept" in told
    for promise in ("P4", "P6", "P9", "P10"):
        assert f"\n{promise:<5} unseen" in told


def test_a_damaged_file_is_not_found_sound(db):
    """Exit code 1, and the promise that is broken is named."""
    with sqlite3.connect(db) as rows:
        changed = rows.execute("UPDATE revisions SET text = text || ' Not at all.'").rowcount
        assert changed
    result = run("check", "--db", db, code=1)
    assert "P7    BROKEN" in result.stdout
    assert "Not at all" not in result.output
    data = json.loads(run("check", "--db", db, "--format", "json", code=1).stdout)
    assert data["ok"] is False
    assert {finding["promise"] for finding in data["findings"]} >= {"P7"}


@pytest.mark.parametrize("command", ["runs", "metrics", "erase", "check"])
def test_a_file_that_is_not_there_is_said_so_and_not_made(tmp_path, command):
    words = ["--everything", "--yes"] if command == "erase" else []
    result = run(command, *words, "--db", tmp_path / "none.db", code=1)
    assert "there is no memory" in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_update_can_re_pack(db):
    told = run("update", "--strategy", "full", "--dry-run", "--db", db).stdout
    assert "talk: " in told
    run("update", "--strategy", "full", "--db", db)
    run("check", "--db", db)


def _bytes(path):
    return b"".join(each.read_bytes() for each in path.parent.iterdir())
