"""Reads what a server answers: bodies within bounds, an SDK's exceptions, chat completions.

A body is held to its bound while it arrives, not once it is complete. The adapter that asked reads
its content.

An SDK's exception is never passed on: ``calls.failures`` judges the facts in it. It holds the
request with its headers, and often the prompt. So it is read where it is caught, and the new error
is raised outside of the handler, with neither cause nor context.

The requests of OpenAI's chat completions are written here too. Their answers are read defensively.
Servers leave fields out, put lists where texts are due and count in their own ways. Unusable fields
are left out; an answer without a message is refused.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

from hiermem.calls import failures
from hiermem.calls.failures import CallFailure
from hiermem.calls.limits import count_of, reported_model
from hiermem.protocols import ChatMessage, Finish, LLMResponse, Usage

#: The most links of a chain of causes that are followed, and characters of a message that are read.
_MOST_LINKS: Final = 8
_MOST_MESSAGE: Final = 4_000


class MiscastError(Exception):
    """A body is not the expected JSON object, or larger than any; the text says what it is."""


class AnsweredError(Exception):
    """An error body in place of an answer; ``body`` is read like that of any other error."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = body


def read(error: BaseException, *, key: str = "") -> CallFailure | None:
    """Read any exception of a call; None where it is about neither an answer nor a connection.

    A request id that contains ``key`` is left out.
    """
    links = list(_chain(error))
    for link in links:
        if isinstance(link, MiscastError):
            # It may be charged, and a retry may help.
            return CallFailure("transient", str(link), charged=None)
    for link in links:
        status = _status_of(link)
        body = _error_of(getattr(link, "body", None))
        if status is not None or body:
            return _of_answer(link, status, body, key=key)
    names = {kind.__name__ for link in links for kind in type(link).__mro__}
    return failures.of_transport(names)


def _of_answer(
    error: BaseException, status: int | None, body: Mapping[str, Any], *, key: str
) -> CallFailure:
    headers = _headers(error)
    message = body.get("message")
    message = (message if isinstance(message, str) else str(error))[:_MOST_MESSAGE]
    if status is None and isinstance(body.get("code"), int) and 400 <= body["code"] < 600:
        status = body["code"]
    failure = failures.of_answer(
        status,
        words=(body.get("code"), body.get("type")),
        raised=type(error).__name__,
        message=message,
        param=body.get("param"),
        headers=headers,
        now=datetime.now(UTC),
    )
    if key and key in failure.request_id:
        failure = replace(failure, request_id="")
    return failure


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what led to it."""
    for _ in range(_MOST_LINKS):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _status_of(error: BaseException) -> int | None:
    """Return the status of a failure; an error inside a good answer has none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _error_of(body: object) -> Mapping[str, Any]:
    """Return the part of an error's body that describes it, wherever a server puts it."""
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error", body)
    if isinstance(inner, Mapping):
        return inner
    return {"message": inner} if isinstance(inner, str) else {}


def _headers(error: BaseException) -> dict[str, str]:
    """Return the headers of the answer that an error is about, with names in lower case."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    # LiteLLM keeps the headers of the real answer in an attribute, next to a made-up response.
    headers = getattr(error, "litellm_response_headers", None) or headers
    if headers is None:
        return {}
    return {str(name).lower(): str(value) for name, value in headers.items()}


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


#: Asks servers for uncompressed bodies, so that what arrives is as large as it looks.
IDENTITY: Final = {"Accept-Encoding": "identity"}


#: A body of more bytes than this is parsed on a thread.
_LONG: Final = 256 * 1024
#: The most bytes of a chat's answer: far more than the longest text and its frame.
MOST_BYTES: Final = 8 * 1024 * 1024
#: Types of content that an error may name.
_MARKUP: Final = (
    "text/html", "text/plain", "text/event-stream", "application/xml", "text/xml",
)  # fmt: skip
_TOO_LARGE: Final = "the answer is larger than any that was asked for"


async def read_object(data: bytes, content_type: str) -> dict[str, Any]:
    """Read a body as ``json_object`` does; a long one on a thread, to not block the event loop."""
    if len(data) > _LONG:
        return await asyncio.to_thread(json_object, data, content_type)
    return json_object(data, content_type)


def json_object(data: bytes, content_type: str) -> dict[str, Any]:
    """Read a body as one JSON object.

    Raises MiscastError; its text holds nothing of the body.
    """
    kind = content_type.partition(";")[0].strip().lower()
    named = kind if kind in _MARKUP else "something else"
    wrong = "the answer is not JSON"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        if kind and not kind.endswith("json"):
            wrong = f"the server answered {named} instead of JSON; check base_url"
        value = None
    else:
        wrong = "the answer is JSON, but not an object"
    # Raised outside of the handler, so that the decoder's error, which carries the body, is not its
    # context.
    if not isinstance(value, dict):
        raise MiscastError(wrong)
    return value


def limited(most: int) -> Callable[[Any], Awaitable[None]]:
    """Return the hook that ends an answer of more than ``most`` bytes while it arrives.

    It is an httpx response hook; httpx and httpx2 call it alike. A body that a server compressed
    although it was asked not to is decompressed here, within the same bound: a compressed body may
    be a thousand times as large as it looks. The hook raises MiscastError, also for a
    compression that cannot be bounded.
    """

    async def bound_response(response: Any) -> None:
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise MiscastError(_TOO_LARGE)
        # Removed, so that the client does not decompress the body again.
        unpack = _unpacking(response.headers.pop("content-encoding", ""))
        response.stream = _bounded_stream(response.stream, most, unpack)

    return bound_response


def _unpacking(coding: str) -> Callable[[bytes, int], bytes] | None:
    """Return the function that decompresses a chunk into at most so many bytes, or None."""
    named = coding.strip().lower()
    if named in ("", "identity"):
        return None
    if named not in ("gzip", "x-gzip", "deflate"):
        raise MiscastError("the answer has an unrequested compression")
    # Adding 32 to the window size makes zlib detect which of its two headers is used.
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress


def _bounded_stream(stream: Any, most: int, unpack: Callable[[bytes, int], bytes] | None) -> Any:
    """Wrap a byte stream so that it ends after ``most`` bytes, in its client's own class."""
    base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")
    public: Any = getattr(import_module(base.__module__.partition(".")[0]), "AsyncByteStream", base)

    class BoundedStream(public):  # type: ignore[misc]
        """The stream, counted as it arrives and as it is decompressed."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            arriving = left = most
            async for chunk in stream:
                arriving -= len(chunk)
                piece = chunk if unpack is None else _unpacked(unpack, chunk, left + 1)
                left -= len(piece)
                if min(arriving, left) < 0:
                    raise MiscastError(_TOO_LARGE)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return BoundedStream()


def _unpacked(unpack: Callable[[bytes, int], bytes], chunk: bytes, most: int) -> bytes:
    try:
        return unpack(chunk, most)
    except zlib.error:
        pass
    # Raised outside of the handler, so that the decoder's error is not its context.
    raise MiscastError("the answer is compressed, and cannot be unpacked")
