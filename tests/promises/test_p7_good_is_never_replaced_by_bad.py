"""P7: an empty, truncated, refused, over-long or invalid answer never becomes memory."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, happen, logs, opened, place
from sampling import drawn
from stand_ins import talk

from hiermem import LLMResponse, UpdatePolicy
from hiermem.errors import ModelError
from hiermem.process import utc_now
from hiermem.testing.llms import RETURNING, FaultyLLM, ScriptedLLM

#: What nobody can tell from a good answer where there are a handful of words only.
NEEDS_LENGTH = {"echo", "wrong_language"}
#: One call a node and run, so that a run is quick; no pauses, also where all calls fail.
POLICY = UpdatePolicy(batch_delay=0.0, retries=0, max_attempts=3, down_after=None)


class Overheard:
    """A model between the faulty one and the library that remembers each spoilt answer."""

    context_window = None

    def __init__(self, faulty: FaultyLLM, *, remote: bool = False):
        self.faulty, self.remote, self.name = faulty, remote, faulty.name
        self.spoilt: dict[str, str] = {}

    async def complete(self, request) -> LLMResponse:
        before = dict(self.faulty.failed)
        response = await self.faulty.complete(request)
        new = [kind for kind, n in self.faulty.failed.items() if n > before.get(kind, 0)]
        if new and (new[0] not in NEEDS_LENGTH or len(response.text) > 600):
            self.spoilt[response.text] = new[0]
        return response


async def revisions_of(memory):
    """Give every revision that the session ever had."""
    store = memory._handle.store
    nodes = [summary.node for summary in await memory.session("s").summaries()]
    wanted = [(node.id, number) for node in nodes for number in range(1, node.revision + 1)]
    return await store.tree("s").revisions(wanted)


async def check(memory, model):
    """Assert that nothing spoilt is memory, and that what is not made says so."""
    for revision in await revisions_of(memory):
        if revision.model == model.name:
            kind = model.spoilt.get(revision.text)
            assert kind is None, f"{revision.node_id} holds an answer spoilt by {kind}"
            assert not revision.degraded
        assert revision.tokens == memory._handle.counter.count(revision.text)
    for summary in await memory.session("s").summaries():
        node = summary.node
        if node.status in ("pending", "failed"):
            assert node.attempts < 3, "the attempts are spent, yet it is still not made"
        assert node.attempts <= 3 + 4
        if node.status == "active":
            assert summary.made
        if not summary.made or summary.node.children:
            continue
        assert summary.text or not summary.node.input_tokens or summary.node.verbatim


def serving(summaries):
    return {summary.id: summary for summary in summaries if summary.made}


@drawn(70)
@given(
    kind=st.sampled_from(["memory", "memory", "sqlite-memory"]),
    log=logs(most=6),
    rate=st.sampled_from([0.2, 0.6, 1.0]),
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["tokens", "message", "chars"]),
    remote=st.booleans(),
)
async def test_p7_no_spoilt_answer_ever_becomes_memory(kind, log, rate, seed, name, remote):
    """Whatever the model does: contexts keep covering everything, and failed is not the end."""
    if len(log) < 2:
        return
    async with place(kind) as at:
        model = Overheard(FaultyLLM(rate=rate, seed=seed, faults=RETURNING), remote=remote)
        later = Later()
        parts = {"llm": model, "update_policy": POLICY, "clock": later}
        memory = await opened(at, CONFIGS[name], **parts)
        session, half = memory.session("s"), len(log) // 2
        for part in (log[:half], log[half:]):
            for entry in part:
                await _enter(session, entry)
            before = serving(await session.summaries())
            await session.update()
            await check(memory, model)
            for id_, summary in serving(await session.summaries()).items():
                if id_ in before and summary.degraded and not before[id_].degraded:
                    assert summary.input_hash != before[id_].input_hash, (
                        f"{id_} had a good text of the same inputs, now it has the stand-in"
                    )
        await until_done(session)
        await check(memory, model)
        for summary in await session.summaries():
            assert summary.status == "active", f"{summary.id} is {summary.status} for ever"
            assert summary.made
        selection = await session.context(100_000)
        assert selection.coverage == 1.0
        # The faults are gone: what the stand-in said is made anew, and nothing is left to do.
        model.faulty._rate = 0.0
        await until_good(session, later)
        for summary in await session.summaries():
            assert not summary.degraded, f"{summary.id} is degraded for ever"
            assert not summary.node.dirty
        report = await session.update()
        assert (report.made, report.calls, report.failed, report.degraded) == (0, 0, 0, 0)
        await memory.close()


async def until_done(session, most=30):
    """Update until nothing is left unmade; a node may need all its attempts, a run for each."""
    for _ in range(most):
        await session.update()
        made = [s.status == "active" and not s.node.dirty for s in await session.summaries()]
        if all(made):
            return


class Later:
    """A clock that runs ahead by some hours."""

    hours = 0

    def __call__(self):
        return utc_now() + timedelta(hours=self.hours)


async def until_good(session, later):
    """Update until nothing is left that is not good; what was refused is due again in days."""
    for _ in range(12):
        later.hours += 64
        await session.update()


async def _enter(session, entry):
    if isinstance(entry, tuple):
        await happen(session, entry)
    else:
        await session.append(entry)


async def test_p7_a_fit_answer_is_taken():
    """The other side: validation does not refuse everything."""
    model = Overheard(FaultyLLM())
    async with place("memory") as at:
        memory = await opened(at, CONFIGS["tokens"], llm=model, update_policy=POLICY)
        session = memory.session("s")
        await session.append(_conversation(60))
        report = await session.update()
        assert report.made > 20
        assert report.failed == report.degraded == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_p7_while_a_text_is_made_anew_the_old_one_serves(seed, concurrency):
    """A good parent says what it said until its new text, its last, is committed.

    Broken, a parent is made while a text below it is in flight, and then paid for again.
    """
    seen = []

    class Watching(ScriptedLLM):
        async def complete(self, request):
            seen.append({s.id: s.text for s in await session.summaries() if s.made})
            return await super().complete(request)

    log = _conversation(60)
    async with place("memory") as at:
        # First a run in which one window in three comes from the stand-in.
        bad = FaultyLLM(ScriptedLLM(name="m"), rate=0.4, seed=seed, faults=("empty",))
        memory = await opened(
            at,
            CONFIGS["tokens"],
            llm=bad,
            update_policy=POLICY.model_copy(update={"max_attempts": 1, "concurrency": 1}),
        )
        await memory.session("s").append(log)
        await memory.session("s").update()
        first = serving(await memory.session("s").summaries())
        assert any(s.degraded for s in first.values())
        policy = POLICY.model_copy(update={"concurrency": concurrency})
        memory = await opened(at, CONFIGS["tokens"], llm=Watching(name="m"), update_policy=policy)
        session = memory.session("s")
        await session.update()
        last = serving(await session.summaries())
    assert seen
    for moment in seen:
        assert moment.keys() >= first.keys(), "a text stopped serving while it was made anew"
        for id_, said in moment.items():
            assert said in (first[id_].text if id_ in first else said, last[id_].text)


class Late(ScriptedLLM):
    """A model whose answers wait; ``error`` is raised instead of each."""

    def __init__(self, error=None):
        super().__init__(remote=True)
        self.error, self.asked, self.gate = error, asyncio.Event(), asyncio.Event()

    async def complete(self, request):
        self.asked.set()
        await self.gate.wait()
        if self.error:
            raise self.error
        return await super().complete(request)


async def test_p7_a_run_that_was_taken_over_stores_no_stand_in():
    """It slept past its claim; broken, what it has no text for is stored under the new holder."""
    later, policy = Later(), POLICY.model_copy(update={"max_attempts": 1})
    models, runs = (Late(ModelError("no such model")), Late()), []
    async with place("memory") as at:
        for model in models:
            parts = {"llm": model, "update_policy": policy, "clock": later}
            memory = await opened(at, CONFIGS["tokens"], **parts)
            session = memory.session("s")
            if not runs:
                await session.append(_conversation(24))
            later.hours += 2
            runs.append(asyncio.create_task(session.update()))
            await model.asked.wait()
        before, store = await session.summaries(), memory._handle.store
        models[0].gate.set()
        while all(each.outcome == "started" for each in await store.attempts()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await session.summaries() == before
        models[1].gate.set()
        await asyncio.gather(*runs)
        assert all(each.made and not each.degraded for each in await session.summaries())


TALK = (
    "The harbour office wrote that the ferry of {n} minutes past eight was full and that they have "
    "to turn cars away. It is the price of 37.{n:02} EUR that the people on deck {n} complain of, "
    "and what we would change is the plan for the summer. They measured {n} ms for the search and "
    "it was the index that made it slow, so Ada moved the table to file part{n}.sql."
)


def _conversation(count):
    """Write a conversation in plain English, so that an answer in another language can be seen."""
    return talk(count, TALK, seconds=60)
