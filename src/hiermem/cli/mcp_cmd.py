"""The command ``mcp``: the memory as a server of the Model Context Protocol.

Standard output belongs to the protocol, so nothing is printed there.
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Final

import typer

from hiermem import AsyncMemory, ConfigError, UpdatePolicy
from hiermem.cli.models import (
    Concurrency,
    Model,
    ModelUrl,
    ModelWindow,
    Retries,
    Temperature,
    Timeout,
    calls_of,
    model_of,
)
from hiermem.cli.options import DB, Db, Tenant
from hiermem.cli.output import hint
from hiermem.cli.screen import clean

app = typer.Typer()
#: The variable with the token that clients must bear over HTTP.
VARIABLE: Final = "HIERMEM_MCP_TOKEN"
#: The package that the extra ``mcp`` brings.
_PACKAGE: Final = "mcp"


@app.command()
def mcp(
    *,
    db: Db = DB,
    tenant: Tenant = "default",
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help=f"Serve over HTTP, not standard input and output; {VARIABLE} in the environment "
            "holds the token that clients must bear.",
        ),
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port, with --http.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="A further name that clients reach it by; may be repeated."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer no tool that changes the memory.")
    ] = False,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
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
    llm = model_of(
        model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
    )
    policy = UpdatePolicy(**calls_of(timeout=timeout, retries=retries, concurrency=concurrency))
    opening = AsyncMemory.open(
        db, tenant=tenant, llm=llm, read_only=read_only, update_policy=policy
    )
    if http:
        place = Http(os.environ.get(VARIABLE, ""), host, port, tuple(allow_host or ()))
        hint(f"serving {clean(str(db))} at http://{host}:{port}/mcp")
        asyncio.run(serve_http(opening, place, read_only=read_only))
    else:
        asyncio.run(serve_stdio(opening, read_only=read_only))
