"""What a message says, costs and is called by."""

import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.config import HierarchyConfig
from hiermem.convert.request import sent_name
from hiermem.text.measure import (
    FILE_OVERHEAD,
    IMAGE_HIGH,
    IMAGE_LOW,
    MEDIA,
    MESSAGE_OVERHEAD,
    OTHER_DATA,
    body,
    canonical_json,
    day,
    fingerprint,
    message_hash,
    message_size,
    message_tokens,
    slice_points,
    slice_sizes,
)
from hiermem.tokens import TiktokenCounter
from hiermem.tree.windows import cut, weigh
from hiermem.types import FilePart, ImagePart, JsonPart, Message, TextPart, ToolCall

COUNTER = TiktokenCounter()
COUNTER.count("loads the vocabulary, so that no drawn example is charged for it")
CALL = ToolCall("c1", "search", '{"q": "refund", "n": 2}')
AT = datetime(2024, 3, 15, 9, 30, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=80)
parts = st.one_of(
    texts.map(TextPart),
    st.builds(ImagePart, texts, st.sampled_from([None, "low", "high"])),
    st.builds(FilePart, texts, st.none() | texts),
    st.dictionaries(texts, st.integers() | texts, max_size=2).map(JsonPart),
)
calls = st.builds(ToolCall, st.just("c"), st.just("f"), texts | st.just('{"b": 1, "a": [2]}'))
messages = st.builds(
    Message.assistant,
    texts | st.lists(parts, max_size=5).map(tuple),
    name=st.none() | st.text("Ada ", min_size=1, max_size=9),
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    created_at=st.none() | st.just(AT),
)


def test_a_body_shows_calls_and_placeholders_but_no_data():
    """Broken if an image's megabyte of base64 would be read to a summariser."""
    message = Message.assistant(
        (
            TextPart("See\nthis:"),
            ImagePart("https://x.org/a.png"),
            ImagePart("data:image/png;base64," + "A" * 9999),
            FilePart("file-7", "report\n.pdf"),
            FilePart("data:text/plain;base64,AAAA"),
            JsonPart({"type": "thinking", "thinking": "hm"}),
            JsonPart({"kind": 3}),
        ),
        tool_calls=(CALL, ToolCall("c2", "run", "not json")),
    )
    assert body(message) == (
        "See\nthis:\n"
        "[image: https://x.org/a.png]\n"
        "[image: data:image/png;base64]\n"
        "[file: report .pdf]\n"
        "[file: data:text/plain;base64]\n"
        "[thinking]\n"
        "[data]\n"
        'search({"n":2,"q":"refund"})\n'
        "run(not json)"
    )
    assert body(Message.assistant("", tool_calls=(CALL,))) == 'search({"n":2,"q":"refund"})'
    assert body(Message.user(())) == ""


def test_tokens_are_counted_by_the_stated_rule():
    """Broken if the cost of a message changes: stored sessions would be measured in two ways."""
    count = COUNTER.count
    assert message_tokens(Message.user(""), COUNTER) == MESSAGE_OVERHEAD == 4
    assert message_tokens(Message.user("Hello there"), COUNTER) == 4 + count("Hello there")
    assert message_tokens(Message.user("Hi", name="Ada"), COUNTER) == 4 + count("Hi") + count("Ada")
    call = (
        '{"function":{"arguments":"{\\"q\\": \\"refund\\", \\"n\\": 2}","name":"search"},'
        '"id":"c1","type":"function"}'
    )
    assert message_tokens(Message.assistant("", tool_calls=(CALL,)), COUNTER) == 4 + count(call)
    for part, price in (
        (TextPart("some text"), count("some text")),
        (ImagePart("data:image/png;base64," + "A" * 9999), IMAGE_HIGH),
        (ImagePart("u", "high"), IMAGE_HIGH),
        (ImagePart("u", "low"), IMAGE_LOW),
        (FilePart("f-1", "a.pdf"), FILE_OVERHEAD + count("a.pdf")),
        (FilePart("f-1"), FILE_OVERHEAD + count("f-1")),
        (JsonPart({"b": 1, "a": "ü"}), count('{"a":"ü","b":1}')),
    ):
        assert message_tokens(Message.user((part,)), COUNTER) == 4 + price


def test_size_in_characters_is_code_points_and_at_least_one():
    def size(message):
        return message_size(message, unit="chars", counter=COUNTER)

    assert size(Message.user("")) == 1
    assert size(Message.user("a😀")) == 2
    assert size(Message.user("a😀", name="Ada")) == 5
    assert size(Message.assistant("x", tool_calls=(ToolCall("1", "f", "{ }"),))) == len("x\nf({})")


