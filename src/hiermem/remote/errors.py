"""Reads the facts out of an SDK's exception, for ``calls.failures`` to judge.

An SDK's exception is never passed on. It holds the request with its headers, and often the prompt.
So it is read where it is caught, and the new error is raised outside of the handler, with neither
cause nor context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from hiermem.calls import failures
from hiermem.calls.failures import CallFailure

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
    found = failures.of_answer(
        status,
        words=(body.get("code"), body.get("type")),
        raised=type(error).__name__,
        message=message,
        param=body.get("param"),
        headers=headers,
        now=datetime.now(UTC),
    )
    if key and key in found.request_id:
        found = replace(found, request_id="")
    return found


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
