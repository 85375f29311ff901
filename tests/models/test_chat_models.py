"""Both protocols over real HTTP, whole and streamed: what an adapter gives, and what it raises."""

import asyncio
import gc
import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from asking import KINDS, chat, make, request, until
from kinds import of_kind
from provider import SPOILT, Provider
from stand_ins import talk as turns

from hiermem import LLM, AsyncMemory, Memory, Message, Prices, UpdatePolicy
from hiermem.calls.answers import parse
from hiermem.embedders.openai import OpenAIEmbedder
from hiermem.errors import ClosedError, ConfigError, ModelError
from hiermem.models import model_by_name
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.openai import OpenAIChat
from hiermem.protocols import ChatMessage
from hiermem.testing.llms import FaultyLLM, ScriptedLLM
from hiermem.types.trivector import answer_schema

WAIT = 0.05
#: What each failure is to be told as: the class, whether it is charged, how long to wait.
TOLD = {
    "400": ("permanent", False, None), "401": ("permanent", False, None),
    "403": ("permanent", False, None), "404": ("permanent", False, None),
    "413": ("overflow", False, None), "422": ("permanent", False, None),
    "429": ("transient", False, WAIT), "429_bare": ("transient", False, None),
    "429_ms": ("transient", False, WAIT), "429_date": ("transient", False, 1.0),
    "quota": ("permanent", False, None), "overflow": ("overflow", False, None),
    "filtered": ("refused", False, None), "500": ("transient", None, None),
    "502": ("transient", None, None), "503": ("transient", None, None),
    "529": ("transient", False, WAIT), "hang": ("timeout", None, None),
    "drop": ("transient", None, None), "drop_body": ("transient", None, None),
    "invalid_json": ("transient", None, None), "not_an_object": ("transient", None, None),
    "html": ("transient", None, None), "huge": ("transient", None, None),
    "bomb": ("transient", None, None), "endless": ("transient", None, None),
    "no_choices": ("transient", None, None), "error_in_200": ("transient", None, None),
}  # fmt: skip
#: What comes back where the answer is well formed, but not as it should be.
FINISH = {"refusal": "refusal", "content_filter": "refusal", "length": "length"}


@pytest.fixture(scope="module")
def provider():
    with Provider(retry_after=WAIT) as running:
        yield running


@pytest.fixture(autouse=True)
def _afresh(request):
    if "provider" in request.fixturenames:
        running = request.getfixturevalue("provider")
        running.served.clear()
        running.meet(None)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_comes_with_its_counts_its_end_and_its_model(kind, provider):
    """Counts that are lost or swapped would be wrong in every journal and against every cap."""
    async with chat(kind, provider, prices=Prices(input=1, output=2)) as model:
        assert isinstance(model, LLM)
        assert model.remote
        answer = await model.complete(request())
    (served,) = provider.served
    assert answer.text == served.answer
    assert "PostgreSQL" in answer.text
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        served.tokens_in,
        served.tokens_out,
    )
    assert answer.usage.cached_tokens == 7
    assert answer.usage.reasoning_tokens == 5
    assert (answer.finish_reason, answer.model) == ("stop", "tiny")
    assert model.prices == Prices(input=1, output=2)
    # What arrives is as large as it looks, so that the bound on it means something.
    assert served.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_is_one_request_and_one_typed_error(kind, provider):
    """What is wrongly told is retried in vain, given up too soon, or paid for twice.

    One request each: the SDK retries nothing, for its retries are in no journal.
    """
    told = {}
    async with chat(kind, provider) as patient, chat(kind, provider, timeout=1.0) as hasty:
        for fault in TOLD:
            provider.meet(fault)
            before = len(provider.served)
            with pytest.raises(ModelError) as raised:
                await (hasty if fault == "hang" else patient).complete(request())
            error = raised.value
            told[fault] = (error.kind, error.charged, error.retry_after)
            assert len(provider.served) == before + 1, fault
            assert error.__cause__ is None, fault
            assert error.__context__ is None, fault
        provider.meet(None)
        assert (await patient.complete(request())).text
    assert told == TOLD


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_is_not_fit_is_still_given_whole_with_its_end(kind, provider):
    """Whether it may be memory is judged elsewhere; an adapter that judged would hide its cost."""
    async with chat(kind, provider) as model:
        for fault in (*sorted(SPOILT), "slow"):
            provider.meet(fault)
            answer = await model.complete(request(max_tokens=8_000))
            served = provider.served[-1]
            assert answer.finish_reason == FINISH.get(fault, "stop"), fault
            assert answer.text == served.answer, fault
            assert answer.usage.output_tokens == served.tokens_out, fault


