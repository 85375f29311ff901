"""The ways in which the provider fails, each with whether it charges for it."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from speech import Speech, pieces_of
from starlette.responses import JSONResponse, Response

__all__ = [
    "BROKEN_STREAMS", "CHARGED", "FAULTS", "SPOILT", "Fault", "broken_event", "endless", "fail",
    "spoil",
]  # fmt: skip

Fault: TypeAlias = Literal[
    "400", "401", "403", "404", "413", "422", "429", "429_bare", "429_ms", "429_date", "quota",
    "overflow", "filtered", "500", "502", "503", "529", "hang", "drop", "drop_body", "slow",
    "invalid_json", "not_an_object", "html", "huge", "bomb", "endless", "no_choices",
    "error_in_200", "empty", "refusal", "refusal_text", "content_filter", "length",
    "truncated_json", "echo", "wrong_language", "over_long",
]  # fmt: skip
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
#: The faults that are answers, well formed and paid for, but not fit to be used.
SPOILT: Final[frozenset[Fault]] = frozenset(
    {
        "empty", "refusal", "refusal_text", "content_filter", "length", "truncated_json", "echo",
        "wrong_language", "over_long",
    }
)  # fmt: skip
#: The faults that are charged for: the answer was made, whatever became of it on the way.
CHARGED: Final[frozenset[Fault]] = SPOILT | {
    "hang", "drop", "drop_body", "slow", "invalid_json", "not_an_object", "html", "huge", "bomb",
    "endless", "no_choices", "error_in_200",
}  # fmt: skip
#: The faults that a stream meets half-way; the others come in place of it.
BROKEN_STREAMS: Final[frozenset[Fault]] = frozenset(
    {"drop_body", "slow", "invalid_json", "error_in_200"}
)
#: A body of 40 MB that is 40 KB on the way; an answer otherwise, were it read to its end.
_BOMB: Final = gzip.compress(
    b'{"choices": [{"message": {"content": "Fit."}}], "content": [], "x": "'
    + b"x" * 40_000_000
    + b'"}',
    compresslevel=1,
)
#: What an error quotes, as some servers do: none of it may reach an error or a log of ours.
QUOTED: Final = "you sent: CANARY-IN-THE-ANSWER"

_STATUS: Final[dict[str, tuple[int, str, str]]] = {
    "400": (400, "invalid_request_error", "unsupported_parameter"),
    "401": (401, "authentication_error", "invalid_api_key"),
    "403": (403, "permission_error", "forbidden"),
    "404": (404, "not_found_error", "model_not_found"),
    "413": (413, "request_too_large", "request_too_large"),
    "422": (422, "invalid_request_error", "unprocessable"),
    "429": (429, "rate_limit_error", "rate_limit_exceeded"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "overflow": (400, "invalid_request_error", "context_length_exceeded"),
    "filtered": (400, "invalid_request_error", "content_filter"),
    "500": (500, "api_error", "server_error"), "502": (502, "api_error", "bad_gateway"),
    "503": (503, "api_error", "unavailable"), "529": (529, "overloaded_error", "overloaded"),
}  # fmt: skip


def fail(fault: Fault, speech: Speech, retry_after: float, *, param: str | None = None) -> Response:
    """Give the response of a fault that is no answer."""
    named = {"x-request-id": f"req_{speech.number}", "request-id": f"req_{speech.number}"}
    if (plain := fault.partition("_")[0]) in _STATUS:
        status, kind, code = _STATUS[plain]
        return JSONResponse(
            _error(speech.dialect, kind, code, param),
            status_code=status,
            headers=named | _wait(fault, retry_after),
        )
    if fault == "bomb":
        named["content-encoding"] = "gzip"
    kind, body = {
        "invalid_json": ("application/json", b'{"choices": [{"mess'),
        "not_an_object": ("application/json", b'["CANARY-IN-THE-ANSWER", 1]'),
        "html": ("text/html", f"<html><body>{QUOTED}</body></html>".encode()),
        "huge": ("application/json", b'{"choices": "' + b"x" * 40_000_000 + b'"}'),
        "bomb": ("application/json", _BOMB),
        "no_choices": ("application/json", b'{"id": "x", "object": "chat.completion"}'),
        "error_in_200": (
            "application/json",
            json.dumps(_error(speech.dialect, "server_error", "upstream", None)).encode(),
        ),
    }[fault]
    return Response(body, media_type=kind, headers=named)


def broken_event(fault: Fault, speech: Speech) -> bytes:
    """Give the event with which a stream goes wrong."""
    if fault == "invalid_json":
        return b'data: {"choices": [{"delta": {"cont\n\n'
    told = json.dumps(_error(speech.dialect, "overloaded_error", "overloaded_error", None))
    name = "event: error\n" if speech.dialect == "anthropic" else ""
    return f"{name}data: {told}\n\n".encode()


async def endless() -> AsyncIterator[bytes]:
    """Give a body that says no length and goes on far beyond any answer.

    It does end: a client that goes away is not always noticed.
    """
    yield b'{"choices": "'
    for _ in range(400):
        yield b"x" * 65_536
        await asyncio.sleep(0)


def _wait(fault: Fault, seconds: float) -> dict[str, str]:
    if fault == "429_ms":
        return {"retry-after-ms": str(int(seconds * 1000))}
    if fault == "429_date":
        # Both by one clock, which is not the client's: an hour lies between the two.
        now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        then = now + timedelta(seconds=1)
        return {
            "date": format_datetime(now, usegmt=True),
            "retry-after": format_datetime(then, usegmt=True),
        }
    return {"retry-after": str(seconds)} if fault in ("429", "529") else {}


def _error(dialect: str, kind: str, code: str, param: str | None) -> dict[str, Any]:
    about = f"Unsupported parameter: '{param}'. " if param else ""
    about = "prompt is too long: 9 > 8 tokens. " if code == "context_length_exceeded" else about
    if dialect == "anthropic":
        told = {"type": kind, "message": f"{param}: not permitted. {QUOTED}" if param else QUOTED}
        if code == "context_length_exceeded":
            told["message"] = about + QUOTED
        elif code == "content_filter":
            told["message"] = "Output blocked by content filtering policy. " + QUOTED
        return {"type": "error", "error": told, "request_id": "req_x"}
    return {"error": {"message": about + QUOTED, "type": kind, "code": code, "param": param}}


def spoil(
    fault: Fault | None, speech: Speech, text: str, spoken: Sequence[tuple[str, str]]
) -> Speech:
    """Give what is said: ``text``, or what a faulty model makes of it."""
    finish, refusal = "", ""
    openai = speech.dialect == "openai"
    if fault == "empty":
        text = " \n"
    elif fault == "refusal":
        text = ""
        finish, refusal = ("stop", "CANARY: I will not") if openai else ("refusal", "I will not")
    elif fault == "refusal_text":
        text = "I'm sorry, but I can't help with summarising this."
    elif fault == "content_filter":
        text, finish = text[:20], "content_filter" if openai else "refusal"
    elif fault == "length":
        text, finish = text[: len(text) // 4], "length" if openai else "max_tokens"
    elif fault == "truncated_json":
        text = '{"error": {"message": "overl'
    elif fault == "echo":
        text = " ".join(content for role, content in spoken if role != "system")
    elif fault == "wrong_language":
        text = (
            "Der Nutzer hat gesagt, dass die Arbeit noch nicht fertig ist, und die anderen wollen "
            "das morgen mit ihm besprechen. Es wurde auch über die Kosten und die Zeit geredet."
        )
    elif fault == "over_long":
        text = f"{text}\n" + " ".join(f"{place * 7919 % 104729:x}" for place in range(6000))
    return replace(speech, pieces=pieces_of(text), finish=finish, refusal=refusal)
