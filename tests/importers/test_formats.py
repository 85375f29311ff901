"""Each format is recognised and read as it is meant, twice and when it has grown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import chat_files
import pytest

from hiermem import AsyncMemory, Memory
from hiermem.importers import FORMATS, read_chats, survey
from hiermem.types import ImagePart

#: A time in Arabic digits, with marks of direction in its date.
ARABIC = (
    "[\u0661\u0663\u200f/\u0662\u200f/\u0662\u0660\u0662\u0665\u060c "
    "\u0663:\u0660\u0665:\u0660\u0669 \u0645] Ana: x"
)
CARL = (
    "I am here, my budget is 900 EUR\nNote: that is gross.\n\n"
    "http://x.org: so does this\nTwo things: eggs"
)
ISO = "2025-11-01 00:00:12"
HEXCHAT = (
    "**** BEGIN LOGGING AT Sat Nov  1 00:00:12 2025\n\n"
    "Nov 01 00:00:14 <ada>\thi\nNov 01 00:00:15 *\tbob has joined\n"
)
ZNC = "[00:00:12] *** Joins: bob (~b@h)\n[00:00:14] <ada> hi\n"
MIRC = "Session Start: Sat Nov 01 00:00:12 2025\n[00:01] * bob has joined #x\n[00:02] <ada> hi\n"
NAMES = {
    "fine-tuning": "messages",
    "whatsapp on iOS": "whatsapp",
    "whatsapp on Android": "whatsapp",
}
ADDED = {"fine-tuning": 3}


def utc(*numbers):
    return datetime(*numbers, tzinfo=UTC)


def said(conversation):
    """Return what of each message a reader sees."""
    return [(m.role, m.name, m.content) for m in conversation.messages]


def test_every_format_has_a_file_here():
    assert {NAMES.get(name, name) for name in chat_files.FORMATS} == {f.name for f in FORMATS}


@pytest.mark.parametrize("name", chat_files.FORMATS)
def test_a_file_twice_adds_nothing_and_a_longer_one_adds_what_is_new(name, tmp_path):
    """Broken if an import could not be repeated, or a newer export doubled a conversation."""
    build = chat_files.FORMATS[name]
    with Memory.open(":memory:") as memory:
        path = build(tmp_path)
        first = memory.import_chats(read_chats(path))
        held = survey(read_chats(path))
        assert held.formats == (NAMES.get(name, name),)
        assert (first.new, first.held, first.changed) == (held.messages, 0, 0)
        again = memory.import_chats(read_chats(path))
        assert (again.new, again.held, again.forks, again.changed) == (0, held.messages, 0, 0)
        longer = memory.import_chats(read_chats(build(tmp_path, more=True)))
        assert (longer.new, longer.held, longer.forks, longer.late) == (
            ADDED.get(name, 1), held.messages, 0, 0,
        )  # fmt: skip
        assert memory.check().ok


@pytest.mark.parametrize("name", chat_files.FORMATS)
def test_a_named_format_is_the_one_that_is_read(name, tmp_path):
    path = chat_files.FORMATS[name](tmp_path)
    named = read_chats(path, NAMES.get(name, name))
    assert list(named) == list(read_chats(path))


def test_chatgpt(tmp_path):
    main, branch, short = read_chats(chat_files.chatgpt(tmp_path))
    assert (main.id, main.title, short.id) == ("conv-1", "Invoices", "conv-2")
    assert said(main) == [
        ("user", None, "[image: file-abc]\nWhat is on invoice 4711?"),
        ("assistant", None, ""),
        ("tool", "python", "42"),
        ("assistant", None, "It is 42 EUR."),
        ("user", None, "And the other?"),
        ("assistant", None, "12 EUR."),
    ]
    call, result, undated = main.messages[1:4]
    assert call.tool_calls[0].name == "python"
    assert call.tool_calls[0].arguments == '{"input": "print(6 * 7)"}'
    assert result.tool_call_id == call.tool_calls[0].id
    assert undated.created_at == datetime.fromtimestamp(chat_files.NOON + 3, UTC)
    assert [m.key for m in main.messages] == ["u1", "call", "ran", "a1", "u2", "a2b"]
    assert (branch.parent, branch.after, said(branch)) == (
        "conv-1", "u2", [("assistant", None, "ABANDONED: 999 EUR.")],
    )  # fmt: skip
    assert main.notes == {
        "files beside the conversations left out": 2,
        "custom instructions left out": 1,
        "hidden messages left out": 1,
        "reasoning left out": 1,
        "messages without a time, dated like the one before": 1,
    }
    assert branch.notes == {"contents of the type hologram not understood": 1}
    skipped = list(read_chats(chat_files.chatgpt(tmp_path), branches="skip"))
    assert skipped == [main, short]


def test_chatgpt_shows_links_for_the_marks_of_citations(tmp_path):
    mark = "\ue200cite\ue202turn0search1\ue201"
    text = f"It is red{mark} in \ue200entity\ue202x\ue201.\ue200cite\ue202b\ue201"
    reference = {"matched_text": mark, "alt": "([a](https://a.org))"}
    entity = {"matched_text": "\ue200entity\ue202x\ue201", "alt": "Berlin"}
    said_so = chat_files.node(
        "a", None, "assistant", text, chat_files.NOON, content_references=[reference, entity, 5]
    )
    path = chat_files.dump(tmp_path / "c.json", [{"mapping": {"a": said_so}}])
    (chat,) = read_chats(path)
    assert chat.messages[0].content == "It is red([a](https://a.org)) in Berlin."


def test_claude(tmp_path):
    (chat,) = read_chats(chat_files.claude(tmp_path))
    assert said(chat) == [
        ("user", None,
         "[file: plan.txt]\nBed 1: tomatoes\n[file: garden.png]\nLook at my plan."),
        ("assistant", None, "Searching."),
        ("tool", "web_search", "red"),
        ("assistant", None, "They are red."),
        ("user", None, "Thanks"),
    ]  # fmt: skip
    _, call, result, after, last = chat.messages
    assert call.tool_calls[0].id == result.tool_call_id
    assert (call.key, after.key) == ("m2", "m2/2")
    assert last.created_at == after.created_at
    assert chat.notes["reasoning left out"] == 1


def test_claude_branches_where_the_export_names_parents(tmp_path):
    def message(uuid, parent, sender):
        return {"uuid": uuid, "parent_message_uuid": parent, "sender": sender, "text": uuid}

    chat = {
        "uuid": "c",
        "current_leaf_message_uuid": "a2",
        "chat_messages": [
            message("u1", "00000000", "human"), message("a1", "u1", "assistant"),
            message("a2", "u1", "assistant"),
        ],
    }  # fmt: skip
    main, branch = read_chats(chat_files.dump(tmp_path / "c.json", chat))
    assert [m.content for m in main.messages] == ["u1", "a2"]
    assert (branch.after, branch.messages[0].content) == ("u1", "a1")


def test_claude_code(tmp_path):
    (chat,) = read_chats(chat_files.claude_code(tmp_path))
    assert (chat.id, chat.title) == ("cc-1", "Fix the login")
    assert [(m.role, m.content, m.thread) for m in chat.messages] == [
        ("user", "Fix the login bug", "main"),
        ("assistant", "Looking.", "main"),
        ("assistant", (), "main"),
        ("tool", "out t1", "main"),
        ("assistant", (), "main"),
        ("tool", "out t2", "main"),
        ("user", "Look into it", "agent-a7"),
    ]
    assert dict(chat.notes) == {
        "reasoning left out": 1,
        "messages that the program inserted left out": 1,
        "system lines left out": 1,
        "lines of the type brand-new-kind not understood": 1,
        "messages with the id of an earlier one left out": 1,
    }


def test_codex(tmp_path):
    (chat,) = read_chats(chat_files.codex(tmp_path))
    assert chat.id == "codex-1"
    assert said(chat) == [
        ("user", None, "What is 6 x 7?"),
        ("assistant", None, ""),
        ("tool", None, "42"),
        ("assistant", None, ""),
        ("tool", None, "ok"),
        ("assistant", None, "42."),
    ]
    old = [{"id": "old", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
           {"record_type": "state"},
           {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
           ]  # fmt: skip
    (earlier,) = read_chats(chat_files.lines(tmp_path / "old.jsonl", old))
    assert (earlier.id, said(earlier)) == ("old", [("user", None, "Hi")])


def test_slack(tmp_path):
    direct, channel = read_chats(chat_files.slack(tmp_path))
    assert (channel.id, channel.title) == ("C1", "#general")
    assert (direct.id, direct.title) == ("D1", "Anna Müller, Ben")
    assert said(channel) == [
        ("user", "Anna Müller", "hello"),
        ("user", "Ben", "@Anna Müller see the page (https://x.org) & #general"),
        ("user", "U9", "reply"),
        ("user", "ci", "build failed"),
        ("user", "Anna Müller", "[file: plan.pdf]"),
    ]
    assert [m.thread for m in channel.messages][2] == "1700000001.000100"
    assert channel.messages[0].key == "1700000001.000100"
    assert channel.notes == {"system lines left out": 1}
    day = [{"type": "message", "user": "U1", "text": "hello", "ts": "1700000000.000100"}]
    (alone,) = read_chats(chat_files.dump(tmp_path / "2023-11-14.json", day))
    assert (alone.id, said(alone)) == ("2023-11-14", [("user", "U1", "hello")])


def test_messages_of_all_shapes(tmp_path):
    (chat,) = read_chats(chat_files.messages(tmp_path))
    assert (chat.id, [m.role for m in chat.messages]) == (
        "chat", ["system", "user", "assistant", "tool", "user", "user", "assistant"],
    )  # fmt: skip
    assert chat.messages[1].content[1] == ImagePart("data:image/png;base64,AA")
    assert chat.messages[1].created_at.utcoffset() == timedelta(hours=1)
    assert chat.messages[2].key == "mine"
    assert chat.messages[3].created_at == datetime.fromtimestamp(1_770_020_000, UTC)
    assert chat.messages[4].key != chat.messages[5].key
    assert chat.messages[6].key == "msg_1"
    assert chat.notes["items of the type reasoning left out"] == 1


def test_fine_tuning_files_are_a_conversation_a_line(tmp_path):
    chats = list(read_chats(chat_files.fine_tuning(tmp_path)))
    assert [said(chat)[1][2] for chat in chats] == ["q1", "q2", "q2"]
    assert len({chat.id for chat in chats}) == 3
    assert chats[2].id == f"{chats[1].id}-2"
    assert chats[0].messages[0].created_at is None
    assert survey(chats).undated == 3


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "user", "content": "Hi"}]},
        [{"role": "user", "content": "Hi"}],
        {"model": "m", "input": "Hi"},
        {"object": "response", "output": [{"role": "user", "content": "Hi"}]},
        {"system": "s", "messages": [{"role": "user", "content": "Hi"}]},
        {"custom_id": "x", "body": {"messages": [{"role": "user", "content": "Hi"}]}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_requests_and_lists_are_read_pretty_or_not(value, indent, tmp_path):
    """Broken if only one way to write the same JSON could be read."""
    path = chat_files.write(tmp_path / "r.json", json.dumps(value, indent=indent))
    (chat,) = read_chats(path)
    assert [m.role for m in chat.messages][-1] == "user"
    assert "Hi" in repr(chat.messages[-1].content)


def test_whatsapp_on_ios(tmp_path):
    (chat,) = read_chats(chat_files.whatsapp_ios(tmp_path), timezone="Europe/Berlin")
    assert (chat.id, said(chat)) == (
        "chat",
        [
            ("user", "Anna Müller", "Hi all, dinner on Friday?"),
            ("user", "Ben", "Yes! 19:30 at Luigi's\nIt has two floors.\n\nSee: the garden."),
            ("user", "+49 170 1234567", "image omitted"),
            ("user", "Ben", "ok"),
            ("user", "Ben", "ok"),
        ],
    )
    assert chat.messages[0].created_at == datetime(2025, 2, 1, 9, 0, 1, tzinfo=UTC)
    assert dict(chat.notes) == {"system lines left out": 1}


def test_whatsapp_on_android(tmp_path):
    (chat,) = read_chats(chat_files.whatsapp_android(tmp_path), assistants=["anna müller"])
    assert said(chat) == [
        ("assistant", "Anna Müller", "Hi all, dinner on Friday?"),
        ("user", "+49 170 1234567", "Yes!\nsecond line: with a colon"),
        ("assistant", "Anna Müller", "<Media omitted>"),
    ]
    assert [m.created_at for m in chat.messages] == [
        utc(2025, 2, 1, 10, 0), utc(2025, 2, 1, 0, 1), utc(2025, 2, 14, 13, 2),
    ]  # fmt: skip
    assert chat.notes["system lines left out"] == 2


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("[2025-02-13, 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("13/02/2025, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13/02/2025 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13/02/25 10:00 p. m. - Ana: x", utc(2025, 2, 13, 22, 0)),
        ("[13/2/25, 12:05:09 a.\u00a0m.] Ana: x", utc(2025, 2, 13, 0, 5, 9)),
        ("13/02/2025 à 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("[13.2.2025 klo 10.00.01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("[13. 2. 2025 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("13-02-2025 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13.02.25, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("2025/2/13 下午3:05 - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("[2025/02/13 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("2025년 2월 13일 오후 3:05, Ana : x", utc(2025, 2, 13, 15, 5)),
        ("2025. 2. 13. 오후 3:05, Ana : x", utc(2025, 2, 13, 15, 5)),
        ("13\u200f/2\u200f/2025، 3:05 م - Ana: x", utc(2025, 2, 13, 15, 5)),
        (ARABIC, utc(2025, 2, 13, 15, 5, 9)),
        ("13/2/2568, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
    ],
)  # fmt: skip
def test_whatsapp_in_many_locales(line, at, tmp_path):
    """Broken if a chat could not be read on account of the phone's language."""
    path = chat_files.write(tmp_path / "wa.txt", line + "\n")
    (chat,) = read_chats(path)
    assert chat.format == "whatsapp"
    assert said(chat) == [("user", "Ana", "x")]
    assert chat.messages[0].created_at == at


