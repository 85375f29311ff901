"""Files become messages as they stand, or are refused with the line that is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiermem import UsageError
from hiermem.cli.comparison import DETAILS
from hiermem.cli.conversations import bundled, read


def _write(folder, text, name="talk.txt"):
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    return path


def _pairs(messages):
    return [(message.role, message.name, message.content) for message in messages]


def test_openai_lines_keep_time_key_thread_and_tool_calls(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    lines = [
        {
            "role": "user",
            "name": "Ada",
            "content": "Look.",
            "created_at": "2026-02-02T08:00:00+01:00",
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "key": "mine", "thread": "b"},
        {"role": "tool", "tool_call_id": "c1", "content": "42", "created_at": 1_770_000_000},
    ]
    path = _write(tmp_path, "\n\n".join(json.dumps(line) for line in lines), "talk.jsonl")
    first, second, third = read(path)
    assert first.name == "Ada"
    assert first.created_at.utcoffset() == timedelta(hours=1)
    assert first.key == "talk.jsonl#0"
    assert (second.key, second.thread) == ("mine", "b")
    assert second.tool_calls[0].arguments == '{"x":1}'
    assert third.tool_call_id == "c1"
    assert third.created_at == datetime.fromtimestamp(1_770_000_000, UTC)


def test_a_json_list_is_read_like_lines(tmp_path):
    path = _write(tmp_path, json.dumps([{"role": "user", "content": "a"}] * 2), "talk.json")
    assert _pairs(read(path)) == [("user", None, "a")] * 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1
    )
)
def test_a_line_ends_at_a_newline_and_at_nothing_else(texts, tmp_path):
    lines = [json.dumps({"role": "user", "content": text}, ensure_ascii=False) for text in texts]
    path = _write(tmp_path, "\n".join(lines), "talk.jsonl")
    assert [message.content for message in read(path)] == texts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"role": "user", "content": "a"}\n{"role": ', "line 2: not a JSON object"),
        ('{"role": "user", "content": "a"}\n[1]', "line 2: a message is a JSON object"),
        ('{"role": "wizard", "content": "a"}', "line 1"),
        ('{"role": "user", "content": "a", "created_at": "yesterday"}', "line 1"),
        ('{"role": "user", "content": "a", "created_at": true}', "line 1: created_at is bool"),
        ('{"content": "a"}', "line 1"),
        ("[1]", "message 1"),
        ("[", "not JSON"),
        ("no speaker here", "line 1: neither JSON nor 'Name: text'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_line_not_skipped(tmp_path, text, says):
    with pytest.raises(UsageError) as caught:
        list(read(_write(tmp_path, text)))
    assert says in str(caught.value)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"Ada: caf\xe9\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        list(read(path))


def test_a_transcript_tells_speakers_from_words_before_a_colon(tmp_path):
    text = (
        "Ada: Two things.\nNote: this line goes on.\n\nhttp://x.example: so does this\n"
        "Assistant: Yes?\nAda: Done.\n"
    )
    assert _pairs(read(_write(tmp_path, text))) == [
        ("user", "Ada", "Two things.\nNote: this line goes on.\n\nhttp://x.example: so does this"),
        ("assistant", None, "Yes?"),
        ("user", "Ada", "Done."),
    ]


def test_a_transcript_may_bear_times_and_name_its_assistant(tmp_path):
    text = "[2026-02-02 08:15] Ada: Hello\n[2026-02-02T08:16:30+01:00] Marvin: Hm.\n"
    ada, marvin = read(_write(tmp_path, text), assistants=frozenset({"marvin"}))
    assert ada.created_at == datetime(2026, 2, 2, 8, 15, tzinfo=UTC)
    assert (marvin.role, marvin.name) == ("assistant", "Marvin")
    assert marvin.created_at.utcoffset() == timedelta(hours=1)


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
