"""What a conversation begins with: its space's record, which others' writing does not move."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from stand_ins import counted

from hiermem import BudgetTooSmallError, Memory, Message
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore

BEGIN = datetime(2026, 3, 3, 9, tzinfo=UTC)


@pytest.fixture
def memory():
    with Memory.open(":memory:") as opened:
        opened.space("ada", person="Ada").files()
        yield opened


def say(memory, name, *texts, day=0, space="ada", **how):
    """Append a user's messages to a session, each answered, a minute apart."""
    session = memory.session(name, space=space, **how)
    for minute, text in enumerate(texts):
        when = BEGIN + timedelta(days=day, minutes=minute)
        session.append(
            Message.user(text, created_at=when), Message.assistant("Noted.", created_at=when)
        )
    return session


def record_of(context):
    """Return the record of the space, "" if the context has none."""
    return next((block.text for block in context.blocks if block.kind == "space"), "")


def test_a_new_conversation_begins_with_wishes_bank_and_earlier_conversations(memory):
    """Broken, the next conversation begins with nothing."""
    say(memory, "january", "Always answer in metric units.", "I live in Leeds.")
    say(memory, "april", "Never suggest peanut dishes.", day=31, title="Dinner plans")
    space = memory.space("ada")
    space.note("Ada drinks tea.", agent="ada", category="person")
    space.consolidate()
    new = say(memory, "july", "Which events are on?", day=120)
    text = record_of(new.context(4_000))
    lines = text.splitlines()
    assert lines[2:4] == [
        "Ada asked on 2026-03-03: Always answer in metric units.",
        "Ada asked on 2026-04-03: Never suggest peanut dishes.",
    ]
    assert 'user_requests="first 2 lines' in lines[1]
    assert 'of="Ada: other conversations' in lines[1]
    assert any("Ada drinks tea." in line for line in lines)
    assert lines.index("[2026-04-03] Dinner plans") < next(
        place for place, line in enumerate(lines) if line.startswith("[2026-03-03]")
    )


@pytest.mark.parametrize(
    "summary",
    [
        None,
        "## Overview\n- Ada looks for a flat in Leeds.\n## Key points\n- 2026-03-03: They met.",
        "**Overview:**\n[Tue 2026-03-03]\n1. Ada looks for a flat in Leeds.\n",
        "[2026-03-03]\nAda looks for a flat in Leeds.",
    ],
)
def test_a_line_about_a_conversation_says_what_it_was_about(summary):
    """Broken, earlier conversations are a list of days and of the word "Overview"."""

    def model(_):
        return summary

    with Memory.open(":memory:", llm=summary and model) as memory:
        memory.space("ada", person="Ada").files()
        texts = [f"I look for a flat in Leeds with {n} rooms, by {n} May." for n in range(12)]
        say(memory, "january", *texts).update()
        text = record_of(say(memory, "july", "Which events are on?", day=120).context(4_000))
        (line,) = [line for line in text.splitlines() if line.startswith("[2026-03-03]")]
        assert "flat in Leeds" in line
        assert line.count("2026-03-03") == 1


def test_the_prefix_holds_while_other_conversations_go_on(memory):
    """Broken, each message of one conversation makes the others' prompts uncached."""
    say(memory, "january", "Always answer in metric units.")
    july = say(memory, "july", "Which events are on?", day=120)
    first = july.context(4_000).to_openai()
    for turn in range(4):
        say(memory, "other", f"Never mention item {turn}.", day=121 + turn)
        say(memory, "january", f"And I like number {turn}.", day=121 + turn)
        july.append(Message.user(f"More about event {turn}?"), Message.assistant("Sure."))
        context = july.context(4_000)
        assert context.to_openai()[: len(first)] == first
        first = context.to_openai()
    assert context.shared_prefix_tokens > 0
    # Planned anew, it shows what has been said meanwhile.
    assert "Never mention item 3." in record_of(july.context(4_000, cache_cold=True))


@pytest.mark.parametrize("change", ["erase", "edit", "leave", "delete", "quarantine", "space"])
def test_what_is_gone_stands_in_no_record_from_the_next_context_on(memory, change):
    """Broken, an erased wish goes on in the prompts of every other conversation."""
    january = say(memory, "january", "Never suggest peanut dishes.")
    july = say(memory, "july", "Which events are on?", day=120)
    assert "peanut" in record_of(july.context(4_000))
    if change == "edit":
        january.edit(0, "Hello.")
    elif change in ("erase", "quarantine"):
        getattr(january, change)([0])
    elif change == "space":
        memory.space("ada").delete()
        assert memory.count_sessions(space=None) == 2
    else:
        getattr(january, change)()
    assert "peanut" not in july.context(4_000).to_text()


