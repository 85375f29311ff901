"""Consolidation through a real server: what it does wrong costs no note and tells no secret.

The server speaks as OpenAI-compatible ones do, on the loopback; the model is a plain function over
httpx, as an application would write it.
"""

import asyncio
import json
import logging
import socket
import threading
import time

import httpx
import pytest
import uvicorn
from sampling import params
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from hiermem import (
    AsyncMemory,
    BankPolicy,
    LLMResponse,
    PermanentModelError,
    TransientModelError,
    UpdatePolicy,
    Usage,
)
from hiermem.models.function import FunctionLLM
from hiermem.stores.memory import MemoryStore

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"
KEY, CANARY = "sk-canary-8173", "canary-in-the-note-5521"


def answer(*lines: str, name: str = "progress.md", **more) -> str:
    """Write an answer that puts ``lines`` into one file, whatever the notes said."""
    file = {
        "filename": name, "content": "# Progress\n\n" + "\n".join(lines),
        "action": "created", "notes": [1],
    }  # fmt: skip
    return json.dumps({"bank_files": [file | more], "synthesis": "Things work."})


class Provider:
    """A server that answers each call as its script says; the last entry serves all that follow."""

    def __init__(self) -> None:
        self.script: list = []
        self.bodies: list[dict] = []
        app = Starlette(routes=[Route("/v1/chat/completions", self.serve, methods=["POST"])])
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self):
        self._thread.start()
        until = time.monotonic() + 20
        while not self._server.started and time.monotonic() < until:
            time.sleep(0.01)
        assert self._server.started
        return self

    def __exit__(self, *_):
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)

    async def serve(self, request):
        assert request.headers["authorization"] == f"Bearer {KEY}"
        self.bodies.append(await request.json())
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if step == "hang":
            await asyncio.sleep(30)
        if step == "drop":
            return _Broken()
        if isinstance(step, int):
            wait = {"Retry-After": "0"} if step == 429 else {}
            return PlainTextResponse(f"{KEY} {CANARY}", status_code=step, headers=wait)
        text, finish = step if isinstance(step, tuple) else (step, "stop")
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return JSONResponse({"choices": [choice], "usage": usage})


class _Broken(PlainTextResponse):
    """A response that breaks off after its first bytes."""

    async def __call__(self, scope, receive, send):
        length = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b'{"cho', "more_body": False})


def client(url: str) -> FunctionLLM:
    """Make the model that an application would write."""

    async def call(request):
        asked = {
            "model": "m",
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "max_tokens": request.max_tokens,
            "response_format": {"type": "json_schema", "json_schema": dict(request.schema)},
        }
        try:
            async with httpx.AsyncClient(timeout=60) as http:
                got = await http.post(
                    f"{url}/chat/completions", json=asked,
                    headers={"Authorization": f"Bearer {KEY}"},
                )  # fmt: skip
        except httpx.TransportError as error:
            raise TransientModelError(f"{type(error).__name__} {KEY} {CANARY}") from error
        if got.status_code in (408, 429) or got.status_code >= 500:
            after = got.headers.get("retry-after")
            raise TransientModelError(got.text, retry_after=float(after) if after else None)
        if got.status_code != 200:
            raise PermanentModelError(got.text, charged=False)
        data = got.json()
        choice, used = data["choices"][0], data["usage"]
        finish = {"length": "length", "content_filter": "refusal"}.get(
            choice["finish_reason"], "stop"
        )
        usage = Usage(used["prompt_tokens"], used["completion_tokens"])
        return LLMResponse(choice["message"]["content"], usage, finish, model="m-2026")

    return FunctionLLM(call, name="http", context_window=32_000)


@pytest.fixture(scope="module")
def provider():
    with Provider() as running:
        yield running


@pytest.fixture(params=params(["memory", "sqlite"], 1))
async def memory(request, provider, tmp_path):
    provider.bodies.clear()
    parts = {
        "llm": client(provider.url),
        "bank_policy": BankPolicy(call_timeout=2.0),
        "update_policy": UpdatePolicy(retries=1),
    }
    if request.param == "memory":
        opened = AsyncMemory(store=MemoryStore(), **parts)
    else:
        opened = await AsyncMemory.open(tmp_path / "m.db", **parts)
    async with opened:
        yield opened


