"""The SDK's own client leads a whole life over both transports, beside a hostile one."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys

import anyio
import httpx2
import pytest
from lives import attack, everyday, life
from mcp.client.streamable_http import streamable_http_client

from hiermem import Memory
from hiermem.mcp.server import MOST_BYTES
from mcp import Client, StdioServerParameters, stdio_client

SERVER = [sys.executable, "-m", "hiermem", "mcp"]
#: Every tool, and no worker beside what the client does.
ALL = ["--tools", "all", "--max-calls", "0"]
TOKEN = "a-token-that-only-this-test-knows"


def is_sound(path):
    with Memory.open(path, create=False) as memory:
        assert memory.check().ok
        assert memory.session("h").count() == 40


async def test_stdio(tmp_path):
    """Were anything but the protocol on standard output, a client would lose the connection."""
    path, wire = tmp_path / "memory.db", tmp_path / "wire"
    command = f'"$@" | tee {wire}'
    server = StdioServerParameters(
        command="sh",
        args=["-c", command, "sh", *SERVER, "--db", str(path), *ALL],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    # With the handshake of the protocol's earlier versions; over HTTP it is the newest version.
    async with Client(stdio_client(server), mode="legacy") as client:
        await asyncio.gather(life(client), attack(client))
    lines = wire.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 100
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines)
    is_sound(path)


@pytest.mark.thorough
async def test_everyday_by_stdio(tmp_path):
    """Broken, "remember that I like tea" has no tool, or needs a second call."""
    args = [*SERVER[1:], "--db", str(tmp_path / "memory.db")]
    server = StdioServerParameters(command=SERVER[0], args=args, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        await everyday(client)
    with Memory.open(tmp_path / "memory.db", create=False) as memory:
        assert memory.check().ok


@contextlib.contextmanager
def served(tmp_path, *options):
    """Serve over HTTP until the end, and yield the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*SERVER, "--db", tmp_path / "memory.db", "--http", "--port", str(port), *options],
        env={**os.environ, "HIERMEM_MCP_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    with server.stderr:
        line = server.stderr.readline()
        assert line.startswith("serving"), line + server.stderr.read()
        yield f"http://127.0.0.1:{port}/mcp"
        server.terminate()
        assert server.wait(30) == 143
        assert TOKEN not in line + server.stderr.read()


async def listening(address, http):
    """Wait until the server listens; who has no token is refused from the first request."""
    with anyio.fail_after(60):
        while True:
            with contextlib.suppress(httpx2.TransportError):
                assert (await http.post(address)).status_code == 401
                return
            await asyncio.sleep(0.1)


async def test_everyday_by_http(tmp_path):
    with served(tmp_path) as address:
        async with httpx2.AsyncClient() as http:
            await listening(address, http)
        async with connected(address) as client:
            await everyday(client)


@contextlib.asynccontextmanager
async def connected(address):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "stranger", "version": "0"},
    },
}  # fmt: skip
BEARER = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
STRANGERS = {
    "no token": ({"Authorization": ""}, HELLO, 401),
    "another token": ({"Authorization": f"Bearer {TOKEN}x"}, HELLO, 401),
    "another scheme": ({"Authorization": f"Basic {TOKEN}"}, HELLO, 401),
    "a token that is no ASCII": ({"Authorization": "Bearer \xfc".encode("latin-1")}, HELLO, 401),
    "a name that leads here by DNS": ({"Host": "evil.example:8000"}, HELLO, 421),
    "a name that begins alike": ({"Host": "localhost.evil.example"}, HELLO, 421),
    "a page of another host": ({"Origin": "https://evil.example"}, HELLO, 403),
    "the newest protocol": (
        {"Host": "evil.example", "MCP-Protocol-Version": "2026-07-28"}, HELLO, 421,
    ),
    "a request without end": ({}, "x" * (MOST_BYTES + 1), 413),
}  # fmt: skip


async def strangers(address, http):
    """Whoever has no token, comes by another name or sends too much is refused by its status."""
    for who, (headers, body, status) in STRANGERS.items():
        answer = await http.post(address, json=body, headers={**BEARER, **headers})
        assert answer.status_code == status, who
    assert (await http.post(address, json=HELLO, headers=BEARER)).status_code == 200


@pytest.mark.thorough
async def test_http(tmp_path):
    """Two clients of one server, one of them hostile, do not disturb each other."""
    with served(tmp_path, *ALL) as address:
        async with httpx2.AsyncClient() as http:
            await listening(address, http)
            await strangers(address, http)
        async with connected(address) as client, connected(address) as hostile:
            await asyncio.gather(life(client), attack(hostile))
    is_sound(tmp_path / "memory.db")
