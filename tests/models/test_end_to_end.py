"""Whole conversations through real adapters over real HTTP, while the provider misbehaves.

What is proven here is told by two sets of books: the library's journal and the provider's own.
"""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from asking import make
from provider import CHARGED, SPOILT, Provider
from sampling import params

from hiermem import AsyncMemory, Prices, UpdatePolicy
from hiermem.cli.demo import bundled

PRICES = Prices(input=2.0, output=8.0)
#: Faults of the way, then of the answer. A hang costs a whole timeout, so there is one a run.
FAULTS = ("429", "500", "503", "drop", "drop_body", "invalid_json", "html", "empty", "refusal")
FAULTS += ("over_long", "echo", "wrong_language", "length")
#: After these nobody knows whether the provider charged.
AMBIGUOUS = frozenset({"500", "503"}) | (CHARGED - SPOILT)


def a_fifth(seed):
    """Give a plan by which a fifth of all requests fail, the third one by hanging."""
    draw = random.Random(seed)

    def plan(served):
        if served.number == 3:
            return "hang"
        return draw.choice(FAULTS) if draw.random() < 0.2 else None

    return plan


def policy(**changes):
    settings = {"batch_delay": 0, "call_timeout": 6.0, "drain": 5.0}
    # The server of the tests is one of this machine, which would get one call at a time.
    return UpdatePolicy(**{"concurrency": 3} | settings | changes)


class Later:
    """A clock that runs ahead by some hours."""

    hours = 0

    def __call__(self):
        return datetime.now(UTC) + timedelta(hours=self.hours)


async def complete(memory, session, later, *, most=8):
    """Update until every summary is a good one, as an application would in days; give the reports.

    What was refused is not asked for again at once.
    """
    reports = []
    for _ in range(most):
        reports.append(await session.update())
        later.hours += 64
        levels = (await session.metrics()).levels
        if all(level.made == level.nodes and not level.degraded for level in levels):
            return reports
    raise AssertionError(f"the tree is not complete: {levels}")


def same_books(attempts, provider, reports):
    """Hold the journal against the provider's books."""
    served = provider.served
    assert len(attempts) == len(served) == sum(report.calls for report in reports)
    answered = [one for one in attempts if one.outcome in ("ok", "rejected")]
    delivered = [one for one in served if one.fault is None or one.fault in SPOILT]
    assert len(answered) == len(delivered)
    assert sum(one.tokens_in for one in answered) == sum(one.tokens_in for one in delivered)
    assert sum(one.tokens_out for one in answered) == sum(one.tokens_out for one in delivered)
    for one in answered:
        assert one.cost == pytest.approx(PRICES.cost(one.tokens_in, one.tokens_out))
    free = [one for one in attempts if one.outcome == "error" and not one.tokens_in]
    assert len(free) == sum(one.fault == "429" for one in served)
    late = [one for one in attempts if one.outcome == "unknown"]
    assert len(late) == sum(report.unknown for report in reports)
    doubtful = [one for one in attempts if one.outcome == "error" and one.tokens_in]
    assert len(doubtful) + len(late) == sum(one.fault in AMBIGUOUS for one in served)
    assert {one.outcome for one in attempts} <= {"ok", "rejected", "error", "unknown"}
    spent = sum(report.tokens for report in reports)
    assert spent == sum(one.tokens_in + one.tokens_out for one in attempts)
    cost = sum(report.cost or 0 for report in reports)
    assert cost == pytest.approx(sum(one.cost or 0 for one in attempts))


def nothing_is_paid_twice(provider):
    """What came again came after a failure: of the way, or of an answer that no memory may hold.

    An unfit answer is asked for again in other words; in the same ones only by a later run.
    """
    repeated: dict[str, list] = {}
    for one in provider.served:
        repeated.setdefault(one.fingerprint, []).append(one)
    for same in repeated.values():
        *before, last = sorted(same, key=lambda one: one.number)
        for one in before:
            assert one.fault is not None, "a request was repeated after a good answer"
            assert one.at < last.at


@pytest.mark.parametrize(
    "kind", params(["anthropic", "openai", "openai-stream", "anthropic-stream"], 1)
)
async def test_a_conversation_is_summarised_while_a_fifth_of_the_calls_fail(kind, share):
    """The tree is complete, no request is repeated without need, and the two books agree."""
    said = bundled()[: share(10_000, 80)]
    with Provider(a_fifth(7)) as provider:
        model, later = make(kind, provider, prices=PRICES, timeout=60.0), Later()
        async with AsyncMemory.open(
            ":memory:", llm=model, update_policy=policy(), clock=later
        ) as memory:
            session = memory.session("talk")
            await session.append(said)
            reports = await complete(memory, session, later)
            attempts = await memory._handle.store.attempts(limit=100_000)
            same_books(attempts, provider, reports)
            nothing_is_paid_twice(provider)
            assert provider.peak <= 3
            met = {one.fault for one in provider.served} - {None}
            assert len(met) >= 3, "the plan drew too few faults to show anything"
            context = await session.context(max_tokens=8_000)
            assert context.coverage == 1.0
            spent = (await session.metrics()).spent
            assert spent.calls == len(provider.served)
            assert (await memory.check()).ok


async def test_a_consolidation_over_http_takes_its_answer_and_loses_no_note_to_a_fault():
    """Broken, a bank is kept by plain functions alone, or what the server did costs a note."""
    file = {"filename": "progress.md", "content": "# Progress\n\n- Pump 3 works\n", "notes": [1]}
    answer = json.dumps({"bank_files": [file], "synthesis": "Things work."})
    with Provider(["500", "drop_body", "429"], writer=lambda *_: answer) as provider:
        settings = {"llm": make("openai", provider), "update_policy": policy(retries=0)}
        async with AsyncMemory.open(":memory:", **settings) as memory:
            space = memory.space("x", rules="- progress.md: what works")
            await space.note("Pump 3 works")
            for number in range(1, 4):
                done = await space.consolidate()
                assert (done.status, done.notes_remaining) == ("error", 1)
                assert len(provider.served) == number
            done = await space.consolidate()
            assert (done.status, done.notes_processed, done.files_created) == (
                "ok", 1, ("progress.md",),
            )  # fmt: skip
            assert await space.read("progress.md") == file["content"]
            assert await space.synthesis() == "Things work."
            last = provider.served[-1]
            assert done.metrics["llm_prompt_tokens"] == last.tokens_in > 0
            assert done.metrics["llm_completion_tokens"] == last.tokens_out > 0
            assert (await space.history())[0].model == "tiny"
            schema = last.body["response_format"]["json_schema"]["schema"]
            assert schema["properties"].keys() == {"bank_files", "dropped", "synthesis"}
            assert provider.key not in str([await memory.run(run.id) for run in await space.runs()])
