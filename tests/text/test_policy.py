"""The text policy: what comes in is the same for every store, and nothing else is touched."""

from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.errors import InvalidMessageError
from hiermem.text.policy import (
    MAX_CALLS,
    MAX_CONTENT,
    MAX_DEPTH,
    MAX_METADATA,
    MAX_NAME,
    MAX_PARTS,
    check,
    check_json,
    check_name,
    clean_message,
)
from hiermem.types import FilePart, ImagePart, JsonPart, Message, TextPart, ToolCall

SECRET = "canary-5512"
BAD = ("\x00", "\ud800", "\udfff", "\udc00\ud800")
anything = st.text(st.characters(), max_size=60)


def storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


@given(anything)
def test_a_text_is_given_back_untouched_or_refused(text):
    """Broken if a store could get a text that it cannot keep, or another one than was given."""
    if storable(text):
        assert check(text, what="x", cap=100) is text
    else:
        with pytest.raises(InvalidMessageError):
            check(text, what="x", cap=100)


@given(anything)
def test_replacing_leaves_good_characters_and_gives_storable_text(text):
    """Broken if replacement loses a good character, or leaves a bad one."""
    mended = check(text, what="x", cap=100, on_bad="replace")
    assert storable(mended)
    mended.encode("utf-8")
    halves = "a\ud83d\ude00b\ud83d\x00"
    assert check(halves, what="x", cap=9, on_bad="replace") == "a😀b\ufffd\ufffd"
    # Two halves that stand together become the one character that they are.
    good = [c for c in text if storable(c)]
    rest = iter(mended)
    assert all(c in rest for c in good)


def test_subclasses_of_text_become_plain_text():
    """Broken if an enum's member or a hostile subclass reaches a store, in any field."""

    class Kind(StrEnum):
        A = "a"

    class Liar(str):
        __slots__ = ()

        def __str__(self):
            return "lie"

        def __len__(self):
            return 0

    message = clean_message(
        Message.assistant(
            (TextPart(Kind.A), ImagePart(Kind.A, Kind.A), FilePart(Kind.A, Kind.A)),
            name=Kind.A,
            tool_calls=(ToolCall(Kind.A, Kind.A, Kind.A),),
        )
    )
    text, image, file = message.content
    [call] = message.tool_calls
    for value in (
        check(Kind.A, what="x", cap=9), message.name, text.text, image.reference, image.detail,
        file.reference, file.name, call.id, call.name, call.arguments,
    ):  # fmt: skip
        assert type(value) is str
    assert check(Liar("truth"), what="x", cap=9) == "truth"
    for wrong in (Liar("x" * 10), b"bytes"):
        with pytest.raises(InvalidMessageError):
            check(wrong, what="x", cap=9)


def test_a_name_has_one_to_512_characters():
    assert check_name("n" * MAX_NAME, what="tenant") == "n" * MAX_NAME
    for wrong in ("", "n" * (MAX_NAME + 1), None, 7):
        with pytest.raises(InvalidMessageError, match="tenant"):
            check_name(wrong, what="tenant")


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "make",
    [
        Message.user,
        lambda b: Message.user((TextPart(b),)),
        lambda b: Message.user((ImagePart(b),)),
        lambda b: Message.user((ImagePart("u", b),)),
        lambda b: Message.user((FilePart(b),)),
        lambda b: Message.user((FilePart("f", b),)),
        lambda b: Message.user((FilePart("f", "n", b),)),
        lambda b: Message.user((JsonPart({"a": [b]}),)),
        lambda b: Message.user((JsonPart({b: 1}),)),
        lambda b: Message.user("x", name=b),
        lambda b: Message.user("x", key=b),
        lambda b: Message.user("x", thread=b),
        lambda b: Message.tool("x", tool_call_id=b),
        lambda b: Message.user("x", metadata={"a": {"b": [b]}}),
        lambda b: Message.user("x", metadata={b: 1}),
        lambda b: Message.assistant("x", tool_calls=(ToolCall(b, "f"),)),
        lambda b: Message.assistant("x", tool_calls=(ToolCall("1", b),)),
        lambda b: Message.assistant("x", tool_calls=(ToolCall("1", "f", b),)),
        lambda b: Message.assistant("x", tool_calls=(ToolCall("1", "f", "{}", b),)),
    ],
)
def test_every_text_in_a_message_is_checked_and_can_be_replaced(make, bad):
    """Broken if one field of a message is forgotten: a store would fail half-way on it."""
    message = make(f"{SECRET}{bad}")
    with pytest.raises(InvalidMessageError) as caught:
        clean_message(message)
    assert SECRET not in str(caught.value)
    repr(clean_message(message, on_bad="replace")).encode("utf-8")
    assert "\\x00" not in repr(clean_message(message, on_bad="replace"))


