"""A provider's model: estimate an update's cost, cap it, run it, and see what it cost.

With OPENAI_API_KEY in the environment it asks OpenAI; without, a tiny server stands in for it, so
that the example runs offline. The first call is answered with Retry-After, as happens.

    pip install 'hiermem-memory[openai]'
    python examples/provider.py
"""

from __future__ import annotations

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hiermem import Limits, Memory, Message, Prices, UpdatePolicy
from hiermem.models.openai import OpenAIChat

#: Per million tokens. Look up the prices of your model.
PRICES = Prices(input=0.25, output=2.00, cached=0.025)


class _StandIn(BaseHTTPRequestHandler):
    """Answers like a chat server: the first call is turned away, the others get a summary."""

    protocol_version = "HTTP/1.1"
    calls = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _StandIn.calls += 1
        if _StandIn.calls == 1:
            self._send(429, {"error": {"type": "rate_limit_error"}}, {"Retry-After": "0.2"})
            return
        record = body["messages"][-1]["content"]
        facts = list(dict.fromkeys(re.findall(r"pump \d+ to \d+ rpm", record)))
        kept = "\n".join(f"- Ada set {fact}." for fact in facts[: body["max_tokens"] // 20])
        text = f"## Overview\nAda set the pumps.\n## Key points\n{kept}"
        self._send(
            200,
            {
                "model": body["model"],
                "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": len(record) // 4,
                    "completion_tokens": len(text) // 4,
                    "total_tokens": len(record) // 4 + len(text) // 4,
                },
            },
            {},
        )

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        fields = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""


def summarise(model: OpenAIChat) -> None:
    """Fill a session, foresee its update, make it within a cap, and tell what became of it."""
    policy = UpdatePolicy(batch_delay=0, requests_per_minute=500, tokens_per_minute=200_000)
    with Memory.open(":memory:", llm=model, update_policy=policy) as memory:
        session = memory.session("readings", participants=["Ada", "assistant"])
        for number in range(20):
            make = Message.assistant if number % 2 else Message.user
            session.append(make(f"At noon Ada set pump {number} to {number * 7} rpm. " * 6))

        plan = session.update(dry_run=True)
        print(f"foreseen: {plan.calls} calls, {plan.tokens_in + plan.tokens_out:,} tokens")
        report = session.update(limits=Limits(calls=20, tokens=100_000))
        print(f"made: {report.made} with {report.calls} calls, {report.tokens:,} tokens")
        print(f"spent: {report.cost:.6f}")
        for summary in session.summaries(level=1):
            print(f"\n{summary.id}, {summary.tokens} tokens:\n{summary.text}")


def main() -> None:
    """Run it with OpenAI, or with the server that stands in for it."""
    if os.environ.get("OPENAI_API_KEY"):
        summarise(OpenAIChat("gpt-5-mini", reasoning_tokens=4_000, prices=PRICES))
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/v1"
        summarise(OpenAIChat("stand-in-1", base_url=address, prices=PRICES))
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