@pytest.mark.parametrize(
    ("dates", "wanted"),
    [
        (["2/1/25", "2/3/25", "3/1/25"], (2025, 2, 1)),
        (["1/2/25", "3/2/25", "1/3/25"], (2025, 2, 1)),
        (["02/01/2025"], (2025, 1, 2)),
    ],
)
def test_the_order_of_day_and_month_is_seen_from_the_file(dates, wanted, tmp_path):
    text = "".join(f"{date}, 10:00 - Ana: x\n" for date in dates)
    path = chat_files.write(tmp_path / "wa.txt", text)
    (chat,) = read_chats(path)
    at = chat.messages[0].created_at
    assert (at.year, at.month, at.day) == wanted
    doubt = [note for note in chat.notes if "two ways" in note]
    assert len(doubt) == (len(dates) == 1), "a guess is said, a certainty is not"
    (other,) = read_chats(path, dates="mdy")
    assert other.messages[0].created_at.month == int(dates[0].split("/")[0])
    assert [m.key for m in other.messages] == [m.key for m in chat.messages]


def test_irc(tmp_path):
    (chat,) = read_chats(chat_files.irc(tmp_path))
    assert said(chat) == [
        ("user", "ada", "has anyone seen the build?"),
        ("user", "bob", "yes: it failed at step 4"),
        ("user", "ada", "* ada sighs"),
        ("user", "carl", "hi, re: build, url is http://ci/55"),
    ]
    assert [(m.created_at.day, m.created_at.hour) for m in chat.messages] == [
        (1, 23), (1, 23), (2, 0), (3, 0),
    ]  # fmt: skip
    assert chat.notes["system lines left out"] == 1


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("w.weechatlog", f"{ISO}\tada\thi\n{ISO}\t-->\tbob joined\n", utc(2025, 11, 1, 0, 0, 12)),
        ("h.log", HEXCHAT, utc(2025, 11, 1, 0, 0, 14)),
        ("2025-11-01.log", ZNC, utc(2025, 11, 1, 0, 0, 14)),
        ("m.log", MIRC, utc(2025, 11, 1, 0, 2)),
        ("i.txt", "[2025-11-01 00:02:00] <ada> hi\n", utc(2025, 11, 1, 0, 2)),
        ("n.txt", "<ada> hi\n", None),
        ("t.txt", "[00:02] <ada> hi\n", None),
    ],
)  # fmt: skip
def test_irc_of_many_clients(name, text, at, tmp_path):
    (chat,) = read_chats(chat_files.write(tmp_path / name, text))
    assert (chat.format, said(chat)) == ("irc", [("user", "ada", "hi")])
    assert chat.messages[0].created_at == at


