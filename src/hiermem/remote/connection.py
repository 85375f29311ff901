"""Connects to one server through an SDK: its clients, one for each event loop, and their settings.

The SDK's own retries are off. A key from the environment goes only where the SDK's own settings
send it: a caller who gives an address also gives the key for it. The SDKs of OpenAI and Anthropic
come from one generator, so one class serves both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from hiermem.errors import ConfigError, PermanentModelError
from hiermem.remote.clients import Clients
from hiermem.remote.optional import load, require
from hiermem.remote.responses import IDENTITY, limited
from hiermem.remote.settings import is_sendable, key_of

#: The key that is sent where a server needs none; the SDKs insist on one.
_NO_KEY = "none"


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
        #: A client that was passed in is its owner's to close; one that is made here is ours.
        self._is_borrowed = hasattr(client, "with_options")
        if client is None:
            make: Callable[[], Any] = self._new
        elif self._is_borrowed:
            make = lambda: client  # noqa: E731
        elif callable(client):
            make = client
        else:
            raise ConfigError(
                f"client is {type(client).__name__}; it must be an {kind}, or a function that "
                "makes one"
            )
        self._clients: Clients[Any] = Clients(lambda: self._configured(make()), self._close)

    def __repr__(self) -> str:
        return f"Connection({self._sdk!r})"

    def client(self) -> AbstractAsyncContextManager[Any]:
        """Return the running loop's client for one call."""
        return self._clients.client()

    async def disconnect(self) -> None:
        """Close the running loop's connections, where they are ours."""
        await self._clients.disconnect()

    def _new(self) -> Any:
        """Make a client of our own. Raises PermanentModelError where no key can be found."""
        sdk = load(self._sdk)
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
            raise PermanentModelError(
                f"{self._sdk.upper()}_API_KEY holds a line end, a blank or another character that "
                "no key has",
                charged=False,
            )
        if client is None:
            raise PermanentModelError(
                f"the {self._sdk} client could not be made ({kind}): give api_key, or set "
                f"{self._sdk.upper()}_API_KEY in the environment",
                charged=False,
            )
        return client

    def _configured(self, client: Any) -> Any:
        """Turn the SDK's own retries off: the engine's retries are journalled and charged.

        A client of ours for a given address does not send the environment's headers there.
        """
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

    async def _close(self, client: Any) -> None:
        if not self._is_borrowed:
            await client.close()
