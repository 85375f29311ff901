"""A model of your own: any OpenAI-compatible server, over the standard library alone.

``ChatModel`` is the whole adapter. The rest is a tiny server that stands in for a real one, so that
the example runs offline; with a real one, give its address and key instead.

    python examples/own_model.py
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from hiermem import LLMRequest, LLMResponse, Memory, Message, ModelError, UpdatePolicy, Usage
from hiermem.protocols import Finish


class ChatModel:
    """Any server that answers POST /chat/completions."""

    def __init__(self, url: str, model: str, key: str = "", window: int | None = None) -> None:
        self._url, self._key = url, key
        self.name, self.context_window, self.remote = model, window, True

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Send the rendered prompt and give back text, usage and finish reason."""
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        asked = {"model": self.name, "messages": messages, "max_tokens": request.max_tokens}
        asked["temperature"] = request.temperature
        data = await asyncio.to_thread(self._post, asked)
        choice, used = data["choices"][0], data.get("usage", {})
        finish: dict[str, Finish] = {
            "stop": "stop",
            "length": "length",
            "content_filter": "refusal",
        }
        return LLMResponse(
            text=choice["message"]["content"] or "",
            usage=Usage(used.get("prompt_tokens"), used.get("completion_tokens")),
            finish_reason=finish.get(choice["finish_reason"], "error"),
            model=self.name,
        )

    def _post(self, asked: dict[str, Any]) -> dict[str, Any]:
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        call = Request(f"{self._url}/chat/completions", json.dumps(asked).encode(), head)  # noqa: S310
        try:
            with urlopen(call, timeout=110) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError as error:
            with error:
                if error.code in (408, 409, 425, 429) or error.code >= 500:
                    wait = error.headers.get("Retry-After", "")
                    after = float(wait) if wait.isdecimal() else None
                    raise ModelError(
                        f"HTTP {error.code}", retry_after=after, kind="transient"
                    ) from None
                raise ModelError(f"HTTP {error.code}", charged=False) from None
        except (URLError, TimeoutError, ConnectionError) as error:
            raise ModelError(type(error).__name__, kind="transient") from None


class _StandIn(BaseHTTPRequestHandler):
    """Answers like a chat server: the first call is told to come back, the others get a summary."""

    calls = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _StandIn.calls += 1
        if _StandIn.calls == 1:
            self._send(429, {"error": "slow down"}, {"Retry-After": "0"})
            return
        record = body["messages"][-1]["content"]
        facts = re.findall(r"pump \d+ runs at \d+ rpm", record)
        kept = "\n".join(f"- {fact}" for fact in facts[: body["max_tokens"] // 20])
        text = f"## Overview\nReadings of the pumps.\n## Key points\n{kept}"
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(record) // 4, "completion_tokens": len(text) // 4}
        self._send(200, {"choices": [choice], "usage": usage}, {})

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal."""


def main() -> None:
    """Summarise a session with the model and print what it wrote."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = ChatModel(f"http://127.0.0.1:{server.server_port}", "stand-in-1")
    try:
        with Memory.open(
            ":memory:", llm=model, update_policy=UpdatePolicy(batch_delay=0)
        ) as memory:
            session = memory.session("readings", participants=["Ada", "assistant"])
            for number in range(20):
                make = Message.assistant if number % 2 else Message.user
                reading = f"At noon pump {number} runs at {number * 7} rpm, as it was ordered to. "
                session.append(make(reading + "Nothing leaks and the bearings are cool. " * 3))
            report = session.update()
            print(f"{report.made} made, {report.calls} calls, {report.tokens} tokens")
            for summary in session.summaries(level=1):
                made_by = summary.revision.model if summary.revision else ""
                print(f"{summary.id} by {made_by}, {summary.tokens} tokens:\n{summary.text}\n")
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
