"""Bodies and answers of any shape: an answer, or a typed error that holds nothing of them."""

import asyncio
import gzip
import json
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hiermem.models.anthropic import _joined_events as assembled_message
from hiermem.models.anthropic import _read as read_message
from hiermem.protocols import LLMResponse
from hiermem.remote.responses import MiscastError, json_object, limited, read_answer
from hiermem.remote.responses import joined_events as assembled

WORDS = st.sampled_from(
    [
        "choices", "message", "content", "finish_reason", "usage", "prompt_tokens", "text", "type",
        "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens", "delta",
        "stop_reason", "input_tokens", "output_tokens", "cache_read_input_tokens", "model",
        "refusal", "output_tokens_details",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=6)


def is_sound(answer: LLMResponse) -> bool:
    """Say whether an answer holds what the engine may rely on."""
    usage = answer.usage
    counts = (
        usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens,
    )  # fmt: skip
    return (
        isinstance(answer.text, str)
        and answer.finish_reason in ("stop", "length", "refusal", "error")
        and bool(answer.model)
        and all(each is None or (type(each) is int and each >= 0) for each in counts)
    )


@given(st.binary(max_size=60), st.sampled_from(["", "application/json", "text/html; a=b", "x/ü"]))
@example(b"[" * 100_000, "application/json")
@example(b'{"a": 1' + b"0" * 5_000 + b"}", "application/json")
@example(b"\xff\xfe{}", "application/json")
def test_a_body_is_an_object_or_a_typed_error_without_a_word_of_it(data, kind):
    try:
        found = json_object(data, kind)
    except MiscastError as error:
        assert error.__context__ is None
        assert len(str(error)) < 100
    else:
        assert found == json.loads(data)


PACKED = {
    "": bytes, "identity": bytes, "gzip": gzip.compress, "X-GZip": gzip.compress,
    "deflate": zlib.compress,
}  # fmt: skip


def received(body: bytes, coding: str, *, most: int) -> bytes:
    """Give what a client reads of a body that is held to ``most`` bytes."""
    httpx = pytest.importorskip("httpx")

    async def pieces():
        for place in range(0, len(body), 1_000):
            yield body[place : place + 1_000]

    async def get() -> bytes:
        headers = {"content-encoding": coding} if coding else {}
        way = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=pieces()))
        hooks = {"response": [limited(most)]}
        async with httpx.AsyncClient(transport=way, event_hooks=hooks) as client:
            return (await client.get("http://127.0.0.1/")).content

    return asyncio.run(get())


@pytest.mark.parametrize("coding", PACKED)
def test_a_packed_body_is_read_within_the_bound_on_what_it_unpacks_to(coding):
    """A server may pack what it was asked not to; 40 KB of that can be 40 MB in memory."""
    pack = PACKED[coding]
    for body in (b"", b"{}", bytes(range(256)) * 40, b"x" * 50_000):
        assert received(pack(body), coding, most=50_000) == body
    with pytest.raises(MiscastError, match="larger than any"):
        received(pack(b"x" * 50_001), coding, most=50_000)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip"])
def test_what_cannot_be_unpacked_within_bounds_is_refused(coding):
    with pytest.raises(MiscastError) as told:
        received(b"no such packing", coding, most=50_000)
    assert told.value.__context__ is None


@given(OBJECTS)
@example({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, "b", 3]}}]})
@example({"choices": [{"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}]})
@example({"choices": [{"message": {}}], "usage": {"prompt_tokens": True, "total_tokens": -1}})
def test_a_completion_of_any_shape_is_read_or_refused(answer):
    """Servers leave out what their schema promises; nothing of that may surface as a TypeError."""
    try:
        found = read_answer(answer, asked="asked")
    except MiscastError:
        return
    assert is_sound(found)


@given(OBJECTS)
def test_a_message_of_any_shape_is_read_or_refused(answer):
    try:
        found = read_message(answer, model="asked")
    except MiscastError:
        return
    assert is_sound(found)


EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["message_start", "content_block_delta", "message_delta", "ping"]),
        "message": JSON | OBJECTS,
        "delta": JSON | OBJECTS,
        "usage": JSON,
        "choices": st.lists(OBJECTS, max_size=2) | JSON,
    }
)


@given(st.lists(EVENTS, max_size=5))
def test_streams_of_any_events_are_put_together_or_refused(events):
    for put in (assembled, assembled_message):
        try:
            whole = put(events)
        except MiscastError:
            continue
        assert isinstance(whole, dict)


@given(st.lists(st.text(max_size=5), max_size=6), st.sampled_from(["stop", "length"]))
def test_a_stream_is_worth_what_the_whole_answer_is(pieces, finish):
    """A piece that is lost or doubled is a fact of the conversation lost or made up."""
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    events.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": {"prompt_tokens": 3}, "model": "m"})
    whole = {
        "choices": [{"message": {"content": "".join(pieces)}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 3},
        "model": "m",
    }
    assert read_answer(assembled(events), asked="a") == read_answer(whole, asked="a")
