"""The limits of a minute, held against the server's own clock, over real HTTP.

A minute lasts one second here: the run's clock goes sixty times as fast as the server's.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from asking import make, request
from provider import Provider
from sampling import params

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.core.calls.sliding_window import MINUTE, RateLimits
from hiermem.engine.calls.rate_limit import RateLimiter
from hiermem.engine.summaries.run import Shared
from hiermem.engine.summaries.update import update
from hiermem.models.offline.model import ExtractiveLLM

FAST = 60.0


def quick():
    return time.monotonic() * FAST


async def nap(seconds):
    await asyncio.sleep(seconds / FAST)


def talk(count, start):
    for n in range(start, start + count):
        role = Message.assistant if n % 2 else Message.user
        yield role(f"Step {n} took {n * 7} seconds at pump {n % 9}, and Ada noted it down. " * 6)


@pytest.mark.parametrize(
    ("kind", "faults"),
    params([("anthropic", ("429", "503")), ("openai-stream", ())], 1),
    ids=["faults", "calm"],
)
async def test_no_minute_of_the_server_holds_more_than_was_stated(kind, faults):
    """Two updates share one model; each alone keeps to the limits, together they must too."""
    requests, tokens = 6, 9_000
    policy = UpdatePolicy(
        batch_delay=0, concurrency=4, requests_per_minute=requests, tokens_per_minute=tokens
    )
    with Provider(rate=0.2 if faults else 0.0, faults=faults or ("429",), seed=3) as provider:
        model = make(kind, provider)
        async with AsyncMemory.open(":memory:", llm=model) as memory:
            for place, name in enumerate("ab"):
                await memory.session(name).append(*talk(60, 1_000 * place))
            handle = memory._handle
            reports = await asyncio.gather(
                *(
                    update(
                        handle,
                        name,
                        Shared(model, ExtractiveLLM(), sleep=nap, clock=quick),
                        policy=policy,
                    )
                    for name in "ab"
                )
            )
        most_requests, most_tokens = provider.busiest(MINUTE / FAST)
        assert sum(report.made for report in reports) >= 12
        assert len(provider.served) > 2 * requests, "too few to fill a minute"
        assert most_requests <= requests
        assert most_tokens <= tokens
        assert provider.peak <= 4


async def test_the_limits_hold_for_calls_of_any_size_and_speed():
    """Calls that come at once and last unevenly; the window is that of the limits themselves."""
    limits = RateLimits(requests=5, tokens=1_500, in_flight=3, window=0.5)
    with Provider() as provider:
        model = make("openai", provider)
        rate_limiter = RateLimiter(model, limits, clock=time.monotonic, sleep=asyncio.sleep)

        async def one(number):
            asked = request(max_tokens=60 + 20 * (number % 5))
            permit = await rate_limiter.acquire(300, subject=number, stopped=lambda: None)
            rate_limiter.begin(permit)
            provider.latency = 0.01 * (number % 4)
            response = await model.complete(asked)
            used = response.usage.input_tokens + response.usage.output_tokens
            rate_limiter.end(permit, tokens=used, answered=True)

        await asyncio.gather(*(one(number) for number in range(18)))
        await model.disconnect()
        most_requests, most_tokens = provider.busiest(0.5)
        assert len(provider.served) == 18
        assert most_requests <= 5
        assert most_tokens <= 1_500
        assert provider.peak <= 3
