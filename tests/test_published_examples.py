"""The published examples, message for message, through the public face."""

from datetime import timedelta
from itertools import pairwise

import pytest
from stand_ins import START, WordCounter, talk

from hiermem import HierarchyConfig, Memory, Message, ToolCall
from hiermem.stores.memory import MemoryStore


def spans(session, level):
    """Give first and last message of each summary of a level."""
    return [(s.span.start, s.span.stop - 1) for s in session.summaries(level)]


@pytest.fixture(params=["sqlite", "memory"])
def memory(request, tmp_path):
    file = request.param == "sqlite"
    with Memory.open(tmp_path / "m.db") if file else Memory(store=MemoryStore()) as kept:
        yield kept


def test_30_messages_give_windows_of_ten_50_an_l2_and_150_an_l3(memory):
    session = memory.session("s")
    session.append(talk(30))
    assert spans(session, 1) == [(0, 9), (10, 19), (20, 29)]
    assert session.summaries(2) == []
    for message in talk(20, begin=30):
        session.append(message)
    assert spans(session, 1) == [(n, n + 9) for n in range(0, 50, 10)]
    assert spans(session, 2) == [(0, 49)]
    assert session.summaries(2)[0].children == tuple(f"L1.{n}" for n in range(5))
    assert session.summaries(3) == []
    session.append(talk(100, begin=50))
    assert spans(session, 2) == [(0, 49), (50, 99), (100, 149)]
    assert spans(session, 3) == [(0, 149)]
    report = session.update()
    assert report.by_level == {1: 15, 2: 3, 3: 1}
    (tree,) = session.forest()
    assert tree.summary.id == "L3.0"
    assert [len(child.children) for child in tree.children] == [5, 5, 5]
    assert [stored.index for stored in session.expand("L3.0", depth=None)] == list(range(150))


def test_where_message_10_is_a_users_the_window_closes_after_its_answer(memory):
    """The tenth message fills the window, but a user's message is no safe place to end it."""
    session = memory.session("s")
    session.append(Message.assistant("Good morning", created_at=START))
    session.append(talk(9, created_at=START))
    assert session.messages(9)[0].role == "user"
    assert session.summaries(1) == []
    session.append(Message.assistant("the answer", created_at=START))
    assert spans(session, 1) == [(0, 10)]


def test_people_talking_to_people_seal_as_well(memory):
    """Nobody answers as an assistant; after ten users' messages every whole point is safe."""
    session = memory.session("s")
    for n in range(60):
        name = ("Ada", "Jonas", "Mika")[n % 3]
        at = START + timedelta(seconds=30 * n)
        session.append(Message.user(f"remark {n}", name=name, created_at=at))
    windows = spans(session, 1)
    assert windows[0][0] == 0
    assert len(windows) >= 5
    assert all(last - first + 1 <= 15 for first, last in windows)
    session.update()
    assert session.context(2_000).coverage == 1.0


def test_a_tool_loop_of_80_messages_closes_on_the_way_and_parts_no_call_from_its_result(memory):
    """One turn without an end: rule 5 closes windows between the exchange groups."""
    session = memory.session("s")
    session.append(Message.user("find the fault", created_at=START))
    for n in range(40):
        call = ToolCall(f"call-{n}", "run_tests", '{"part": %d}' % n)  # noqa: UP031
        at = START + timedelta(seconds=n)
        session.append(Message.assistant(tool_calls=[call], created_at=at))
        session.append(Message.tool(f"part {n} is fine", tool_call_id=call.id, created_at=at))
    windows = session.summaries(1)
    assert len(windows) >= 4, "the loop kept one window open"
    for window in windows:
        own = session.expand(window)
        calls = {call.id for stored in own for call in stored.tool_calls}
        results = {stored.tool_call_id for stored in own if stored.role == "tool"}
        assert calls == results, f"{window.id} parts a call from its result"
    assert not any(stored.flags for stored in session.messages())
    rendered = session.context(1_500).to_openai()
    waiting = set()
    for message in rendered:
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting


def test_one_message_of_300_kb_is_sliced_covered_and_rendered(memory):
    said = "\n\n".join(
        f"Paragraph {n}: " + "the ferry leaves at 14:20 and costs 37.50 EUR. " * 6
        for n in range(1_000)
    )
    assert len(said) > 290_000
    session = memory.session("s")
    session.append(talk(4))
    session.append(Message.user(said, created_at=START))
    session.append(Message.assistant("I have read it.", created_at=START))
    stored = session.messages(4, 5)[0]
    assert stored.content == said
    assert len(stored.slices) > 10
    edges = [0, *stored.slices, len(said)]
    slices = [said[begin:end] for begin, end in pairwise(edges)]
    assert "".join(slices) == said
    assert all(part.endswith("\n\n") for part in slices[:-1]), "not cut at a blank line"
    windows = [s for s in session.summaries(1) if s.span.start <= 4 < s.span.stop]
    assert len(windows) == len(slices) - 1, "each slice but the last is a window"
    report = session.update()
    assert report.failed == 0
    for budget in (3_000, 8_000):
        context = session.context(budget, view=str(budget))
        assert context.coverage == 1.0
        assert context.total_tokens <= budget
    whole = session.context(120_000, view="all")
    assert said in [message["content"] for message in whole.to_openai()]


@pytest.mark.thorough
@pytest.mark.parametrize("more", ["", "they said more than that " * 20])
def test_20_000_messages_reach_l4_and_the_roots_stay_few(more):
    """Levels keep going, the cheapest cover stays small, and a context of it all fits 8,000.

    Longer messages fill groups by size, not by number.
    """
    with Memory(store=MemoryStore(), token_counter=WordCounter()) as memory:
        session = memory.session("s")
        said = "turn {n} is about as long as what people say" + more
        messages = talk(20_000, said, seconds=2)
        for first in range(0, len(messages), 1_000):
            session.append(messages[first : first + 1_000])
        status = session.status()
        assert status.nodes[1] == 2_000 or more
        assert {4, 5} - ({5} if more else set()) <= status.nodes.keys()
        roots = session.forest()
        assert len(roots) <= 4 + 2 * (max(status.nodes) - 1)
        for wanted in (None, True):
            context = session.context(8_000, view=str(wanted))
            assert context.coverage == 1.0
            assert context.total_tokens <= 8_000
            if wanted is None:
                report = session.update()
                assert report.failed == 0
        assert sum(session.status().unfinished.values()) == 0
        session.close()
        assert len(session.forest()) == 1


def test_the_chars_preset_is_the_published_one():
    """Windows of 6,000 code points, or of what a silence of 20 minutes leaves, over 3,000."""
    config = HierarchyConfig.by_chars()
    assert (config.target, config.min_flush, config.level(2).max_size) == (6000, 3000, 10_000)
    assert config.level(2).fan_in == 40
    assert HierarchyConfig.by_chars(window_chars=4_000).target == 4_000
    assert HierarchyConfig.by_chars(window_chars=4_000).hard_limit == 6_000
