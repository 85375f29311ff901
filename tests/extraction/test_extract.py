"""Extraction from beginning to end: parting, failures, resuming, the kept result, the graph."""

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sampling import crossed, params

from hiermem import AsyncMemory, Limits, Message
from hiermem.api.extractor import SemanticGraphExtractor
from hiermem.config import ExtractionOptions, UpdatePolicy
from hiermem.errors import (
    ConfigError,
    InvalidMessageError,
    ModelError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.extraction import prompt as extract_prompt
from hiermem.extraction.chunk import CLAIM, ExtractionRun
from hiermem.extraction.chunks import Chunk
from hiermem.prompts import load_named
from hiermem.protocols import LLMResponse, Usage
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.faults import SITES, DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import FunctionCounter
from hiermem.types.transaction import RecordWrite

COUNTER = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")
START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
TEMPLATE = load_named("extract.map")
QUICK = UpdatePolicy(batch_delay=0.0, retries=0)
ONE = UpdatePolicy(batch_delay=0.0, retries=0, concurrency=1)
#: What the scripted model finds; besides, "?question" and "!decision".
_THING = re.compile(r"@(\w+)/(\S+)")
_LINK = re.compile(r"@(\S+?)>(\w+)>(\S+)")


def limit_for(room, *, output=300):
    """Give the limit that leaves ``room`` tokens of record."""
    most = 10**6
    left = extract_prompt.room(TEMPLATE, limit=most, reserve=output, count=COUNTER.count)
    return most - left + room


def options(room=None, **settings):
    if room is not None:
        settings["safe_processing_tokens"] = limit_for(room)
    return ExtractionOptions(**{"output_tokens": 300, "summary_tokens": 60, **settings})


def answer(request):
    """Answer as a model that finds what is marked in the record."""
    if request.task != "extract":
        return "- " + " ".join(source.text.replace("\n", " ") for source in request.inputs)[:200]
    things, links, deltas, decisions = {}, [], [], []
    for source in request.inputs:
        for type_, name in _THING.findall(source.text):
            known = things.setdefault((type_, name), {"messages": []})
            known["messages"].append(source.index)
        for left, verb, right in _LINK.findall(source.text):
            links.append((left, verb, right, source.index))
        deltas += [(w[1:], source.index) for w in source.text.split() if w.startswith("?")]
        decisions += [(w[1:], source.index) for w in source.text.split() if w.startswith("!")]
    types = {name: type_ for type_, name in things}
    first, last = request.inputs[0].index, request.inputs[-1].index
    return json.dumps(
        {
            "summary": f"messages {first} to {last} say " + f"p{first} " * 20,
            "features": ["store.core"],
            "entities": [
                {"type": type_, "name": name, "aliases": [], "description": f"seen at {first}",
                 "tags": ["t"], "confidence": 0.5, "messages": known["messages"][:16]}
                for (type_, name), known in things.items()
            ],
            "relations": [
                {"source": {"type": types.get(left, "concept"), "name": left}, "relation": verb,
                 "target": {"type": types.get(right, "concept"), "name": right}, "weight": 0.5,
                 "justification": "it says so", "messages": [index]}
                for left, verb, right, index in links
            ],
            "deltas": [{"kind": "question", "text": text, "open": True, "messages": [index]}
                       for text, index in deltas],
            "strategy": [{"kind": "decision", "text": text, "messages": [index]}
                         for text, index in decisions],
        }
    )  # fmt: skip


def scripted(**settings):
    script = settings.pop("script", None)
    return ScriptedLLM(script=lambda request: (script and script(request)) or answer(request),
                       **settings)  # fmt: skip


def talk(turns, *, start=0, words=30):
    """Give ``turns`` turns of two messages of about ``words`` words each."""
    for n in range(start, start + turns):
        filler = " ".join(f"w{n}x{k}" for k in range(words))
        at = START + timedelta(minutes=n)
        yield Message.user(f"@technology/SQLite @concept/topic{n} {filler}", created_at=at)
        yield Message.assistant(f"@person/Ada @Ada>uses>SQLite {filler}", created_at=at)


STORES = ("memory", "sqlite")


@pytest.fixture(params=params(STORES, 1))
async def store(request, tmp_path):
    opened = (
        RecordStore(MemoryStore())
        if request.param == "memory"
        else RecordStore(await SQLiteStore.open(tmp_path / "x"))
    )
    yield opened
    await opened.close()


def memory(store, llm, **settings):
    settings = {"update_policy": QUICK, **settings}
    return AsyncMemory(store=store, llm=llm, token_counter=COUNTER, **settings)


async def said(store, llm, messages, session="s", **settings):
    session = memory(store, llm, **settings).session(session, title="Title", participants=["Ada"])
    await session.append(list(messages))
    return session


async def run_of(store, report, tenant="default"):
    (found,) = [r for r in await store.tenant(tenant).runs() if r.id == report.run_id]
    return found


# -- one pass


async def test_a_small_session_is_one_pass(store):
    """Under the threshold there is one chunk, one call, and the report says so."""
    llm = scripted()
    session = await said(store, llm, talk(3))
    report = await session.extract(options(10_000))
    assert (report.outcome, report.chunked, report.chunking) == ("ok", False, "under_threshold")
    assert llm.calls == report.calls == 1
    (chunk,) = report.chunks
    assert (chunk.id, chunk.status, chunk.turns, chunk.messages) == ("s:chunk:0", "made", 3, 6)
    assert (chunk.span.start, chunk.span.stop) == (0, 6)
    assert report.estimate <= report.threshold
    vector = report.tri_vector
    assert vector.summary.startswith("messages 0 to 5")
    assert {(e.type, e.name) for e in vector.entities} >= {
        ("technology", "SQLite"), ("person", "Ada"), ("concept", "topic2"),
    }  # fmt: skip
    assert [r.relation for r in vector.relations] == ["uses"]
    assert vector.missing == ()


async def test_a_limit_without_room_or_over_the_window_is_refused_before_anything(store):
    """Nothing is written and no model is called."""
    llm = scripted(context_window=5000)
    session = await said(store, llm, talk(2))
    for asked in (limit_for(0), 100, 5001):
        with pytest.raises(ConfigError):
            await session.extract(options(safe_processing_tokens=asked))
    for window in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="context_window"):
            memory(store, scripted(context_window=window))
    assert llm.calls == 0
    assert await session.runs() == []
    with pytest.raises(NotFoundError):
        await memory(store, llm).session("none").extract()


