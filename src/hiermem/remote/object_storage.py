"""Carries objects to and from S3, Google Cloud Storage and Azure, by the package obstore.

Its blocking calls are made in threads. Of its errors only the kind and the HTTP status are told:
their texts repeat what the server said and what was signed, and may hold keys.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar

from hiermem.bank.bank_url import BankUrl
from hiermem.bank.object_io import ObjectPlace, StoredObject
from hiermem.errors import FolderError, UsageError
from hiermem.remote.settings import require

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


def open_storage(url: BankUrl, options: Mapping[str, str]) -> ObjectPlace:
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
        return ObjectPlace(url, _Bucket(url, _MEMORY[url.bucket]))
    return ObjectPlace(url, _Bucket(url, _opened(url, options)))


def _opened(url: BankUrl, options: Mapping[str, str]) -> Any:
    """Open a bucket."""
    if named := sorted(name for name in options if name.endswith(_BUCKETS)):
        # Reports and receipts name the place by its URL alone.
        raise UsageError(f"options: {named[0]} names a place; give it in the URL alone")
    client: dict[str, str | bool] = {}
    for name in sorted(options.keys() & _CLIENT):
        value = options[name]
        if name.endswith(_SECONDS) and value.isdecimal():
            value = f"{value}s"
        if name in _SWITCHES:
            if value not in ("true", "false"):
                raise UsageError(f"options: {name} is true or false")
            client[name] = value == "true"
        else:
            client[name] = value
    config = {name: value for name, value in options.items() if name not in _CLIENT}
    given = sorted(config)
    if url.scheme == "s3":
        # Objects are deleted one by one, as every server can; not every one has bulk deletion.
        config.setdefault("disable_bulk_delete", "true")
    insecure = any(value.lower().startswith("http://") for value in config.values())
    if insecure and not client.get("allow_http"):
        raise UsageError(
            "options: an endpoint http:// sends the bank unencrypted; set allow_http to true for "
            "a server of your own, or use https://"
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
        self._url, self._store = url, store
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
            return StoredObject(data, {name: each for name, each in version.items() if each})

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
            try:
                self._obstore.delete(self._store, key)
            except FileNotFoundError:
                return

        await self._request("deleted", remove)

    async def _request(self, what: str, request: Callable[[], T]) -> T:
        """Make a blocking request in a thread, and turn its error into ours."""
        try:
            return await asyncio.to_thread(request)
        except Exception as error:  # noqa: BLE001
            failed = self._error_of(what, error)
        # Raised here, so that no context of it holds the package's own text.
        raise failed

    def _error_of(self, what: str, error: Exception) -> FolderError:
        """Return our error for one of the package's, by its kind and status alone."""
        status = int(found[1]) if (found := _STATUS.search(str(error))) else None
        if isinstance(error, FileNotFoundError) or status == 404:
            return FolderError(f"{self._url} cannot be {what}: there is no such bucket")
        if isinstance(error, self._errors.UnauthenticatedError) or status == 401:
            return FolderError(f"{self._url} cannot be {what}: the credentials are not accepted")
        if isinstance(error, self._errors.PermissionDeniedError) or status == 403:
            return FolderError(f"{self._url} cannot be {what}: the credentials do not allow it")
        if isinstance(error, self._errors.NotSupportedError | NotImplementedError):
            return FolderError(f"{self._url} cannot be {what}: the storage does not support it")
        if "builder error" in str(error):
            return FolderError(
                f"{self._url} cannot be {what}: no request can be made for this endpoint; one that "
                "begins with http:// needs allow_http, or AWS_ALLOW_HTTP=true in the environment"
            )
        why = f"the server answered {status}" if status else "no answer from the server"
        failed = FolderError(f"{self._url} cannot be {what}: {why} ({type(error).__name__})")
        failed.retryable = status is None or status in _PASSING
        return failed
