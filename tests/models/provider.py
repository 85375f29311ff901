"""A provider on one's own machine: real HTTP that speaks the protocols as the SDKs expect them.

It runs uvicorn on the loopback in a thread of its own, answers chat completions, embeddings and
messages, whole or streamed, and fails as it is told to. It keeps books of its own, on its own
clock: what reached it, what it charged for, and how much was in flight; a test holds the library's
books against these.

    with Provider(plan=[None, "429"]) as provider:
        OpenAIChat("tiny", base_url=provider.openai_url, api_key=provider.key)
"""

import asyncio
import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import uvicorn
from speech import Speech, embeddings_answer, events_of, spoken_in, whole
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from trouble import (
    BROKEN_STREAMS,
    CHARGED,
    FAULTS,
    SPOILT,
    Fault,
    broken_event,
    endless,
    fail,
    spoil,
)
from uvicorn.protocols.http.h11_impl import H11Protocol
from writer import answer

from hiermem.embedders import HashingEmbedder
from hiermem.tokens import default_counter

__all__ = ["CHARGED", "FAULTS", "SPOILT", "Fault", "Provider", "Served"]

#: What a message costs beside its content, and a request beside its messages.
_PER_MESSAGE, _PER_REQUEST = 3, 3
_PATHS = {
    "/v1/chat/completions": "openai",
    # Azure's address names the deployment, and its key has a header of its own.
    "/v1/deployments/{name}/chat/completions": "openai",
    "/api/chat": "ollama",
    "/v1/messages": "anthropic",
    "/v1/embeddings": "embeddings",
}


@dataclass(slots=True)
class Served:
    """One request as the provider saw it. Times are readings of ``time.monotonic``."""

    number: int
    at: float
    fingerprint: str
    body: dict[str, Any]
    headers: dict[str, str]
    tokens_in: int
    fault: Fault | None = None
    tokens_out: int = 0
    charged: bool = False
    ended: float | None = None
    answer: str = field(default="", repr=False)