def test_a_day_is_the_utc_date():
    assert day(datetime(2024, 3, 15, 23, 30, tzinfo=timezone(timedelta(hours=-2)))) == "2024-03-16"


@given(messages, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=4))
def test_echoes_weigh_nothing(message, drawn):
    """Broken if memory that came back would fill windows."""
    tokens = message_tokens(message, COUNTER)
    assert message_size(message, unit="tokens", counter=COUNTER) == tokens
    length = len(body(message))
    echoes = [(min(a, b, length), min(max(a, b), length)) for a, b in drawn]
    covered = set()
    for a, b in echoes:
        covered.update(range(a, b))
    name = len(message.name or "")
    size = message_size(message, unit="chars", counter=COUNTER, echoes=echoes)
    assert size == max(1, length + name - len(covered))
    assert message_size(message, unit="tokens", counter=COUNTER, echoes=[(0, length)]) == (
        MESSAGE_OVERHEAD + (COUNTER.count(sent_name(message.name)) if message.name else 0)
    )
    quoting = Message.user("before ECHO ECHO after")
    assert message_size(quoting, unit="tokens", counter=COUNTER, echoes=[(7, 16)]) == (
        4 + COUNTER.count("before ") + COUNTER.count(" after")
    )


def test_the_hash_covers_role_name_content_calls_and_time_alone():
    """P2, P10: broken if an edit went unseen, or a fork of the same text were made again."""
    one = Message.assistant("text", name="Ada", tool_calls=(CALL,), created_at=AT)
    others = [
        Message.user("text", name="Ada", created_at=AT),
        replace(one, content="text "),
        replace(one, content=(TextPart("text"),)),
        replace(one, name=None),
        replace(one, name=""),
        replace(one, tool_calls=()),
        replace(one, tool_calls=(replace(CALL, id="c2"),)),
        replace(one, tool_calls=(replace(CALL, arguments='{"q":"refund","n":2}'),)),
        replace(one, created_at=AT + timedelta(microseconds=1)),
        replace(one, created_at=None),
        replace(one, name="Adat", content="ext"),
    ]
    assert len({message_hash(m) for m in (one, *others)}) == len(others) + 1
    zone = timezone(timedelta(hours=5))
    for same in (
        replace(one, key="k"),
        replace(one, thread="t"),
        replace(one, metadata={"a": 1}),
        replace(one, created_at=AT.astimezone(zone)),
    ):
        assert message_hash(same) == message_hash(one)


def test_a_fingerprint_covers_what_makes_an_append_the_same():
    """P2: broken if a retried append were a conflict, or another message passed for the same."""
    one = Message.assistant("text", name="Ada", tool_calls=(CALL,), created_at=AT)
    for same in (
        replace(one, created_at=None),
        replace(one, key="k"),
        replace(one, metadata={"a": 1}),
    ):
        assert fingerprint(same) == fingerprint(one)
    others = [
        replace(one, content="t"),
        replace(one, thread="b"),
        replace(one, name="b"),
        replace(one, tool_calls=()),
        Message.user("text", name="Ada"),
    ]
    assert len({fingerprint(m) for m in (one, *others)}) == len(others) + 1


def test_hashes_do_not_change_between_versions():
    """Broken if stored hashes would no longer match: all summaries would be dirty."""
    assert message_hash(Message.user("Hello", created_at=AT)) == (
        "sha256:e79cada020202f033c3cdc43eff444d10cdc3268"
    )
    assert fingerprint(Message.user("Hello")) == "sha256:e162189ec12ce280d6c347b89f30ab544916031f"


@given(messages, st.sampled_from(["tokens", "chars"]), st.integers(6, 60))
@drawn(300)
def test_slices_of_any_message_fit_and_join(message, unit, target):
    """P3: broken if a slice is over the target though it could be cut, or a character is lost."""
    points = slice_points(message, unit=unit, target=target, counter=COUNTER)
    text = body(message)
    bounds = [0, *points, len(text)]
    assert "".join(text[a:b] for a, b in pairwise(bounds)) == text
    assert list(points) == sorted(set(points))
    sizes = slice_sizes(message, points, unit=unit, counter=COUNTER)
    assert len(sizes) == len(points) + 1
    if unit == "tokens":
        assert all(size == tokens for size, tokens in sizes)
        prices = [
            message_tokens(Message.user((p,)), COUNTER)
            for p in (message.content if not isinstance(message.content, str) else ())
            if not isinstance(p, TextPart)
        ]
        loose = max([0, *prices]) + 60 * len(message.tool_calls)
    else:
        loose = 0
    name = message.name or ""
    # A name is counted in the form in which it is sent.
    cost = len(name) if unit == "chars" else COUNTER.count(sent_name(name)) if name else 0
    least = 0 if unit == "chars" else MESSAGE_OVERHEAD
    # The stated exception: a name that takes more than half of the room is let over it.
    crowded = target - least - cost < (target - least) // 2
    for (size, _), (a, b) in zip(sizes, pairwise(bounds), strict=True):
        assert size <= target + loose or b - a == 1 or crowded


