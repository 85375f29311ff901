"""One answer is one change: what it writes, what it expects, and what stands after it.

The writes are put into a real store, so that what is proven is what the store does with them.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bankwork import (
    NOW,
    batch_of,
    batch_settings,
    note,
    notes,
    response,
    state,
    whole,
)
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.bank import change
from hiermem.bank import records as kept
from hiermem.bank.batches import judge, next_batch
from hiermem.bank.change import in_order, leading
from hiermem.bank.files import Applied
from hiermem.bank.prompt import NoteBatch
from hiermem.bank.records import BankState, read_journal
from hiermem.calls.answers import Accepted
from hiermem.errors import StoreCorruptError
from hiermem.stores.memory import MemoryStore
from hiermem.types.bank import Note, SpaceMeta
from hiermem.types.transaction import Cost, Record, RecordWrite

TOOK: Any = {
    "run_id": "run", "model": "model-2026", "spent": Cost(2, 300, 40),
    "llm": "model",
}  # fmt: skip
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)


def handle() -> Any:
    return MemoryStore().tenant("t")


async def records(store: Any, kind: str) -> list[Record]:
    return await store.records(kept.kind_of(kind, "x"), scope=kept.SPACE_SCOPE)


def only(figures: Record) -> dict[str, list[Record]]:
    return {kept.BANK: [], kept.SYNTHESIS: [], kept.META: [figures]}


async def read(store: Any, rules: Any) -> BankState:
    kinds = (kept.BANK, kept.SYNTHESIS, kept.META)
    return kept.read_state("x", rules, {kind: await records(store, kind) for kind in kinds})


async def arrive(store: Any, *texts: str, **more: Any) -> list[Note]:
    for at, text in enumerate(texts):
        found = await records(store, kept.SEQUENCE)
        counter = found[0] if found else None
        draft = Note("", text, NOW, **more)
        _, writes = kept.new_note("x", draft, counter=counter, mark=f"{at:06x}")
        assert await store.put_records(writes)
    return kept.live_notes(await records(store, kept.NOTE), await records(store, kept.BLOCKED))


def answered(bank: BankState, given: list[Note], text: str = "- x") -> Applied:
    numbers = tuple(range(1, len(given) + 1))
    held = bank.texts.get("decisions.md", "# Decisions\n\n## What was decided and why\n")
    part = whole("decisions.md", f"{held}\n{text}\n", notes=numbers)
    verdict = judge(batch_of(bank, given), response(part))
    assert isinstance(verdict, Accepted)
    return verdict.value


async def test_an_answer_is_one_change_and_reads_back_as_it_was_worked_out() -> None:
    store = handle()
    live = await arrive(store, "one", "two", "three")
    bank = await read(store, state().rules)
    after, writes = change.commit(bank, answered(bank, live[:2]), **TOOK, now=NOW)
    assert await store.put_records(writes)
    assert await read(store, bank.rules) == after
    left = kept.live_notes(await records(store, kept.NOTE), [])
    assert [each.text for each in left] == ["three"]
    consumed = kept.consumed_notes(await records(store, kept.CONSUMED))
    assert [replace(each, state="live", consolidation=None, files=()) for each in consumed] == (
        live[:2]
    )
    assert {each.files for each in consumed} == {("decisions.md",)}
    (journal,) = map(read_journal, await records(store, kept.CONSOLIDATION))
    assert journal is not None
    assert journal.notes == tuple(each.key for each in live[:2])
    assert (journal.run_id, journal.calls, journal.tokens_in, journal.tokens_out) == (
        "run", 2, 300, 40,
    )  # fmt: skip
    assert after.meta == SpaceMeta(NOW, 1, 2, 1, model="model")


async def test_a_note_that_was_left_out_and_then_taken_in_leaves_no_count_behind() -> None:
    """Broken, a note that a rollback brings back waits for what is over, and the space grows."""
    store = handle()
    live = await arrive(store, "one", "two")
    bank = await read(store, state().rules)
    applied = replace(answered(bank, live[:1]), unplaced=(live[1],))
    bank, writes = change.commit(bank, applied, **TOOK, now=NOW)
    assert await store.put_records(writes)
    (left,) = await arrive(store)
    assert left.unplaced == 1
    _, writes = change.commit(bank, answered(bank, [left], "- y"), **TOOK, now=NOW)
    assert await store.put_records(writes)
    assert await records(store, kept.BLOCKED) == []


async def test_of_two_changes_worked_out_from_one_state_the_second_writes_nothing() -> None:
    """Two runs at once, or one that was paused and comes back: no note is applied twice."""
    store = handle()
    live = await arrive(store, "one", "two")
    bank = await read(store, state().rules)
    after, first = change.commit(bank, answered(bank, live[:1]), **TOOK, now=NOW)
    _, second = change.commit(bank, answered(bank, live, "- y"), **TOOK, now=NOW)
    assert await store.put_records(first)
    assert not await store.put_records(second)
    assert not await store.put_records(first)
    assert await read(store, bank.rules) == after


async def test_a_change_that_took_in_a_note_which_is_gone_writes_nothing() -> None:
    store = handle()
    live = await arrive(store, "one", "two")
    bank = await read(store, state().rules)
    _, writes = change.commit(bank, answered(bank, live), **TOOK, now=NOW)
    gone = RecordWrite(kept.kind_of(kept.NOTE, "x"), kept.SPACE_SCOPE, live[0].key, None)
    assert await store.put_records([gone])
    assert not await store.put_records(writes)
    assert await records(store, kept.BANK) == []


def test_what_changes_nothing_is_no_change() -> None:
    bank = state({"progress.md": "# P\n"})
    assert change.put(bank, {"progress.md": "# P\n"}, kind="load", now=NOW) == (bank, ())
    assert change.put(bank, {}, kind="rollback", now=NOW, synthesis="Before.") == (bank, ())


async def test_a_failed_answer_halves_the_next_request_and_a_good_one_doubles_it() -> None:
    store = handle()
    live = await arrive(store, *(f"note {n}" for n in range(9)))
    bank = await read(store, state().rules)
    sizes = []
    for _ in range(3):
        batch = batch_of(bank, live)
        sizes.append(len(batch.notes))
        blocked, writes = change.failed(bank, batch.notes, llm="model")
        assert blocked is None
        assert await store.put_records(writes)
        bank = await read(store, bank.rules)
    assert sizes == [9, 4, 2]
    after, _ = change.commit(bank, answered(bank, live[:1]), **TOOK, now=NOW)
    assert after.meta.batch_notes == 2


def lone(bank: BankState, given: Note, llm: str = "model") -> tuple[Note, BankState]:
    """Let a note fail alone; give it and the bank as they are then."""
    _, writes = change.failed(bank, [given], llm=llm)
    trouble, figures = (
        Record(write.kind, write.scope, write.key, str(write.body), 1) for write in writes
    )
    own = Record(
        kept.kind_of(kept.NOTE, "x"), kept.SPACE_SCOPE, given.key, kept.note_body(given), 1
    )
    (after,) = kept.live_notes([own], [trouble])
    return after, kept.read_state("x", bank.rules, only(figures))


def test_a_lone_failure_counts_only_while_the_same_model_takes_in_others() -> None:
    """Otherwise a model that is broken would set one healthy note after the other aside."""
    first, second = notes(2)
    works = replace(state(), meta=SpaceMeta(model="model"))
    failed_once, bank = lone(works, first)
    assert failed_once.failures == 1
    assert in_order([failed_once, second]) == [second, failed_once], "it holds up no other"
    twice, bank = lone(bank, failed_once)
    assert twice.failures == 2
    other, bank = lone(bank, second)
    assert other.failures == 0, "two notes fail: it may be the model"
    again, bank = lone(bank, twice)
    assert again.failures == 2
    assert lone(state(), first)[0].failures == 0, "it never took in a note"
    assert lone(works, first, llm="another")[0].failures == 0


def test_a_request_shows_its_notes_oldest_first_whatever_their_place_in_the_queue() -> None:
    """The model is told that the later of two notes holds."""
    given = [replace(each, unplaced=5 - at) for at, each in enumerate(notes(3))]
    order = in_order(given)
    assert order == given[::-1]
    batch = next_batch(state(), order, batch_settings(), behind=2)
    assert isinstance(batch, NoteBatch)
    assert list(batch.notes) == given[1:]


def test_notes_that_were_left_out_wait_behind_the_others_and_apart_from_them() -> None:
    given = notes(5)
    given[0] = replace(given[0], unplaced=3)
    given[1] = replace(given[1], unplaced=2)
    given[2] = replace(given[2], unplaced=1)
    order = in_order(given)
    assert [given.index(each) for each in order] == [2, 3, 4, 1, 0]
    assert list(leading(order, behind=1)) == order[:3]
    assert list(leading(order[3:], behind=1)) == order[3:4]
    assert list(leading(order[3:], behind=8)) == order[3:]


@drawn(100)
@given(st.lists(st.tuples(st.integers(-3, 3), names, names, st.lists(names, max_size=3)),
                min_size=1, max_size=6))  # fmt: skip
async def test_notes_of_any_agent_read_back_in_the_order_of_time_then_arrival(
    drawn: list[tuple[int, str, str, list[str]]],
) -> None:
    """Odd names of agents orphan no note, and equal times keep the order of arrival."""
    store = handle()
    for number, (shift, agent, category, tags) in enumerate(drawn):
        found = await records(store, kept.SEQUENCE)
        draft = Note(
            "", f"{number}", NOW + timedelta(hours=shift), agent=agent, category=category,
            tags=tuple(tags),
        )  # fmt: skip
        counter = found[0] if found else None
        _, writes = kept.new_note("x", draft, counter=counter, mark="ffffff")
        assert await store.put_records(writes)
    live = kept.live_notes(await records(store, kept.NOTE), [])
    order = sorted(range(len(drawn)), key=lambda n: drawn[n][0])
    assert [int(each.text) for each in live] == order
    for each in live:
        _, agent, category, tags = drawn[int(each.text)]
        assert (each.agent, each.category, each.tags) == (agent, category, tuple(tags))


def test_keys_sort_as_times_do_in_every_year_and_zone() -> None:
    days = [NOW.replace(year=year) for year in (2, 999, 2026, 9998)]
    keys = [kept.note_key(day, 1, "abcdef") for day in days]
    assert keys == sorted(keys)
    assert kept.note_key(NOW, 9, "000000") < kept.note_key(NOW, 10, "000000")


@pytest.mark.parametrize("body", ["", "[]", "{}", "null", '{"text": 1}', "[" * 100_000, "{\x00"])
def test_a_damaged_record_is_said_so(body: str) -> None:
    record = Record(kept.kind_of(kept.NOTE, "x"), kept.SPACE_SCOPE, "key", body, 1)
    for reading in (
        lambda: kept.live_notes([record], []),
        lambda: kept.consumed_notes([record]),
        lambda: kept.read_revisions([record]),
        lambda: kept.read_space(record),
        lambda: kept.read_state("x", state().rules, only(record)),
        lambda: kept.texts_at([record], 9),
        lambda: kept.new_note("x", Note("", "t", NOW), counter=record, mark="0"),
    ):
        with pytest.raises(StoreCorruptError, match="record 'key' of kind 'note/x' is damaged"):
            reading()
    assert read_journal(record) is None


def test_what_a_note_says_is_in_no_journal() -> None:
    _, writes = change.commit(state(), answered(state(), [note("canary7f3a")]), **TOOK, now=NOW)
    (journal,) = (w for w in writes if w.kind == kept.kind_of(kept.CONSOLIDATION, "x"))
    assert "canary7f3a" not in str(journal.body)
