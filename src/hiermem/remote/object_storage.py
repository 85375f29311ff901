"""Carries objects to and from cloud storage by obstore; connects to a server through an SDK.

The storage is that of S3, Google Cloud or Azure. obstore's blocking calls are made in threads. Of
its errors only the kind and the HTTP status are told: their texts repeat what the server said and
what was signed, and may hold keys.

An impossible setting of a remote service is refused where the adapter is made, with a description
of valid values. A secret inside a setting, such as a password in an address, never appears in a
repr, an error or a log.

A server's SDK has one client for each event loop. The SDK's own retries are off. A key from the
environment goes only where the SDK's own settings send it: a caller who gives an address also gives
the key for it. The SDKs of OpenAI and Anthropic come from one generator, so one class serves both.

A client's connections belong to the loop that opened them. A model object may serve several
memories, each blocking one with a loop of its own, so a client is never used from another loop.
``disconnect`` never cuts off a call that is under way.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary
from zlib import crc32

from hiermem.bank.exchange import BankUrl
from hiermem.bank.object_io import ObjectStorage, StoredObject
from hiermem.errors import ConfigError, FileError, UsageError
from hiermem.remote.responses import IDENTITY, AnsweredError, limited, read_object


def text(value: Any, what: str) -> str:
    """Return a text that names something. Raises ConfigError."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ConfigError(f"{what} must be a text that is not empty")
    return value


def key_of(value: Any) -> str:
    """Return a key, "" for None. Raises ConfigError for a key that cannot be sent.

    The HTTP libraries would refuse it too, but they quote it in their errors and logs.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise ConfigError("api_key must be a text that is not empty, or None")
    if not is_sendable(value):
        raise ConfigError("api_key has a line end, a blank or another invalid character; strip it")
    return value


def is_sendable(key: str) -> bool:
    """Return whether a key can stand in a header."""
    return key.isascii() and key.isprintable() and " " not in key


def server_of(base_url: str | None) -> str:
    """Return the server of a URL, without what else the URL may hold: a password, a path, a query.

    Raises ConfigError for anything that is not an address.
    """
    if base_url is None:
        return ""
    if not isinstance(base_url, str):
        raise ConfigError(f"base_url is {type(base_url).__name__}; it must be text, or None")
    scheme, host, port = "", "", None
    with suppress(ValueError):
        parts = urlsplit(base_url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    if scheme not in ("http", "https") or not host:
        raise ConfigError("base_url must be an address such as https://host:8000/v1")
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" + ("" if port is None else f":{port}")


def is_loopback(base_url: str | None) -> bool:
    """Return whether a URL is that of a server on this machine.

    >>> is_loopback("http://localhost:11434/v1"), is_loopback("http://192.168.1.4:8000")
    (True, False)
    """
    host = urlsplit(server_of(base_url)).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def temperature_of(value: Any) -> float | Literal["auto"] | None:
    """Return a temperature, "auto" or None. Raises ConfigError."""
    if value is None or value == "auto":
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2:
        raise ConfigError('temperature must be a number from 0 to 2, "auto" or None')
    return float(value)


def fields(value: Any) -> dict[str, Any]:
    """Return a copy of further fields of a request. Raises ConfigError for what is not JSON."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError("extra must be a mapping of field names to JSON values")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ConfigError("extra must hold JSON values only") from None
    return copied


def prefixes_of(query: Any, passage: Any) -> dict[str, str]:
    """Return what an embedder puts before questions and passages. Raises ConfigError."""
    prefixes = {"query": query, "passage": passage}
    for kind, prefix in prefixes.items():
        if not isinstance(prefix, str):
            raise ConfigError(f"{kind}_prefix is {type(prefix).__name__}; it must be text")
    return prefixes


def vectors_name(model: str, prefixes: Mapping[str, str]) -> str:
    """Return the name that identifies vectors, of the model and the prefixes that change them."""
    joined = "\0".join(prefixes.values())
    return model + (f"+{crc32(joined.encode()):08x}" if joined != "\0" else "")


def require(package: str, *, extra: str, what: str) -> None:
    """Check that ``package`` is installed, without loading it.

    Raises ConfigError that names the ``extra`` to install for ``what``.
    """
    try:
        installed = find_spec(package) is not None
    except (ImportError, ValueError):
        installed = False
    if not installed:
        raise ConfigError(
            f"{what} needs {package!r}; pip install 'hiermem-memory[{extra}]', or from a "
            f"checkout '.[{extra}]'"
        )


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
            raise ConfigError("client has its own address and key; omit base_url and api_key")
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
                f"{self._sdk.upper()}_API_KEY has a line end, a blank or another invalid "
                "character; strip it"
            )
        if client is None or not _has_credentials(client):
            raise ConfigError(
                f"no {self._sdk} client ({kind or 'no key'}); pass api_key, or set "
                f"{self._sdk.upper()}_API_KEY in the environment"
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
    credentials = (getattr(client, name, None) for name in ("api_key", "auth_token", "credentials"))
    return any(credentials) or not sent.isdisjoint({"authorization", "x-api-key"})


T = TypeVar("T")

#: Options of the HTTP client, which the package takes apart from those of the storage.
_CLIENT: Final = frozenset(
    {
        "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
        "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes",
        "proxy_url", "randomize_addresses", "read_timeout", "root_certificate", "timeout",
        "user_agent",
    }
)  # fmt: skip
_SWITCHES: Final = frozenset({"allow_http", "allow_invalid_certificates", "randomize_addresses"})
#: How names of options end that would name another bucket than the URL, or a length of time.
_BUCKETS: Final = ("bucket", "bucket_name", "container_name")
_SECONDS: Final = "timeout"
_STATUS: Final = re.compile(r"status code: (\d{3})")
#: Answers after which the same request may succeed.
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507})
#: The buckets of ``memory://``, which live as long as the process.
_MEMORY: dict[str, Any] = {}


