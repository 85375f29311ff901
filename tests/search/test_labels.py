"""Labels come from what was said, and every summary bears those of what it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, HierarchyConfig, Message, UpdatePolicy
from hiermem.protocols import SourceText
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.inputs import of_messages


def said(text, role="user"):
    return SourceText(index=0, role=role, speaker="Ada", date="2024-03-01", text=text)


def test_entities_are_the_things_that_are_named_the_most_named_first():
    found = of_messages(
        [
            said("We moved from PostgreSQL to SQLite in stores/sqlite.py."),
            said("SQLite needs no server, said Margaret."),
            said("SQLite it is, since 2024-03-01, for 37.50 EUR."),
        ]
    )
    assert found[1][0] == "SQLite"
    assert "stores/sqlite.py" in found[1]
    assert not {"2024-03-01", "37.50 EUR"} & set(found[1]), "figures are no entities"


def test_tags_are_what_several_messages_speak_of_and_what_there_is_beside_prose():
    found = of_messages(
        [
            said("The settlements are late."),
            said("A settlement takes a day."),
            said("Which settlement?\n```\nprint(1)\n```"),
            said("exit 0", role="tool"),
        ]
    )
    assert found[0] == ("code", "tool", "settlement")


@drawn(150)
@given(st.lists(st.tuples(st.text(max_size=300), st.sampled_from(["user", "tool"])), max_size=8))
def test_any_text_gives_bounded_labels_and_the_same_each_time(texts):
    sources = [said(text, role) for text, role in texts]
    found = of_messages(sources)
    assert found == of_messages(sources)
    assert len(found[0]) <= 12
    assert len(found[1]) <= 24
    assert all(0 < len(label) <= 64 for label in (*found[0], *found[1]))


async def test_a_summary_bears_the_labels_of_what_it_stands_for():
    config = HierarchyConfig.by_tokens(target=150, max_messages=6)
    session = AsyncMemory(store=MemoryStore(), config=config).session("s")
    things = ["`kanne.settle()` of Ottilie" if n < 8 else f"plain talk of {n}" for n in range(120)]
    await session.append(
        Message.user(f"We spoke of the {thing}, and the settlement. " * 3) for thing in things
    )
    await session.update()
    by_id = {each.id: each for each in await session.summaries()}
    above = [each for each in by_id.values() if each.children]
    assert any(each.tags for each in above)
    for each in above:
        below = [by_id[child] for child in each.children]
        assert set(each.tags) <= {tag for child in below for tag in child.tags}
        assert set(each.entities) <= {name for child in below for name in child.entities}
        assert all(set(child.tags[:1]) <= set(each.tags) for child in below), "the first is kept"


@pytest.mark.parametrize("model", [None, lambda request: "We spoke of the settlement at length."])
async def test_whoever_summarises_the_labels_are_the_same(model):
    memory = AsyncMemory(store=MemoryStore(), llm=model, update_policy=UpdatePolicy(batch_delay=0))
    session = memory.session("s")
    for n in range(60):
        await session.append(Message.user(f"The settlement of SQLite, case {n}. " * 9))
    await session.update()
    assert "SQLite" in (await session.summaries(1))[0].entities
    await memory.close()