def test_only_the_person_of_the_space_has_wishes(memory):
    """Broken, a guest's or an agent's sentence is followed in the owner's conversations."""
    for name in ("Bob", "Ada", None):
        memory.session(f"by {name}", space="ada").append(
            Message.user(f"Never mention {name}'s garden.", name=name), Message.assistant("Fine.")
        )
    text = record_of(say(memory, "july", "Hello.", day=120).context(4_000))
    wishes = [line for line in text.splitlines() if line.startswith("Ada asked")]
    assert len(wishes) == 2
    assert not any("Bob" in line for line in wishes)


@drawn(150, plain=20)
@given(budget=st.integers(300, 4_000), wishes=st.integers(0, 40), talk=st.integers(1, 30))
def test_the_record_never_takes_what_the_conversation_needs(budget, wishes, talk):
    """The budget holds, the record has at most its room, and the stated minimum does not rise."""
    with Memory.open(":memory:") as memory:
        memory.space("ada", person="Ada").files()
        alone = say(memory, "alone", *map(str, range(talk)), space=None)
        for number in range(wishes):
            say(memory, f"s{number}", f"Never mention the number {number} again.", day=number)
        member = say(memory, "member", *map(str, range(talk)))
        try:
            plain = alone.context(budget)
        except BudgetTooSmallError as error:
            with pytest.raises(BudgetTooSmallError) as raised:
                member.context(budget)
            assert raised.value.minimum == error.minimum
            return
        context = member.context(budget)
        assert context.total_tokens <= budget
        assert context.coverage == plain.coverage == 1
        spent = sum(block.tokens for block in context.blocks if block.kind == "space")
        is_zone = any(block.kind in ("view", "summary") for block in context.blocks)
        share = 0.15 if is_zone else 0.45
        assert spent <= (0 if budget < 1_000 else max(share * budget, 300 * (budget >= 2_000)))


def test_a_new_conversation_has_the_whole_page_until_it_needs_the_room():
    """Broken, a new conversation of 4,000 tokens knows 600 of a page of 1,500, and is empty."""
    with Memory.open(":memory:") as memory:
        ada = memory.space("ada", person="Ada", rules="# Files\n- person.md: who\n- past.md: was\n")
        for number in range(60):
            ada.note(
                f"Ada owns house number {number} in Dock Street, which is red.", agent="kitchen"
            )
        ada.consolidate()
        chat = say(memory, "june", "Hello.", day=120)
        records = []
        for number in range(60):
            context = chat.context(4_000)
            view = any(block.kind in ("view", "summary") for block in context.blocks)
            (record,) = [block for block in context.blocks if block.kind == "space"]
            records.append((view, record.tokens, record.text))
            assert context.total_tokens <= 4_000
            say(memory, "june", f"We talked of the garden and planted tree {number}. " * 6, day=120)
        assert len({text for _, _, text in records}) == 2, "the prefix holds until then, and after"
        assert "number 59" in records[0][2]
        assert records[0][1] == records[25][1] > 1_000
        assert all(tokens <= 600 for view, tokens, _ in records if view)
        assert any(view for view, _, _ in records)
        long = say(memory, "july", "A very long letter about the sea. " * 330, day=130)
        assert any(block.kind == "space" for block in long.context(4_000).blocks)


def test_recall_reaches_every_conversation_of_the_space(memory):
    """Broken, a question is answered from its own conversation alone, or finds itself."""
    say(memory, "january", "The plumber's number is 0117 4960.", day=0)
    say(memory, "april", "We gave the plumber a new number: 0117 4999.", day=31)
    question = "What is the plumber's number?"
    july = say(memory, "july", question, day=120)
    context = july.context(4_000, query=question)
    recalled = next(block.text for block in context.blocks if block.kind == "recall")
    assert recalled.index("4960") < recalled.index("4999")
    assert question not in recalled
    assert "[2026-04-03, session april]" in recalled
    # What is drawn or counted of a session has no places of other conversations.
    assert {hit.session_id for hit in context.evidence} == {"january", "april"}
    assert context.recall == ()
    assert context.shown.messages == (0, 1)


def test_a_wish_that_was_withdrawn_anywhere_is_in_no_other_record(memory):
    """Broken, a wish that was taken back in one conversation is followed in the next."""
    wish = "Always answer in metric units."
    january = say(memory, "january", wish, "Hello.")
    say(memory, "april", f"{wish[:-1]}!", day=31)
    july = say(memory, "july", "Which events are on?", day=120)
    assert record_of(july.context(4_000)).count("metric units") == 1
    january.unpin(0)
    assert "Ada asked" not in record_of(july.context(4_000))
    assert "Ada asked" not in record_of(say(memory, "new", "Hi.", day=130).context(4_000))
    assert [line for line in memory.space("ada").about() if line.place == "wish"] == []


def test_what_a_conversation_asks_itself_stands_once(memory):
    say(memory, "january", "Always answer in metric units.")
    july = say(memory, "july", "Always answer in metric units!", day=120)
    assert july.context(4_000).to_text().count("answer in metric units") == 1