class Provider:
    """The server. ``plan`` says how each request fails: a list, in order, or a function of it.

    ``structured`` and ``modern`` say which fields it takes: JSON schemas; ``max_completion_tokens``
    in place of ``max_tokens``. ``writer`` may answer some prompts itself; None leaves it to the
    ordinary one. ``dimensions`` are those of some models' vectors, ``dimension`` that of all
    others'. With ``key`` "" any key is taken.
    """

    def __init__(
        self,
        plan: Iterable[Fault | None] | Callable[[Served], Fault | None] = (),
        *,
        key: str = "sk-test-0123456789",
        latency: float = 0.0,
        structured: bool = True,
        modern: bool = False,
        temperature: bool = True,
        stream_only: bool = False,
        dimension: int = 64,
        dimensions: Mapping[str, int] | None = None,
        retry_after: float = 0.05,
        writer: Callable[[Served, Sequence[tuple[str, str]]], str | None] | None = None,
    ) -> None:
        self.key, self.latency, self.writer, self.retry_after = key, latency, writer, retry_after
        self.structured, self.modern, self.temperature = structured, modern, temperature
        self.stream_only = stream_only
        #: Whether it packs vectors where it is asked to.
        self.packs = True
        self.served: list[Served] = []
        self.in_flight = self.peak = 0
        planned = iter(() if callable(plan) else plan)
        self._decide = plan if callable(plan) else lambda _: next(planned, None)
        self._dimension, self._dimensions = dimension, dict(dimensions or {})
        self._transports: dict[tuple[str, int], asyncio.BaseTransport] = {}
        self._lock = threading.Lock()

    # -- its life

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = listening.getsockname()[1]
        provider = self

        class Watched(H11Protocol):
            """Knows its transport by the other end's address, so that it can be cut."""

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                provider._transports[self.client] = transport  # type: ignore[index]

            def connection_lost(self, exc: Exception | None) -> None:
                provider._transports.pop(self.client, None)  # type: ignore[arg-type]
                super().connection_lost(exc)

        config = uvicorn.Config(
            Starlette(
                routes=[
                    Route(path, partial(self._serve, dialect), methods=["POST"])
                    for path, dialect in _PATHS.items()
                ]
            ),
            http=Watched,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            date_header=False,
            # An idle connection that is closed just as a request comes would be a fault of its own.
            timeout_keep_alive=3_600,
            timeout_graceful_shutdown=1,
        )
        self._hanging = asyncio.Event()
        self._server = uvicorn.Server(config)

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[listening])

        def run() -> None:
            with listening:
                asyncio.run(serve())

        self._thread = threading.Thread(target=run, name="provider", daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the provider did not start"
            time.sleep(0.002)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cut_all)
        self._thread.join(10)

    def _cut_all(self) -> None:
        self._hanging.set()
        for transport in list(self._transports.values()):
            transport.abort()  # type: ignore[attr-defined]

    # -- where it is, and its books

    @property
    def url(self) -> str:
        """Give the address, which is the Anthropic SDK's base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """Give the OpenAI SDK's base URL."""
        return f"{self.url}/v1"

    @property
    def tokens_in(self) -> int:
        """Give the tokens of the prompts that were charged for."""
        return sum(each.tokens_in for each in self.served if each.charged)

    @property
    def tokens_out(self) -> int:
        """Give the tokens of the answers that were charged for."""
        return sum(each.tokens_out for each in self.served if each.charged)

    def meet(self, fault: Fault | None) -> None:
        """Have every request meet ``fault`` from now on; None for none."""
        self._decide = lambda _: fault

    def connections(self) -> int:
        """Give how many connections are open, once those that are closing have closed."""
        for _ in range(100):
            if not self._transports:
                break
            time.sleep(0.01)
        return len(self._transports)

    # -- answering

    async def _serve(self, dialect: str, request: Request) -> Response:
        at, body = time.monotonic(), json.loads(await request.body())
        spoken = [] if dialect == "embeddings" else spoken_in(body)
        texts = [content for _, content in spoken]
        if dialect == "embeddings":
            texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
        served = self._note(request, at, body, texts)
        speech = Speech(dialect, served.number, str(body.get("model", "")), [], served.tokens_in, 0)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            if refused := self._refused(request, body, speech):
                return refused
            served.charged = served.fault is None or served.fault in CHARGED
            if dialect == "embeddings":
                return await self._embed(request, served, speech, texts)
            return await self._speak(request, served, speech, spoken)
        finally:
            with self._lock:
                self.in_flight -= 1
                served.ended = time.monotonic()

    async def _speak(
        self, request: Request, served: Served, speech: Speech, spoken: list[tuple[str, str]]
    ) -> Response:
        body, fault = served.body, served.fault
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"), 4096)
        told = (body.get("options") or {}).get("num_predict")
        wants_json = bool(
            body.get("response_format")
            or (body.get("output_config") or {}).get("format")
            or "as one JSON object" in spoken[0][1]
        )
        text = self.writer(served, spoken) if self.writer else None
        if text is None:
            most = int(told or next(filter(None, limits)))
            text = await asyncio.to_thread(answer, spoken, max_tokens=most, json=wants_json)
        speech = spoil(fault, speech, text, spoken)
        served.answer = "".join(speech.pieces)
        served.tokens_out = speech.tokens_out = default_counter().count(served.answer)
        if body.get("stream") and fault in (*SPOILT, *BROKEN_STREAMS, None):
            events = self._stream(request, served, speech)
            return StreamingResponse(events, media_type="text/event-stream")
        if fault is not None and fault not in SPOILT:
            return await self._failing(request, fault, speech)
        named = {"x-request-id": f"req_{served.number}", "request-id": f"req_{served.number}"}
        return JSONResponse(whole(speech), headers=named)

    async def _embed(
        self, request: Request, served: Served, speech: Speech, texts: list[str]
    ) -> Response:
        if served.fault is not None and served.fault not in SPOILT:
            return await self._failing(request, served.fault, speech)
        usual = self._dimensions.get(speech.model, self._dimension)
        rows = await HashingEmbedder(int(served.body.get("dimensions") or usual)).embed(texts)
        return JSONResponse(embeddings_answer(served.body, rows, served.tokens_in))

    def _note(
        self, request: Request, at: float, body: dict[str, Any], texts: Sequence[str]
    ) -> Served:
        """Write a request into the books, with the fault that it meets."""
        print_ = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        tokens = sum(default_counter().count(text) + _PER_MESSAGE for text in texts)
        with self._lock:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            number, headers = len(self.served) + 1, dict(request.headers)
            served = Served(number, at, print_, body, headers, tokens + _PER_REQUEST)
            self.served.append(served)
            served.fault = self._decide(served)
            return served

    def _refused(self, request: Request, body: dict[str, Any], speech: Speech) -> Response | None:
        """Refuse what the server does not take, before anything is charged."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        others = (request.headers.get("x-api-key"), request.headers.get("api-key"))
        if self.key and self.key not in (given, *others):
            return fail("401", speech, self.retry_after)
        unknown = (
            ("response_format", not self.structured),
            ("output_config", not self.structured),
            ("max_tokens", self.modern and speech.dialect == "openai"),
            ("temperature", not self.temperature),
            ("encoding_format", not self.packs and body.get("encoding_format") == "base64"),
        )
        for name, refused in unknown:
            if refused and name in body:
                return fail("400", speech, self.retry_after, param=name)
        if self.stream_only and not body.get("stream"):
            return fail("400", speech, self.retry_after, param="stream")
        return None

    async def _failing(self, request: Request, fault: Fault, speech: Speech) -> Response:
        """Fail on the way: before, during or after what was charged for."""
        if fault == "hang":
            await self._gone(request)
        if fault in ("drop", "hang"):
            self._cut(request)
            return Response(status_code=500)
        if fault in ("drop_body", "slow"):
            data = json.dumps(whole(speech)).encode()
            return StreamingResponse(
                self._trickle(request, data, cut=fault == "drop_body"),
                media_type="application/json",
                headers={"content-length": str(len(data))},
            )
        if fault == "endless":
            return StreamingResponse(endless(), media_type="application/json")
        return fail(fault, speech, self.retry_after)

    async def _stream(
        self, request: Request, served: Served, speech: Speech
    ) -> AsyncIterator[bytes]:
        """Send the events of an answer, or those up to where a fault ends them."""
        options = served.body.get("stream_options") or {}
        place = 0
        async for event in events_of(speech, usage=bool(options.get("include_usage"))):
            place += 1
            if place == 4 and served.fault == "drop_body":
                self._cut(request)
                return
            if place == 4 and served.fault in ("error_in_200", "invalid_json"):
                yield broken_event(served.fault, speech)
                return
            yield event
            if served.fault == "slow":
                await asyncio.sleep(0.02)

    async def _trickle(self, request: Request, data: bytes, *, cut: bool) -> AsyncIterator[bytes]:
        """Send a body in pieces: half of it and then nothing, or all of it slowly."""
        if cut:
            yield data[: len(data) // 2]
            self._cut(request)
            return
        size = max(1, len(data) // 8)
        for place in range(0, len(data), size):
            yield data[place : place + size]
            await asyncio.sleep(0.02)

    async def _gone(self, request: Request) -> None:
        """Wait until the other end gives up, or the provider stops."""

        async def left() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass  # the body is read by then

        waits = {asyncio.ensure_future(self._hanging.wait()), asyncio.ensure_future(left())}
        _, open_ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in open_:
            each.cancel()

    def _cut(self, request: Request) -> None:
        transport = self._transports.get(tuple(request.scope["client"]))  # type: ignore[arg-type]
        if transport is not None:
            transport.abort()  # type: ignore[attr-defined]
