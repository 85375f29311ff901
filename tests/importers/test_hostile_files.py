"""What can be read of a file is read and the rest is said; one with nothing is refused."""

import json
import os
import re
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from random import Random

import chat_files
import pytest
import variants
from chat_files import NOON
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear
from sampling import drawn, params
from typer.testing import CliRunner

from hiermem import FileError, HiermemError, Memory, UsageError
from hiermem.cli.app import app
from hiermem.importers import FORMATS, read_chats, survey
from hiermem.importers.files import MAX_ITEM, File, values_of

runner = CliRunner()
GOOD = {"role": "user", "content": "Hi"}


def refused(path, **options):
    """Return what is said of a file that must be refused, by the library and by the command."""
    with pytest.raises(FileError) as caught:
        survey(read_chats(path, **options))
    db = path.parent / "memory.db"
    for more in ([], ["--session", "s"]):
        result = runner.invoke(app, ["import", str(path), "--db", str(db), *more])
        assert result.exit_code == 1, result.output
        assert result.stderr.startswith("error: ")
        assert not [each for each in path.parent.iterdir() if each.name.startswith("memory.db")]
    return str(caught.value)


SECRET = "the-secret-words"
BAD = {
    "empty": "",
    "blank": "\n\n",
    "an empty list": "[]",
    "prose": f"just some {SECRET}\nand more\n",
    "labels": f"Note: {SECRET}\n",
    "a number": "5",
    "a list of numbers": "[1, 2]",
    "an unknown object": '{"hello": "' + SECRET + '"}',
    "half an object": '{"role": "user", "content": "' + SECRET,
    "an unknown role": '{"role": "wizard", "content": "' + SECRET + '"}',
    "no content": '{"role": "user", "content": 5}',
    "a long number": '{"role": "user", "content": ' + "9" * 5000 + "}",
    "deep lists": "[" * 100_000,
    "deep objects": '[{"a":' * 100_000,
    "deep line": '{"role": "user", "content": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep part": '{"role": "user", "content": [{"a": ' + "[" * 500 + "]" * 500 + "}]}",
    "a mapping that is a list": '[{"mapping": [], "id": "x"}]',
    "nodes that are texts": '[{"mapping": {"a": "' + SECRET + '"}}]',
    "a message that is a text": '[{"mapping": {"a": {"message": "' + SECRET + '"}}}]',
    "an author that is none": '[{"mapping": {"a": {"message": {"author": 5}}}}]',
    "parts that are a number": json.dumps(
        [{"mapping": {"a": {"message": {"author": {"role": "user"}, "content": {"parts": 5}}}}}]
    ),
    "messages that are a text": '[{"chat_messages": "' + SECRET + '"}]',
    "a sender that is none": '[{"chat_messages": [{"uuid": "x"}]}]',
    "a block that is a text": '[{"chat_messages": [{"sender": "human", "content": ["x"]}]}]',
    "a payload that is none": '{"type": "session_meta", "payload": {}}\n'
    '{"type": "response_item", "payload": 5}',
    "a session's message that is none": '{"type": "user", "uuid": "u", "sessionId": "s"}',
    "a line of no kind": '{"type": [], "uuid": "u", "sessionId": "s"}',
    "a parent that is a list": '[{"chat_messages": [{"parent_message_uuid": []}]}]',
    "a channel's line that is a text": '[{"ts": "1.0", "user": "U"}, "' + SECRET + '"]',
}  # fmt: skip


@pytest.mark.parametrize("name", params(BAD, 13))
def test_a_bad_file_is_refused_and_leaves_nothing(name, tmp_path):
    """Broken if a file could crash the command, leave half an import, or be quoted in an error."""
    said = refused(chat_files.write(tmp_path / "bad.json", BAD[name]))
    assert "bad.json" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("an unknown role", "JSON of another program"), ("half an object", "item 1: not JSON"),
        ("deep objects", "nested too deeply"), ("empty", "holds no messages"),
        ("a message that is a text", "item 1"),
        ("prose", "of no known format; these can be imported: chatgpt, claude"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(name, says, tmp_path):
    path = chat_files.write(
        tmp_path / "bad.json" if says == "JSON" else tmp_path / "bad", BAD[name]
    )
    with pytest.raises(FileError, match=says):
        survey(read_chats(path))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"participants": [], "messages": [{"sender_name": "A", "content": "hi"}]}, "Messenger"),
        ({"room_name": "r", "messages": [{"event_id": "$1"}]}, "Element"),
        ([{"odd": 1}], "--map sender="),
        ("<html><body><ada> hi</body></html>\n", "web page"),
        ("role,content,time\nuser,hi,1\n", "CSV"),
    ],
)
def test_a_refusal_says_what_the_file_looks_like(values, says, tmp_path):
    """Broken if a chat of another program were taken for one that is read, or named by no word."""
    text = values if isinstance(values, str) else json.dumps(values)
    assert re.search(says, refused(chat_files.write(tmp_path / "chat.json" if text[0] in "[{" else
                                                    tmp_path / "chat.txt", text)))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "start", "way"),
    [("c.jsonl.zst", b"\x28\xb5\x2f\xfd", "unzstd"), ("c.txt.gz", b"\x1f\x8b", "gunzip"),
     ("c.json.xz", b"\xfd7zXZ\0", "unxz"), ("c.tar", b"c" * 257 + b"ustar", "tar -xf")],
    ids=["zst", "gz", "xz", "tar"],
)  # fmt: skip
def test_a_compressed_file_is_refused_with_what_unpacks_it(name, start, way, tmp_path):
    """Broken, the refusal lists formats, and nobody knows that the file is of one of them."""
    (tmp_path / name).write_bytes(start + b"x" * 99)
    assert refused(tmp_path / name).endswith(f"unpack it first: {way} FILE")
    chat_files.write(tmp_path / "talk.txt", "Ada: hello\nBen: hi\n")
    assert f"{way} FILE" in next(iter(survey(read_chats(tmp_path)).unread))


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\x00\x00", b"\x00" * 100, bytes(range(256)), b"\xff\xfeA",
     b"PK\x03\x04 cut off", Random(1).randbytes(3_000)],
)  # fmt: skip
def test_bytes_that_are_no_text_are_refused(data, tmp_path):
    """Broken, the error is the name of the file alone."""
    path = tmp_path / "binary.txt"
    path.write_bytes(data)
    said = refused(path)
    assert re.match(r"binary\.txt:? (?=[a-z]+ [a-z]+)", said), said