@pytest.mark.parametrize(
    "wish",
    [
        "From now on, call me Captain in this story.",
        "For the rest of this conversation, answer in one sentence.",
        "From now on, you are the innkeeper and never leave the role.",
        "Antworte in diesem Gespräch immer auf Englisch.",
    ],
)
def test_a_wish_of_one_conversation_is_not_carried(memory, wish):
    """Broken, the person is Captain in every conversation for good."""
    story = say(memory, "story", wish)
    assert [pin.reason for pin in story.pins()] == ["wish"]
    say(memory, "january", "Always answer in metric units.")
    text = record_of(say(memory, "july", "Hello.", day=120).context(4_000))
    asked = [line for line in text.splitlines() if line.startswith("Ada asked")]
    assert [line.partition(": ")[2] for line in asked] == ["Always answer in metric units."]


def test_a_conversation_has_the_record_before_its_first_message(memory):
    """Broken, an application that asks for the context first begins without the wishes."""
    say(memory, "january", "Always answer in metric units.")
    july = memory.session("july", space="ada")
    assert "metric units" in record_of(july.context(4_000))
    assert memory.count_sessions(space="ada") == 1


def test_a_conversation_without_summaries_has_a_line(memory):
    """Broken, a long conversation is unknown to the next one until a model has read it."""
    texts = [f"Message {number} about the harbour. {'It was long. ' * 40}" for number in range(40)]
    long = say(memory, "long", "We plan the harbour fair.", *texts)
    assert long.status().queue
    text = record_of(say(memory, "july", "Hello.", day=120).context(4_000))
    assert "] We plan the harbour fair." in text


def test_a_message_that_the_record_holds_whole_is_not_recalled(memory):
    """Broken, a wish stands twice, and less is found beside it."""
    say(memory, "january", "Always name the plumber's number.", "The plumber is Bob.")
    context = say(memory, "july", "Hi.", day=120).context(4_000, query="the plumber's number")
    assert context.to_text().count("Always name the plumber") == 1
    assert "The plumber is Bob." in context.to_text()


def test_a_member_costs_no_more_than_other_sessions():
    """An append reads and writes no row more, a live context reads at most twice more."""
    store, calls = counted(RecordStore(MemoryStore()))
    with Memory(store=store) as memory:
        memory.space("ada", person="Ada").files()
        for number in range(30):
            say(memory, f"s{number}", f"Never mention number {number}.", "Hello.", day=number)
        costs = {}
        for space in (None, "ada"):
            session = say(memory, f"in {space}", "Hello.", "More.", day=60, space=space)
            session.context(4_000)
            calls.clear()
            session.append(Message.user("And now?"))
            appended = calls.copy()
            calls.clear()
            session.context(4_000)
            costs[space] = appended, calls.total()
        assert costs["ada"][0] == costs[None][0]
        assert costs["ada"][1] <= costs[None][1] + 2


def test_a_persons_wish_counts_among_others_and_nobody_elses(memory):
    """Broken, the person of a space is not heard in a group, or a guest gives orders."""
    memory.space("ada", person="Ada")
    group = memory.session("group", space="ada")
    group.append(
        Message.user("Always answer in metric.", name="Ada"),
        Message.user("Never answer in metric.", name="Bob"),
        Message.assistant("I see."),
    )
    assert [(pin.index, pin.reason) for pin in group.pins()] == [(0, "wish")]
    group.append([Message.user(f"Item {n}.", name="Bob") for n in range(60)])
    assert "Always answer in metric." in (group.context(700)).to_text()
    group.leave()
    assert group.pins() == ()


def test_a_note_from_a_session_that_left_is_not_known_until_it_returns(memory):
    """Broken, what somebody took out of a space is still told there."""
    ada = memory.space("ada", person="Ada")
    one, two = memory.session("one", space="ada"), memory.session("two", space="ada")
    for session in (one, two):
        session.append(Message.user("I work at the mill."))
    ada.note("Works at the mill.", sources=[("one", 0)])
    ada.note("Has a boss there.", sources=[("one", 0), ("two", 0)])
    ada.note("Likes tea.")

    def noted():
        return {line.text for line in ada.about() if line.place == "note"}

    everything = noted()
    one.leave()
    assert noted() == everything - {"Works at the mill."}
    one.join("ada")
    assert noted() == everything
    ada.delete()
    assert (memory.check()).ok


def test_a_conversation_that_begins_with_a_wish_has_its_line():
    """Broken, the next conversation does not know that there was one."""
    with Memory.open(":memory:") as memory:
        ada = memory.space("ada", person="Ada")
        may = memory.session("may", space="ada")
        may.append(Message.user("Always answer in English. My order 5512 never came."))
        texts = [line.text for line in ada.about() if line.place == "conversation"]
        assert texts == ["My order 5512 never came."]