def test_a_transcript_tells_speakers_from_words_before_a_colon(tmp_path):
    """Broken if one who speaks once were merged into the speaker before."""
    (chat,) = read_chats(chat_files.transcript(tmp_path))
    assert said(chat) == [
        ("user", "Ada", "hello"),
        ("user", "Ben", "hi there"),
        ("user", "Ada", "shall we ask Carl?"),
        ("user", "Carl", CARL),
        ("user", "Ludwig van Beethoven", "good"),
        ("assistant", None, "Noted."),
    ]  # fmt: skip
    named = read_chats(chat_files.transcript(tmp_path), speakers=["Ada", "Ben"])
    assert [m.name for m in next(named).messages] == ["Ada", "Ben", "Ada", None]


def test_a_transcript_may_bear_times_and_name_its_assistant(tmp_path):
    text = "[2026-02-02 08:15] Ada: Hello\n[2026-02-02T08:16:30+01:00] Marvin: Hm.\n"
    path = chat_files.write(tmp_path / "talk.txt", text)
    (chat,) = read_chats(path, assistants=["marvin"])
    ada, marvin = chat.messages
    assert ada.created_at == datetime(2026, 2, 2, 8, 15, tzinfo=UTC)
    assert (marvin.role, marvin.name) == ("assistant", "Marvin")
    assert marvin.created_at.utcoffset() == timedelta(hours=1)
    assert survey([chat]).notes["conversations whose times name no zone, read as UTC"] == 1


