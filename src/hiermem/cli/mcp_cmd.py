"""The command ``mcp``: the memory as a server of the Model Context Protocol.

Standard output belongs to the protocol, so nothing is printed there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from hiermem import AsyncMemory, ConfigError, HierarchyConfig, UpdatePolicy
from hiermem.cli.options import Caps, Model, Place
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
    tools: Annotated[
        str, Option(metavar="core|all|NAMES", help="The tools; names are separated by commas.")
    ] = "core",
    config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help='Sizes of new sessions, as JSON with published names: {"windowChars": 6000}.',
        ),
    ] = None,
    model: Model,
    caps: Caps,
) -> None:
    """Serve the memory to an MCP client: tools to remember, search, read and note.

    The server makes the summaries itself; --max-calls and --max-tokens cap what that may take.
    """
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
        llm=model.connected(),
        read_only=read_only,
        config=None if config is None else _sizes(config),
        update_policy=model.policy(UpdatePolicy),
    )
    settings = {"read_only": read_only, "tools": tools, **asdict(caps)}
    if http:
        served = Http(os.environ.get(VARIABLE, ""), host, port, tuple(allow_host or ()))
        hint(f"serving {clean(place.db)} at http://{host}:{port}/mcp")
        work = serve_http(opening, served, **settings)
    else:
        work = serve_stdio(opening, **settings)
    # psycopg does not work in the default loop of Windows.
    loop = asyncio.SelectorEventLoop if sys.platform == "win32" else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


def _sizes(path: Path) -> HierarchyConfig:
    """Read the sizes of sessions from a file. Raises ConfigError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise ConfigError(f"--config {clean(str(path))} cannot be read: {said}") from None
    return HierarchyConfig.from_published(found)