async def test_an_answer_over_http_becomes_the_bank(provider, memory):
    """Text, synthesis, tokens and model come through as the server said them."""
    provider.script = [answer("- SQLite works", "- so does FTS5")]
    space = memory.space("x", rules=RULES)
    await space.note("SQLite works")
    done = await space.consolidate()
    assert (done.status, done.notes_processed, done.notes_remaining) == ("ok", 1, 0)
    assert done.files_created == ("decisions.md", "progress.md")
    assert "- SQLite works" in await space.read("progress.md")
    assert await space.synthesis() == "Things work."
    assert done.metrics["llm_prompt_tokens"] == 100
    assert done.metrics["llm_completion_tokens"] == 20
    assert done.metrics["llm_tokens_used"] == 120
    assert (await space.history())[0].model == "m-2026"
    (body,) = provider.bodies
    assert body["response_format"]["json_schema"]["properties"].keys() == {
        "bank_files", "dropped", "synthesis",
    }  # fmt: skip
    (run,) = await memory.runs()
    assert (run.kind, run.outcome) == ("consolidation", "ok")
    (item,) = (await memory.run(run.id)).items
    assert (item.state, item.tokens_in, item.tokens_out) == ("ok", 100, 20)


GOOD = answer("- fine")
#: What the server does, what comes of it, and how often it is called.
MENDED = {
    "not json": ([f"Sure! {CANARY}", GOOD], 2),
    "fields missing": (['{"bank_files": []}', GOOD], 2),
    "a path for a name": ([answer("- x", name="../../etc/cron.md"), GOOD], 2),
    "a file of its own": ([answer("- x", name="secrets.md"), GOOD], 2),
    "cut off": ([(GOOD[:40], "length"), GOOD], 2),
    "declined": ([("", "content_filter"), GOOD], 2),
    "slow down": ([429, GOOD], 2),
    "a server error": ([503, GOOD], 2),
    "a broken connection": (["drop", GOOD], 2),
}
ENDED = {
    "never json": (["no"], 2),
    "never the schema": (['{"bank_files": [{}], "synthesis": ""}'], 2),
    "always a path": ([answer("- x", name="a/../b.md")], 2),
    "always an error": ([500], 2),
    "no key": ([401], 1),
    "a bad request": ([400], 1),
    "no answer in time": (["hang"], 1),
    "always cut off": ([(GOOD[:40], "length")], 2),
    "deep json": (["[" * 50_000], 2),
}


@pytest.mark.parametrize("case", MENDED)
async def test_what_can_be_mended_is_asked_for_once_more(provider, memory, case):
    """One retry with the error spelled out, or with patience; then the note is in."""
    provider.script, calls = list(MENDED[case][0]), MENDED[case][1]
    space = memory.space("x", rules=RULES)
    await space.note(f"{CANARY} works")
    done = await space.consolidate()
    assert (done.status, done.notes_processed) == ("ok", 1), done.message
    assert len(provider.bodies) == calls
    assert "- fine" in await space.read("progress.md")


@pytest.mark.parametrize("case", params(ENDED, 6))
async def test_what_cannot_be_mended_keeps_notes_and_bank(provider, memory, case, caplog):
    """The notes stay, the bank stays, the next run takes them; and nothing tells a secret."""
    caplog.set_level(logging.DEBUG)
    provider.script = [GOOD]
    space = memory.space("x", rules=RULES)
    await space.note("first")
    assert (await space.consolidate()).status == "ok"
    before = {name: await space.read(name) for name in await space.files()}
    for number in range(3):
        await space.note(f"{CANARY} {number}")
    provider.bodies.clear()
    provider.script, calls = list(ENDED[case][0]), ENDED[case][1]
    done = await space.consolidate()
    assert (done.status, done.notes_processed, done.notes_remaining) == ("error", 0, 3)
    assert len(provider.bodies) == calls
    assert {name: await space.read(name) for name in await space.files()} == before
    assert [note.text for note in await space.notes()] == [f"{CANARY} {n}" for n in range(3)]
    assert (await space.meta()).notes_processed == 1
    run = (await memory.runs())[0]
    assert run.outcome == "error"
    told = f"{done}{run}{await memory.run(run.id)}{caplog.text}"
    assert KEY not in told
    assert CANARY not in told

    provider.script = [answer("- fine", "- all of it")]
    while (done := await space.consolidate()).status != "nothing_to_do":
        # The answer names the first note of each request alone.
        assert done.status in ("ok", "partial"), done.message
    assert (await space.meta()).notes_processed == 4
    assert (await memory.check()).findings == ()
