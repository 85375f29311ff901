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


def talk(count, start):
    said = "Step {n} took {n}7 seconds at pump {n}, and Ada noted it down. " * 6
    return turns(count, said, begin=start)


@pytest.mark.parametrize("tokens", [None, 9_000, 500])
def test_a_server_is_sent_no_more_than_was_stated(tokens):
    """Two updates share one model: after a first minute's worth they keep to the stated rate.

    Of 500 tokens a minute each call takes more, which counts as all of them.
    """
    requests = 12
    policy = UpdatePolicy(
        batch_delay=0, concurrency=4, requests_per_minute=requests, tokens_per_minute=tokens
    )

    async def run():
        model = make("openai", provider)
        async with AsyncMemory.open(":memory:", llm=model, update_policy=policy) as memory:
            for place, name in enumerate("ab"):
                await memory.session(name).append(*talk(60, 1_000 * place))
            begun = time.monotonic()
            reports = await asyncio.gather(*(memory.session(name).update() for name in "ab"))
            return reports, time.monotonic() - begun

    with Provider() as provider:
        reports, minutes = run_fast(run())
        assert sum(report.made for report in reports) == len(provider.served) >= 12
        most_requests, most_tokens = provider.busiest(60 / FAST)
        # What is in flight may arrive late.
        assert most_requests <= 2 * requests + provider.peak
        assert len(provider.served) <= requests * (1 + minutes)
        assert provider.peak <= 4
        if tokens == 9_000:
            assert most_tokens <= 2 * tokens
        if tokens == 500:
            assert len(provider.served) <= 1 + minutes