def open_storage(url: BankUrl, options: Mapping[str, str]) -> ObjectStorage:
    """Return a place in object storage; no request is made.

    Raises ConfigError where the extra is not installed, UsageError for options that the storage
    does not have.
    """
    require("obstore", extra="object-store", what=f"{url.scheme}://")
    if url.scheme == "memory":
        if options:
            raise UsageError("memory:// takes no options")
        if url.bucket not in _MEMORY:
            _MEMORY[url.bucket] = import_module("obstore.store").MemoryStore()
        return _Bucket(url, _MEMORY[url.bucket])
    return _Bucket(url, _opened(url, options))


def _opened(url: BankUrl, options: Mapping[str, str]) -> Any:
    """Open a bucket."""
    if named := sorted(name for name in options if name.endswith(_BUCKETS)):
        # Reports and receipts name the place by its URL alone.
        raise UsageError(f"options: {named[0]} is part of the place; give it only in the URL")
    client: dict[str, str | bool] = {}
    for name in sorted(options.keys() & _CLIENT):
        value = options[name]
        if name.endswith(_SECONDS) and value.isdecimal():
            value = f"{value}s"
        if name in _SWITCHES and value not in ("true", "false"):
            raise UsageError(f"options: {name} is true or false")
        client[name] = value == "true" if name in _SWITCHES else value
    config = {name: value for name, value in options.items() if name not in _CLIENT}
    given = sorted(config)
    if url.scheme == "s3":
        # Objects are deleted one by one, as every server can; not every one has bulk deletion.
        config.setdefault("disable_bulk_delete", "true")
    insecure = any(value.lower().startswith("http://") for value in config.values())
    if insecure and not client.get("allow_http"):
        raise UsageError(
            "options: http:// sends the bank unencrypted; use https://, or allow_http=True "
            "for your server"
        )
    wrong = "options: a value does not fit this storage"
    try:
        return import_module("obstore.store").from_url(
            f"{url.scheme}://{url.bucket}",
            config=config or None,
            client_options=client or None,
            # One request a call: what fails is tried again by the caller.
            retry_config={"max_retries": 0},
        )
    except import_module("obstore.exceptions").UnknownConfigurationKeyError:
        wrong = (
            f"options: a name is none that {url.scheme}:// has; it may be among {', '.join(given)}"
        )
    except Exception:  # noqa: BLE001, S110
        pass  # The package raises many kinds, and each text may hold a value.
    # Outside the handler, so that no context of the error holds a value either.
    raise UsageError(wrong)


class _Bucket:
    """One bucket of obstore."""

    def __init__(self, url: BankUrl, store: Any) -> None:
        self.url, self._store = url, store
        self._obstore, self._errors = import_module("obstore"), import_module("obstore.exceptions")

    async def get(self, key: str, *, most: int) -> StoredObject | None:
        """Return what is stored under ``key``; None where nothing is."""

        def read() -> StoredObject | None:
            try:
                found = self._obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            data = None if found.meta["size"] > most else bytes(found.bytes())
            version = {name: found.meta.get(name) for name in ("e_tag", "version")}
            return data, {name: each for name, each in version.items() if each}

        return await self._request("read", read)

    async def put(
        self, key: str, data: bytes, *, over: Mapping[str, str] | None, content_type: str
    ) -> bool:
        """Write if ``over`` is None, the stored version, or empty and nothing is stored."""
        attributes = {"Content-Type": content_type}

        def write(mode: Any) -> bool:
            try:
                self._obstore.put(self._store, key, data, mode=mode, attributes=attributes)
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                return False
            return True

        def write_over() -> bool:
            if over is None:
                return write("overwrite")
            try:
                return write(dict(over) or "create")
            except (self._errors.NotSupportedError, NotImplementedError):
                return write("overwrite")

        return await self._request("written", write_over)

    async def delete(self, key: str) -> None:
        """Delete what is stored under ``key``, if anything is."""

        def remove() -> None:
            with suppress(FileNotFoundError):
                self._obstore.delete(self._store, key)

        await self._request("deleted", remove)

    async def _request(self, what: str, request: Callable[[], T]) -> T:
        """Make a blocking request in a thread, and turn its error into ours."""
        try:
            return await asyncio.to_thread(request)
        except Exception as error:  # noqa: BLE001
            failed = self._error_of(what, error)
        # Raised here, so that no context of it holds the package's own text.
        raise failed

    def _error_of(self, what: str, error: Exception) -> FileError:
        """Return our error for one of the package's, by its kind and status alone."""
        status = int(match[1]) if (match := _STATUS.search(str(error))) else None
        unsupported = (self._errors.NotSupportedError, NotImplementedError)
        for kind, refusal, why in (
            (FileNotFoundError, 404, "there is no such bucket"),
            (self._errors.UnauthenticatedError, 401, "the credentials are not accepted"),
            (self._errors.PermissionDeniedError, 403, "the credentials do not allow it"),
            (unsupported, 0, "the storage does not support it"),
        ):
            if isinstance(error, kind) or status == refusal:
                return FileError(f"{self.url} cannot be {what}: {why}")
        if "builder error" in str(error):
            return FileError(
                f"{self.url} cannot be {what}: no request can be made for this endpoint; for "
                "http://, set allow_http or AWS_ALLOW_HTTP=true"
            )
        why = f"the server answered {status}" if status else "no answer from the server"
        failed = FileError(f"{self.url} cannot be {what}: {why} ({type(error).__name__})")
        failed.retryable = status is None or status in _PASSING
        return failed
