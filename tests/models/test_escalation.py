"""Every way in which an answer can be unfit, through real adapters: what follows of it.

The prompt; a second request that says what was wrong; then the extractive stand-in, which is
replaced when the model does better at one of the later tries.
"""

from datetime import UTC, datetime, timedelta

import pytest
from asking import make
from provider import Provider
from sampling import crossed

from hiermem import AsyncMemory, Message, UpdatePolicy

#: What is journalled of each fault, and what the second request says of it.
UNFIT = {
    "empty": ("empty", "It said nothing."),
    "refusal": ("refused", "It was a refusal."),
    "refusal_text": ("refused", "It was a refusal."),
    "content_filter": ("refused", "It was a refusal."),
    "length": ("truncated", "It was cut off at its end."),
    "truncated_json": ("error_text", "It was an error message."),
    "over_long": ("too_long", "It was too long: "),
    "echo": ("echo", "It copied what it was given."),
    "wrong_language": ("wrong_language", "It was not in the language of the record."),
}
POLICY = UpdatePolicy(batch_delay=0)


def talk():
    """Give one window of a conversation that is full of facts."""
    for n in range(10):
        role = Message.assistant if n % 2 else Message.user
        yield role(
            f"On 2024-03-{n + 1:02} Ada measured pump {n} at {n * 17 + 3} rpm in hall B{n}, and "
            f"invoice INV-{n}-77 over {n * 41 + 9}.50 EUR went to Jonas at the weir. " * 2
        )


async def journal(memory):
    found = await memory._handle.store.attempts()
    return [(one.outcome, one.reason) for one in found]


@pytest.mark.parametrize(("fault", "kind"), crossed(UNFIT, ["openai", "anthropic"]))
async def test_an_unfit_answer_is_asked_for_again_by_what_was_wrong_with_it(fault, kind):
    """The second request says so at its end; everything before that is still in the cache."""
    reason, said = UNFIT[fault]
    with Provider([fault]) as provider:
        model = make(kind, provider)
        async with AsyncMemory.open(":memory:", llm=model, update_policy=POLICY) as memory:
            session = memory.session("s")
            await session.append(*talk())
            report = await session.update()
            assert (report.made, report.degraded, report.failed, report.calls) == (1, 0, 0, 2)
            (first, second) = await journal(memory)
            assert first[0] == "rejected"
            assert reason in first[1].split(",")
            assert second == ("ok", "")
            (summary,) = await session.summaries(1)
            assert not summary.degraded
    first, again = (
        [str(each["content"]) for each in served.body["messages"]] for served in provider.served[:2]
    )
    assert again[len(first) - 1].startswith(first[-1].rstrip("]}'\"")[:2_000])
    assert said in again[-1]
    assert said not in first[-1]


@pytest.mark.parametrize(("fault", "kind"), crossed(UNFIT, ["openai", "anthropic"]))
async def test_a_model_that_never_does_better_gets_a_stand_in_that_is_made_anew_later(fault, kind):
    """Nothing unfit becomes memory, nothing stays without a text, and good comes in the end."""
    reason, _ = UNFIT[fault]
    spoilt = True
    with Provider(lambda served: fault if spoilt else None) as provider:
        model, passed = make(kind, provider), timedelta()
        async with AsyncMemory.open(
            ":memory:", llm=model, update_policy=POLICY, clock=lambda: datetime.now(UTC) + passed
        ) as memory:
            session = memory.session("s")
            await session.append(*talk())
            first = await session.update()
            assert (first.made, first.failed, first.degraded, first.calls) == (0, 0, 1, 2)
            assert (await session.context(max_tokens=4_000)).coverage == 1.0
            second = await session.update()
            assert (second.calls, second.degraded, second.run_id) == (0, 0, None), "not so soon"
            passed += timedelta(hours=1)
            second = await session.update()
            assert (second.failed, second.degraded, second.calls) == (0, 1, 1)
            (stand_in,) = await session.summaries(1)
            assert stand_in.degraded
            assert "Ada" in stand_in.text
            assert (await session.status()).last_error
            tried = await journal(memory)
            assert len(tried) == 3
            assert all(outcome == "rejected" for outcome, _ in tried)
            assert all(reason in why.split(",") for _, why in tried)
            spoilt = False
            assert (await session.update()).calls == 0, "it is due in four hours"
            passed += timedelta(hours=4)
            third = await session.update()
            assert (third.made, third.degraded, third.calls) == (1, 0, 1)
            (good,) = await session.summaries(1)
            assert not good.degraded
            assert good.text != stand_in.text
