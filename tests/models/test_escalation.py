"""Every way in which an answer can be unfit, through real adapters: it is asked for once more."""

import pytest
from asking import make
from provider import Provider
from sampling import crossed
from stand_ins import talk as turns

from hiermem import AsyncMemory, UpdatePolicy

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
    return turns(
        10,
        lambda n: (
            f"On 2024-03-{n + 1:02} Ada measured pump {n} at {n * 17 + 3} rpm in hall B{n}, "
            f"and invoice INV-{n}-77 over {n * 41 + 9}.50 EUR went to Jonas at the weir. " * 2
        ),
        created_at=None,
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