@pytest.mark.parametrize("kind", ["openai", "anthropic-stream"])
async def test_a_cancelled_call_ends_at_the_server_and_leaves_the_model_usable(kind, provider):
    """A deadline that only stops waiting leaves the provider working, and a socket open."""
    async with chat(kind, provider) as model:
        provider.meet("hang")
        task = asyncio.create_task(model.complete(request()))
        await until(lambda: provider.served)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: provider.served[0].ended is not None)
        provider.meet(None)
        assert (await model.complete(request())).text


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_what_cannot_fit_the_window_is_refused_before_anything_is_sent(kind, provider):
    """A request that a provider cuts short, or bills and refuses, is money for nothing."""
    asked = request()
    prompt = sum(asked.counter.count(each.content) + 4 for each in asked.messages)
    async with chat(kind, provider, context_window=prompt + 89) as model:
        with pytest.raises(ModelError, check=of_kind("overflow")) as told:
            await model.complete(asked)
        assert told.value.charged is False
        assert not provider.served
    async with chat(kind, provider, context_window=prompt + 90) as model:
        assert (await model.complete(asked)).text


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_the_limit_has_room_for_reasoning(kind, provider):
    """With a limit for the answer alone, a model that thinks is cut off."""
    async with chat(kind, provider, context_window=10_000, reasoning_tokens=500) as model:
        assert (model.context_window, model.overhead_tokens) == (9_500, 500)
        await model.complete(request(max_tokens=100))
    async with chat(kind, provider, max_output_tokens=80) as model:
        await model.complete(request(max_tokens=100))
    assert [served.body["max_tokens"] for served in provider.served] == [600, 80]


