"""The server over HTTP: who may reach it.

A request must bear the server's token, name a host that the server is known by, and come from no
web page of another host. All of this is checked before anything of the request is read.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hiermem import ConfigError

#: The least characters of a token, and the most bytes of a request.
LEAST_TOKEN: Final = 16
MOST_BYTES: Final = 8 * 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_PORT: Final = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True)
class Http:
    """Where the server listens, the token that a client must bear, and the names of its host.

    ``hosts`` are further names, with the port where it is not the usual one, such as
    ``memory.example.org`` behind a proxy. Raises ConfigError for a token of fewer than 16
    characters.
    """

    token: str
    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.token) < LEAST_TOKEN or not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError(
                f"a server over HTTP needs a token of {LEAST_TOKEN} or more plain characters, such "
                "as python -c 'import secrets; print(secrets.token_urlsafe())' prints; "
                "'hiermem mcp' reads it from HIERMEM_MCP_TOKEN"
            )

    def __repr__(self) -> str:
        return f"Http(host={self.host!r}, port={self.port}, hosts={self.hosts!r})"

    def security(self) -> TransportSecuritySettings:
        """Return the hosts and the origins that are let in."""
        own = self.host if ":" not in self.host else f"[{self.host}]"
        named = [*_LOOPBACK, own, *self.hosts]
        hosts = [*named, *(f"{each}:*" for each in named if not _PORT.search(each))]
        origins = [f"{scheme}://{each}" for scheme in ("http", "https") for each in hosts]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


class TokenRequired:
    """An ASGI middleware that answers 401 to requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that bears the token, and refuse any other."""
        if scope["type"] == "http" and not self._bears(scope):
            refused = PlainTextResponse(
                "this server needs its token: Authorization: Bearer …\n",
                status_code=401,
                headers={"WWW-Authenticate": 'Bearer realm="hiermem"'},
            )
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _bears(self, scope: Scope) -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # Compared in constant time, so that nobody finds the token letter by letter.
        fits = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
        return fits and scheme.lower() == "bearer"


def application(server: MCPServer[Any], http: Http) -> ASGIApp:
    """Return the server as an ASGI application at ``/mcp``, which checks token, Host and Origin."""
    app = server.streamable_http_app(
        transport_security=http.security(), max_request_body_size=MOST_BYTES, max_sessions=1_000
    )
    return TokenRequired(app, http.token)


async def serve(server: MCPServer[Any], http: Http) -> None:
    """Serve until the process is asked to end."""
    config = uvicorn.Config(
        application(server, http),
        host=http.host,
        port=http.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    await uvicorn.Server(config).serve()
