"""Hypothesis strategies for texts, messages, histories and stored messages.

Every strategy draws what the library accepts. The sizes of texts come from a ladder (0, 1, 999,
1,000, 1,001, 65,536), because random text alone never finds a truncation.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from hiermem.types import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Part,
    StoredMessage,
    TextPart,
    ToolCall,
)

__all__ = [
    "HOSTILE_NAMES", "SIZES", "content_parts", "histories", "json_objects", "messages", "names",
    "stored_messages", "texts", "times",
]  # fmt: skip

#: Lengths at which truncation and paging go wrong.
SIZES = (0, 1, 999, 1_000, 1_001, 65_536)
#: Names that a store confuses if it compares by prefix, pattern, case, normal form or quoting.
HOSTILE_NAMES = (
    "a", "A", "a.", "a%", "a_", "a ", " a", "aa",
    "\N{LATIN SMALL LETTER A WITH ACUTE}", "a\N{COMBINING ACUTE ACCENT}",
    "\N{FULLWIDTH LATIN SMALL LETTER A}", "ß", "ss", "%", "_", "'", '"',
    "a'; DROP TABLE messages; --", "0", "00", "null", "🙂",
)  # fmt: skip
_ALPHABET = st.characters(codec="utf-8", exclude_characters="\x00")
_START = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


def names() -> st.SearchStrategy[str]:
    """Draw names of tenants, sessions, threads and keys; most of them look like one another."""
    return st.sampled_from(HOSTILE_NAMES) | st.text(_ALPHABET, min_size=1, max_size=20)


def texts(*, large: bool = True) -> st.SearchStrategy[str]:
    """Draw texts: short ones of any characters, and ones of the ladder's sizes.

    A sized text ends in a letter of its own, so that a cut-off end is noticed at any length.
    """
    sizes = SIZES if large else SIZES[:5]
    sized = st.builds(
        lambda size, unit: ((unit * size)[: max(size - 1, 0)] + "Ω")[:size],
        st.sampled_from(sizes),
        st.sampled_from(("x", "word ", "line\n", "é", "🙂", "\r\n", "{}")),
    )
    return st.text(_ALPHABET, max_size=60) | sized


def times() -> st.SearchStrategy[datetime]:
    """Draw timezone-aware times, close together, in several zones, in no order."""
    away = timedelta(hours=2), -timedelta(hours=9.5), timedelta(hours=5.75, seconds=17)
    zones = st.sampled_from((UTC, *map(timezone, away)))
    shifts = st.timedeltas(timedelta(days=-1.2), timedelta(days=1.2))
    return st.builds(lambda shift, zone: (_START + shift).astimezone(zone), shifts, zones)


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    """Draw small JSON objects, nested ones too."""
    keys = st.text(_ALPHABET, max_size=8)
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        st.none() | st.booleans() | numbers | st.text(_ALPHABET, max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    )
    return st.dictionaries(keys, values, max_size=3)


def content_parts() -> st.SearchStrategy[tuple[Part, ...]]:
    """Draw the parts of a message that is more than text."""
    short = st.text(_ALPHABET, max_size=20)
    part: st.SearchStrategy[Part] = st.one_of(
        st.builds(TextPart, short),
        st.builds(ImagePart, short, st.none() | st.sampled_from(("low", "high"))),
        st.builds(FilePart, short, st.none() | short, st.none() | short),
        st.builds(JsonPart, json_objects()),
    )
    return st.lists(part, max_size=4).map(tuple)


def messages(
    *, keys: st.SearchStrategy[str | None] | None = None, large: bool = True
) -> st.SearchStrategy[Message]:
    """Draw single messages of every shape, each with a time; ``keys`` draws theirs."""
    short = st.text(_ALPHABET, max_size=20)
    calls = st.lists(st.builds(ToolCall, short, short, short), max_size=2).map(tuple)
    content = texts(large=large) | content_parts()
    more: dict[str, st.SearchStrategy[Any]] = {
        "created_at": times(),
        "key": st.none() if keys is None else keys,
        "name": st.none() | names(),
        "thread": st.just("main") | names(),
        "metadata": st.just({}) | json_objects(),
    }
    return st.one_of(
        st.builds(Message, st.sampled_from(("system", "user")), content, **more),
        st.builds(Message, st.just("assistant"), content, tool_calls=calls, **more),
        st.builds(Message, st.just("tool"), content, tool_call_id=st.none() | short, **more),
    )


def stored_messages(
    *, keys: st.SearchStrategy[str | None] | None = None, large: bool = True
) -> st.SearchStrategy[StoredMessage]:
    """Draw messages as a store receives them; the index is set when they are written."""
    counts = st.integers(0, 10_000)
    return st.builds(
        StoredMessage,
        st.just(0),
        messages(keys=keys, large=large),
        counts,
        counts,
        st.text("0123456789abcdef", min_size=8, max_size=8).map("sha256:{}".format),
        flags=st.just(()) | st.just(("orphan_result",)),
        slices=st.just(()) | st.lists(counts, max_size=3).map(tuple),
        echoes=st.just(()) | st.lists(st.tuples(counts, counts), max_size=2).map(tuple),
    )


@st.composite
def histories(
    draw: st.DrawFn, *, max_size: int = 60, threads: int = 2, oversize: int = 0
) -> list[Message]:
    """Draw a conversation as an application would append it.

    Exchanges, tool groups (complete, incomplete, late and orphan results), interleaved threads, own
    keys, silences, clocks that run backwards and, if ``oversize`` is given, now and then a message
    of that many characters.
    """
    at = _START
    history: list[Message] = []
    size = draw(st.integers(0, max_size))
    strands = ["main", *(f"strand-{number}" for number in range(1, threads))]
    while len(history) < size:
        thread = draw(st.sampled_from(strands))
        for message in draw(_exchange(len(history), oversize)):
            at += timedelta(seconds=draw(st.sampled_from((0, 5, 60, 60, 600, 5_000, -30, -4_000))))
            history.append(replace(message, thread=thread, created_at=at))
    return history[:size]


@st.composite
def _exchange(draw: st.DrawFn, number: int, oversize: int) -> list[Message]:
    """Draw one stretch of a thread: a question and its answer, a tool group, or something odd."""
    kind = draw(st.sampled_from(("turn", "turn", "turn", "users", "tools", "orphan", "system")))
    said = st.text("abcdefg hij.\n", min_size=1, max_size=200)
    key = draw(st.none() | st.just(f"key-{number}"))
    opening = draw(said)
    if oversize and draw(st.integers(0, 9)) == 0:
        opening = ("some long text. " * (oversize // 16 + 1))[:oversize]
    if kind == "turn":
        return [Message.user(opening, key=key), Message.assistant(draw(said))]
    if kind == "users":
        return [Message.user(draw(said)) for _ in range(draw(st.integers(1, 12)))]
    if kind == "system":
        return [Message.system(opening)]
    if kind == "orphan":
        return [Message.tool(opening, tool_call_id=f"lost-{number}")]
    count = draw(st.integers(1, 4))
    calls = tuple(ToolCall(f"call-{number}-{n}", "look_up") for n in range(count))
    answered = draw(st.lists(st.sampled_from(calls), unique=True, max_size=count))
    results = [Message.tool(draw(said), tool_call_id=call.id) for call in answered]
    late = draw(st.booleans())
    closing = [Message.assistant(draw(said))] if late or len(answered) == count else []
    after = [Message.tool(draw(said), tool_call_id=calls[0].id)] if late else []
    begun = [Message.user(opening, key=key), Message.assistant("", tool_calls=calls)]
    return [*begun, *results, *closing, *after]
