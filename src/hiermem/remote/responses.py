"""Reads the bodies of answers within bounds: never more of them than any answer can be.

The one rule: a body is held to its bound while it arrives, not once it is there. What is in it is
for the adapter that asked.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from hiermem.remote.errors import MiscastError, TooLargeError

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

    It is an httpx response hook; httpx and httpx2 call it alike. What a server has packed although
    it was asked not to is unpacked here, within the same bound: a packed answer may be a thousand
    times as large as it looks. What it raises is TooLargeError, and MiscastError for what is packed
    in a way that cannot be bounded.
    """

    async def bound_response(response: Any) -> None:
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise TooLargeError
        # Taken away, so that the client does not unpack it again.
        unpack = _unpacking(response.headers.pop("content-encoding", ""))
        response.stream = _bounded_stream(response.stream, most, unpack)

    return bound_response


def _unpacking(coding: str) -> Callable[[bytes, int], bytes] | None:
    """Give what unpacks a chunk into at most so many bytes; None where nothing is packed."""
    named = coding.strip().lower()
    if named in ("", "identity"):
        return None
    if named not in ("gzip", "x-gzip", "deflate"):
        raise MiscastError("the answer is compressed in a way that was not asked for")
    # 32 beside the window's size has zlib tell its two headers apart.
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress


def _bounded_stream(stream: Any, most: int, unpack: Callable[[bytes, int], bytes] | None) -> Any:
    """Wrap a byte stream so that it ends after ``most`` bytes, in the class that its own wants."""
    base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")
    public: Any = getattr(import_module(base.__module__.partition(".")[0]), "AsyncByteStream", base)

    class BoundedStream(public):  # type: ignore[misc]
        """The stream, counted as it comes and as it is unpacked."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            arriving = left = most
            async for chunk in stream:
                arriving -= len(chunk)
                piece = chunk if unpack is None else _unpacked(unpack, chunk, left + 1)
                left -= len(piece)
                if min(arriving, left) < 0:
                    raise TooLargeError
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return BoundedStream()


def _unpacked(unpack: Callable[[bytes, int], bytes], chunk: bytes, most: int) -> bytes:
    try:
        return unpack(chunk, most)
    except zlib.error:
        pass
    # Raised out here, so that the decoder's error is no context of it.
    raise MiscastError("the answer is compressed, and cannot be unpacked")
