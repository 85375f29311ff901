"""A server that stands in for OpenAI, so that the tutorials run without a key.

It answers each prompt with the number of its messages, and calls the first tool once a turn.

    python examples/stand_in.py
    export OPENAI_BASE_URL=http://localhost:9000/v1 OPENAI_API_KEY=none
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn(BaseHTTPRequestHandler):
    """Answers chat completions."""

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages, tools = asked["messages"], asked.get("tools")
        answer: dict[str, Any] = {"content": f"I was sent {len(messages)} messages."}
        if tools and messages[-1]["role"] != "tool":
            called = {"name": tools[0]["function"]["name"], "arguments": '{"pump": 3}'}
            call = {"id": f"call-{len(messages)}", "type": "function", "function": called}
            answer = {"content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **answer}}
        sent = json.dumps({"id": "1", "model": asked["model"], "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    with ThreadingHTTPServer(("127.0.0.1", port), StandIn) as server:
        print(f"export OPENAI_BASE_URL=http://localhost:{port}/v1 OPENAI_API_KEY=none", flush=True)
        server.serve_forever()
