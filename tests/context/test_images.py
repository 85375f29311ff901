"""Pictures in a context: a bounded number of them, the newest, and the others by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, ContextPolicy, ImagePart, Message, TextPart, ToolCall
from hiermem.stores.memory import MemoryStore


def by_user(n):
    return [
        Message.user((TextPart(f"This is {n}."), ImagePart(f"https://x.example/{n}.png"))),
        Message.assistant("I see."),
    ]


def by_tool(n):
    shot = (ImagePart(f"https://x.example/{n}.png"), TextPart("done"))
    call = ToolCall(f"c{n}", "screenshot", "{}")
    return [Message.assistant("", tool_calls=[call]), Message.tool(shot, tool_call_id=f"c{n}")]


def by_responses(n):
    image = {"type": "input_image", "image_url": f"https://x.example/{n}.png"}
    return [{"type": "message", "role": "user", "content": [image]}, *by_user(n)[1:]]


def standing(selection):
    """Return the numbers of the pictures that stand, in each rendering; a name is none."""
    found = []
    for rendered in (selection.to_anthropic(), selection.to_responses()):
        text = json.dumps(rendered).replace("[image: https://x.example/", "")
        found.append([n for n in range(70) if f"x.example/{n}.png" in text])
    return found


@drawn(20)
@given(
    make=st.sampled_from([by_user, by_tool, by_responses]),
    most=st.sampled_from([None, 0, 1, 7]),
    options=st.sampled_from([{}, {"strategy": "layered"}, {"query": "This is 3."}]),
)
async def test_the_newest_pictures_stand_and_the_others_are_named(make, most, options):
    """Broken, a request has 60 screenshots of a megabyte each and is refused for its size."""
    policy = ContextPolicy() if most is None else ContextPolicy(images=most)
    memory = AsyncMemory(store=MemoryStore(), context_policy=policy)
    session = memory.session("s")
    for n in range(60):
        await session.append(make(n))
    found = await session.context(100_000, reserve_for_messages=90_000, **options)
    allowed = 20 if most is None else most
    for numbers in standing(found):
        assert numbers == [*range(60 - allowed, 60)]
    assert "[image: https://x.example/38.png]" in found.to_text()
    shown = sum(each.verbatim for each in found.shown.by_quarter)
    assert shown <= 120 - (60 - allowed), "a message without its picture counts as verbatim"
    assert found.total_tokens < 60 * 100 + allowed * 900, "a name costs as much as a picture"
    await memory.close()


@pytest.mark.parametrize("most", [1, 8])
async def test_pictures_give_way_together_so_that_the_prefix_seldom_changes(most):
    """Broken, each new screenshot changes an old message, and no provider's cache is hit."""
    memory = AsyncMemory(store=MemoryStore(), context_policy=ContextPolicy(images=most))
    session = memory.session("s")
    changed, before = 0, "[]"
    for n in range(30):
        await session.append(by_user(n))
        found = await session.context(60_000)
        numbers = standing(found)[0]
        assert numbers == [*range(n + 1 - len(numbers), n + 1)], "they are the newest"
        assert min(n + 1, (most + 1) // 2) <= len(numbers) <= most
        now = json.dumps(found.to_openai())
        changed += not now.startswith(before[:-1])
        before = now
    assert changed <= 30 // max(1, most // 2) + 1
    await memory.close()
