"""A file that cannot be read is refused with a typed error, and nothing of it is kept."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zipfile

import chat_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import params
from typer.testing import CliRunner

from hiermem import HiermemError, Memory, UnreadableFileError, UsageError
from hiermem.cli.app import app
from hiermem.importers import FORMATS, read_chats, survey
from hiermem.importers.files import MAX_ITEM, File, values_of

runner = CliRunner()
GOOD = {"role": "user", "content": "Hi"}


def refused(path, **options):
    """Return what is said of a file that must be refused, by the library and by the command."""
    with pytest.raises(UnreadableFileError) as caught:
        survey(read_chats(path, **options))
    db = path.parent / "memory.db"
    for command in ("import", "ingest"):
        result = runner.invoke(app, [command, str(path), "--db", str(db)])
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
    "half a list": '[{"role": "user", "content": "Hi"}, {"role": "us',
    "a list without an end": '[{"role": "user", "content": "Hi"}',
    "more after a list": '[{"role": "user", "content": "Hi"}] ' + SECRET,
    "a comma too many": '[{"role": "user", "content": "Hi"},]',
    "half a line": '{"role": "user", "content": "Hi"}\n{"role": ',
    "a list as a line": '{"role": "user", "content": "Hi"}\n[1]',
    "an unknown role": '{"role": "wizard", "content": "' + SECRET + '"}',
    "no content": '{"role": "user", "content": 5}',
    "a bad time": '{"role": "user", "content": "Hi", "created_at": "yesterday"}',
    "a time that is true": '{"role": "user", "content": "Hi", "created_at": true}',
    "mixed": '{"role": "user", "content": "Hi"}\n{"messages": []}',
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
    "a tree in a circle": json.dumps(
        [{"mapping": {n: {"parent": p, "message": {"author": {"role": "user"}, "content":
          {"parts": ["x"]}}} for n, p in (("a", "b"), ("b", "a"))}, "current_node": "a"}]
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
        ("half a line", "line 2: not JSON"),
        ("a list as a line", "line 2"),
        ("an unknown role", "line 1"),
        ("half a list", "item 2: not JSON"),
        ("deep objects", "nested too deeply"),
        ("a bad time", "line 1: created_at"),
        ("empty", "holds no messages"),
        ("mixed", "line 2"),
    ],
)
def test_an_error_names_the_place(name, says, tmp_path):
    path = chat_files.write(tmp_path / "bad.json", BAD[name])
    with pytest.raises(UnreadableFileError, match=says):
        survey(read_chats(path))


def test_what_cannot_be_read_is_told_what_can(tmp_path):
    said = refused(chat_files.write(tmp_path / "notes.txt", "just some prose\n"))
    assert all(each.name in said and each.about in said for each in FORMATS)


@pytest.mark.parametrize(
    "data",
    [b"Ada: caf\xe9\n", b"\x89PNG\r\n\x1a\n\x00\x00", b"\x00" * 100, bytes(range(256)),
     b"\xff\xfeA", b"PK\x03\x04 cut off", b'{"role": "user", "content": "\xff"}'],
)  # fmt: skip
def test_bytes_that_are_no_text_are_refused(data, tmp_path):
    path = tmp_path / "binary.txt"
    path.write_bytes(data)
    refused(path)


def test_utf_16_with_its_mark_is_text(tmp_path):
    path = tmp_path / "wide.txt"
    path.write_text("Ada: café\nBen: ja\n", encoding="utf-16")
    assert survey(read_chats(path)).speakers == {"Ada": 1, "Ben": 1}


@pytest.mark.parametrize(
    "start", ["Ada: ", '{"role": "user", "content": "', '[{"mapping": {"a": "']
)
def test_a_line_without_end_is_refused_within_bounds(start, tmp_path):
    """Broken if one line could take as much memory as it likes."""
    path = tmp_path / "long.json"
    with path.open("w", encoding="ascii") as file:
        file.write(start)
        for _ in range(100):
            file.write("x" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match="longer than"):
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


@pytest.mark.thorough
def test_an_archive_that_swells_is_refused(tmp_path):
    """Broken if a small file could keep the command busy for hours."""
    path = archive(tmp_path / "bomb.zip", **{"conversations.json": "[" + " " * 100_000_000 + "]"})
    assert path.stat().st_size < 200_000
    assert "times as long" in refused(path)


def test_an_archive_that_lies_about_its_size_is_refused(tmp_path):
    path = archive(tmp_path / "liar.zip", **{"conversations.json": json.dumps([GOOD] * 1000)})
    data = bytearray(path.read_bytes())
    for sign, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        where = data.index(sign) + at
        data[where : where + 4] = struct.pack("<I", 10)
    path.write_bytes(data)
    refused(path)


def test_an_archive_that_is_cut_off_or_damaged_is_refused(tmp_path):
    whole = chat_files.slack(tmp_path).read_bytes()
    (tmp_path / "slack.zip").unlink()
    path = tmp_path / "cut.zip"
    path.write_bytes(whole[: len(whole) // 2])
    refused(path)
    at = whole.index(b"hello")
    path.write_bytes(whole[:at] + b"HELLO" + whole[at + 5 :])
    refused(path)


def test_archives_without_chats_are_refused(tmp_path):
    refused(archive(tmp_path / "empty.zip"))
    refused(archive(tmp_path / "pictures.zip", **{"a.png": "x", "b.png": "y"}))


def test_links_and_pipes_are_not_followed(tmp_path):
    """Broken if a folder could have a file read that is not in it, or a pipe hang the command."""
    outside = chat_files.transcript(tmp_path / "outside")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.txt").symlink_to(outside)
    (folder / "round").symlink_to(folder)
    refused(folder)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFileError, match="neither a file nor a folder"):
        next(read_chats(tmp_path / "pipe"))


def test_a_folder_is_read_file_by_file_and_says_what_it_left(tmp_path):
    chat_files.claude_code(tmp_path / "logs")
    chat_files.codex(tmp_path / "logs" / "deeper")
    chat_files.write(tmp_path / "logs" / "notes.txt", "prose\n")
    (tmp_path / "logs" / "b.txt").write_bytes(b"\xff\x00")
    found = survey(read_chats(tmp_path / "logs"))
    assert set(found.formats) == {"claude-code", "codex"}
    assert found.notes["files of no known format left out"] == 2


def test_bad_characters_are_replaced_and_said(tmp_path):
    """Broken if half a surrogate pair in one message refused a whole export."""
    path = chat_files.write(tmp_path / "t.json", '[{"role": "user", "content": "a\\ud83d\\u0000"}]')
    (chat,) = read_chats(path)
    assert chat.messages[0].content == "a\ufffd\ufffd"
    assert sum(chat.notes.values()) == 1


def test_a_message_over_the_cap_is_refused(tmp_path):
    path = chat_files.dump(tmp_path / "big.json", [{**GOOD, "content": "x" * 5_000_000}])
    assert "5,000,000 characters" in refused(path)


def test_wrong_arguments_are_refused_at_once(tmp_path):
    path = chat_files.transcript(tmp_path)
    for options in (
        {"format": "word"}, {"branches": "all"}, {"dates": "ydm"}, {"timezone": "Mars/Base"},
        {"assistants": "Ada"}, {"speakers": [5]}, {"timezone": "../../etc/passwd"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            read_chats(path, **options)
    with Memory.open(":memory:") as memory:
        for wrong in (str(path), [GOOD], 5, {"id": "x"}):
            with pytest.raises(UsageError):
                memory.import_chats(wrong)
        assert memory.sessions() == []


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_no_change_to_a_good_file_crashes_a_reader(each, data, tmp_path):
    """Broken if a damaged file raised something else than the error that says so."""
    builders = {"messages": "messages", "whatsapp": "whatsapp on iOS"}
    path = chat_files.FORMATS[builders.get(each.name, each.name)](tmp_path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(
            st.sampled_from([b"", b"null", b"5", b'"', b"[", b"{", b"}", b"\xff", b"\n", b"true"])
            | st.binary(max_size=6)
        )
        if not raw:
            raw = bytearray(b" ")
    path.write_bytes(bytes(raw))
    for named in (None, each.name):
        try:
            list(read_chats(path, named))
        except HiermemError:
            pass
        except OSError as error:
            raise AssertionError(repr(error)) from error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(json_values | st.dictionaries(st.text(max_size=3), json_values), max_size=6),
       st.sampled_from([None, 1, 4]))  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_is_parsed_as_a_whole_parse_would(tmp_path, values, indent):
    """Broken if reading item by item gave something else than reading all of it."""
    path = chat_files.write(tmp_path / "l.json", json.dumps(values, indent=indent))
    found = [value for _, value in values_of(File("l.json", lambda: path.open("rb")), "list")]
    assert found == values


@pytest.mark.parametrize(
    "value", [{"a": "é" * 70_000}, "\\" * 66_000, [["x", 1.5e10, True]] * 9_000]
)
def test_an_item_longer_than_what_is_read_at_once_is_whole(value, tmp_path):
    path = chat_files.dump(tmp_path / "l.json", [value, value])
    found = [item for _, item in values_of(File("l.json", lambda: path.open("rb")), "list")]
    assert found == [value, value]
