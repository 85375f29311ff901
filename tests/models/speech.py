"""The two protocols' answers on the wire, whole and as events, as their SDKs read them."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Speech", "anthropic_answer", "anthropic_stream", "embeddings_answer", "ollama_answer",
    "openai_answer", "openai_stream", "pieces_of", "spoken_in",
]  # fmt: skip


@dataclass(slots=True)
class Speech:
    """What is said: text in pieces, with what it took and why it ended.

    ``finish`` is in the protocol's own words, "" for an ordinary end; ``refusal`` is the words of
    a declining model. ``broken`` breaks a stream off after that many pieces.
    """

    dialect: str
    number: int
    model: str
    pieces: Sequence[str]
    tokens_in: int
    tokens_out: int
    finish: str = ""
    refusal: str = ""
    usage: bool = True
    cached: int = 7
    reasoning: int = 5
    shape: dict[str, Any] = field(default_factory=dict)


def pieces_of(text: str) -> list[str]:
    """Cut a text as a stream does: pieces of twelve characters, or about fifty of a long text.

    A client's SDK spends a millisecond on each, whatever its length.
    """
    size = max(12, len(text) // 50)
    return [text[at : at + size] for at in range(0, len(text), size)]


def openai_answer(speech: Speech) -> dict[str, Any]:
    """Give a chat completion."""
    told: dict[str, Any] = {
        "id": f"chatcmpl-{speech.number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": speech.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None if speech.refusal else "".join(speech.pieces),
                    "refusal": speech.refusal or None,
                },
                "finish_reason": speech.finish or "stop",
                "logprobs": None,
            }
        ],
    }
    if speech.usage:
        told["usage"] = _openai_usage(speech)
    return told | speech.shape


def _openai_usage(speech: Speech) -> dict[str, Any]:
    return {
        "prompt_tokens": speech.tokens_in,
        "completion_tokens": speech.tokens_out,
        "total_tokens": speech.tokens_in + speech.tokens_out,
        "prompt_tokens_details": {"cached_tokens": min(speech.cached, speech.tokens_in)},
        "completion_tokens_details": {"reasoning_tokens": min(speech.reasoning, speech.tokens_out)},
    }


async def openai_stream(speech: Speech, *, usage: bool) -> AsyncIterator[bytes]:
    """Give the chunks of a chat completion, then its usage where it is asked for."""

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        told = {
            "id": f"chatcmpl-{speech.number}", "object": "chat.completion.chunk",
            "created": 1_700_000_000, "model": speech.model, "choices": choices,
        }  # fmt: skip
        return f"data: {json.dumps(told | more)}\n\n".encode()

    def delta(finish: str | None = None, **said: str) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": said, "finish_reason": finish}]

    yield b": a comment, as gateways send to keep a connection open\n\n"
    yield event(delta(role="assistant", content=""))
    if speech.refusal:
        yield event(delta(refusal=speech.refusal))
    for piece in speech.pieces:
        yield event(delta(content=piece))
        await asyncio.sleep(0)
    yield event(delta(speech.finish or "stop"))
    if usage and speech.usage:
        yield event([], usage=_openai_usage(speech))
    yield b"data: [DONE]\n\n"


def _anthropic_usage(speech: Speech) -> dict[str, Any]:
    cached = min(speech.cached, speech.tokens_in)
    # This protocol counts what was cached beside the input, not as a part of it.
    return {
        "input_tokens": speech.tokens_in - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": speech.tokens_out,
        "output_tokens_details": {"thinking_tokens": min(speech.reasoning, speech.tokens_out)},
    }


def anthropic_answer(speech: Speech) -> dict[str, Any]:
    """Give a message."""
    told: dict[str, Any] = {
        "id": f"msg_{speech.number}",
        "type": "message",
        "role": "assistant",
        "model": speech.model,
        "content": [] if speech.refusal else [{"type": "text", "text": "".join(speech.pieces)}],
        "stop_reason": speech.finish or "end_turn",
        "stop_sequence": None,
    }
    if speech.usage:
        told["usage"] = _anthropic_usage(speech)
    return told | speech.shape


def ollama_answer(speech: Speech) -> dict[str, Any]:
    """Give an answer of Ollama's own protocol."""
    return {
        "model": speech.model,
        "message": {"role": "assistant", "content": "".join(speech.pieces)},
        "done": True,
        "done_reason": "length" if speech.finish == "max_tokens" else "stop",
        "prompt_eval_count": speech.tokens_in,
        "eval_count": speech.tokens_out,
    }


async def anthropic_stream(speech: Speech, *, usage: bool) -> AsyncIterator[bytes]:
    """Give a message's events."""

    def event(name: str, **more: Any) -> bytes:
        return f"event: {name}\ndata: {json.dumps({'type': name} | more)}\n\n".encode()

    told = _anthropic_usage(speech) if usage and speech.usage else {}
    start = anthropic_answer(speech) | {"content": [], "stop_reason": None}
    if told:
        start["usage"] = told | {"output_tokens": 1, "output_tokens_details": None}
    yield event("message_start", message=start)
    yield event("ping")
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in () if speech.refusal else speech.pieces:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        await asyncio.sleep(0)
    yield event("content_block_stop", index=0)
    yield event(
        "message_delta",
        delta={"stop_reason": speech.finish or "end_turn", "stop_sequence": None},
        usage={name: told[name] for name in told if name.startswith("output")},
    )
    yield event("message_stop")


def spoken_in(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the messages of either protocol as roles and texts."""
    spoken: list[tuple[str, str]] = []
    for role, content in [
        ("system", body.get("system")),
        *((each["role"], each["content"]) for each in body["messages"]),
    ]:
        text = content
        if isinstance(content, list):
            text = "\n".join(part["text"] for part in content)
        if text:
            spoken.append((role, text))
    return spoken


def embeddings_answer(body: dict[str, Any], rows: Any, tokens: int | None) -> dict[str, Any]:
    """Give vectors, packed where that is asked."""
    packed = body.get("encoding_format") == "base64"
    told: dict[str, Any] = {
        "object": "list",
        "model": body["model"],
        "data": [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode()
                if packed
                else [float(value) for value in row],
            }
            for place, row in enumerate(rows)
        ],
    }
    if tokens is not None:
        told["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return told