def test_small_letters_are_a_name_where_the_first_speaker_has_one(tmp_path):
    low = chat_files.write(tmp_path / "low.txt", "ada: hi\nben: hello\n")
    high = chat_files.write(tmp_path / "high.txt", "Ada: hi\nben: hello\n")
    assert [m.name for m in next(read_chats(low)).messages] == ["ada", "ben"]
    assert [m.name for m in next(read_chats(high)).messages] == ["Ada"]
    roles = chat_files.write(tmp_path / "roles.txt", "user: hi\nassistant: hello\n")
    assert [m.role for m in next(read_chats(roles)).messages] == ["user", "assistant"]


def test_an_image_that_is_too_large_is_left_out_and_its_message_kept(tmp_path):
    """Broken if one screenshot refused a whole session."""
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 4_500_000}
    content = [{"type": "text", "text": "See"}, {"type": "image", "source": source}]
    path = chat_files.dump(tmp_path / "big.json", [{"role": "user", "content": content}])
    (chat,) = read_chats(path)
    assert chat.messages[0].content[1].text == "[image or file left out]"
    assert chat.notes == {"images and files that are too large left out": 1}


def test_files_of_one_name_in_two_folders_are_two_sessions(tmp_path):
    chat_files.irc(tmp_path / "logs" / "one")
    chat_files.irc(tmp_path / "logs" / "two")
    assert [chat.id for chat in read_chats(tmp_path / "logs")] == ["one/dev", "two/dev"]