# -- chunks


async def test_a_large_session_is_chunked_with_ids_and_spans_that_tile_it(store):
    """Ids count from 0, spans tile, no chunk is over the limit, no turn is split."""
    llm = scripted()
    session = await said(store, llm, talk(20))
    report = await session.extract(options(300))
    assert (report.outcome, report.chunked, report.chunking) == ("ok", True, "over_threshold")
    assert len(report.chunks) > 3
    assert [c.id for c in report.chunks] == [f"s:chunk:{n}" for n in range(len(report.chunks))]
    at = 0
    for chunk in report.chunks:
        assert chunk.span.start == at
        assert chunk.span.start % 2 == 0, "a turn is split"
        assert chunk.tokens <= 300
        assert not chunk.oversized
        at = chunk.span.stop
    assert at == 40
    for request in llm.requests:
        if request.task == "extract":
            prompt = extract_prompt.request_tokens(request.messages, COUNTER.count)
            schema = extract_prompt.schema_tokens(COUNTER.count)
            assert prompt + schema + request.max_tokens <= report.threshold
    maps = [r for r in llm.requests if r.task == "extract"]
    assert len(maps) == len(report.chunks)
    assert report.calls == llm.calls == len(maps) + report.reduce.calls
    assert report.chunked_tokens > report.single_pass_tokens


# -- oversized turns


async def _oversized(store, llm):
    messages = [*talk(2), Message.user("start"), Message.assistant("@file/big.py " + "z " * 500),
                *talk(2, start=2)]  # fmt: skip
    return await said(store, llm, messages)


async def test_an_oversized_turn_fails_as_such_before_anything_is_paid(store):
    llm = scripted()
    session = await _oversized(store, llm)
    report = await session.extract(options(150))
    assert report.outcome == "error"
    assert report.tri_vector is None
    (failure,) = report.failures
    assert (failure.reason, failure.attempts, failure.phase) == ("oversized", 0, "map")
    # The limit itself would mislead: what a record may have of it is much less.
    assert "over the room of 150 that the limit leaves for a record" in failure.detail
    assert "output_tokens than the 300 that are kept for the answer" in failure.detail
    (chunk,) = [c for c in report.chunks if c.oversized]
    assert (chunk.id, chunk.status, chunk.reason) == (failure.id, "failed", "oversized")
    assert llm.calls == 0
    run = await run_of(store, report)
    assert run.outcome == "error"
    assert run.detail["failures"][0]["reason"] == "oversized"


