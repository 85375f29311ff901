"""What a consolidation does, case by case, on both stores: the table of notes and the bank.

Each test is one row, or one case of it. A row that failed would lose a note, apply one twice, or
let a model's mistake into the bank.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest
from bankwork import answer_of, grown
from kinds import of_kind
from sampling import crossed, params

from hiermem import (
    AsyncMemory,
    BankPolicy,
    ConflictError,
    Limits,
    UpdatePolicy,
    UsageError,
)
from hiermem.process import utc_now
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.llms import BANK_FAULTS, RETURNING, FaultyLLM, ScriptedLLM
from hiermem.tokens import FunctionCounter

NAMES = (
    "projectbrief.md", "productContext.md", "activeContext.md", "systemPatterns.md",
    "techContext.md", "progress.md",
)  # fmt: skip
RULES = "# Memory bank\n" + "\n".join(f"- {name}: the {name[:-3]} of it" for name in NAMES)
WORDS = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: Faults after which a call raised, so that nothing was answered.
RAISED = (
    "timeout", "rate_limit", "rate_limit_bare", "server_error", "permanent", "overflow", "crash",
    "refusal",
)  # fmt: skip
#: What is wrong with a summary and nothing to a bank's answer: a few words behind it.
HARMLESS = ("over_long",)


STORES = ("memory", "sqlite")


@pytest.fixture(params=params(STORES, 1))
async def opened(request, tmp_path):
    """Open memories over one store; they are closed in the end."""
    stores, memories = [], []

    async def open_memory(llm=None, rules=RULES, **settings):
        if not stores:
            sqlite = request.param == "sqlite"
            stores.append(
                RecordStore(await SQLiteStore.open(tmp_path / "m.db"))
                if sqlite
                else RecordStore(MemoryStore())
            )
        # One clock for the store and the memory that was opened last.
        stores[0].store._clock = settings.get("clock", utc_now)
        wrapped = settings.pop("wrapped", lambda store: store)(stores[0])
        policy = BankPolicy(**settings.pop("policy", {}))
        settings.setdefault("update_policy", UpdatePolicy(retries=0))
        memory = AsyncMemory(
            store=wrapped, llm=llm, bank_policy=policy, token_counter=WORDS, **settings
        )
        memories.append(memory)
        return memory.space("project-x", rules=rules)

    yield open_memory
    for memory in memories:
        await memory.close()
    for store in stores:
        await store.close()


def ahead(days):
    """Make a clock of that many days from now."""
    return lambda: datetime.now(UTC) + timedelta(days=days)


async def write(space, count, *, start=1):
    for number in range(start, start + count):
        await space.note(
            f"Fact {number} of the project: part {number} is done.",
            agent=f"dev-{number % 4}",
            timestamp=NOON + timedelta(minutes=number // 3),
        )


async def kept(space):
    """Say everything that a consolidation could have changed."""
    return (
        [note.key for note in await space.notes()],
        {name: await space.read(name) for name in await space.files()},
        await space.synthesis(),
        await space.meta(),
        len(await space.history()),
    )


async def state_of_all(space):
    """Count where each note is, and check that the figures say the same."""
    live, consumed = await space.notes(), await space.notes("consumed")
    keys = [note.key for note in (*live, *consumed)]
    assert len(keys) == len(set(keys))
    assert (await space.meta()).notes_processed == len(consumed)
    taken = [key for revision in await space.history() for key in revision.notes]
    assert sorted(taken) == sorted(note.key for note in consumed)
    return len(live), len(consumed)


async def test_scenarios_15_notes_6_files_created_then_30_notes_3_updated_3_unchanged(opened):
    three = ("activeContext.md", "progress.md", "techContext.md")

    def script(request):
        if request.bank.files:
            return answer_of(*(grown(request, name) for name in three))
        numbers = range(1, len(request.bank.notes) + 1)
        return answer_of(dropped=[{"note": number, "reason": "said"} for number in numbers])

    space = await opened(ScriptedLLM(script=script))
    await write(space, 15)
    told = await space.consolidate()
    assert (told.status, told.notes_processed, told.notes_remaining) == ("ok", 15, 0)
    assert told.files_created == tuple(await space.files()) == tuple(sorted(NAMES))
    assert told.files_updated == told.files_unchanged == ()
    assert await space.synthesis()
    await write(space, 30)
    told = await space.consolidate()
    assert (told.status, told.notes_processed) == ("ok", 30)
    assert told.files_updated == three
    assert len(told.files_unchanged) == 3
    assert told.files_created == ()


async def test_scenario_600_notes_are_500_and_100(opened):
    space = await opened()
    await write(space, 600)
    first = await space.consolidate()
    assert (first.status, first.notes_processed, first.notes_remaining) == ("ok", 500, 100)
    assert "100 remain" in first.message
    second = await space.consolidate()
    assert (second.status, second.notes_processed, second.notes_remaining) == ("ok", 100, 0)
    text = "".join([await space.read(name) for name in await space.files()])
    assert all(f"Fact {number} of" in text for number in range(1, 601))
    assert await state_of_all(space) == (0, 600)


@pytest.mark.parametrize("fault", RAISED)
async def test_row_timeout_and_provider_errors_keep_notes_and_bank(opened, fault):
    space = await opened(FaultyLLM(ScriptedLLM(), [fault]))
    await write(space, 3)
    before = await kept(space)
    told = await space.consolidate()
    assert told.status == "error"
    assert (await kept(space))[:3] == before[:3]
    told = await space.consolidate()
    while told.notes_remaining:
        assert told.status == "ok"
        told = await space.consolidate()
    assert await state_of_all(space) == (0, 3)


@pytest.mark.parametrize("tokens", [256, 400])
async def test_row_a_small_answer_takes_fewer_notes_and_cuts_none(tokens):
    """What an answer takes for each file is not there for the notes; the default would cut them."""
    memory = AsyncMemory(store=MemoryStore(), bank_policy=BankPolicy(output_tokens=tokens))
    space = memory.space("x", rules="\n".join(RULES.splitlines()[:4]))
    texts = [
        f"Part {n} of the pump works since the valve {n} was replaced by mechanic number {n}, and "
        f"the pressure of line {n} is held at {n + 20} bar by decision of the team."
        for n in range(12)
    ]
    for text in texts:
        await space.note(text, agent="dev")
    while (told := await space.consolidate()).notes_remaining:
        assert told.status == "ok", told.message
    bank = "".join([await space.read(name) for name in await space.files()])
    assert [text for text in texts if text not in bank] == []


async def test_row_a_model_that_never_answers_is_left_after_its_time(opened):
    llm = FaultyLLM(ScriptedLLM(remote=True), ["never"])
    space = await opened(llm, policy={"call_timeout": 0.05})
    await write(space, 3)
    told = await space.consolidate()
    assert told.status == "error"
    (run,) = await space.runs()
    assert run.detail["unknown"] == 1, "the provider may have charged for it"
    assert await state_of_all(space) == (3, 0)
    assert (await space.consolidate()).status == "ok"


@pytest.mark.parametrize(
    ("fault", "opened"),
    crossed([*BANK_FAULTS, *(f for f in RETURNING if f not in RAISED)], STORES),
    indirect=["opened"],
)
async def test_row_any_bad_answer_once_is_mended_and_twice_keeps_the_notes(opened, fault):
    """The bank has all its files, ten lines in one of them, when the faults come."""
    space = await opened(ScriptedLLM())
    lines = "\n".join(f"line {number} of the brief" for number in range(10))
    await space.note(f"Of the activeContext:\n{lines}")
    assert (await space.consolidate()).status == "ok"
    before = await kept(space)

    faulty = FaultyLLM(ScriptedLLM(), [fault, fault, fault])
    space = await opened(faulty)
    await write(space, 2)
    told = await space.consolidate()
    if fault in HARMLESS:
        assert told.status == "ok"
        return
    assert faulty.failed == {fault: 2}
    assert told.status == "error"
    after = await kept(space)
    assert after[1:3] == before[1:3]
    assert await state_of_all(space) == (2, 1)
    # The third fault is asked about, and the answer to that is a good one.
    while await space.notes():
        assert (await space.consolidate()).status == "ok"
    assert faulty.failed == {fault: 3}
    assert await state_of_all(space) == (0, 3)


async def test_row_over_the_models_window_batches_are_committed_each_on_its_own(opened):
    """What was committed before a failure or a cap stays."""
    llm = ScriptedLLM(context_window=24_000)
    space = await opened(llm, policy={"output_tokens": 256})
    await write(space, 60)
    told = await space.consolidate(limits=Limits(tokens=10))
    assert (told.status, llm.calls) == ("error", 0)
    told = await space.consolidate()
    assert (told.status, told.notes_processed, told.notes_remaining) == ("ok", 60, 0)
    history = await space.history()
    assert len(history) == told.revision == history[0].number == llm.calls > 2
    assert await state_of_all(space) == (0, 60)
    # Told as one change: what the first batch made, and the others changed, was created.
    assert told.files_created == tuple(sorted(NAMES))
    assert told.files_updated == ()
    await write(space, 60, start=61)
    assert (await space.consolidate(limits=Limits(calls=1))).status == "partial"
    faulty = FaultyLLM(llm, [None, "server_error"])
    told = await (await opened(faulty, policy={"output_tokens": 256})).consolidate()
    live, consumed = await state_of_all(space)
    assert (told.status, told.notes_remaining) == ("partial", live)
    assert 60 < consumed == 120 - live < 120
    assert (await space.consolidate()).status == "ok"
    assert await state_of_all(space) == (0, 120)


async def test_row_two_at_once_one_consolidates_and_the_other_is_told(opened):
    """Twelve at once, over two handles of one store: all the notes go in once."""
    llm = ScriptedLLM(remote=True, latency=0.05)
    here, there = await opened(llm), await opened(llm)
    await write(here, 20)
    told = await asyncio.gather(*(space.consolidate() for space in (here, there) * 6))
    statuses = sorted(each.status for each in told)
    assert statuses.count("ok") == 1
    assert set(statuses) <= {"ok", "busy", "nothing_to_do"}
    assert statuses.count("busy") >= 1
    assert sum(each.notes_processed for each in told) == 20
    assert await state_of_all(here) == (0, 20)
    busy = next(each for each in told if each.status == "busy")
    assert busy.files_created == busy.files_updated == ()


async def test_row_rules_that_name_no_file_and_other_rules_are_refused(opened):
    for text in ("", "no file", "docs/progress.md", 3):
        with pytest.raises(UsageError):
            await opened(rules=text)
    space = await opened()
    note = await space.note("x")
    other = await opened(rules=RULES + "\n- other.md: more")
    for call in (other.note("y"), other.consolidate(), other.files(), other.rollback(to=0)):
        with pytest.raises(ConflictError, check=of_kind("rules")):
            await call
    assert await space.notes() == [note]
    assert await (await opened(rules=None)).rules() == RULES


async def test_consumed_notes_stay_until_the_retention_asked_for(opened):
    space = await opened()
    await write(space, 2)
    await space.consolidate()
    assert len(await space.notes("consumed")) == 2
    later = await opened(
        policy={"retention": timedelta(days=30)},
        clock=ahead(days=31),
    )
    await write(later, 1)
    await later.consolidate()
    assert len(await space.notes("consumed")) == 1
    assert (await space.meta()).notes_processed == 3


async def test_a_dry_run_shows_the_difference_and_writes_nothing(opened):
    space = await opened()
    await write(space, 4)
    before = await kept(space)
    dry = await space.consolidate(dry_run=True)
    assert (dry.status, dry.dry_run, dry.notes_processed) == ("ok", True, 4)
    assert "+++ b/progress.md" in dry.diff
    assert await kept(space) == before
    wet = await space.consolidate()
    assert wet.diff == dry.diff
    assert wet.files_created == dry.files_created


async def test_result_and_one_log_record_carry_the_published_figures_and_no_content(opened, caplog):
    space = await opened(ScriptedLLM(script=lambda r: answer_of(grown(r, "progress.md"))))
    await space.note("canary7f3a in a note", agent="dev", category="canary7f3a")
    with caplog.at_level(logging.DEBUG, logger="hiermem"):
        told = await space.consolidate()
    assert told.metrics["notes_processed"] == 1
    assert told.metrics["bank_files_created"] == 6
    assert told.metrics["synthesis_size"] == len(await space.synthesis())
    tokens = told.metrics["llm_prompt_tokens"] + told.metrics["llm_completion_tokens"]
    assert told.metrics["llm_tokens_used"] == tokens > 0
    (record,) = [each for each in caplog.records if each.levelno >= logging.INFO]
    for name, value in told.metrics.items():
        assert f"{name}={value}" in record.getMessage()
        assert getattr(record, name) == value
    assert "canary7f3a" not in caplog.text + told.message
    (run,) = await space.runs()
    assert (run.kind, run.outcome) == ("consolidation", "ok")
    assert "canary7f3a" not in str(run)