async def test_an_import_tells_its_progress_and_waits_in_the_asynchronous_face(tmp_path):
    seen = []
    async with AsyncMemory.open(":memory:") as memory:
        chats = read_chats(chat_files.fine_tuning(tmp_path))
        report = await memory.import_chats(chats, on_progress=seen.append)
        assert [each.conversations for each in seen] == [1, 2, 3]
        assert (seen[-1].new, report.new, len(report.sessions)) == (9, 9, 3)


@pytest.mark.parametrize(
    ("at", "told"),
    [("2026-02-02T08:15:00", True), ("2026-02-02T08:15:00Z", False),
     ("2026-02-02T08:15:00+01:00", False)],
)  # fmt: skip
def test_a_time_without_a_zone_is_said_and_no_other(at, told, tmp_path):
    """Broken if a reader could not know that times were taken as UTC."""
    talk = chat_files.write(tmp_path / "talk.txt", f"[{at}] Ada: Hi\n[{at}] Ben: Hi\n")
    chat = {"role": "user", "content": "Hi", "timestamp": at}
    listed = chat_files.dump(tmp_path / "chat.json", [chat, chat])
    note = "conversations whose times name no zone, read as UTC"
    for path in (talk, listed):
        assert survey(read_chats(path)).notes == ({note: 1} if told else {})
        assert survey(read_chats(path, timezone="Europe/Berlin")).notes == {}
