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
import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import uvicorn
from books import Books, Served
from speech import (
    Speech,
    anthropic_answer,
    anthropic_stream,
    embeddings_answer,
    ollama_answer,
    openai_answer,
    openai_stream,
    spoken_in,
)
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


class Provider(Books):
    """The server. ``plan`` says how each request fails: a list, in order, or a function of it.

    After a list's end, each request fails with probability ``rate``, by ``seed``, in one of
    ``faults``. ``factor`` is how many of its tokens one of ours is. ``structured`` and ``modern``
    say which fields it takes: JSON schemas; ``max_completion_tokens`` in place of ``max_tokens``.
    ``writer`` may answer some prompts itself; None leaves it to the ordinary one. ``dimensions``
    are those of some models' vectors, ``dimension`` that of all others'. With ``key`` "" any key
    is taken.
    """

    def __init__(
        self,
        plan: Iterable[Fault | None] | Callable[[Served], Fault | None] = (),
        *,
        rate: float = 0.0,
        seed: int = 0,
        faults: Sequence[Fault] = ("429", "500", "drop", "hang"),
        key: str = "sk-test-0123456789",
        latency: float = 0.0,
        factor: float = 1.0,
        usage: bool = True,
        structured: bool = True,
        modern: bool = False,
        temperature: bool = True,
        stream_only: bool = False,
        dimension: int = 64,
        dimensions: Mapping[str, int] | None = None,
        retry_after: float = 0.05,
        writer: Callable[[Served, Sequence[tuple[str, str]]], str | None] | None = None,
    ) -> None:
        self.key, self.latency, self.factor, self.usage = key, latency, factor, usage
        self.structured, self.modern, self.temperature = structured, modern, temperature
        self.stream_only, self.retry_after, self.rate = stream_only, retry_after, rate
        self.writer = writer
        #: Whether it packs vectors where it is asked to.
        self.packs = True
        super().__init__()
        self.in_flight = self.peak = 0
        self.down = False
        self._decide = plan if callable(plan) else None
        self._plan = [] if callable(plan) else list(plan)
        self._random, self._faults = random.Random(seed), tuple(faults)
        self._dimension, self._dimensions = dimension, dict(dimensions or {})
        self._transports: dict[tuple[str, int], asyncio.BaseTransport] = {}
        self._hanging = asyncio.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self.port = 0

    # -- its life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, on the port that it had before where it was stopped."""
        listening = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = listening.getsockname()[1]
        routes = [
            Route("/v1/chat/completions", self._openai, methods=["POST"]),
            # Azure's address names the deployment, and its key has a header of its own.
            Route("/v1/deployments/{name}/chat/completions", self._openai, methods=["POST"]),
            Route("/v1/embeddings", self._embed, methods=["POST"]),
            Route("/api/chat", self._ollama, methods=["POST"]),
            Route("/v1/messages", self._anthropic, methods=["POST"]),
        ]
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
            Starlette(routes=routes),
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
        self._thread = threading.Thread(
            target=self._run, args=(self._server, listening), name="provider", daemon=True
        )
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the provider did not start")
            time.sleep(0.002)

    def _run(self, server: uvicorn.Server, listening: socket.socket) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await server.serve(sockets=[listening])

        with listening:
            asyncio.run(serve())

    def stop(self) -> None:
        """Stop listening and cut what is open; ``start`` listens on the same port again."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cut_all)
        self._thread.join(10)
        self._server = self._thread = None

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

    async def _openai(self, request: Request) -> Response:
        return await self._speak(request, "openai")

    async def _ollama(self, request: Request) -> Response:
        return await self._speak(request, "ollama")

    async def _anthropic(self, request: Request) -> Response:
        return await self._speak(request, "anthropic")

    async def _speak(self, request: Request, dialect: str) -> Response:
        at = time.monotonic()
        if self.down:
            return self._drop(request)
        body = json.loads(await request.body())
        spoken = spoken_in(body)
        served = self._note(request, at, body, [content for _, content in spoken])
        options = body.get("options") or {}
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"), 4096)
        limit = int(options.get("num_predict") or next(filter(None, limits)))
        speech = Speech(dialect, served.number, str(body.get("model", "")), [], served.tokens_in, 0)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            if refused := self._refused(request, body, speech):
                return refused
            wants_json = bool(
                body.get("response_format")
                or (body.get("output_config") or {}).get("format")
                or "as one JSON object" in spoken[0][1]
            )
            text = self.writer(served, spoken) if self.writer else None
            if text is None:
                text = await asyncio.to_thread(answer, spoken, max_tokens=limit, json=wants_json)
            speech = spoil(served.fault, speech, text, spoken)
            served.answer = "".join(speech.pieces)
            served.tokens_out = speech.tokens_out = self._tokens(served.answer)
            served.charged = served.fault is None or served.fault in CHARGED
            speech.usage = self.usage
            if body.get("stream") and served.fault in (*SPOILT, *BROKEN_STREAMS, None):
                return StreamingResponse(
                    self._stream(request, served, speech), media_type="text/event-stream"
                )
            if served.fault is not None and served.fault not in SPOILT:
                return await self._failing(request, served, speech)
            whole = {
                "openai": openai_answer,
                "anthropic": anthropic_answer,
                "ollama": ollama_answer,
            }[dialect]
            return JSONResponse(whole(speech), headers=_named(served))
        finally:
            with self._lock:
                self.in_flight -= 1
                served.ended = time.monotonic()

    def _note(
        self, request: Request, at: float, body: dict[str, Any], texts: Sequence[str]
    ) -> Served:
        """Write a request into the books, with the fault that it meets."""
        print_ = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        tokens = _PER_REQUEST + sum(self._tokens(text) + _PER_MESSAGE for text in texts)
        with self._lock:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            number = len(self.served) + 1
            headers = dict(request.headers)
            served = Served(
                number, request.url.path, at, print_, body, headers, None, tokens_in=tokens
            )
            self.served.append(served)
            if self._decide is not None:
                served.fault = self._decide(served)
            elif number <= len(self._plan):
                served.fault = self._plan[number - 1]
            elif self.rate and self._random.random() < self.rate:
                served.fault = self._random.choice(self._faults)
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

    async def _failing(self, request: Request, served: Served, speech: Speech) -> Response:
        """Fail on the way: before, during or after what was charged for."""
        fault = served.fault
        if fault == "drop":
            return self._drop(request)
        if fault == "hang":
            await self._gone(request)
            return self._drop(request)
        if fault in ("drop_body", "slow"):
            data = json.dumps(openai_answer(speech)).encode()
            if speech.dialect == "anthropic":
                data = json.dumps(anthropic_answer(speech)).encode()
            return StreamingResponse(
                self._trickle(request, data, cut=fault == "drop_body"),
                media_type="application/json",
                headers={"content-length": str(len(data))},
            )
        if fault == "endless":
            return StreamingResponse(endless(), media_type="application/json")
        assert fault is not None
        return fail(fault, speech, self.retry_after)

    async def _stream(self, request: Request, served: Served, speech: Speech) -> Any:
        """Send the events of an answer, or those up to where a fault ends them."""
        options = served.body.get("stream_options") or {}
        events = (
            openai_stream(speech, usage=bool(options.get("include_usage")))
            if speech.dialect == "openai"
            else anthropic_stream(speech, usage=True)
        )
        place = 0
        async for event in events:
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

    async def _trickle(self, request: Request, data: bytes, *, cut: bool) -> Any:
        """Send a body in pieces: half of it and then nothing, or all of it slowly."""
        if cut:
            yield data[: len(data) // 2]
            self._cut(request)
            return
        for place in range(0, len(data), max(1, len(data) // 8)):
            yield data[place : place + max(1, len(data) // 8)]
            await asyncio.sleep(0.02)

    async def _gone(self, request: Request) -> None:
        """Wait until the other end gives up, or the provider stops."""
        waits = {asyncio.ensure_future(self._hanging.wait()), asyncio.ensure_future(left(request))}
        _, open_ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in open_:
            each.cancel()

    def _drop(self, request: Request) -> Response:
        self._cut(request)
        return Response(status_code=500)

    def _cut(self, request: Request) -> None:
        transport = self._transports.get(tuple(request.scope["client"]))  # type: ignore[arg-type]
        if transport is not None:
            transport.abort()  # type: ignore[attr-defined]

    async def _embed(self, request: Request) -> Response:
        at = time.monotonic()
        if self.down:
            return self._drop(request)
        body = json.loads(await request.body())
        texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
        served = self._note(request, at, body, texts)
        speech = Speech("openai", served.number, str(body["model"]), [], served.tokens_in, 0)
        try:
            if refused := self._refused(request, body, speech):
                return refused
            served.charged = served.fault is None or served.fault in CHARGED
            if served.fault is not None and served.fault not in SPOILT:
                return await self._failing(request, served, speech)
            usual = self._dimensions.get(str(body["model"]), self._dimension)
            size = int(body.get("dimensions") or usual)
            rows = await HashingEmbedder(size).embed(texts)
            return JSONResponse(
                embeddings_answer(body, rows, served.tokens_in if self.usage else None)
            )
        finally:
            with self._lock:
                self.in_flight -= 1
                served.ended = time.monotonic()

    def _tokens(self, text: str) -> int:
        return math.ceil(default_counter().count(text) * self.factor)


async def left(request: Request) -> None:
    """Wait until the other end has closed the connection; the body is read by then."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _named(served: Served) -> dict[str, str]:
    return {"x-request-id": f"req_{served.number}", "request-id": f"req_{served.number}"}