async def test_an_oversized_turn_is_sliced_where_asked(store):
    """Its parts keep under the limit, tile the message, and what was made before is reused."""
    llm = scripted()
    session = await _oversized(store, llm)
    partial = await session.extract(options(150, on_chunk_failure="partial"))
    calls = llm.calls
    report = await session.extract(options(150, oversized="slice"))
    assert report.outcome == "ok"
    assert all(chunk.tokens <= 150 for chunk in report.chunks)
    parts = [chunk for chunk in report.chunks if chunk.oversized]
    assert len(parts) > 3
    first = partial.chunks.index(next(c for c in partial.chunks if c.oversized))
    assert [c.status for c in report.chunks[:first]] == ["reused"] * first
    assert report.map.calls == llm.calls - calls - report.reduce.calls
    assert [e.name for e in report.tri_vector.entities if e.type == "file"] == ["big.py"]


# -- failures of a chunk


def _at(chunk_word, what):
    """Fail where the record holds ``chunk_word``."""

    def script(request):
        if request.task == "extract" and any(chunk_word in s.text for s in request.inputs):
            given = what(request) if callable(what) else what
            if isinstance(given, Exception):
                raise given
            return given
        return None

    return script


def _cut(request):
    text = answer(request)
    return LLMResponse(text[: len(text) // 2], Usage(9, 9), finish_reason="length")


BAD = {
    "at_its_limit": (lambda r: replace(_cut(r), text=answer(r)), "truncated"),
    "overflow": (lambda r: ModelError("secret words", kind="overflow"), "overflow"),
    "truncated": (_cut, "truncated"),
    "not_json": (lambda r: "I am sorry, here is no JSON", "schema"),
    "wrong_schema": (lambda r: '{"summary": 3}', "schema"),
    "unknown_field": (lambda r: answer(r)[:-1] + ', "secret": 1}', "schema"),
    "deep": (lambda r: '{"summary":' + "[" * 2000, "schema"),
    "timeout": (lambda r: ModelError("secret words", kind="timeout"), "timeout"),
    "late": (lambda r: TimeoutError(), "timeout"),
    "server": (lambda r: ModelError("secret words", kind="transient"), "provider"),
    "auth": (lambda r: ModelError("secret words"), "provider"),
    "crash": (lambda r: RuntimeError("secret words"), "provider"),
    "refusal": (lambda r: LLMResponse("", Usage(1, 0), finish_reason="refusal"), "provider"),
}


@pytest.mark.parametrize(("name", "store"), crossed(sorted(BAD), STORES), indirect=["store"])
async def test_a_failed_chunk_is_reported_and_the_reduce_not_done(store, name):
    """Abort: no result, and the run says which chunk, after how many calls, and why."""
    what, reason = BAD[name]
    llm = scripted(script=_at("topic5", what), remote=True)
    session = await said(store, llm, talk(12))
    report = await session.extract(options(150))
    assert (report.outcome, report.tri_vector) == ("error", None)
    assert report.reduce.state == "skipped"
    failed = [c for c in report.chunks if c.status == "failed"]
    assert [(f.id, f.reason) for f in report.failures] == [(failed[0].id, reason)]
    expected = 2 if reason == "schema" else 1
    assert report.failures[0].attempts == failed[0].calls == expected
    run = await run_of(store, report)
    assert (run.kind, run.outcome, run.subject) == ("extraction", "error", "s")
    assert run.detail["failures"] == [
        {"id": failed[0].id, "phase": "map", "reason": reason, "attempts": expected,
         "detail": report.failures[0].detail}
    ]  # fmt: skip
    assert "secret" not in json.dumps(run.detail)
    assert await session.tri_vector() is None
    assert await memory(store, llm).graph.entity("SQLite") is None
    # No task of the failed run is left, no claim either: the next one pays for the rest alone.
    made = sum(c.status == "made" for c in report.chunks)
    good = scripted(remote=True)
    again = await memory(store, good).session("s").extract(options(150))
    assert again.outcome == "ok"
    assert sum(r.task == "extract" for r in good.requests) == len(report.chunks) - made


async def test_partial_says_what_is_missing(store):
    llm = scripted(script=_at("topic5", ModelError("x", kind="timeout")))
    session = await said(store, llm, talk(12))
    report = await session.extract(options(150, on_chunk_failure="partial"))
    (failure,) = report.failures
    assert report.outcome == "partial"
    assert report.tri_vector.missing == (failure.id,)
    assert [c.status for c in report.chunks].count("failed") == 1
    assert [c.status for c in report.chunks].count("made") == len(report.chunks) - 1
    assert "topic5" not in {e.name for e in report.tri_vector.entities}
    assert (await session.tri_vector()).missing == (failure.id,)
    assert (await run_of(store, report)).outcome == "partial"


# -- paying once


async def test_a_second_run_makes_no_call_and_the_journal_tells_what_the_report_tells(store):
    """Broken once: the seconds were the map's alone, and the reduction cost no tokens."""
    session = await said(store, Slow(0.2), talk(12))
    report = await session.extract(options(150))
    assert report.seconds >= report.map.seconds + report.reduce.seconds
    assert report.reduce.seconds >= 0.2
    assert report.chunked_tokens > sum(chunk.request_tokens for chunk in report.chunks)
    run = await run_of(store, report)
    assert (run.outcome, run.detail["map"]["state"]) == ("ok", "ok")
    assert run.ended_at is not None
    for name in ("model", "live", "calls", "chunked_tokens"):
        assert run.detail[name] == getattr(report, name)
    assert [c["id"] for c in run.detail["chunks"]] == [c.id for c in report.chunks]
    assert run.detail["reduce"]["calls"] == report.reduce.calls == 1
    assert "w0x0" not in json.dumps(run.detail), "text of a message in the run's record"
    again = await session.extract(options(150))
    assert (again.calls, again.chunked_tokens) == (0, report.chunked_tokens)
    assert {c.status for c in again.chunks} == {"reused"}
    assert await session.tri_vector() == again.tri_vector == report.tri_vector


@pytest.mark.parametrize("how", ["erase", "quarantine", "edit"])
async def test_a_changed_message_costs_its_own_chunk_and_no_other(store, how):
    """Broken, one erasure makes the next extraction pay for the whole session again."""
    llm = scripted()
    session = await said(store, llm, talk(12))
    first = await session.extract(options(150))
    assert len(first.chunks) == 6
    (theirs,) = [c for c in first.chunks if c.span.start <= 9 < c.span.stop]
    if how == "edit":
        await session.edit(9, "@person/Bob " + "other " * 29)
    else:
        receipt = await getattr(session, how)([9])
        records = await store.tenant("default").records("chunk", scope="s")
        left = {c.input_hash for c in first.chunks} - {theirs.input_hash}
        assert {r.key for r in records} == left
        assert not any("w4x3 " in r.body for r in records)
        assert receipt.removed["records"] > 1, "what was made of all of them went too"
    before = len(llm.requests)
    second = await session.extract(options(150))
    asked = [r for r in llm.requests[before:] if r.task == "extract"]
    assert len(asked) == 1
    assert {source.index for source in asked[0].inputs} <= set(range(8, 12))
    assert [c.status for c in second.chunks].count("reused") == 5
    assert await session.tri_vector() == second.tri_vector


@pytest.mark.parametrize("cap", ["session_calls", "tenant_calls", "max_calls"])
async def test_a_cap_ends_the_run_and_the_next_one_goes_on(store, cap):
    """Else a cap on the money would hold for one half of what spends it."""
    llm = scripted(remote=True)
    session = await said(store, llm, talk(12))
    if cap == "max_calls":
        report = await session.extract(options(150), limits=Limits(calls=2))
    else:
        policy = UpdatePolicy(batch_delay=0, retries=0, **{cap: 2})
        capped = memory(store, llm, update_policy=policy).session("s")
        report = await capped.extract(options(150))
        assert (await capped.extract(options(150))).calls == 0
    assert (report.outcome, report.stopped, report.calls) == ("error", cap, 2)
    assert [c.status for c in report.chunks].count("made") == 2
    again = await session.extract(options(150))
    assert (again.outcome, again.reused) == ("ok", 2)
    assert sum(r.task == "extract" for r in llm.requests) == len(again.chunks)


@pytest.mark.parametrize("at", [1, 2, 3, 5])
async def test_a_cancelled_run_is_resumed_and_pays_once(store, at):
    """What was answered before the cancellation is not asked for again, and no claim is left."""
    answered = []
    stop = asyncio.Event()

    def counting(request):
        if len(answered) == at:
            stop.set()
        answered.append(request.inputs[0].text)

    llm = scripted(script=counting, remote=True, latency=0.02)
    session = await said(store, llm, talk(12), update_policy=ONE)
    task = asyncio.create_task(session.extract(options(150)))
    await stop.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await session.runs()
    assert run.outcome == "interrupted"
    kept = await store.tenant("default").records("chunk", scope="s")
    assert len(kept) == at
    attempts = await store.tenant("default").attempts(run_id=run.id)
    assert [a.outcome for a in attempts] == ["ok"] * at + ["unknown"]
    report = await session.extract(options(150))
    assert report.outcome == "ok"
    assert report.reused == at
    # Only the call that was cut off is made twice.
    maps = [r for r in llm.requests if r.task == "extract"]
    assert len(maps) == len(report.chunks) + 1


@pytest.mark.parametrize("remote", params([True, False], 1))
async def test_killed_at_every_operation_it_is_resumed_and_pays_once(remote, every):
    """Dead before or after any store operation: the next run asks only for what is not on record,
    and ends with the same result as one that was never disturbed."""
    undisturbed = await said(RecordStore(MemoryStore()), scripted(remote=remote), talk(6))
    expected = (await undisturbed.extract(options(150))).tri_vector
    for at in range(0, 400, every(3)):
        clock = [START]
        store = RecordStore(MemoryStore(clock=lambda clock=clock: clock[0]))
        plan = FaultPlan({at: "die"}, only=frozenset(s for s in SITES if "mutate" not in s))
        llm = scripted(remote=remote)
        await said(store, llm, talk(6))
        faulty = memory(
            FaultyStore(store, plan), llm, clock=lambda clock=clock: clock[0], update_policy=ONE
        )
        try:
            await faulty.session("s").extract(options(150))
        except DiedError:
            pass
        else:
            break
        records = await store.tenant("default").records("chunk", scope="s")
        on_record = sum('"answer"' in r.body for r in records)
        maps = sum(r.task == "extract" for r in llm.requests)
        assert maps - on_record <= 1, "an answer that was paid for is not on record"
        clock[0] += timedelta(minutes=5)
        after = memory(store, llm, clock=lambda clock=clock: clock[0])
        before = len(llm.requests)
        report = await after.session("s").extract(options(150))
        assert report.outcome == "ok"
        assert report.tri_vector == expected
        asked = sum(r.task == "extract" for r in llm.requests[before:])
        assert asked == len(report.chunks) - on_record
        tried = await store.tenant("default").attempts(limit=1000)
        assert "started" not in {a.outcome for a in tried}, "a call that was cut off is still open"
        assert report.unknown == sum(a.outcome == "unknown" for a in tried)
        runs = await store.tenant("default").runs()
        assert {r.outcome for r in runs} <= {"ok", "interrupted"}
    assert 20 < at < 390


async def test_an_answer_is_kept_until_a_whole_result_does_not_use_it(store):
    """Broken if answers of old limits piled up, or a run that fails lost what is paid for."""
    tenant = store.tenant("default")

    async def kept():
        return {record.key for record in await tenant.records("chunk", scope="s")}

    llm = scripted()
    session = await said(store, llm, talk(12))
    whole = await session.extract(options(150))
    used = {chunk.input_hash for chunk in whole.chunks}
    assert await kept() == used
    assert not (await session.extract(options(230), limits=Limits(calls=1))).tri_vector
    assert used < await kept(), "a run that did not come to its end deletes nothing"
    other = await session.extract(options(230))
    assert await kept() == {chunk.input_hash for chunk in other.chunks}
    steps = len(await tenant.records("join", scope="s"))
    assert steps == other.reduce.calls > 0
    assert (await session.extract(options(230))).calls == 0


async def test_a_partial_result_never_replaces_a_whole_one_of_the_same_messages(store):
    """The report has it; what is on record, and the graph, stay the better ones."""
    good = scripted()
    session = await said(store, good, talk(12))
    whole = await session.extract(options(150))
    assert whole.kept
    bad = scripted(name="bad", script=_at("topic5", ModelError("x", kind="timeout")))
    other = memory(store, bad).session("s")
    worse = await other.extract(options(150, on_chunk_failure="partial"))
    assert (worse.outcome, worse.kept) == ("partial", False)
    assert worse.tri_vector.missing
    assert (await run_of(store, worse)).detail["kept"] is False
    assert await session.tri_vector() == whole.tri_vector
    assert (await memory(store, good).graph.entity("topic5")).sessions == ("s",)
    # Of more messages a part is news, and a whole one of them takes its place again.
    await session.append(*talk(1, start=12))
    news = await other.extract(options(150, on_chunk_failure="partial"))
    assert (news.outcome, news.kept) == ("partial", True)
    assert await session.tri_vector() == news.tri_vector
    assert await memory(store, good).graph.entity("topic5") is None
    last = await session.extract(options(150))
    assert last.kept
    assert await session.tri_vector() == last.tri_vector


async def test_a_partial_run_deletes_no_step_of_the_whole_one(store):
    """Its summaries are others; those of the whole result are paid for and wanted again."""
    failing = []

    def script(request):
        return _at("topic5", ModelError("x", kind="timeout"))(request) if failing else None

    llm = scripted(script=script)
    session = await said(store, llm, talk(12))
    whole = await session.extract(options(150))
    assert whole.reduce.calls > 0
    records = await store.tenant("default").records("chunk", scope="s")
    lost = next(c.input_hash for c in whole.chunks if c.span.start <= 10 < c.span.stop)
    failing.append(True)
    (record,) = [each for each in records if each.key == lost]
    await store.tenant("default").put_records([RecordWrite("chunk", "s", record.key, "damaged")])
    part = await session.extract(options(150, on_chunk_failure="partial"))
    assert part.outcome == "partial"
    failing.clear()
    again = await session.extract(options(150))
    assert (again.map.calls, again.reduce.calls) == (1, 0)


# -- the record of the run


async def test_an_extraction_whose_record_cannot_be_written_fails(store):
    """Whenever the run's record fails for good, extract raises; never is a result given."""
    # When it begins, before the result is kept, at the end; and when a chunk's failure is noted.
    for at, script in ((0, None), (1, None), (2, None), (1, lambda _: "no JSON")):
        faults = dict.fromkeys(range(at, 400), "fail")
        plan = FaultPlan(faults, only=frozenset({"transact.before"}))
        llm, name = scripted(script=script), f"{at}{script is None}"
        await said(store, llm, talk(6), session=name)
        broken = memory(FaultyStore(store, plan), llm)
        with pytest.raises(StoreError):
            await broken.session(name).extract(options(150, on_chunk_failure="partial"))
        if at < 2:
            assert await memory(store, llm).session(name).tri_vector() is None


async def test_messages_that_are_gone_are_said_so(store):
    """A hole in the log must not become a session that says less."""

    class Lossy:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        async def messages(self, *args):
            return (await self.inner.messages(*args))[:-1]

    llm = scripted()
    session = await said(store, llm, talk(3))
    session._handle.store = Lossy(session._handle.store)
    with pytest.raises(StoreCorruptError, match="5 of the 6"):
        await session.extract(options())
    assert llm.calls == 0


# -- the summary's reduction


async def test_summaries_that_exceed_a_request_are_joined_in_one(store):
    """The request is within the limit, has lines of early and late chunks, and is paid for once."""

    def script(request):
        said = " ".join(request.inputs[0].text.split()[:40])
        return None if request.task == "extract" else "- joined " + said

    def wordy(request):
        if request.task != "extract":
            return script(request)
        found = json.loads(answer(request))
        found["summary"] = " ".join(f"s{request.inputs[0].index}n{n}" for n in range(50))
        return json.dumps(found)

    llm = scripted(script=wordy)
    session = await said(store, llm, talk(40))
    report = await session.extract(options(100, summary_tokens=60))
    n = len(report.chunks)
    assert n >= 16
    (request,) = joins(llm)
    prompt = extract_prompt.request_tokens(request.messages, COUNTER.count)
    assert prompt + request.max_tokens <= report.threshold
    (shown,) = request.inputs
    assert len({line[:3] for line in shown.text.split() if line[0] == "s"}) > 1
    assert report.tri_vector.summary.startswith("- joined")
    assert (await session.extract(options(100, summary_tokens=60))).calls == 0


async def test_a_failed_reduction_is_a_failure(store):
    """Abort: no result. Partial: the summary is put together without the model, and it says so."""

    def script(request):
        return None if request.task == "extract" else ModelError("x")

    llm = scripted(script=script)
    session = await said(store, llm, talk(30))
    report = await session.extract(options(100, summary_tokens=50))
    assert (report.outcome, report.tri_vector) == ("error", None)
    assert [(f.phase, f.reason) for f in report.failures] == [("reduce", "provider")]
    assert report.map.state == "ok"
    again = await session.extract(options(100, summary_tokens=50, on_chunk_failure="partial"))
    assert again.outcome == "partial"
    assert again.degraded
    assert again.tri_vector.summary
    assert again.tri_vector.missing == ()


def joins(*llms):
    return [r for llm in llms for r in llm.requests if r.task == "summarise"]


class Slow:
    """A model that takes its time over summaries of summaries, and tells when one begins."""

    def __init__(self, seconds=0.3):
        self.inner, self.seconds, self.begun = scripted(remote=True), seconds, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def complete(self, request):
        if request.task == "summarise":
            self.begun.set()
            await asyncio.sleep(self.seconds)
        return await self.inner.complete(request)


async def test_two_runs_at_once_ask_for_each_chunk_and_the_summary_once(store):
    """The second run waits for the first. Broken once: both paid for the same summary."""
    llms = [Slow() for _ in range(2)]
    session = await said(store, llms[0], talk(12))
    other = memory(store, llms[1]).session("s")
    first, second = await asyncio.gather(session.extract(options(150)), other.extract(options(150)))
    assert first.tri_vector == second.tri_vector is not None
    maps = sum(r.task == "extract" for llm in llms for r in llm.requests)
    assert maps == len(first.chunks)
    asked = joins(*llms)
    assert asked
    assert (
        len(asked) == len({r.messages for r in asked}) == first.reduce.calls + second.reduce.calls
    )
    assert first.chunked_tokens == second.chunked_tokens, "a reused step is counted too"
    bodies = [r.body for r in await store.tenant("default").records("join", scope="s")]
    assert bodies


async def test_a_summary_whose_writing_is_cancelled_is_not_paid_for_twice(store, monkeypatch):
    """Broken once: cancelled between the answer and its commit, the answer was asked for again."""
    writing, commit = asyncio.Event(), ExtractionRun.commit

    async def slowly(self, piece, kept, attempts):
        if not isinstance(piece, Chunk):
            writing.set()
            await asyncio.sleep(0.1)
        return await commit(self, piece, kept, attempts)

    monkeypatch.setattr(ExtractionRun, "commit", slowly)
    llm = scripted(remote=True)
    session = await said(store, llm, talk(12))
    task = asyncio.create_task(session.extract(options(150)))
    await writing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await session.runs()
    assert run.outcome == "interrupted"
    assert run.detail["reduce"]["calls"] >= 1
    again = await session.extract(options(150))
    assert again.outcome == "ok"
    asked = joins(llm)
    assert len(asked) == len({r.messages for r in asked})


class Held:
    """Answers nothing before it may."""

    name, context_window, remote = "scripted-1", None, True

    def __init__(self):
        self.inner, self.begun, self.go = scripted(), asyncio.Event(), asyncio.Event()

    async def complete(self, request):
        self.begun.set()
        await self.go.wait()
        return await self.inner.complete(request)


async def test_a_deadline_ends_the_wait_for_another_runs_lease(store):
    """Broken once: the run waited for the lease, however long, and looked at no cap."""
    slow, quick = Held(), scripted(remote=True)
    session = await said(store, slow, talk(2))
    first = asyncio.create_task(session.extract(options()))
    await slow.begun.wait()
    assert await store.tenant("default").records(CLAIM, scope="s")
    report = await memory(store, quick).session("s").extract(options(), limits=Limits(deadline=0.4))
    assert not first.done(), "it was waited for"
    slow.go.set()
    assert (report.outcome, report.stopped, quick.calls) == ("error", "deadline", 0)
    assert [chunk.status for chunk in report.chunks] == ["pending"]
    assert (await first).outcome == "ok"


@pytest.mark.parametrize(
    ("policy", "summary"),
    [
        ("abort", "word " * 500),
        ("partial", "word " * 500),
        ("abort", LLMResponse("- a", Usage(1, 1), finish_reason="length")),
    ],
)
async def test_a_summary_that_is_never_fit_does_not_cost_the_result(store, policy, summary):
    """Broken once: one unfit summary of summaries threw the chunks' result away at every run."""
    llm = scripted(script=lambda r: None if r.task == "extract" else summary, remote=True)
    session = await said(store, llm, talk(12))
    report = await session.extract(options(150, on_chunk_failure=policy))
    assert (report.outcome, report.degraded, report.kept) == ("partial", True, True)
    assert report.tri_vector.missing == ()
    assert report.tri_vector.summary
    assert [e.name for e in report.tri_vector.entities][:2] == ["SQLite", "Ada"]
    (failure,) = report.failures
    first, *others = joins(llm)
    assert (failure.phase, failure.attempts) == ("reduce", 1 + len(others))
    # One that hit its length is not asked for again: what is missing was never written.
    assert (failure.reason == "truncated") == (others == [])
    for second in others:
        assert second.messages[-1].content.startswith(first.messages[-1].content)
        assert "could not be used" in second.messages[-1].content
        prompt = extract_prompt.request_tokens(second.messages, COUNTER.count)
        assert prompt + second.max_tokens <= report.threshold
    # A model that does better takes its place.
    better = await memory(store, scripted(remote=True)).session("s").extract(options(150))
    assert (better.outcome, better.degraded, better.kept) == ("ok", False, True)
    assert better.map.calls == 0


async def test_a_cap_at_the_summary_gives_the_partial_result_where_one_is_wanted(store):
    """All chunks are there; only under "abort" is nothing better than a summary without a model."""
    llm = scripted(remote=True)
    session = await said(store, llm, talk(12))
    calls = len((await session.extract(options(150), limits=Limits(calls=0))).chunks)
    none = await session.extract(options(150), limits=Limits(calls=calls))
    assert (none.outcome, none.stopped, none.tri_vector) == ("error", "max_calls", None)
    some = await session.extract(options(150, on_chunk_failure="partial"), limits=Limits(calls=0))
    assert (some.outcome, some.stopped, some.degraded) == ("partial", "max_calls", True)
    assert some.tri_vector.missing == ()
    assert some.tri_vector.summary
    assert (some.failures, some.reduce.state, some.kept) == ((), "partial", True)
    whole = await session.extract(options(150))
    assert (whole.outcome, whole.kept, whole.map.calls) == ("ok", True, 0)


# -- the graph


async def test_the_graph_is_kept_by_session_and_asked_by_tenant(store):
    llm = scripted()
    one = await said(store, llm, [Message.user("@technology/SQLite @person/Ada @Ada>uses>SQLite")],
                     session="one")  # fmt: skip
    two = await said(store, llm, [Message.user("@technology/sqlite @file/a.py @a.py>opens>sqlite")],
                     session="two")  # fmt: skip
    await one.extract(options())
    await two.extract(options())
    graph = memory(store, llm).graph
    found = await graph.entity("\uff33\uff31LITE")
    assert (found.type, found.name, found.sessions) == ("technology", "SQLite", ("one", "two"))
    assert {p.chunk for p in found.entity.provenance} == {"one:chunk:0", "two:chunk:0"}
    around = await graph.neighbours("SQLite")
    assert {(n.name, n.relation.relation, n.outgoing) for n in around} == {
        ("Ada", "uses", False), ("a.py", "opens", False),
    }  # fmt: skip
    assert [(m.session_id, m.start, m.stop) for m in await graph.mentions("SQLite")] == [
        ("one", 0, 1), ("two", 0, 1),
    ]  # fmt: skip
    assert await graph.entity("nothing") is None
    assert await graph.neighbours("nothing") == ()
    # Another tenant sees none of it.
    assert await AsyncMemory(store=store, tenant="b", llm=llm).graph.entity("SQLite") is None


# -- the offline model, and the class on its own


async def test_the_offline_model_extracts_without_a_key(store):
    """The default: no model given, an extraction with entities and an honest report."""
    messages = [
        Message.user("We use SQLite in src/store.py. Can you add a retry to connect_db()?"),
        Message.assistant("I will add it tomorrow. We decided to keep SQLite because it is small."),
    ]
    offline = AsyncMemory(store=store).session("s")
    await offline.append(messages)
    extractor = SemanticGraphExtractor(store)
    report = await extractor.execute_tri_vector_extraction("s", ExtractionOptions())
    assert report.outcome == "ok"
    assert (report.live, report.model.startswith("extractive-")) == (False, True)
    assert any("store.py" in e.name for e in report.tri_vector.entities)
    assert (await offline.extract()).calls == 0


@pytest.mark.parametrize(
    "wrong",
    [
        *({"session_id": each} for each in (5, None, "", "a\0", "n" * 513)),
        *({"options": each} for each in ({}, "x", 3)),
        {"on_progress": 3},
        *({"limits": each} for each in (5, {"calls": 1})),
    ],
    ids=repr,
)
async def test_a_wrong_argument_is_refused_before_anything(wrong):
    """The extractor is a public face of its own; nothing is written, no model is called."""
    store, llm = RecordStore(MemoryStore()), scripted()
    await said(store, llm, talk(1))
    extractor = SemanticGraphExtractor(store, llm, token_counter=COUNTER)
    with pytest.raises((UsageError, InvalidMessageError)):
        await extractor.execute_tri_vector_extraction(**({"session_id": "s"} | wrong))
    assert llm.calls == 0
    assert await store.tenant("default").runs() == []


@pytest.mark.parametrize(
    "wrong",
    [{"store": 3}, {"store": None}, {"llm": 3}, {"tenant": ""}, {"prompts": 3},
     {"prompts": {"extract.map": "no template"}}, {"prompts": {"other": "x"}},
     {"token_counter": len}, {"clock": 5}],
    ids=repr,
)  # fmt: skip
def test_an_extractor_of_wrong_parts_is_refused(wrong):
    with pytest.raises((UsageError, InvalidMessageError, ConfigError)):
        SemanticGraphExtractor(**({"store": RecordStore(MemoryStore())} | wrong))


async def test_prompts_are_replaced_and_make_other_answers(store):
    """Both prompts may be the caller's own, also through a memory; what they make is made anew."""
    llm = scripted()
    session = await said(store, llm, talk(12))
    first = await session.extract(options(150))
    assert first.reduce.calls > 0
    own = {
        name: replace(load_named(name), version="2", system=f"My own {name}. Answer in JSON.")
        for name in ("extract.map", "extract.reduce")
    }
    joined = memory(store, llm, prompts={"extract.reduce": own["extract.reduce"]}).session("s")
    second = await joined.extract(options(150))
    assert (second.map.calls, second.reduce.calls) == (0, first.reduce.calls)
    assert llm.requests[-1].messages[0].content == "My own extract.reduce. Answer in JSON."
    both = memory(store, llm, prompts=own).session("s")
    third = await both.extract(options())
    assert third.map.calls == 1
    assert llm.requests[-1].messages[0].content == "My own extract.map. Answer in JSON."
