"""``runs``, ``metrics``, ``erase`` and ``check`` say what is so, and take nothing back unasked."""

import json
import re
import sqlite3
import sys
from contextlib import closing

import pytest
from commands import run
from rich.console import Console
from stand_ins import talk

from hiermem import HierarchyConfig, Limits, Memory, Message, UpdatePolicy
from hiermem.models.function import FunctionLLM
from hiermem.stores.sqlite import SQLiteStore

SECRET = "zebra-4711"


@pytest.fixture
def db(tmp_path):
    """A memory of one session with a fork, all summaries made."""
    path = tmp_path / "memory.db"
    with Memory.open(path) as memory:
        session = memory.session("talk")
        session.append(talk(60, lambda n: f"Message {n} costs {n * 17} EUR.", created_at=None))
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
    assert re.search(r"kind +update *\nsubject +talk", told)
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
        for module in ("output", "store"):
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
    assert re.search(r"kind erase, removed messages 8, .*summaries", told)
    (newest, *_) = json.loads(run("runs", "--db", db, "--json").stdout)["runs"]
    told = run("runs", "--run", newest["id"], "--db", db).stdout
    assert re.search(r"kind +erasure *\nsubject +talk", told)
    told = run("runs", "--db", db, "-s", "branch").stdout
    assert "erase" in told
    told = run("delete", "talk", "--db", db, "--yes").stdout
    assert {"sessions 1", "messages 114"} <= set(re.findall(r"\w+ \d+", told))
    assert "erase_session, removed " in run("runs", "--db", db).stdout


def test_the_runs_of_a_session_that_is_not_there_are_not_none(db):
    for command in ("runs", "show", "context", "update"):
        said = run(command, "-s", "tlak", "--db", db, code=1).stderr
        assert "session 'tlak' does not exist; there is talk" in " ".join(said.split())
    run("delete", "branch", "--db", db, "--yes")
    assert "erase_session" in run("runs", "--db", db).stdout
    assert "branch" not in run("runs", "--db", db).stdout


def test_nothing_is_said_of_a_configuration_that_nobody_gave(tmp_path, caplog):
    path = tmp_path / "chars.db"
    with Memory.open(path, config=HierarchyConfig.by_chars()) as memory:
        memory.session("s").append(Message.user("Hello."))
    for word in ("show", "metrics", "update"):
        assert "configuration" not in run(word, "--db", path).output + caplog.text