def test_an_empty_id_of_a_call_is_replaced_but_never_a_key():
    """Broken if an unnamed call ended a paid run, or two messages became one by an empty key."""
    call = Message.assistant("", tool_calls=(ToolCall("", ""),))
    result = Message.tool("x", tool_call_id="")
    for message in (call, result):
        with pytest.raises(InvalidMessageError, match="is empty"):
            clean_message(message)
    [made] = clean_message(call, on_bad="replace").tool_calls
    assert made.id == clean_message(result, on_bad="replace").tool_call_id != ""
    assert made.name
    with pytest.raises(InvalidMessageError, match="key is empty"):
        clean_message(Message.user("x", key=""), on_bad="replace")


def test_metadata_is_copied_in_plain_types_and_what_is_not_json_is_refused():
    for metadata in ({"a": [1]}, {}):
        message = clean_message(Message.user("x", metadata=metadata))
        metadata["b"] = 2
        assert "b" not in message.metadata
    foreign = MappingProxyType({"a": (1, MappingProxyType({"b": True}))})
    message = clean_message(Message.user("", name="", metadata=foreign))
    assert message.metadata == {"a": [1, {"b": True}]}
    deep: object = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert check_json(deep, what="x")[0] == deep
    deep = [deep]
    with pytest.raises(InvalidMessageError, match="deeper"):
        check_json(deep, what="x")
    loop: list[object] = []
    loop.append(loop)
    wide: object = "x"
    for _ in range(40):
        wide = [wide, wide]
    for wrong in (
        {1: 2}, {"a": {1}}, {"a": datetime.now(UTC)}, {"a": float("nan")}, {"a": float("inf")},
        {"a": 1 << 5000}, {"a": b"x"}, {"a": deep}, {"a": loop}, {"a": wide}, [1], "text", None, 7,
    ):  # fmt: skip
        with pytest.raises(InvalidMessageError):
            clean_message(Message.user("x", metadata=wrong))


@pytest.mark.parametrize(
    ("make", "cap"),
    [
        (lambda n: Message.user("x" * n), MAX_CONTENT),
        (lambda n: Message.user((TextPart("x" * (n - 10)), ImagePart("y" * 10))), MAX_CONTENT),
        (lambda n: Message.user((TextPart(""),) * n), MAX_PARTS),
        (lambda n: Message.assistant(tool_calls=(ToolCall("1", "f"),) * n), MAX_CALLS),
        (lambda n: Message.user("x", metadata={"": "x" * (n - 3)}), MAX_METADATA),
        (lambda n: Message.user("x", thread="x" * n), MAX_NAME),
        (lambda n: Message.user("x", name="x" * n), MAX_NAME),
    ],
)
def test_caps_of_a_message_hold_to_the_character(make, cap):
    """Broken if a cap is off by one, or counts each part for itself."""
    clean_message(make(cap - 1))
    clean_message(make(cap))
    with pytest.raises(InvalidMessageError):
        clean_message(make(cap + 1))
