# ruff: noqa: RUF001  # the letters of other languages are meant
"""That postings hold what messages say, survive packing, and are refused when damaged."""

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.search.index import SLICE, WHOLE, collect, join, pack, passages, unpack
from hiermem.types import Message, StoredMessage

START = datetime(2024, 5, 6, 9, tzinfo=UTC)


def count(text: str) -> int:
    return len(text.split())


def stored(index: int, message: Message, hours: float = 0, **fields) -> StoredMessage:
    timed = Message(
        message.role, message.content, name=message.name, thread=message.thread,
        created_at=START + timedelta(hours=hours),
    )  # fmt: skip
    return StoredMessage(index=index, message=timed, tokens=0, size=0, hash="", **fields)


TEXTS = st.text(max_size=60) | st.sampled_from(
    ["I like my turtle.", "Do you?", "word " * 400, "行きましょう", "", "a\n" * 300]
)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "system"]),
        TEXTS,
        name=st.sampled_from([None, "Ada", "Bob Ross", "user"]),
        thread=st.sampled_from(["main", "side"]),
    ),
    max_size=12,
).map(lambda found: [stored(i, message, hours=i) for i, message in enumerate(found)])


def columns(postings):
    names = [name for name in postings.__slots__ if name not in ("speakers", "threads")]
    return {
        **{name: getattr(postings, name).tolist() for name in names},
        "speaker": [postings.speakers[place] for place in postings.speaker],
        "thread": [postings.threads[place] for place in postings.thread],
    }


@given(
    st.text(max_size=400) | st.lists(st.sampled_from(["a b\n", "c. ", "\n\n", "d"])).map("".join)
)
def test_passages_are_the_body_and_fit(body):
    """A lost character could never be returned; an oversize slice would fill a budget alone."""
    found = passages(body, len)
    assert all(tokens == len(body[begin:end]) > 0 for begin, end, tokens in found)
    assert all(tokens <= (WHOLE if len(found) == 1 else SLICE) for *_, tokens in found)
    covered = {at for begin, end, _ in found for at in range(begin, end)}
    assert all(char.isspace() for at, char in enumerate(body) if at not in covered)


@given(MESSAGES, st.integers(0, 12))
def test_runs_joined_are_the_whole_and_a_block_gives_back_what_was_packed(messages, at):
    """An index that grew, or was read, would rank otherwise than one that was built at once."""
    whole = collect(messages, count)
    parts = [collect(messages[:at], count), collect(messages[at:], count)]
    assert columns(join(parts)) == columns(whole)
    again = unpack(pack(whole))
    assert again is not None
    assert columns(again) == columns(whole)
    assert pack(again) == pack(whole)


@drawn(200)
@given(MESSAGES, st.data())
def test_a_damaged_block_is_refused(messages, data):
    block = bytearray(pack(collect(messages, count)))
    kind = data.draw(st.sampled_from(["flip", "cut", "older", "other"]))
    if kind == "flip":
        block[data.draw(st.integers(0, len(block) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del block[data.draw(st.integers(0, len(block) - 1)) :]
    elif kind == "older":
        older = b"hmT1" + bytes(block[4:-4])
        block = bytearray(older + crc32(older).to_bytes(4, "little"))
    else:
        block = bytearray(data.draw(st.binary(max_size=200)))
    assert unpack(bytes(block)) is None


def test_a_forged_block_cannot_point_outside():
    """A checksum is no defence against one who can write the store; the places must exist."""
    good = collect([stored(0, Message.user("red car", name="Ada"))], count)
    for name, value in (("speaker", 9), ("thread", 7), ("role", 200), ("sizes", 99)):
        forged = {n: getattr(good, n) for n in good.__slots__}
        forged[name] = np.full_like(forged[name], value)
        assert unpack(pack(type(good)(**forged))) is None


def test_terms_do_not_change_under_one_version():
    """Broken if stored blocks would be searched with other terms than they were made with.

    Where this fails, change the version of the blocks (``postings._MAGIC``) with the pinned number.
    The version of the stemmers is a part of it; the number is pinned for one of them.
    """
    if version("snowballstemmer") != "3.1.1":
        pytest.skip("the number is that of snowballstemmer 3.1.1")
    texts = (
        "We were planning 2 trips.", "Frau Müller hat die Führerscheinprüfung bestanden.",
        "Où sont les chevaux de ma tante?", "Ella vendió su casa.", "На заводах было тихо.",
        "في السيارات مفاتيح", "लड़कियों की किताबें", "我家的猫", "子犬を産んだ", "서울에서 🎂",
    )  # fmt: skip
    found = collect([stored(i, Message.user(text)) for i, text in enumerate(texts)], count)
    assert (pack(found)[:4], crc32(found.terms.tobytes())) == (b"T3\x1f>", 1657372085)
