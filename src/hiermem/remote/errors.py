"""Reads the bare facts out of what an SDK raises, for ``core.calls.failures`` to judge.

The one rule: an SDK's error never travels on. It holds the request with its headers, and often the
prompt; so it is read where it is caught, and what is raised instead is raised outside of that place
and has neither cause nor context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from hiermem.core.calls import failures
from hiermem.core.calls.failures import CallFailure

#: Links of a chain of causes that are followed, and characters of a message that are looked at.
_MOST_LINKS: Final = 8
_MOST_MESSAGE: Final = 4_000


class TooLargeError(Exception):
    """An answer is larger than anything that was asked for; it was not read to its end."""


class MiscastError(Exception):
    """A body is not the JSON object that was asked for; its words say what it is."""


class AnsweredError(Exception):
    """An error that came in place of an answer; ``body`` is read as that of any other is."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = body


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What was raised, read: what it means, and what is needed to learn from it.

    ``message`` and ``param`` are the provider's words and stay inside the adapter.
    """

    failure: CallFailure
    message: str = ""
    param: object = None


def read(error: BaseException, *, key: str = "") -> ErrorFacts | None:
    """Read whatever a call raised; None where it tells of neither an answer nor a connection.

    A request number that repeats ``key`` is left out.
    """
    links = list(_chain(error))
    for link in links:
        if isinstance(link, TooLargeError):
            return ErrorFacts(
                failures.unreadable("the answer is larger than any that was asked for")
            )
        if isinstance(link, MiscastError):
            return ErrorFacts(failures.unreadable(str(link)))
    for link in links:
        status = _status_of(link)
        body = _error_of(getattr(link, "body", None))
        if status is not None or body:
            return _of_answer(link, status, body, key=key)
    names = {kind.__name__ for link in links for kind in type(link).__mro__}
    found = failures.of_transport(names)
    return ErrorFacts(found) if found is not None else None


def _of_answer(
    error: BaseException, status: int | None, body: Mapping[str, Any], *, key: str
) -> ErrorFacts:
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
        headers=headers,
        now=datetime.now(UTC),
    )
    if key and key in found.request_id:
        found = replace(found, request_id="")
    return ErrorFacts(found, message=message, param=body.get("param"))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    for _ in range(_MOST_LINKS):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _status_of(error: BaseException) -> int | None:
    """Give the status that tells of a failure; an error inside a good answer has none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _error_of(body: object) -> Mapping[str, Any]:
    """Give the part of an error's body that describes it, wherever a server puts it."""
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error", body)
    if isinstance(inner, Mapping):
        return inner
    return {"message": inner} if isinstance(inner, str) else {}


def _headers(error: BaseException) -> dict[str, str]:
    """Give the headers of the answer that an error is about, with names in small letters."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    # LiteLLM keeps those of the real answer beside one that it made up.
    headers = getattr(error, "litellm_response_headers", None) or headers
    if headers is None:
        return {}
    return {str(name).lower(): str(value) for name, value in headers.items()}
