"""``import`` says what a file holds, appends it once, and leaves nothing of a file it refuses."""

import json
import re
import shlex
from datetime import timedelta

import chat_files
from commands import run

from hiermem import Memory
from hiermem.cli.demo import DETAILS, bundled


def test_a_dry_run_says_what_a_file_holds_and_makes_no_memory(tmp_path):
    db = tmp_path / "m.db"
    told = run("import", chat_files.chatgpt(tmp_path), "--db", db, "--dry-run", code=3).stdout
    assert re.search(r"conversations +2 *\nbranches +1 *\nmessages +8\n", told)
    assert re.search(r"speakers .*assistant 4", told)
    assert re.search(r"hidden messages left out +1\n", told)
    unread = "contents of the type hologram not understood"
    assert f"{unread} (the first: conversations.json, item 1, message 13)" in told
    assert re.search(r"files beside the conversations left out +2\n", told)
    assert not db.exists()


def test_an_import_says_what_was_new_and_what_comes_next(tmp_path):
    db = tmp_path / "m.db"
    first = run("import", chat_files.chatgpt(tmp_path), "--db", db, code=3)
    assert "new 8, forks 1, sessions Invoices (conv-1), " in first.stdout
    assert "hiermem sessions --db" in first.stderr
    assert "hiermem context @last --db" in first.stderr
    listed = run("sessions", "--db", db).stdout
    assert re.search(r"(?m)^Invoices +6  9 Oct 2025  chatgpt +1  conv-1", listed)
    assert listed.count("Invoices") == 1, "a fork stands under its source"
    again = run("import", chat_files.chatgpt(tmp_path, more=True), "--db", db, code=3)
    assert "new 1, held 8, sessions " in again.stdout
    skipped = run("import", chat_files.chatgpt(tmp_path), "--branches", "skip", "--dry-run", code=3)
    assert re.search(r"conversations +2 *\nmessages +7\n", skipped.stdout)
    of_tenant = run("import", chat_files.transcript(tmp_path), "--db", db, "--tenant", "a b")
    assert "hiermem update --db" in of_tenant.stderr
    assert of_tenant.stderr.count("--tenant 'a b'") == 4
    (name,) = re.findall(r"hiermem context (.+) --db", of_tenant.stderr)
    assert name != "@last", "the one imported session is named; it may not hold the newest message"
    assert "Ada" in run("context", *shlex.split(name), "--db", db, "--tenant", "a b").stdout


def test_sessions_are_listed_by_where_they_came_from(tmp_path):
    """Broken, nobody sees which application a conversation was imported from."""
    db = tmp_path / "m.db"
    run("import", chat_files.chatgpt(tmp_path), "--db", db, code=3)
    run("import", chat_files.whatsapp_ios(tmp_path), "--db", db)
    with Memory.open(db) as memory:
        memory.session("own", metadata={"kind": "work"}).append({"role": "user", "content": "x"})
        of_chatgpt = memory.sessions(metadata={"source": "chatgpt"})
        assert len(of_chatgpt) == 3, "a fork comes from where its source does"
        assert memory.count_sessions() == 5
    listed = run("sessions", "--db", db, "--source", "whatsapp").stdout.splitlines()
    assert len(listed) == 2
    assert " whatsapp " in f"{listed[1]} "
    assert "whatsapp" not in run("sessions", "--db", db, "--source", "chatgpt").stdout
    assert run("sessions", "own", "--db", db, "--source", "chatgpt").stdout == ""


def test_options_reach_the_reader(tmp_path):
    path = chat_files.write(tmp_path / "wa.txt", "1/2/25, 10:00 - Ana: x\n1/2/25, 10:01 - Bot: y\n")
    run("import", path, "--db", tmp_path / "m.db", "--assistant", "bot", "--timezone",
        "Europe/Berlin", "--format", "whatsapp")  # fmt: skip
    with Memory.open(tmp_path / "m.db") as memory:
        _, bot = memory.session(memory.sessions()[0].id).messages()
        assert bot.message.role == "assistant"
        assert bot.message.created_at.utcoffset() == timedelta(hours=1)


def test_one_session_takes_one_conversation_or_no_memory_is_made(tmp_path):
    db = tmp_path / "m.db"
    result = run("import", chat_files.fine_tuning(tmp_path), "--db", db, "-s", "x", code=2)
    assert "holds several conversations" in result.stderr
    run("import", chat_files.fine_tuning(tmp_path), "--db", db, "--title", "x", code=2)
    assert not db.exists()


def test_any_format_goes_under_a_session_of_ones_own(tmp_path):
    db = tmp_path / "m.db"
    named = ("-s", "garden", "--title", "Hedges")
    for _ in range(2):
        told = run("import", chat_files.claude(tmp_path), "--db", db, *named).stdout
    assert "imported  held 5\n" in told
    assert re.search(r"reasoning left out +1\n", told)
    (found,) = json.loads(run("sessions", "--db", db, "--json").stdout)["sessions"]
    assert (found["id"], found["title"], found["messages"]) == ("garden", "Hedges", 5)


def test_the_bundled_conversation_is_the_one_described():
    messages = bundled()
    assert len(messages) >= 300
    assert len({message.key for message in messages}) == len(messages)
    times = [message.created_at for message in messages]
    assert times == sorted(times)
    calls = {call.id for message in messages for call in message.tool_calls}
    assert calls == {message.tool_call_id for message in messages if message.role == "tool"}
    assert len(calls) >= 10


def test_the_details_looked_for_are_one_of_each_sitting_and_really_said():
    messages = bundled()
    days = []
    for words, _ in DETAILS:
        said = next(m for m in messages if isinstance(m.content, str) and words in m.content)
        days.append(said.created_at.date())
    assert days == sorted({message.created_at.date() for message in messages})
