"""The limits of a minute, held against the server's own clock, over real HTTP.

A minute lasts one second here: the event loop's clock goes sixty times as fast as the server's.
"""

import asyncio
import time

import pytest
from asking import make
from fast_loop import FAST, run_fast
from provider import Provider
from stand_ins import talk as turns

from hiermem import AsyncMemory, UpdatePolicy

#: By the fast clock. A call that is given up on a busy machine would be one request more.
DAY = 86_400.0
CALLS = 4


def talk(count, start):
    said = "Step {n} took {n}7 seconds at pump {n}, and Ada noted it down. " * 6
    return turns(count, said, begin=start)


def busiest(served, window):
    """Give the most requests, and the most tokens in and out, that began in any ``window``."""
    begun = [[each for each in served if last.at - window < each.at <= last.at] for last in served]
    return max(map(len, begun)), max(sum(map(size, each)) for each in begun)


def size(served):
    return served.tokens_in + served.tokens_out


@pytest.mark.parametrize("tokens", [None, 9_000, 500])
def test_a_server_is_sent_no_more_than_was_stated(tokens):
    """Two updates share one model: after a first minute's worth they keep to the stated rate.

    Of 500 tokens a minute each call takes more, which counts as all of them.
    """
    requests = 12
    policy = UpdatePolicy(
        batch_delay=0, concurrency=CALLS, requests_per_minute=requests, tokens_per_minute=tokens,
        call_timeout=DAY,
    )  # fmt: skip

    async def run():
        model = make("openai", provider, timeout=DAY)
        async with AsyncMemory.open(":memory:", llm=model, update_policy=policy) as memory:
            for place, name in enumerate("ab"):
                await memory.session(name).append(*talk(60, 1_000 * place))
            begun = time.monotonic()
            reports = await asyncio.gather(*(memory.session(name).update() for name in "ab"))
            return reports, time.monotonic() - begun

    with Provider() as provider:
        reports, minutes = run_fast(run())
        assert sum(report.made for report in reports) == len(provider.served) >= 12
        most_requests, most_tokens = busiest(provider.served, 60 / FAST)
        # What is in flight may arrive late.
        assert most_requests <= 2 * requests + CALLS
        assert len(provider.served) <= requests * (1 + minutes)
        assert provider.peak <= CALLS
        if tokens == 9_000:
            assert most_tokens <= 2 * tokens + CALLS * max(map(size, provider.served))
        if tokens == 500:
            assert len(provider.served) <= 1 + minutes