def test_neither_a_long_name_nor_a_long_call_shreds_a_message():
    """Broken if a hostile name could turn one message into a window for each character."""
    call = ToolCall("1", "f", '{"q": "' + "ab " * 9000 + '"}')
    for message, target, least in (
        (Message.user("word " * 2000, name="\U0001f600" * 500), 600, 0),
        (Message.assistant("Look:", tool_calls=(call,)), 1000, 5),
    ):
        points = slice_points(message, unit="tokens", target=target, counter=COUNTER)
        assert least < len(points) < 20
        sizes = slice_sizes(message, points, unit="tokens", counter=COUNTER)
        assert not least or all(size <= target for size, _ in sizes)


@pytest.mark.parametrize("unit", ["tokens", "chars"])
def test_an_echo_makes_no_slices_of_its_own(unit):
    """Broken if a quoted record of 20,000 words made windows that have nothing to summarise."""
    echo = "[[record]] " + "word " * 20_000
    message = Message.user("Before that. " * 40 + echo + "And after it. " * 40)
    begin = message.content.index(echo)
    config = HierarchyConfig.by_tokens() if unit == "tokens" else HierarchyConfig.by_chars()
    tokens = message_tokens(message, COUNTER)
    echoes = ((begin, begin + len(echo)),)
    assert cut(
        message, weigh(message, tokens, config, counter=COUNTER).size(unit), config, counter=COUNTER
    )[0]
    size = weigh(message, tokens, config, counter=COUNTER, echoes=echoes).size(unit)
    assert cut(message, size, config, counter=COUNTER) == ((), ())


DATA = b64encode(bytes(range(256)) * 1_200).decode()
URL = f"data:image/png;base64,{DATA}"
#: Parts with 400,000 characters of data, the price of that data, and what is left to count.
MEDIA_PARTS = [
    ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, MEDIA["audio"]),
    ({"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{DATA}"}}, MEDIA["video"]),
    ({"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}}, MEDIA["video"]),
    ({"type": "image_url", "image_url": {"url": URL, "format": "png"}}, IMAGE_HIGH),
    ({"type": "image_url", "image_url": URL}, IMAGE_HIGH),
    ({"type": "image_generation_call", "result": DATA}, IMAGE_HIGH),
    ({"type": "code_interpreter_call", "outputs": [{"type": "image", "url": URL}]}, IMAGE_HIGH),
    ({"type": "computer_call_output", "output": {"type": "s", "image_url": URL}}, IMAGE_HIGH),
    ({"type": "x_result", "content": [{"type": "file", "data": DATA}]}, FILE_OVERHEAD),
    ({"type": "reasoning", "encrypted_content": DATA}, OTHER_DATA),
    ({"type": "thinking", "thinking": "I think.", "signature": DATA}, OTHER_DATA),
    ({"type": "x", "data": "\n".join(re.findall(".{1,76}", DATA))}, OTHER_DATA),
]


@pytest.mark.parametrize(("data", "price"), MEDIA_PARTS)
def test_media_cost_by_their_kind_and_never_as_text(data, price):
    """A8: broken if a voice message cost what its base64 would cost as text."""
    for message in (
        Message.user((JsonPart(data),)),
        Message.from_openai({"role": "user", "content": [data]}),
    ):
        assert price < message_tokens(message, COUNTER) < price + 40


@pytest.mark.parametrize("text", ["word " * 200, "x" * 200, "ab cd\n" * 100, "\u6f22" * 300])
def test_text_in_an_opaque_part_is_no_data(text):
    data = {"type": "note", "text": text}
    wanted = MESSAGE_OVERHEAD + COUNTER.count(canonical_json(data))
    assert message_tokens(Message.user((JsonPart(data),)), COUNTER) == wanted
