"""Checks the settings that adapters of remote services have in common.

An impossible value is refused where the adapter is made, with a description of valid values. A
secret inside a setting, such as a password in an address, never appears in a repr, an error or a
log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit
from zlib import crc32

from hiermem.errors import ConfigError


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
        raise ConfigError(
            "api_key holds a line end, a blank or another character that no key has; was it read "
            "from a file with its line end?"
        )
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
    try:
        parts = urlsplit(base_url)
        port = f":{parts.port}" if parts.port is not None else ""
        host = parts.hostname
        if host and ":" in host:
            host = f"[{host}]"
    except ValueError:
        host = None
        parts = urlsplit("")
        port = ""
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("base_url must be an address such as https://host:8000/v1")
    return f"{parts.scheme}://{host}{port}"


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
        found = find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise ConfigError(
            f"{what} needs the package {package!r}, which is not installed: "
            f"pip install 'hiermem-memory[{extra}]' (from a checkout: pip install '.[{extra}]')"
        )
