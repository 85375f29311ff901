"""The protocols' answers on the wire, whole and as events, as their SDKs read them."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Speech", "embeddings_answer", "events_of", "pieces_of", "spoken_in", "whole"]

#: Of each prompt so many tokens were cached, and of each answer so many were reasoning.
CACHED, REASONED = 7, 5


@dataclass(slots=True)
class Speech:
    """What is said: text in pieces, with what it took and why it ended.

    ``finish`` is in the protocol's own words, "" for an ordinary end; ``refusal`` is the words of
    a declining model.
    """

    dialect: str
    number: int
    model: str
    pieces: Sequence[str]
    tokens_in: int
    tokens_out: int
    finish: str = ""
    refusal: str = ""

    @property
    def usage(self) -> dict[str, Any]:
        """Give the counts as the protocol has them."""
        cached, reasoned = min(CACHED, self.tokens_in), min(REASONED, self.tokens_out)
        if self.dialect == "anthropic":
            # This protocol counts what was cached beside the input, not as a part of it.
            return {
                "input_tokens": self.tokens_in - cached,
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": self.tokens_out,
                "output_tokens_details": {"thinking_tokens": reasoned},
            }
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            "total_tokens": self.tokens_in + self.tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoned},
        }


def pieces_of(text: str) -> list[str]:
    """Cut a text as a stream does: pieces of twelve characters, or about fifty of a long text.

    A client's SDK spends a millisecond on each, whatever its length.
    """
    size = max(12, len(text) // 50)
    return [text[at : at + size] for at in range(0, len(text), size)]


def whole(speech: Speech) -> dict[str, Any]:
    """Give an answer as it comes whole."""
    text = "" if speech.refusal else "".join(speech.pieces)
    if speech.dialect == "ollama":
        return {
            "model": speech.model,
            "message": {"role": "assistant", "content": text},
            "done": True,
            "done_reason": "length" if speech.finish == "max_tokens" else "stop",
            "prompt_eval_count": speech.tokens_in,
            "eval_count": speech.tokens_out,
        }
    if speech.dialect == "anthropic":
        return {
            "id": f"msg_{speech.number}", "type": "message", "role": "assistant",
            "model": speech.model,
            "content": [] if speech.refusal else [{"type": "text", "text": text}],
            "stop_reason": speech.finish or "end_turn", "stop_sequence": None,
            "usage": speech.usage,
        }  # fmt: skip
    said = {"role": "assistant", "content": text or None, "refusal": speech.refusal or None}
    choice = {"index": 0, "message": said, "finish_reason": speech.finish or "stop"}
    return {
        "id": f"chatcmpl-{speech.number}", "object": "chat.completion",
        "created": 1_700_000_000, "model": speech.model,
        "choices": [{**choice, "logprobs": None}], "usage": speech.usage,
    }  # fmt: skip


def events_of(speech: Speech, *, usage: bool) -> AsyncIterator[bytes]:
    """Give the events of an answer; chat completions count only where ``usage`` is asked for."""
    if speech.dialect == "anthropic":
        return _anthropic_events(speech)
    return _openai_events(speech, usage=usage)


async def _openai_events(speech: Speech, *, usage: bool) -> AsyncIterator[bytes]:
    def event(finish: str | None = None, **said: str) -> bytes:
        choices = [{"index": 0, "delta": said, "finish_reason": finish}]
        return _data({**frame, "choices": choices})

    frame: dict[str, Any] = {
        "id": f"chatcmpl-{speech.number}", "object": "chat.completion.chunk",
        "created": 1_700_000_000, "model": speech.model,
    }  # fmt: skip
    yield b": a comment, as gateways send to keep a connection open\n\n"
    yield event(role="assistant", content="")
    if speech.refusal:
        yield event(refusal=speech.refusal)
    for piece in speech.pieces:
        yield event(content=piece)
        await asyncio.sleep(0)
    yield event(speech.finish or "stop")
    if usage:
        yield _data({**frame, "choices": [], "usage": speech.usage})
    yield b"data: [DONE]\n\n"


async def _anthropic_events(speech: Speech) -> AsyncIterator[bytes]:
    def event(name: str, **more: Any) -> bytes:
        return f"event: {name}\n".encode() + _data({"type": name} | more)

    told = speech.usage
    begun = {**told, "output_tokens": 1, "output_tokens_details": None}
    start = {**whole(speech), "content": [], "stop_reason": None, "usage": begun}
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


def _data(told: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(told)}\n\n".encode()


def spoken_in(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the messages of either protocol as roles and texts."""
    said = [("system", body.get("system")), *((m["role"], m["content"]) for m in body["messages"])]
    texts = [
        (
            role,
            "\n".join(part["text"] for part in content) if isinstance(content, list) else content,
        )
        for role, content in said
    ]
    return [(role, text) for role, text in texts if text]


def embeddings_answer(body: dict[str, Any], rows: Any, tokens: int) -> dict[str, Any]:
    """Give vectors, packed where that is asked."""
    packed = body.get("encoding_format") == "base64"
    vectors = [
        base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else list(map(float, row))
        for row in rows
    ]
    data = [
        {"object": "embedding", "index": place, "embedding": vector}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body["model"], "data": data, "usage": usage}