def test_the_file_can_be_scrubbed_again(db, monkeypatch):
    """Broken, whoever met a busy file has to erase something else to try again."""
    monkeypatch.setitem(SQLiteStore.open.__func__.__kwdefaults__, "busy_timeout", 0.2)
    with closing(sqlite3.connect(db)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM messages").fetchone()[0]
        told = run("erase", "60", "--db", db, "-s", "talk", "--yes", code=3).stderr
        assert "hiermem store scrub" in told
        told = run("store", "scrub", "--db", db, code=3).stderr
        assert "may still hold" in told
    assert "done  yes" in run("store", "scrub", "--db", db).stdout
    assert SECRET.encode() not in _bytes(db)


def test_a_full_re_pack_is_told_to_be_one_and_whether_its_tree_serves(db):
    """Broken, nobody can see which of two full runs changed the tree."""
    with Memory.open(db) as memory:
        memory.session("talk").update(strategy="full", limits=Limits(deadline=0.0))
        memory.session("talk").update(strategy="full")
        memory.session("talk").update()
    told = run("runs", "--db", db, "-s", "talk", "--json").stdout
    found = json.loads(told)["runs"]
    details = [each["detail"] for each in found]
    # The last update found nothing to do, and is no run.
    assert [detail.get("swapped") for detail in details] == [True, False, None]
    assert [detail.get("strategy") for detail in details] == ["full", "full", None]
    told = [run("runs", "--run", each["id"], "--db", db).stdout for each in found]
    assert ["swapped yes" in each for each in told] == [True, False, False]


def test_metrics_are_printed_with_and_without_prices(db):
    told = run("metrics", "--db", db, "-s", "talk").stdout
    assert re.search(r"messages +61", told)
    assert "open tokens" in told
    assert "cost spent" not in told
    with Memory.open(db) as memory:
        session = memory.session("talk")
        for score in (0.5, 1.0):
            session.feedback("L1.0" if score < 1 else "L1.1", score=score)
        session.context()
        session.context()
    told = run("metrics", "--db", db, "-s", "talk").stdout
    assert re.search(r"feedback mean +0.75", told)
    assert re.search(r"served +selections 1, tokens ", told)
    told = run("metrics", "--db", db, "-s", "talk", "--input-price", "2.5").stdout
    assert "cost saved" in told
    data = json.loads(run("metrics", "--db", db, "-s", "talk", "--json").stdout)
    assert data["messages"] == 61
    assert data["queue"] == 0
    assert [level["level"] for level in data["levels"]] == sorted(
        level["level"] for level in data["levels"]
    )
    run("metrics", "--db", db, "--input-price", "nan", code=2)


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
        assert re.search(r"2 summaries to be made|queue +2", printed)
        assert "degraded" in printed
    # Another model, the offline one, is not told to leave the third alone.
    assert "by level L1 3, calls 3, " in run("update", "--db", path, "--dry-run").stdout
    assert "made 3" in run("update", "--db", path).stdout
    for word in ("show", "metrics"):
        printed = run(word, "--db", path).stdout
        assert "to be made:" not in printed
        assert "degraded" not in printed


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
    assert re.search(r"indices +3-5, 60", told)
    assert re.search(r"forks reached +branch", told)
    assert re.search(r"scrubbed +yes", told)
    assert SECRET.encode() not in _bytes(db)
    with Memory.open(db) as memory:
        for name in ("talk", "branch"):
            states = [stored.state for stored in memory.session(name).messages()]
            assert [n for n, state in enumerate(states) if state == "erased"] == [3, 4, 5, 60]
    run("update", "--db", db)
    run("store", "check", "--db", db)
    told = run("erase", "60", "--db", db, "-s", "talk", "--yes").stdout
    assert re.search(r"already +60", told)
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
    assert re.search(r"unproven +talk:message:61", told)
    assert b"costs 51 EUR" in _bytes(db)
    told = run("erase", "61", "--db", db, "-s", "talk", "--yes").stdout
    assert "unproven" not in told
    assert b"costs 51 EUR" not in _bytes(db)


def test_forks_can_be_kept(db):
    told = run("erase", "3", "--db", db, "-s", "talk", "--forks", "keep", "--yes").stdout
    assert re.search(r"kept in +branch", told)
    with Memory.open(db) as memory:
        assert memory.session("branch").messages(3, 4)[0].state == "live"


def test_quarantined_messages_stay_readable(db):
    told = run("erase", "3", "--quarantine", "--db", db, "-s", "talk", "--yes").stdout
    assert re.search(r"kind +quarantine", told)
    with Memory.open(db) as memory:
        (stored,) = memory.session("talk").messages(3, 4)
    assert (stored.state, stored.content) == ("quarantined", "Message 3 costs 51 EUR.")
    assert (
        "--quarantine"
        in run("erase", "--everything", "--quarantine", "--db", db, "--yes", code=2).stderr
    )


def test_everything_can_be_erased(db):
    told = run("erase", "--everything", "--db", db, "--yes").stdout
    assert re.search(r"kind +erase_tenant", told)
    with Memory.open(db) as memory:
        assert memory.sessions() == []
    assert SECRET.encode() not in _bytes(db)


def test_check_says_what_is_kept_and_what_it_cannot_see(db):
    told = run("store", "check", "--db", db).stdout
    assert re.search(r"sessions +2 *\nmessages +122", told)
    with Memory.open(db) as memory:
        report = memory.check()
    assert len(re.findall(r"(?m)^\w+ +kept  ", told)) == len(report.checked)
    assert "BROKEN" not in told
    for code, why in report.not_shown.items():
        assert re.search(rf"(?m)^{code} +{re.escape(why)} *$", told), "what nobody can see is said"


def test_a_damaged_file_is_not_found_sound(db):
    """Exit code 1, and the promise that is broken is named."""
    with closing(sqlite3.connect(db)) as rows, rows:
        changed = rows.execute("UPDATE revisions SET text = text || ' Not at all.'").rowcount
        assert changed
    result = run("store", "check", "--db", db, code=1)
    assert re.search(r"P7 +BROKEN", result.stdout)
    assert "Not at all" not in result.output
    data = json.loads(run("store", "check", "--db", db, "--json", code=1).stdout)
    assert data["ok"] is False
    assert {finding["promise"] for finding in data["findings"]} >= {"P7"}


def _bytes(path):
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


def test_a_store_is_copied_and_what_changed_is_copied_again(db, tmp_path):
    """Broken, who moves to another store is told nothing, or something else than was done."""
    target = tmp_path / "moved.db"
    told = run("store", "copy", db, target).stdout
    assert re.search(r"sessions +2 *\ncopied +2", told)
    with Memory.open(db) as memory:
        memory.session("talk").append(Message.user("later"))
        memory.for_tenant("other").session("s").append(Message.user("mine"))
    told = run("store", "copy", db, target, "--tenant", "default").stdout
    assert re.search(r"replaced +1 *\nunchanged +1", told)
    told = json.loads(
        run("store", "copy", db, target, "--tenant", "other", "-s", "s", "--json").stdout
    )
    assert (told["ok"], told["sessions"], told["copied"], told["messages"]) == (True, 1, 1, 1)
    with Memory.open(target) as memory:
        assert memory.session("talk").messages(61, 62)[0].content == "later"
        memory.session("talk").append(Message.user("another"))
    told = run("store", "copy", db, target, "--json", code=1).stderr
    error = json.loads(told.splitlines()[-1])["error"]
    assert (error["type"], "'talk'" in error["message"]) == ("ConflictError", True)
    assert (
        "session 'none' does not exist"
        in run("store", "copy", db, target, "-s", "none", code=1).stderr
    )
    run("store", "copy", tmp_path / "none.db", target, code=1)
    run("store", "copy", db, db, code=2)


def test_a_copy_takes_its_ends_from_the_environment(db, tmp_path, monkeypatch):
    """Broken, the password of a database would have to stand among the arguments of a process."""
    monkeypatch.setenv("HIERMEM_COPY_TO", str(tmp_path / "moved.db"))
    assert "copied    2" in run("store", "copy", db).stdout
    monkeypatch.setenv("HIERMEM_COPY_FROM", str(db))
    assert "unchanged  2" in run("store", "copy").stdout
    monkeypatch.setenv("HIERMEM_COPY_TO", "postgresql://u:canary-4711@127.0.0.1:1/none")
    refused = run("store", "copy", code=1)
    assert "canary-4711" not in refused.stdout + refused.stderr


def test_a_backup_is_made_once_and_named_by_an_erasure(db, tmp_path):
    target = tmp_path / "copy.db"
    copy = json.loads(run("store", "backup", target, "--db", db, "--json").stdout)
    assert copy["place"] == str(target)
    assert "new file" in run("store", "backup", target, "--db", db, code=2).stderr
    told = run("erase", "0", "--db", db, "-s", "talk", "--yes").stdout
    assert re.search(rf"copies\nplace +made at *\n{target}", told)
    with Memory.open(target) as memory:
        assert (
            memory.session("talk").messages(60, 61)[0].content.startswith(f"the code is {SECRET}")
        )
