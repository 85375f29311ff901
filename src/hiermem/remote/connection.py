"""Connects to one server through an SDK: its clients, one for each event loop, and their settings.

The SDK's own retries are off. A key from the environment goes only where the SDK's own settings
send it: a caller who gives an address also gives the key for it. The SDKs of OpenAI and Anthropic
come from one generator, so one class serves both.

A client's connections belong to the loop that opened them. A model object may serve several
memories, each blocking one with a loop of its own, so a client is never used from another loop.
``disconnect`` never cuts off a call that is under way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from hiermem.errors import ConfigError
from hiermem.remote.errors import AnsweredError
from hiermem.remote.responses import IDENTITY, limited, read_object
from hiermem.remote.settings import is_sendable, key_of, require

#: The key that is sent where a server needs none; the SDKs insist on one.
_NO_KEY = "none"
#: Joins the events of a streamed answer into the answer that would have come whole.
Joined: TypeAlias = Callable[[Iterable[Mapping[str, Any]]], dict[str, Any]]


class _LoopClient:
    """A loop's client, and how many calls are using it."""

    __slots__ = ("client", "closing", "lock", "uses")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: Any = None
        self.uses = 0
        self.closing = False


class Connection:
    """The connection to one server, by the package ``sdk`` and its async client ``kind``.

    ``client`` is a client, a function that makes one, or None. ``what`` names the adapter. ``key``
    must never be repeated; it is "" where none was given. Raises ConfigError.
    """

    def __init__(
        self,
        sdk: str,
        kind: str,
        *,
        base_url: str | None,
        api_key: str | None,
        client: Any,
        timeout: float,
        most_bytes: int,
        what: str,
    ) -> None:
        require(sdk, extra=sdk, what=what)
        if client is not None and (base_url is not None or api_key is not None):
            raise ConfigError("client has an address and a key of its own; leave base_url and "
                              "api_key out")  # fmt: skip
        self.key = key_of(api_key)
        self._sdk, self._kind = sdk, kind
        self._base_url, self._timeout, self._most = base_url, timeout, most_bytes
        #: The owner closes a client that was passed in; this object closes a client that it made.
        self._is_borrowed = hasattr(client, "with_options")
        if not (client is None or self._is_borrowed or callable(client)):
            raise ConfigError(
                f"client is {type(client).__name__}; it must be an {kind}, or a function that "
                "makes one"
            )
        self._given: Any = client
        self._guard = threading.Lock()
        self._entries: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = (
            WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"Connection({self._sdk!r})"

    async def ask(
        self,
        resource: Callable[[Any], Any],
        *,
        content: str,
        joined: Joined | None = None,
        **asked: Any,
    ) -> dict[str, Any]:
        """Make one request of a client's resource, and read the answer's body.

        ``joined`` joins the events of a stream; None requests the answer whole. Raises
        AnsweredError for a body with an error and without ``content``, and whatever the SDK raises.
        """
        async with self._client() as client:
            create = resource(client)
            if joined is None:
                raw = await create.with_raw_response.create(**asked)
                kind = raw.headers.get("content-type", "")
                answer = await read_object(raw.http_response.content, kind)
            else:
                async with await create.create(**asked, stream=True) as stream:
                    kind = stream.response.headers.get("content-type", "")
                    if "event-stream" in kind:
                        answer = joined([event.to_dict(warnings=False) async for event in stream])
                    else:
                        # A server that cannot stream answers whole.
                        answer = await read_object(await stream.response.aread(), kind)
        if answer.get("error") and not answer.get(content):
            raise AnsweredError(answer)
        return answer

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        """Yield the running loop's client for the duration of one call.

        It is made on a thread: importing an SDK and reading certificates takes a second.
        """
        loop = asyncio.get_running_loop()
        with self._guard:
            entry = self._entries.get(loop)
            if entry is None:
                entry = self._entries[loop] = _LoopClient()
            entry.uses += 1
        try:
            async with entry.lock:
                if entry.client is None:
                    entry.client = await asyncio.to_thread(self._made)
            yield entry.client
        finally:
            entry.uses -= 1
            if entry.closing and not entry.uses:
                await self._close(entry)

    async def connect(self) -> None:
        """Make the running loop's client. Raises ConfigError where it cannot be made."""
        async with self._client():
            pass

    async def disconnect(self) -> None:
        """Close the running loop's connections, where they are ours; the next call opens new ones.

        Where calls use them, the last of those closes them.
        """
        with self._guard:
            entry = self._entries.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            entry.closing = True
            if not entry.uses:
                await self._close(entry)

    async def _close(self, entry: _LoopClient) -> None:
        client, entry.client = entry.client, None
        if client is not None and not self._is_borrowed:
            await client.close()

    def _new(self) -> Any:
        """Make a client of our own. Raises ConfigError where no key can be found."""
        sdk = import_module(self._sdk)
        client, kind = None, ""
        try:
            client = getattr(sdk, self._kind)(
                base_url=self._base_url,
                api_key=self.key or (_NO_KEY if self._base_url is not None else None),
                default_headers=IDENTITY,
                http_client=sdk.DefaultAsyncHttpxClient(
                    event_hooks={"response": [limited(self._most)]}
                ),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, no request was made
            kind = type(error).__name__
        found = getattr(client, "api_key", None)
        if isinstance(found, str) and not is_sendable(found):
            raise ConfigError(
                f"{self._sdk.upper()}_API_KEY holds a line end, a blank or another character that "
                "no key has"
            )
        if client is None or not _has_credentials(client):
            raise ConfigError(
                f"the {self._sdk} client could not be made ({kind or 'no key'}): give api_key, or "
                f"set {self._sdk.upper()}_API_KEY in the environment"
            )
        return client

    def _made(self) -> Any:
        """Make a client, with the SDK's own retries off: ours are journalled and charged.

        A client of ours for a given address does not send the environment's headers there.
        """
        if self._given is None:
            client = self._new()
        else:
            client = self._given if self._is_borrowed else self._given()
        if not inspect.iscoroutinefunction(getattr(client, "close", None)):
            raise ConfigError(
                f"client is {type(client).__name__}; it must be asynchronous, an {self._kind}"
            )
        configured = client.with_options(max_retries=0, timeout=self._timeout)
        if self._base_url is not None:
            # The SDKs read OPENAI_ORG_ID, OPENAI_PROJECT_ID and *_CUSTOM_HEADERS, which often hold
            # a gateway's key, whatever the address; no argument of theirs turns this off.
            configured._custom_headers = dict(IDENTITY)  # noqa: SLF001
            configured.organization = configured.project = None
        return configured


def _has_credentials(client: Any) -> bool:
    """Return whether a client sends a key or a token; Anthropic's is also made without any."""
    sent = {name.lower() for name in client.default_headers}
    held = (getattr(client, name, None) for name in ("api_key", "auth_token", "credentials"))
    return any(held) or not sent.isdisjoint({"authorization", "x-api-key"})
