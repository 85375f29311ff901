"""The way to one server through an SDK: its clients, one a loop, told everything that matters.

The one rule: an SDK retries nothing here, and a key that the environment holds goes only where the
SDK's own settings send it: whoever names an address names the key for it. The SDKs of OpenAI and
Anthropic are made by one generator, so one class serves both.
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

#: What is sent where a server wants no key; the SDKs insist on one.
_NO_KEY = "none"


class Connection:
    """The way to one server, by the package ``sdk`` and its asynchronous client ``kind``.

    ``client`` is one that was given, or what makes one, or None. ``what`` names the adapter.
    ``key`` is what must never be repeated, "" where it was not given. Raises ConfigError.
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
        #: A client that was given is its owner's to close; one that is made is ours.
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
        """Give the running loop's client for one call."""
        return self._clients.client()

    async def disconnect(self) -> None:
        """Close the running loop's connections, where they are ours."""
        await self._clients.disconnect()

    def _new(self) -> Any:
        """Make a client of our own. Raises PermanentModelError where no key is to be found."""
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
        """Turn the SDK's own retries off: the engine's are journalled and paid for.

        A client of ours for a named address sends none of the environment's headers there.
        """
        if not inspect.iscoroutinefunction(getattr(client, "close", None)):
            raise ConfigError(
                f"client is {type(client).__name__}; it must be asynchronous, an {self._kind}"
            )
        configured = client.with_options(max_retries=0, timeout=self._timeout)
        if self._base_url is not None:
            # OPENAI_ORG_ID, OPENAI_PROJECT_ID and *_CUSTOM_HEADERS, which often hold a gateway's
            # key, are read by the SDKs whatever the address; no argument of theirs says not to.
            configured._custom_headers = dict(IDENTITY)  # noqa: SLF001
            configured.organization = configured.project = None
        return configured

    async def _close(self, client: Any) -> None:
        if not self._is_borrowed:
            await client.close()
