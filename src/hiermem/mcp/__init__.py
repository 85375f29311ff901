"""The MCP server: the memory as tools and resources for any client of the Model Context Protocol.

``hiermem mcp --db chat.db`` starts it. An application that has a server of its own makes one with
``memory_server``. It uses only the public API of ``hiermem``, and needs the extra ``mcp``.
"""

from __future__ import annotations

from hiermem.mcp.server import Http, application, memory_server, serve_http, serve_stdio

__all__ = ["Http", "application", "memory_server", "serve_http", "serve_stdio"]
