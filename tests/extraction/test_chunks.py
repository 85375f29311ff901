"""Chunks: every message once, no turn parted, the same chunks for the same session."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.errors import UsageError
from hiermem.extraction.chunks import (
    Measured,
    chunk_id,
    chunk_number,
    measure,
    pieces,
    plan,
    sources,
    turns,
    with_days_once,
)
from hiermem.extraction.prompt import dated, line
from hiermem.text.measure import message_hash, message_size, message_tokens
from hiermem.tokens import ApproximateCounter, default_counter
from hiermem.types import Message, Span, StoredMessage, ToolCall

AT = datetime(2024, 3, 15, tzinfo=UTC)
ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


def stored(index: int, message: Message, **fields: object) -> StoredMessage:
    counter = default_counter()
    return StoredMessage(
        index,
        message,
        message_tokens(message, counter),
        message_size(message, unit="tokens", counter=counter),
        message_hash(message),
        **fields,
    )


@st.composite
def logs(draw: st.DrawFn, threads: int = 1) -> list[Measured]:
    rows = draw(
        st.lists(
            st.tuples(ROLES, st.integers(0, 60), st.integers(1, threads)), min_size=1, max_size=60
        )
    )
    return [
        Measured(index, f"t{thread}", role, tokens, f"h{index}" if tokens else "")
        for index, (role, tokens, thread) in enumerate(rows)
    ]


def halves(size: dict[int, int]):
    def cut(index: int, room: int) -> list[Measured]:
        left, begin, found = size[index], 0, []
        while left > 0:
            part = min(room, left)
            left -= part
            end = begin + part if left else None
            piece = Measured(index, "t", "user", part, f"h{index}.{begin}", begin=begin, end=end)
            found.append(piece)
            begin += part
        return found

    return cut


@given(logs(threads=3), st.integers(1, 120), st.sampled_from(["fail", "slice"]))
def test_every_message_is_in_exactly_one_chunk(log, limit, oversized) -> None:
    size = {m.index: m.tokens for m in log}
    found = plan("s", turns(log), limit=limit, oversized=oversized, cut=halves(size))
    assert [c.id for c in found] == [f"s:chunk:{n}" for n in range(len(found))]
    assert [c.number for c in found] == list(range(len(found)))
    covered = [
        (index, span.start_char if index == span.start else 0)
        for c in found
        for span in c.spans
        for index in range(span.start, span.stop)
    ]
    assert len(covered) == len(set(covered))
    assert {index for index, _ in covered} == set(size)
    assert sum(c.tokens for c in found) == sum(size.values())
    if oversized == "slice":
        assert all(c.tokens <= limit for c in found)
    else:
        home = {n: c.number for c in found for s in c.spans for n in range(s.start, s.stop)}
        assert all(len({home[m.index] for m in turn}) == 1 for turn in turns(log))
    assert len(plan("s", turns(log), limit=None)) == 1


@given(logs(), st.integers(1, 120))
def test_one_threads_chunks_are_filled_greedily_with_whole_turns(log, limit) -> None:
    """Their spans tile the session; only a turn that is over alone is over."""
    all_turns = turns(log)
    found = plan("s", all_turns, limit=limit)
    weight = {turn[0].index: sum(m.tokens for m in turn) for turn in all_turns}
    assert all(m.role != "user" for turn in all_turns for m in turn[1:])
    assert all(c.spans == (c.span,) for c in found)
    assert (found[0].span.start, found[-1].span.stop) == (0, len(log))
    for before, after in pairwise(found):
        assert before.span.stop == after.span.start
        assert before.tokens + weight[after.span.start] > limit or before.oversized
    for c in found:
        assert c.span.start in weight, "a turn is parted"
        assert c.oversized == (c.tokens > limit)
        assert not c.oversized or c.turns == 1
    assert sum(c.turns for c in found) == len(all_turns)


@given(logs(), st.integers(1, 120), logs())
def test_appending_changes_only_the_last_chunk(log, limit, more) -> None:
    longer = log + [
        Measured(len(log) + m.index, m.thread, m.role, m.tokens, f"n{m.index}") for m in more
    ]
    before = plan("s", turns(log), limit=limit)
    after = plan("s", turns(longer), limit=limit)
    assert after[: len(before) - 1] == before[:-1]


def test_an_exchange_group_stays_whole_where_a_turn_is_sliced() -> None:
    log = [
        Measured(0, "main", "user", 30, "a"),
        Measured(1, "main", "assistant", 30, "b", calls=("x",)),
        Measured(2, "main", "tool", 30, "c", result_of="x"),
        Measured(3, "main", "assistant", 30, "d"),
    ]
    found = plan("s", turns(log), limit=70, oversized="slice", cut=halves({}))
    assert [(c.span.start, c.span.stop) for c in found] == [(0, 1), (1, 3), (3, 4)]
    assert all(c.oversized for c in found)


def test_the_input_hash_covers_messages_their_numbers_and_the_strategy() -> None:
    def hashed(strategy: str = "", first: int = 0, name: str = "a") -> str:
        log = [Measured(first, "main", "user", 5, name)]
        return plan("s", turns(log), limit=None, strategy=strategy)[0].input_hash

    assert hashed() == hashed()
    assert len({hashed(), hashed(strategy="x"), hashed(first=1), hashed(name="b")}) == 4
    assert plan("other", turns([Measured(0, "main", "user", 5, "a")]), limit=None)[
        0
    ].input_hash == (hashed())


def test_what_is_erased_or_our_own_is_covered_and_costs_nothing() -> None:
    count = default_counter().count
    text = "hello there"
    log = [
        stored(0, Message.user(text, created_at=AT)),
        stored(1, Message.assistant(text, created_at=AT), state="erased"),
        stored(2, Message.assistant("   ", created_at=AT)),
        stored(3, Message.user(text, created_at=AT), echoes=((0, len(text)),)),
    ]
    measured = list(with_days_once([measure(each, count=count) for each in log]))
    assert [bool(m.tokens) for m in measured] == [True, False, False, False]
    [only] = plan("s", turns(measured), limit=None)
    assert only.span == Span(0, 4)
    assert [source.index for source in sources(log, only)] == [0]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans()), max_size=30),
       st.integers(30, 200))  # fmt: skip
def test_a_chunk_never_costs_more_than_was_counted_and_the_day_above_it(
    drawn: list[tuple[str, int, bool]], limit: int
) -> None:
    """Where threads interleave, a chunk has other neighbours than the session, and other days."""
    counter = default_counter()
    day, log = AT, []
    for n, (thread, later, answers) in enumerate(drawn):
        day += timedelta(days=later)
        make = Message.assistant if answers else Message.user
        log.append(stored(n, make(f"Line {n}.", created_at=day, thread=thread)))
    measured = list(with_days_once([measure(each, count=counter.count) for each in log]))
    for c in plan("s", turns(measured), limit=limit):
        said = sources(log, c)
        lines, shown = [], ""
        for each in said:
            lines += [dated(each.date)] * (each.date != shown) + [line(each)]
            shown = each.date
        assert counter.count("".join(lines)) <= c.tokens + counter.count(dated(said[0].date))


def test_what_a_message_counts_depends_on_no_later_message() -> None:
    """Otherwise the first message of a second thread would move chunks that were paid for."""
    counter = default_counter()
    log = [stored(n, Message.user(f"Line {n}.", created_at=AT)) for n in range(6)]
    other = stored(6, Message.user("Line 6.", created_at=AT, thread="b"))
    measured = [measure(each, count=counter.count) for each in (*log, other)]
    assert list(with_days_once(measured))[:6] == list(with_days_once(measured[:6]))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), min_size=1, max_size=12),
       st.integers(0, 11))  # fmt: skip
def test_an_erasure_changes_what_no_other_message_counts(
    drawn: list[tuple[str, int]], chosen: int
) -> None:
    """Otherwise an erasure would move the chunks behind it, and each would be asked for again."""
    counter = default_counter()
    erased, day, before, after = chosen % len(drawn), AT, [], []
    for n, (thread, later) in enumerate(drawn):
        day += timedelta(days=later)
        message = Message.user(f"Line {n}.", created_at=day, thread=thread)
        before.append(stored(n, message))
        after.append(stored(n, message, state="erased" if n == erased else "live"))
    counted, again = (
        [m.tokens for m in with_days_once([measure(each, count=counter.count) for each in log])]
        for log in (before, after)
    )
    assert again[erased] < counted[erased]
    assert again[:erased] + again[erased + 1 :] == counted[:erased] + counted[erased + 1 :]


@pytest.mark.parametrize("room", [20, 60, 400])
def test_the_pieces_of_a_message_are_its_text_within_the_room(room: int) -> None:
    counter = default_counter()
    text = "\n".join(f"row {n}: the quick brown fox jumps.\n\n" for n in range(80))
    big = stored(5, Message.user(text, created_at=AT, name="Ada"))
    cut = pieces(big, room, counter=counter)
    assert cut[0].begin == 0
    assert cut[-1].end is None
    assert all(a.end == b.begin for a, b in pairwise(cut))
    assert max(piece.tokens for piece in cut) <= room
    log = [measure(big, count=counter.count)]
    found = plan(
        "s", turns(log), limit=room, oversized="slice",
        cut=lambda _, limit: pieces(big, limit, counter=counter),
    )  # fmt: skip
    said = "".join(source.text for c in found for source in sources([big], c))
    assert said.split() == text.split()


def test_calls_are_read_as_the_text_they_stand_for() -> None:
    call = ToolCall("c1", "bash", '{"command":"ls"}')
    log = [stored(0, Message.assistant("look", tool_calls=[call], created_at=AT))]
    [m] = [measure(each, count=ApproximateCounter().count) for each in log]
    assert m.calls == ("c1",)
    [only] = plan("s", turns([m]), limit=None)
    assert "bash(" in sources(log, only)[0].text


def test_ids_and_limits_are_checked() -> None:
    assert chunk_number(chunk_id("a:chunk:1", 7)) == 7
    for wrong in ("a", "a:chunk:", "a:chunk:x", "a:chunk:-1"):
        with pytest.raises(UsageError):
            chunk_number(wrong)
    assert plan("s", (), limit=5) == ()
