"""A profile shapes what stands in a context; it covers everything all the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import SMALL, Words, histories, judge, played, talk
from test_recalled import opened

from hiermem import AsyncMemory, ContextProfile, HierarchyConfig
from hiermem.errors import ConfigError, UsageError
from hiermem.stores.memory import MemoryStore

REVIEWER = ContextProfile.code_reviewer()
WRITER = ContextProfile.documentation()


def lines_of(selection):
    """Return the lines of the records, without dates and marks of what is left out."""
    texts = [block.text for block in selection.blocks if block.kind == "view"]
    return [line.strip("… ") for text in texts for line in text.split("\n")[2:-1] if line]


@pytest.mark.parametrize(
    ("profile", "level", "recent"),
    [(REVIEWER, 1, 10), pytest.param(WRITER, 2, 5, marks=pytest.mark.thorough)],
)
async def test_a_profile_shows_lines_of_its_levels_and_its_recent_messages(profile, level, recent):
    _, session = await opened(400)
    found = await session.context(60_000, profile=profile, sticky=False)
    assert len(found.recent_messages) == recent
    assert found.coverage == 1.0
    newest = found.recent_messages[0].index
    said = " ".join(lines_of(found))
    made = [each for each in await session.summaries(level) if each.span.stop <= newest - 60]
    lines = [each.text.split("\n")[-1].split(": ", 1)[-1] for each in made if each.text]
    assert sum(line in said for line in lines) > 0.5 * len(lines) > 0


async def test_pins_of_a_profile_are_its_own_and_stand_once():
    _, session = await opened()
    pinned = ContextProfile(name="p", pins=[120, 0, 9_999])
    found = await session.context(2_500, profile=pinned)
    assert set(found.pins) == {0, 120}
    assert found.to_text().count("The harbour master is called Ottilie Brandt.") == 1
    assert found.total_tokens <= 2_500
    assert (await session.context(2_500)).pins == ()
    await session.erase([120])
    assert "Ottilie" not in (await session.context(2_500, profile=pinned)).to_text()


async def test_a_profile_has_a_sticky_cut_of_its_own():
    _, session = await opened()
    plain = await session.context(2_000)
    first = await session.context(2_000, profile=REVIEWER)
    assert first.shared_prefix_tokens == 0
    again = await session.context(2_000, profile=REVIEWER)
    assert again.shared_prefix_tokens == again.total_tokens
    assert (await session.context(2_000)).blocks == plain.blocks
    other = await session.context(2_000, profile=ContextProfile.code_reviewer(recent=3))
    assert other.shared_prefix_tokens == 0, "what it asks for is part of what it is known by"


async def test_appending_keeps_the_prefix_until_the_recent_messages_have_doubled():
    _, session = await opened()
    before = (await session.context(4_000, profile=WRITER)).to_openai()
    moved = 0
    for turn in range(30):
        await talk(session, 2, begin=5_000 + 2 * turn)
        found = await session.context(4_000, profile=WRITER)
        assert 5 <= len(found.recent_messages) <= 10
        moved += found.to_openai()[: len(before)] != before
        before = found.to_openai()
    assert 1 <= moved <= 15


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"name": "a b"}, {"name": 5}, {"levels": []}, {"levels": [0]},
        {"levels": "1"}, {"recent": 0}, {"recent": True}, {"pins": [-1]}, {"pins": 5},
    ],
)  # fmt: skip
def test_a_profile_that_means_nothing_is_refused(wrong):
    with pytest.raises(ConfigError, match="ContextProfile"):
        ContextProfile(**{"name": "p", **wrong})


async def test_a_profile_goes_with_the_cut_alone():
    _, session = await opened(4)
    with pytest.raises(UsageError, match="profile"):
        await session.context(profile=REVIEWER, strategy="layered")


PROFILES = st.sampled_from(
    [
        REVIEWER,
        WRITER,
        ContextProfile(name="p", levels={1, 3}, recent=3),
        ContextProfile(name="p", recent=1),
        ContextProfile(name="p", levels={2}, pins=[0, 3]),
    ]
)


@drawn(60)
@given(steps=histories(most=40), profile=PROFILES, whole=st.booleans())
async def test_a_profile_covers_every_message_exactly_once_inside_the_budget(steps, profile, whole):
    changes = {"boundary": "message"} if whole else {}
    config = HierarchyConfig.by_tokens(**SMALL, **changes)
    memory = AsyncMemory(store=MemoryStore(), token_counter=Words(), config=config)
    session = memory.session("s")
    async for budget in played(session, steps):
        if found := await judge(memory, session, budget, profile=profile):
            # A summary of another level is listed only if no text of an allowed one is above it.
            levels = profile.levels or {*found.summaries}
            assert all(level in levels or level < max(levels) for level in found.summaries)
            assert profile != REVIEWER or set(found.summaries) <= {1}
    await memory.close()
