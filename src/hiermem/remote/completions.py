"""The chat completion of OpenAI's protocol: writes requests and reads answers.

Answers are read defensively. Servers leave fields out, put lists where texts are due and count in
their own ways. Unusable fields are left out; an answer without a message is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hiermem.calls.request_limits import count_of, reported_model
from hiermem.protocols import ChatMessage, Finish, LLMResponse, Usage
from hiermem.remote.errors import MiscastError

_FINISH: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "content_filtered": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
}


def messages_of(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """Return the messages of a request in the protocol's form."""
    return [{"role": each.role, "content": each.content} for each in messages]


def read_answer(answer: Mapping[str, Any], *, asked: str) -> LLMResponse:
    """Read a chat completion. ``asked`` is the model that was asked.

    Raises MiscastError where it holds no answer.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise MiscastError("the answer has no choices[0].message")
    text = text_of(message.get("content"))
    return LLMResponse(
        text=text,
        usage=_usage(answer.get("usage")),
        finish_reason=_finish(choice.get("finish_reason"), message, text),
        model=reported_model(answer.get("model"), asked=asked),
    )


def joined_events(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the events of a stream into the answer that would have come whole.

    Raises MiscastError where the stream broke off before it said why it ended.
    """
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"content": "", "refusal": ""}
    finish: object = None
    for event in events:
        whole |= {key: event[key] for key in ("model", "usage") if event.get(key)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            continue
        finish = choice.get("finish_reason") or finish
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            for part in message:
                message[part] += text_of(delta.get(part))
    if finish is None:
        raise MiscastError("the stream broke off before the answer was whole")
    return {**whole, "choices": [{"message": message, "finish_reason": finish}]}


def text_of(content: object) -> str:
    """Return the text of a content, which may be written as a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, Mapping)
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
    )


def _finish(reason: object, message: Mapping[str, Any], text: str) -> Finish:
    if message.get("refusal") and not text.strip():
        return "refusal"
    if reason is None:
        return "stop"
    return _FINISH.get(str(reason).lower(), "error")


def _usage(reported: object) -> Usage:
    if not isinstance(reported, Mapping):
        return Usage()
    sent, written = (
        count_of(reported.get("prompt_tokens")),
        count_of(reported.get("completion_tokens")),
    )
    whole = count_of(reported.get("total_tokens"))
    if whole is not None and sent is not None and written is not None:
        # Some servers count reasoning only in the total; it is charged as output.
        written = max(written, whole - sent)
    cached = _detail(reported, "prompt_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=sent,
        output_tokens=written,
        cached_tokens=count_of(reported.get("prompt_cache_hit_tokens"))
        if cached is None
        else cached,
        reasoning_tokens=_detail(reported, "completion_tokens_details", "reasoning_tokens"),
    )


def _detail(reported: Mapping[str, Any], group: str, name: str) -> int | None:
    inner = reported.get(group)
    return count_of(inner.get(name)) if isinstance(inner, Mapping) else None