def extraction():
    """Give a request that wants an answer to a schema."""
    asked = request(task="extract", max_tokens=2_000, schema=answer_schema())
    system, record = asked.messages
    system = ChatMessage("system", f"{system.content}\nWrite it down, as one JSON object.")
    return replace(asked, messages=(system, record))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_is_held_to_a_schema_where_the_server_can(kind, provider):
    """The schema goes as such, without the bounds that strict servers refuse."""
    async with chat(kind, provider) as model:
        answer = await model.complete(extraction())
    assert parse(answer.text)[0].entities
    (served,) = provider.served
    if kind.startswith("openai"):
        told = served.body["response_format"]["json_schema"]
        assert told["strict"] is True
        schema = told["schema"]
    else:
        schema = served.body["output_config"]["format"]["schema"]
    assert set(schema["properties"]) == set(answer_schema()["properties"])
    assert schema["additionalProperties"] is False
    written = json.dumps(schema)
    for word in ("minLength", "maxItems", "exclusiveMaximum", "title"):
        assert f'"{word}":' not in written, word
    assert "JSON schema" not in served.body["messages"][0]["content"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_without_schemas_is_asked_in_words_from_then_on(kind):
    """The refusal costs one request, once; then the schema stands in the prompt, and it works."""
    with Provider(structured=False) as plain:
        async with chat(kind, plain) as model:
            for _ in range(2):
                assert parse((await model.complete(extraction())).text)[0].entities
            assert len(plain.served) == 3
            prompt = str(plain.served[-1].body)
            assert "It must fit this JSON schema" in prompt
            assert "exclusiveMaximum" in prompt


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_schemas_can_be_insisted_on_or_left_out(kind):
    """With "on" a server that cannot is an error that names the field, and never a weaker ask."""
    with Provider(structured=False) as plain:
        async with chat(kind, plain, structured="on") as model:
            with pytest.raises(
                ModelError, match=r"response_format|output_config", check=of_kind("permanent")
            ):
                await model.complete(extraction())
        async with chat(kind, plain, structured="off") as model:
            assert parse((await model.complete(extraction())).text)[0].entities
        assert len(plain.served) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_model_that_takes_no_temperature_is_asked_without(kind):
    """Reasoning models refuse it; the session's default must not lock them out."""
    with Provider(temperature=False) as strict:
        async with chat(kind, strict) as model:
            await model.complete(request())
            await model.complete(request())
            assert ["temperature" in each.body for each in strict.served] == [True, False, False]
        async with chat(kind, strict, temperature=None) as model:
            await model.complete(request())
            assert len(strict.served) == 4
    with Provider() as mild:
        async with chat(kind, mild, temperature=0.9) as model:
            await model.complete(request(temperature=0.3))
            assert mild.served[0].body["temperature"] == 0.9


@pytest.mark.parametrize("kind", ["openai", "openai-stream"])
async def test_all_that_a_server_refuses_is_learnt_one_by_one_and_by_all_calls(kind):
    """Calls at once meet the same refusals; none may forget what another has learnt."""
    with Provider(temperature=False, structured=False, modern=True, latency=0.01) as strict:
        async with chat(kind, strict) as model:
            answers = await asyncio.gather(*(model.complete(extraction()) for _ in range(4)))
            assert all(parse(each.text)[0].entities for each in answers)
            before = len(strict.served)
            await model.complete(extraction())
            assert len(strict.served) == before + 1
            assert "max_completion_tokens" in strict.served[-1].body


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_server_that_only_streams_is_served_by_the_switch(kind):
    """Without it the error names the field, which is the name of the switch."""
    with Provider(stream_only=True) as streaming:
        async with chat(kind, streaming) as model:
            with pytest.raises(ModelError, match="stream", check=of_kind("permanent")):
                await model.complete(request())
        async with chat(f"{kind}-stream", streaming) as model:
            assert (await model.complete(request())).text


async def test_what_else_is_configured_of_the_output_stands_beside_the_schema(provider):
    """Anthropic has one field for both; neither may push the other out."""
    async with chat("anthropic", provider, extra={"output_config": {"effort": "low"}}) as model:
        await model.complete(extraction())
        await model.complete(request())
    told = [served.body["output_config"] for served in provider.served]
    assert told[0]["effort"] == told[1]["effort"] == "low"
    assert told[0]["format"]["type"] == "json_schema"
    assert "format" not in told[1]


async def test_the_constant_part_is_marked_for_the_cache_unless_that_is_switched_off(provider):
    """Unmarked, every call pays for the same instructions again."""
    for cache in (True, False):
        async with chat("anthropic", provider, cache=cache) as model:
            await model.complete(request())
    marked = ["cache_control" in str(served.body["system"]) for served in provider.served]
    assert marked == [True, False]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_model_object_serves_memories_with_loops_of_their_own(kind, provider):
    """A connection of one loop used from another hangs or breaks; one left open is a warning."""
    model = make(kind, provider)
    policy = UpdatePolicy(batch_delay=0)
    for _ in range(2):
        with Memory.open(":memory:", llm=model, update_policy=policy) as one:
            with Memory.open(":memory:", llm=model, update_policy=policy) as two:
                for memory in (one, two):
                    session = memory.session("pumps")
                    session.append(turns(10, "Pump {n} was set to {n}7 rpm by Ada. " * 4))
                    assert session.update().made == 1
            assert one.session("pumps").update().made == 0
    gc.collect()  # a connection that nobody closed warns here, and a warning is an error
    assert provider.connections() == 0


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_disconnecting_waits_for_nobody_and_cuts_nobody_off(kind):
    """A memory that closes must not break the calls of another one that shares its model."""
    with Provider(latency=0.15) as slow:
        model = make(kind, slow)
        task = asyncio.create_task(model.complete(request()))
        await until(lambda: slow.served)
        await model.disconnect()
        assert not task.done()
        assert (await task).text
        assert (await model.complete(request())).text
        await model.disconnect()
        await model.disconnect()


async def test_a_memory_closes_its_store_even_where_its_model_will_not_let_go(tmp_path):
    """A store left open keeps its file locked; the model's trouble is still told."""

    class Clinging(ScriptedLLM):
        asked = 0

        async def disconnect(self) -> None:
            Clinging.asked += 1
            raise RuntimeError("it clings")

    memory = await AsyncMemory.open(tmp_path / "m.db", llm=FaultyLLM(Clinging()))
    await memory.session("talk").append(Message.user("Hello"))
    with pytest.raises(RuntimeError, match="clings"):
        await memory.close()
    await memory.close()
    assert Clinging.asked == 1
    with pytest.raises(ClosedError):
        await memory._resources.store.tenant("default").sessions()


WRONG = {
    "context_window": [0], "max_output_tokens": [0], "reasoning_tokens": [-1], "stream": [1],
    "timeout": [0, float("nan")], "temperature": [3, "warm"], "structured": ["maybe"],
    "extra": [{"at": object()}, ["a"]], "remote": [None], "name": [""], "prices": [3],
    "api_key": [""], "base_url": ["", "host:8000", "ftp://host", "http://", "http://h:x/v1", 7],
}  # fmt: skip


@pytest.mark.parametrize("adapter", [OpenAIChat, AnthropicChat])
def test_settings_that_cannot_be_are_refused_where_they_are_given(adapter):
    """Found out at the first call, they would cost a node its attempts."""
    for name, values in WRONG.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                adapter("tiny", **{"api_key": "k", name: value})
    with pytest.raises(ConfigError, match="leaves nothing"):
        adapter("tiny", api_key="k", context_window=100, reasoning_tokens=100)
    with pytest.raises(ConfigError, match="client is object"):
        adapter("tiny", client=object())
    with pytest.raises(ConfigError, match="client has its own address"):
        adapter("tiny", client=object(), api_key="k")


def test_what_is_shown_of_a_model_holds_no_key_and_no_password():
    """Reprs stand in tracebacks, logs and notebooks."""
    address = "http://ada:s3cret@127.0.0.1:9/token-in-path/v1?key=s3cret"
    shown = repr(OpenAIChat("tiny", base_url=address, api_key="sk-very-secret"))
    shown += repr(OpenAIEmbedder("e", dimension=3, base_url=address, api_key="sk-very-secret"))
    assert "tiny" in shown
    assert "127.0.0.1:9" in shown
    for hidden in ("s3cret", "sk-very", "token-in-path"):
        assert hidden not in shown


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_address_and_key_of_a_named_model_come_from_the_environment(
    dialect, provider, monkeypatch
):
    """Broken, ``llm="openai:…"`` is sent without the key that the user has set."""
    address = provider.openai_url if dialect == "openai" else provider.url
    for key, taken in ((provider.key, True), ("another", False)):
        monkeypatch.setenv(f"{dialect.upper()}_BASE_URL", address)
        monkeypatch.setenv(f"{dialect.upper()}_API_KEY", key)
        model = model_by_name(f"{dialect}:tiny")
        try:
            with nullcontext() if taken else pytest.raises(ModelError, check=of_kind("permanent")):
                assert (await model.complete(request())).text
        finally:
            await model.disconnect()
    limits = {"openai": "max_completion_tokens", "anthropic": "max_tokens"}
    assert limits[dialect] in provider.served[0].body, "OpenAI's newer models take no other"
