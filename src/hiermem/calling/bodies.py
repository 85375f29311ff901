"""Reads the bodies of answers within bounds: never more of them than any answer can be.

The one rule: a body is held to its bound while it arrives, not once it is there. What is in it is
for the adapter that asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from hiermem.calling.mishaps import MiscastError, TooLargeError

__all__ = ["IDENTITY", "MOST_BYTES", "json_object", "limited", "read_object"]

#: Asked of servers, so that what arrives is as large as it looks.
IDENTITY: Final = {"Accept-Encoding": "identity"}


#: Bytes from which on a body is read on a thread.
_LONG: Final = 256 * 1024
#: Bytes that a chat's answer may have: far more than the longest text and its frame.
MOST_BYTES: Final = 8 * 1024 * 1024


async def read_object(data: bytes, content_type: str) -> dict[str, Any]:
    """Read a body as ``json_object`` does; a long one on a thread, where it holds nobody up."""
    if len(data) > _LONG:
        return await asyncio.to_thread(json_object, data, content_type)
    return json_object(data, content_type)


def json_object(data: bytes, content_type: str) -> dict[str, Any]:
    """Read a body as one JSON object.

    Raises MiscastError, whose words hold nothing of the body.
    """
    kind = content_type.partition(";")[0].strip().lower()
    wrong = "the answer is not JSON"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        if kind and not kind.endswith("json"):
            wrong = f"the server answered {_plain(kind)} instead of JSON; check base_url"
        value = None
    else:
        wrong = "the answer is JSON, but not an object"
    # Raised out here, so that the decoder's error, which carries the body, is no context of it.
    if not isinstance(value, dict):
        raise MiscastError(wrong)
    return value


def _plain(kind: str) -> str:
    known = ("text/html", "text/plain", "text/event-stream", "application/xml", "text/xml")
    return kind if kind in known else "something else"


def limited(most: int) -> Callable[[Any], Awaitable[None]]:
    """Give the hook that ends an answer of more than ``most`` bytes while it arrives.

    It is an httpx response hook; httpx and httpx2 call it alike. What it raises is TooLargeError.
    """

    async def hold(response: Any) -> None:
        told = response.headers.get("content-length", "")
        if told.isdecimal() and int(told) > most:
            raise TooLargeError
        response.stream = _counting(response.stream, most)

    return hold


def _counting(stream: Any, most: int) -> Any:
    """Wrap a byte stream so that it ends after ``most`` bytes, in the class that its own wants."""
    base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")
    public: Any = getattr(import_module(base.__module__.partition(".")[0]), "AsyncByteStream", base)

    class Counting(public):  # type: ignore[misc]
        """The stream, counted."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    raise TooLargeError
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Counting()
