"""Reads the bodies of answers within bounds.

A body is held to its bound while it arrives, not once it is complete. The adapter that asked reads
its content.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from hiermem.remote.errors import MiscastError

#: Asks servers for uncompressed bodies, so that what arrives is as large as it looks.
IDENTITY: Final = {"Accept-Encoding": "identity"}


#: A body of more bytes than this is parsed on a thread.
_LONG: Final = 256 * 1024
#: The most bytes of a chat's answer: far more than the longest text and its frame.
MOST_BYTES: Final = 8 * 1024 * 1024
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
    wrong = "the answer is not JSON"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        if kind and not kind.endswith("json"):
            wrong = f"the server answered {_plain(kind)} instead of JSON; check base_url"
        value = None
    else:
        wrong = "the answer is JSON, but not an object"
    # Raised outside of the handler, so that the decoder's error, which carries the body, is not its
    # context.
    if not isinstance(value, dict):
        raise MiscastError(wrong)
    return value


def _plain(kind: str) -> str:
    known = ("text/html", "text/plain", "text/event-stream", "application/xml", "text/xml")
    return kind if kind in known else "something else"


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
        raise MiscastError("the answer is compressed in a way that was not asked for")
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