@pytest.mark.parametrize(
    "start", ["Ada: ", '{"role": "user", "content": "', '[{"mapping": {"a": "']
)
def test_a_line_without_end_is_refused_within_bounds(start, tmp_path):
    """Broken if one line could take as much memory as it likes."""
    path = tmp_path / ("long.txt" if start == "Ada: " else "long.json")
    with path.open("w", encoding="ascii") as file:
        file.write(start)
        for _ in range(100):
            file.write("x" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(FileError, match="longer than"):
        survey(read_chats(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * MAX_ITEM


@pytest.mark.thorough
def test_a_large_list_is_read_an_item_at_a_time(tmp_path):
    """Broken if an export were held whole: this one is 18 MB, and an item of it 60 kB."""
    path = tmp_path / "conversations.json"
    chat = chat_files.chatgpt_tree(more=False)
    chat["mapping"]["a2b"]["message"]["content"]["parts"] = ["y" * 60_000]
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number in range(300):
            file.write(", " if number else "")
            json.dump({**chat, "conversation_id": f"c{number}"}, file)
        file.write("]")
    tracemalloc.start()
    found = survey(read_chats(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.conversations, found.branches) == (300, 300)
    assert peak < 4_000_000


def archive(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in entries.items():
            made.writestr(name, text)
    return path


@pytest.mark.parametrize(
    "name", ["../../outside.json", "/etc/passwd", "a/../../b.json", "..\\..\\outside.json"]
)
def test_an_archive_that_points_outside_itself_is_refused(name, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    path = archive(folder / "slack.zip", **{"users.json": "[]", name: "[]"})
    assert "outside itself" in refused(path)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("members", [1, pytest.param(20, marks=pytest.mark.thorough)])
def test_an_archive_that_swells_is_refused(members, tmp_path):
    """Broken if a small file could keep the command busy for hours, in one member or in many."""
    blank = " " * (100_000_000 // members)
    files = {f"{n}/conversations.json": f"[{blank}]" for n in range(members)}
    path = archive(tmp_path / "bomb.zip", **files)
    assert path.stat().st_size < 200_000
    assert "times their compressed" in refused(path)


def test_an_archive_that_lies_about_its_size_is_refused(tmp_path):
    path = archive(tmp_path / "liar.zip", **{"conversations.json": json.dumps([GOOD] * 1000)})
    data = bytearray(path.read_bytes())
    for sign, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        where = data.index(sign) + at
        data[where : where + 4] = struct.pack("<I", 10)
    path.write_bytes(data)
    refused(path)


def test_an_archive_that_is_cut_off_is_refused_and_a_damaged_file_in_it_is_left(tmp_path):
    whole = chat_files.slack(tmp_path).read_bytes()
    (tmp_path / "slack.zip").unlink()
    path = tmp_path / "cut.zip"
    path.write_bytes(whole[: len(whole) // 2])
    refused(path)
    at = whole.index(b"hello")
    path.write_bytes(whole[:at] + b"HELLO" + whole[at + 5 :])
    found = survey(read_chats(path))
    assert found.speakers["Ben"] == 1
    assert any("general/2023-11-14.json cannot be opened" in what for what in found.unread)


def test_links_and_pipes_are_not_followed(tmp_path):
    """Broken if a folder could have a file read that is not in it, or a pipe hang the command."""
    outside = chat_files.transcript(tmp_path / "outside")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.txt").symlink_to(outside)
    (folder / "round").symlink_to(folder)
    refused(folder)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="neither a file nor a folder"):
        next(read_chats(tmp_path / "pipe"))


def test_a_folder_is_read_file_by_file_and_says_what_it_left(tmp_path):
    """Broken if one file refused a folder, or an archive in it were passed over."""
    folder = tmp_path / "chats"
    for build in (chat_files.chatgpt, chat_files.slack, chat_files.codex, chat_files.irc):
        own = folder if build is chat_files.slack else folder / build.__name__
        own.mkdir(parents=True, exist_ok=True)
        build(own)
    chat_files.claude(folder)  # a conversations.json beside all of them
    cut = chat_files.claude_code(folder / "logs")
    cut.write_bytes(cut.read_bytes()[:-20])
    chat_files.write(folder / "notes.txt", "prose\n")
    (folder / "broken.zip").write_bytes(b"PK\x05\x06 no archive")
    (folder / "photo.jpg").write_bytes(b"\xff\x00")
    found = survey(read_chats(folder))
    assert set(found.formats) == {"chatgpt", "claude", "claude-code", "codex", "irc", "slack"}
    assert found.notes["files beside the conversations left out"] == 3
    said = " ".join(found.unread)
    assert "cc.jsonl, line 14: not JSON" in said
    assert sum(n for what, n in found.unread.items() if "files that cannot be" in what) == 2
    db = tmp_path / "m.db"
    result = runner.invoke(app, ["import", str(folder), "--db", str(db)])
    assert result.exit_code == 3, result.output
    assert "\nlines that are not JSON" in result.stdout


def test_one_speaker_for_everything_is_said(tmp_path):
    """Broken if a chat that was taken for another format came in without a word."""
    text = "Ann: one\nnot Ben said: two\n\nAnn: three\nAnn: four\nAnn: five\n"
    path = chat_files.write(tmp_path / "t.txt", text)
    db = ["--db", str(tmp_path / "m.db")]
    result = runner.invoke(app, ["import", str(path), *db])
    assert result.exit_code == 3
    assert "one speaker says everything" in result.stdout
    path.write_text(text + "Ben: four\n", encoding="utf-8")
    assert runner.invoke(app, ["import", str(path), *db]).exit_code == 0


def test_bad_characters_are_replaced_and_said(tmp_path):
    """Broken if half a surrogate pair in one message refused a whole export."""
    path = chat_files.write(tmp_path / "t.json", '[{"role": "user", "content": "a\\ud83d\\u0000"}]')
    (chat,) = read_chats(path)
    assert chat.messages[0].content == "a\ufffd\ufffd"
    assert chat.notes["messages with characters that cannot be stored, replaced by U+FFFD"] == 1


def test_wrong_arguments_are_refused_at_once(tmp_path):
    path = chat_files.transcript(tmp_path)
    for options in (
        {"format": "word"}, {"branches": "all"}, {"dates": "ydm"}, {"timezone": "Mars/Base"},
        {"assistants": "Ada"}, {"speakers": [5]}, {"timezone": "../../etc/passwd"},
        {"fields": {"sender": "x"}}, {"fields": {"text": "x", "what": "y"}}, {"fields": "text"},
        {"fields": {"text": "x"}, "format": "text"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            read_chats(path, **options)
    with Memory.open(":memory:") as memory:
        for wrong in (str(path), [GOOD], 5, {"id": "x"}):
            with pytest.raises(UsageError):
                memory.import_chats(wrong)
        assert memory.sessions() == []


def sampled(form):
    """Return a file of a format with eight messages, and the bytes in which each of them stands."""
    words = [f"word{n}" for n in range(8)]
    role = [variants.U, variants.A]
    person = ["Ann", "Ben"]
    wholes = {
        "chatgpt": lambda of: [variants.tree(*of)],
        "claude": lambda of: [{"uuid": "c", "name": "G", "chat_messages": of}],
        "gemini": lambda of: variants.gm_chat(*of),
        "copilot": lambda of: variants.vs(*of),
        "open-webui": lambda of: [variants.ow_chat(*of)],
        "librechat": lambda of: variants.lc_chat(*of),
        "telegram": lambda of: variants.tg_chat(*of),
        "discord": lambda of: variants.dc_chat(*of),
        "slack": list,
        "messages": list,
        "claude-code": variants.Lines,
        "codex": variants.Lines,
        "sillytavern": variants.Lines,
    }
    makers = {
        "chatgpt": lambda n, w: chat_files.node(f"n{n}", f"n{n - 1}", role[n % 2], w, NOON + n),
        "claude": lambda n, w: variants.said(f"m{n}", ["human", "assistant"][n % 2], w),
        "gemini": lambda n, w: variants.gm(f"m{n}", ["user", "gemini"][n % 2], w),
        "copilot": lambda n, w: variants.ask(f"r{n}", {"text": w}, {"value": "yes"}),
        "open-webui": lambda n, w: variants.ow(f"m{n}", f"m{n - 1}", role[n % 2], w),
        "librechat": lambda n, w: variants.lc(f"m{n}", f"m{n - 1}", w, mine=n % 2 == 0),
        "telegram": lambda n, w: variants.tg(n, person[n % 2], w),
        "discord": lambda n, w: variants.dc(n, person[n % 2], w),
        "slack": lambda n, w: variants.slack(person[n % 2], w, n),
        "messages": lambda n, w: {"role": role[n % 2], "content": w, "key": f"k{n}"},
        "claude-code": lambda n, w: variants.cc(f"u{n}", f"u{n - 1}", role[n % 2], w),
        "codex": lambda n, w: variants.item(role[n % 2], w),
        "sillytavern": lambda n, w: variants.st(person[n % 2], w, mine=n % 2 == 0),
        "whatsapp": lambda n, w: f"13.02.25, 10:0{n} - {person[n % 2]}: {w}",
        "irc": lambda n, w: f"[10:0{n}] <{person[n % 2]}> {w}",
        "text": lambda n, w: f"{person[n % 2]}: {w}",
    }
    made = [makers[form](n, word) for n, word in enumerate(words)]
    units = [(each if isinstance(each, str) else json.dumps(each)).encode() for each in made]
    whole = wholes[form](made) if form in wholes else None
    raw = b"".join(unit + b"\n" for unit in units)
    if whole is not None and not isinstance(whole, variants.Lines):
        raw = json.dumps(whole).encode()
    return raw, dict(zip(words, units, strict=True))


@st.composite
def damage(draw, raw, units):
    """Cut, swap, drop or change bytes, lines or messages of a file, up to three times."""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("change", "drop", "cut", "swap", "repeat", "head")))
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        if kind == "change":
            junk = draw(st.sampled_from([b"", b"null", b"5", b'"', b"[", b"{", b"}", b"]", b"\xff",
                                         b"\n", b"\0\0", b"\\", b"\xe2\x82", b",", b":"])
                        | st.binary(max_size=6))  # fmt: skip
            raw = raw[:at] + junk + raw[at + draw(st.integers(0, 9)) :]
        elif kind == "drop":
            raw = raw[:at] + raw[at + draw(st.integers(1, 300)) :]
        elif kind == "cut":
            raw = raw[:at]
        elif kind == "head":
            raw = raw[draw(st.integers(0, min(60, len(raw)))) :]
        elif kind == "swap":
            one, two = draw(st.permutations(list(units.values())))[:2]
            raw = raw.replace(one, b"\1").replace(two, one).replace(b"\1", two)
        else:
            raw = raw[:at] + raw[max(0, at - draw(st.integers(1, 100))) :]
    return raw


def whole_words(form, raw, units):
    """Return the words of messages that stand undamaged in a file: in a line, or as an object."""
    if form in ("whatsapp", "irc", "text", "claude-code", "codex", "sillytavern"):
        lines = set(raw.split(b"\n"))
        return {word for word, unit in units.items() if unit in lines}
    text = raw.decode("utf-8", "replace").lstrip("[")
    with suppress(ValueError):  # what is valid says itself where its messages stand
        text = text[json.JSONDecoder().raw_decode(text)[1] :]
    return {word for word, unit in units.items() if unit.decode() in text}


@pytest.mark.parametrize("form", [each.name for each in FORMATS])
@drawn(60)
@given(data=st.data())
def test_what_damage_leaves_whole_is_read(form, data, tmp_path):
    """Broken if a damaged file raised an untyped error, or lost a message that is whole in it."""
    raw, units = sampled(form)
    raw = data.draw(damage(raw, units))
    path = tmp_path / ("c.txt" if form in ("whatsapp", "irc", "text") else "c.json")
    path.write_bytes(raw)
    whole = whole_words(form, raw, units)
    for named in (None, form):
        read = ""
        with suppress(HiermemError):
            read = repr([m.content for chat in read_chats(path, named) for m in chat.messages])
        if named or len(whole) > 4:
            assert {word for word in whole if word not in read} == set(), (named, raw)


def everything(memory):
    """Return what the sessions of a memory hold, and their number without forks."""
    records = memory.sessions()
    held = [
        (s.message.role, s.message.name, s.message.content)
        for record in records
        for s in memory.session(record.id).messages(record.forked_at or 0)
    ]
    return sorted(held, key=repr), sum(record.forked_from is None for record in records)


@pytest.mark.parametrize("form", [each.name for each in FORMATS])
@drawn(12)
@given(data=st.data())
def test_a_file_that_was_cut_off_and_the_whole_one_are_the_whole_one(form, data, tmp_path):
    """Broken if a copy that was cut off left a second conversation, or half a message."""
    raw, _ = sampled(form)
    raw = raw.replace(b"word", "é < word".encode())
    if form in ("chatgpt", "copilot"):  # whose ids stand behind the messages
        value = json.loads(raw)
        chat = value[0] if isinstance(value, list) else {"sessionId": "s", **value}
        chat = dict(reversed(chat.items()))
        raw = json.dumps([chat] if isinstance(value, list) else chat).encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    name = "c.txt" if form in ("whatsapp", "irc", "text") else "c.json"
    paths = [tmp_path / "cut" / name, tmp_path / "whole" / name]
    for path, content in zip(paths, (cut, raw), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    back = data.draw(st.booleans())
    with Memory.open(":memory:") as memory, Memory.open(":memory:") as wanted:
        wanted.import_chats(read_chats(paths[1]))
        for path in paths[::-1] if back else paths:
            with suppress(FileError):
                memory.import_chats(read_chats(path))
        assert everything(memory) == everything(wanted), cut
        assert memory.import_chats(read_chats(paths[1])).new == 0


@pytest.mark.parametrize(
    "value", [{"a": "é" * 70_000}, "\\" * 66_000, [["x", 1.5e10, True]] * 9_000]
)
def test_an_item_longer_than_what_is_read_at_once_is_whole(value, tmp_path):
    path = chat_files.dump(tmp_path / "l.json", [value, value])
    found = [item for _, item, _ in values_of(File("l.json", lambda: path.open("rb")))]
    assert found == [value, value]


def test_a_line_of_blanks_before_a_mark_is_read_in_linear_time(tmp_path):
    """Broken, one message of a chat of WhatsApp keeps an import busy for hours."""

    def write(size):
        path = tmp_path / f"{size}.txt"
        line = "[01.02.25, 10:00:01] Anna: " + " " * size + "x>\n"
        path.write_text(line + "[01.02.25, 10:01:01] Bob: ok\n" * 3, encoding="utf-8")
        return path

    assert is_linear(write, lambda file: survey(read_chats(file)), size=10_000, slack=0.1)
