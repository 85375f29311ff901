"""The command ``mcp``: the memory as a server of the Model Context Protocol.

Standard output belongs to the protocol, so nothing is printed there.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Final

from typer import Option

from hiermem import AsyncMemory, ConfigError, UpdatePolicy
from hiermem.cli.options import Model, Place
from hiermem.cli.output import hint
from hiermem.cli.screen import clean

#: The variable with the token that clients must bear over HTTP.
VARIABLE: Final = "HIERMEM_MCP_TOKEN"
#: The package that the extra ``mcp`` brings.
_PACKAGE: Final = "mcp"


def mcp(
    place: Place,
    *,
    http: Annotated[
        bool,
        Option(
            "--http",
            help=f"Serve over HTTP, not standard input and output; {VARIABLE} in the environment "
            "holds the token that clients must bear.",
        ),
    ] = False,
    host: Annotated[str, Option(help="The address to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65_535, help="The port, with --http.")] = 8000,
    allow_host: Annotated[
        list[str] | None, Option(help="A further name that clients reach it by; may be repeated.")
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Offer no tool that changes the memory.")
    ] = False,
    model: Model,
) -> None:
    """Serve the memory to an MCP client: tools to append, recall, summarise, note and erase."""
    try:
        from hiermem.mcp import Http, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _PACKAGE:
            raise
        raise ConfigError(
            "the MCP server needs the package 'mcp', which is not installed: "
            "pip install 'hiermem-memory[mcp]' (from a checkout: pip install '.[mcp]')"
        ) from None
    opening = AsyncMemory.open(
        place.db,
        tenant=place.tenant,
        llm=model.llm(),
        read_only=read_only,
        update_policy=model.policy(UpdatePolicy),
    )
    if http:
        served = Http(os.environ.get(VARIABLE, ""), host, port, tuple(allow_host or ()))
        hint(f"serving {clean(place.db)} at http://{host}:{port}/mcp")
        work = serve_http(opening, served, read_only=read_only)
    else:
        work = serve_stdio(opening, read_only=read_only)
    # psycopg does not work in the default loop of Windows.
    loop = asyncio.SelectorEventLoop if sys.platform == "win32" else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)
