"""``sessions``, ``export`` and ``delete``: what a memory holds, out of it again, and gone."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import ImagePart, Memory, Message, NotFoundError, TextPart, ToolCall
from hiermem.cli.output import clean

SAID = datetime(2025, 3, 1, 9, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "m.db"
    with Memory.open(path) as memory:
        talk = memory.session("talk", title="Plans", metadata={"user": "ada"})
        talk.append(
            Message.user(
                "Where is the harbour?\n\nI mean the old one.", name="Ada", created_at=SAID
            ),
            Message.assistant("I look.", tool_calls=(ToolCall("c1", "find", '{"q": 1}'),)),
            Message.tool("At the river.", tool_call_id="c1", key="k3"),
            Message.user((TextPart("This?"), ImagePart("file:///a.png")), thread="side"),
        )
        memory.session("other", metadata={"user": "ben"}).append(Message.user("Hello."))
    return path


def test_sessions_are_listed_newest_first_and_found_by_words_and_labels(db):
    """Broken, one of 300 conversations is found by reading them all."""
    assert _listed(db) == ["other", "Plans"]
    assert _listed(db, "--limit", 1) == ["other"]
    for words in (["PLAN"], ["ta"], ["--metadata", "user=ada"]):
        assert _listed(db, *words) == ["Plans"]
    assert "no session fits" in run("sessions", "Plans", "other", "--db", db).stderr
    nobody = run("sessions", "--db", db, "--metadata", "user=eve")
    assert nobody.stdout == ""
    assert "no session is labelled so" in nobody.stderr
    [other, talk] = json.loads(run("sessions", "--db", db, "--json").stdout)["sessions"]
    assert (talk["id"], talk["messages"], talk["metadata"]) == ("talk", 4, {"user": "ada"})
    assert talk["from"].startswith("2025-03-01T09:30")
    assert other["title"] is None
    assert "KEY=VALUE" in run("sessions", "--db", db, "--metadata", "ada", code=2).stderr


def _listed(db, *words):
    lines = run("sessions", *words, "--db", db).stdout.splitlines()
    return [line.split()[0] for line in lines[1:]]


def test_a_fork_is_listed_under_the_session_that_it_stems_from(db):
    """Broken, a third of an imported list are branches of what stands in it already."""
    with Memory.open(db) as memory:
        memory.session("talk").fork("branch", at=1).fork("twig", at=1)
        memory.session("twig").append(Message.user("Newer."))
    assert _listed(db) == ["Plans", "other"], "its newest branch places a conversation"
    assert _listed(db, "--forks") == ["Plans", "other", "Plans", "Plans"]
    found = json.loads(run("sessions", "--db", db, "--json").stdout)["sessions"]
    assert [(each["id"], each["forks"]) for each in found] == [("talk", 2), ("other", 0)]
    assert _listed(db, "bran") == ["Plans"]


def test_pins_are_listed_added_and_taken_off(db):
    asked = ["pin", "--db", db, "--session", "other"]
    assert "no pinned messages" in run(*asked).stderr
    with Memory.open(db) as memory:
        said = Message.user("From now on, answer in French.", created_at=SAID)
        memory.session("other").append(said)
    run(*asked, "--add", 0)
    wish, pinned = json.loads(run(*asked, "--json").stdout)["pins"]
    assert (wish["index"], wish["reason"]) == (1, "wish")
    assert (pinned["index"], pinned["reason"]) == (0, "pinned")
    assert "From now on, answer in French.  User " in run(*asked).stdout
    assert "French" not in run(*asked, "--remove", 1).stdout
    assert "is not pinned" in run(*asked, "--remove", 1, code=1).stderr


def test_more_sessions_than_a_page_are_listed_once(tmp_path, monkeypatch):
    monkeypatch.setattr("hiermem.cli.options._SESSIONS", 2)
    with Memory.open(tmp_path / "m.db") as memory:
        for number in range(5):
            memory.session(f"s{number}").append(Message.user("x"))
    assert _listed(tmp_path / "m.db") == ["s4", "s3", "s2", "s1", "s0"]
    assert _listed(tmp_path / "m.db", "--limit", 3) == ["s4", "s3", "s2"]


def test_json_lines_come_back_as_the_messages_that_they_were(db, tmp_path):
    target = tmp_path / "talk.jsonl"
    assert "messages  4" in run("export", target, "--db", db, "--session", "talk").stdout
    assert run("export", "--db", db, "--session", "talk").stdout == target.read_text("utf-8")
    assert run("export", "talk", "-", "--db", db).stdout == target.read_text("utf-8")
    run("import", target, "--db", tmp_path / "again.db", "--session", "copy")
    assert _said(tmp_path / "again.db", "copy") == _said(db, "talk")


def _said(path, session):
    """Return what a session holds; an import gives a message without a key one of its own."""
    with Memory.open(path, create=False) as memory:
        return [
            (each.role, each.content, each.name, each.message.thread, each.message.tool_calls,
             each.message.tool_call_id, each.message.created_at)
            for each in memory.session(session).messages()
        ]  # fmt: skip


@drawn(25)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        min_size=1,
        max_size=5,
    ).filter(lambda texts: all(text.strip() for text in texts))
)
def test_every_text_comes_back(tmp_path_factory, texts):
    place = tmp_path_factory.mktemp("export")
    roles = [("user", "assistant")[number % 2] for number in range(len(texts))]
    with Memory.open(place / "a.db") as memory:
        memory.session("s").append(
            Message(role, text, created_at=datetime(2025, 1, 1, tzinfo=UTC))
            for role, text in zip(roles, texts, strict=True)
        )
    run("export", place / "s.jsonl", "--db", place / "a.db", "-s", "s")
    run("import", place / "s.jsonl", "--db", place / "b.db", "--session", "s")
    assert [each[1] for each in _said(place / "b.db", "s")] == texts


def test_markdown_names_the_day_the_speaker_and_what_is_no_text(db):
    told = run("export", "--db", db, "--session", "talk", "--format", "markdown").stdout
    assert told.startswith("# Plans\n\n## 2025-03-01\n\n**Ada**: Where is the harbour?\n\nI mean")
    assert '\n**Assistant**: I look.\n\n`find({"q": 1})`\n' in told
    assert "\n**User** (side): This?\n[image]\n" in told


def test_what_was_erased_or_quarantined_is_not_exported(db):
    with Memory.open(db) as memory:
        memory.session("talk").erase([0])
        memory.session("talk").quarantine([3])
    told = run("export", "--db", db, "--session", "talk").stdout
    assert [json.loads(line)["role"] for line in told.splitlines()] == ["assistant", "tool"]


def test_an_export_replaces_no_file_and_leaves_no_half(db, tmp_path, monkeypatch):
    target = tmp_path / "talk.jsonl"
    target.write_text("mine")
    assert "exists" in run("export", target, "--db", db, "--session", "talk", code=2).stderr
    assert target.read_text() == "mine"
    missing = tmp_path / "nowhere" / "talk.jsonl"
    refused = run("export", missing, "--db", db, "--session", "talk", code=2).stderr
    assert str(missing) in refused.replace("\n", "")
    monkeypatch.setattr("hiermem.cli.sessions._line", lambda *_: 1 / 0)
    before = sorted(tmp_path.iterdir())
    assert run("export", tmp_path / "new.jsonl", "--db", db, "-s", "talk", code=None).exception
    assert sorted(tmp_path.iterdir()) == before


def test_rename_changes_the_title_and_nothing_else(db):
    assert "title    The harbour" in run("rename", "talk", "The harbour", "--db", db).stdout
    assert "\nThe harbour " in run("sessions", "--db", db).stdout
    assert "title" not in run("rename", "talk", "", "--db", db).stdout
    with Memory.open(db) as memory:
        assert memory.session("talk").status().title is None
        assert memory.session("talk").get_metadata() == {"user": "ada"}
    run("rename", "nobody", "x", "--db", db, code=1)


def test_a_session_that_is_not_there_is_looked_for_by_id_and_by_title(db):
    """Broken, whoever knows a chat by its title has to find its id in a long list."""
    for name, near in (("tlak", "Plans (talk)"), ("lans", "Plans (talk)"), ("othr", "other")):
        said = run("show", "-s", name, "--db", db, code=1).stderr
        assert said == f"error: session {name!r} does not exist; there is {near}\n"
    assert "list the sessions" in run("show", "-s", "q", "--db", db, code=1).stderr
    assert "Where is the harbour?" in run("context", "PLANS", "--db", db).stdout
    assert "named twice" in run("show", "talk", "-s", "other", "--db", db, code=2).stderr


def test_a_chat_is_listed_with_the_days_it_was_held_on(tmp_path):
    """Broken, all imported chats are of the day of their import."""
    with Memory.open(tmp_path / "m.db") as memory:
        memory.session("old").append(
            Message.user("Hello.", created_at=SAID),
            Message.user("Bye.", created_at=SAID + timedelta(days=9)),
        )
    listed = run("sessions", "--db", tmp_path / "m.db").stdout
    assert "2  1 Mar to 10 Mar 2025" in listed


def test_delete_asks_and_erases(db):
    run("delete", "talk", "--db", db, code=2, given="n\n")
    assert "erase session Plans (talk)?" in run("delete", "talk", "--db", db, code=2).output
    assert "there is Plans (talk)" in run("delete", "Plan", "--db", db, "--yes", code=1).stderr
    assert "removed   sessions 1, messages 4" in run("delete", "talk", "--db", db, "--yes").stdout
    with Memory.open(db, create=False) as memory:
        assert [record.id for record in memory.sessions()] == ["other"]
        with pytest.raises(NotFoundError):
            memory.session("talk").delete()


def test_nothing_in_a_title_moves_the_cursor(tmp_path):
    title = "red \x1b[31malert\u202e!"
    with Memory.open(tmp_path / "m.db") as memory:
        memory.session("s", title=title).append(Message.user("x\x1b[2J"))
    listed = run("sessions", "--db", tmp_path / "m.db").stdout
    assert clean(title) in listed
    told = run("export", "--db", tmp_path / "m.db", "--format", "markdown").stdout
    assert "\x1b" not in listed + told
    data = run("export", "--db", tmp_path / "m.db").stdout
    assert "\x1b" not in data
    assert json.loads(data)["content"] == "x\x1b[2J"


@pytest.mark.parametrize("end", ["\n\n", "\r\n", "\r", "\u2028", "\u2029"])
def test_no_message_of_an_export_begins_another_one_or_a_day(tmp_path, end):
    """Broken if what somebody wrote, or a name, looked like a message of another's."""
    forged = f"Thanks.{end}**Ben**: I agree.{end}## 2020-01-01"
    with Memory.open(tmp_path / "f.db") as memory:
        call = ToolCall("c", "f\n**Ben**: yes", forged)
        memory.session("s").append(
            Message.user(forged, name="Ada\n**Ben**: no"),
            Message("assistant", "", tool_calls=(call,)),
        )
    told = run("export", "--db", tmp_path / "f.db", "--session", "s", "--format", "markdown").stdout
    begun = [line for line in told.splitlines() if line.startswith(("**", "##"))]
    assert [line[:5] for line in begun] == ["## 20", "**Ada", "**Ass"]
