"""Keys and texts on the way to a provider: in no error, trace, log, repr or journal of ours."""

import logging
import traceback
from functools import partial

import pytest
from provider import FAULTS, Provider

from hiermem import AsyncMemory, ConfigError, Message, ModelError, SearchPolicy, UpdatePolicy
from hiermem.embedders.openai import OpenAIEmbedder
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.openai import OpenAIChat
from hiermem.protocols import ChatMessage, LLMRequest
from hiermem.search.embedder_client import EmbedderClient
from hiermem.tokens import default_counter

KEY = "sk-kanarienvogel-7731"
TEXT = "Kanarienvogel im Text"
#: Faults whose answers alone take long to send; the others go through the same code.
SLOW = {"huge", "endless"}


def adapters(provider, **settings):
    return [
        adapter("tiny", base_url=url, api_key=KEY, stream=stream, **settings)
        for adapter, url in ((OpenAIChat, provider.openai_url), (AnthropicChat, provider.url))
        for stream in (False, True)
    ]


def assert_clean(error: BaseException) -> None:
    """Look at an error as a logger, a debugger and a crash reporter would."""
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not getattr(error, "__notes__", ())
    shown = f"{error} {error!r} {vars(error)}" + "".join(traceback.format_exception(error))
    assert TEXT not in shown
    assert KEY not in shown
    # Crash reporters show local variables: texts are there, as data; a key never is.
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert KEY not in "".join(told.format())


@pytest.fixture
def heard(caplog):
    """Hear everything, of everybody."""
    with caplog.at_level(logging.DEBUG):
        yield caplog
    form = logging.Formatter("%(name)s %(message)s")
    for record in caplog.records:
        said = form.format(record) + str(record.args)
        assert KEY not in said, record.name
        if record.name.startswith("hiermem"):
            assert TEXT not in said, record.name


@pytest.mark.thorough
async def test_no_failure_of_a_call_tells_the_key_or_the_text(heard, every):
    """Every fault, both protocols, whole and streamed; the server quotes the text in its errors."""
    asked = LLMRequest(
        task="summarise",
        messages=(ChatMessage("system", "## Overview"), ChatMessage("user", TEXT)),
        inputs=(),
        target_tokens=20,
        max_tokens=40,
        counter=default_counter(),
    )
    with Provider(key=KEY, writer=lambda served, spoken: f"## Overview\n{TEXT}") as provider:
        for number, model in enumerate(adapters(provider, timeout=0.3)):
            assert KEY not in repr(model) + repr(vars(model.__class__))
            # In the ordinary run, each fault with every other adapter.
            for fault in sorted({*FAULTS} - SLOW)[number % every(2) :: every(2)]:
                provider.meet(fault)
                try:
                    await model.complete(asked)
                except ModelError as error:
                    assert_clean(error)
            await model.disconnect()


async def test_no_failure_of_an_embedder_tells_the_key_or_the_text(heard):
    with Provider(key=KEY) as provider:
        embedder = OpenAIEmbedder(
            "tiny", dimension=64, base_url=provider.openai_url, api_key=KEY, timeout=0.3
        )
        for fault in ("400", "401", "429", "500", "drop", "hang", "invalid_json", "html"):
            provider.meet(fault)
            with pytest.raises(ModelError) as told:
                await embedder.embed([TEXT], kind="passage")
            assert_clean(told.value)
        await embedder.disconnect()


async def test_an_embedder_of_ones_own_that_tells_all_is_not_passed_on(heard):
    """Whoever writes one need not know that its client quotes the texts in what it raises."""

    class Leaky:
        name, dimension = "leaky", 3

        async def embed(self, texts, *, kind):
            raise RuntimeError(f"{KEY} could not embed {texts}")

    async def at_once(seconds: float) -> None:
        pass

    client = EmbedderClient(Leaky(), SearchPolicy(), sleep=at_once)
    with pytest.raises(ModelError, match="RuntimeError") as told:
        await client.passages([TEXT], len, lambda: None)
    assert_clean(told.value)


async def test_a_run_that_fails_tells_neither_in_its_journal_or_its_state(heard):
    """What the engine makes of an adapter's error is kept, shown and logged."""
    faults = iter(["400", "500", "drop", "refusal", "html", "429"] * 20)
    with Provider(lambda served: next(faults), key=KEY, retry_after=0.01) as provider:
        policy = UpdatePolicy(batch_delay=0, retries=1, max_attempts=2)
        for model in adapters(provider)[::2]:
            async with AsyncMemory.open(":memory:", llm=model, update_policy=policy) as memory:
                session = memory.session("talk")
                for number in range(12):
                    await session.append(
                        Message.user(f"{TEXT} {number}, at {number} o'clock. " * 9)
                    )
                report = await session.update()
                assert report.failed + report.degraded
                kept = f"{report} {await session.status()} {await session.runs()}"
                kept += f"{await memory.run(report.run_id)}"
    assert TEXT not in kept
    assert KEY not in kept


@pytest.mark.parametrize("bad", ["\n", "\r\nX-Other: 1", "ü", " x", "\x00"])
async def test_a_key_that_no_header_can_hold_never_comes_to_one(bad, heard, monkeypatch):
    """The HTTP libraries quote the header that they refuse, in their errors and DEBUG logs."""
    for adapter in (OpenAIChat, AnthropicChat, partial(OpenAIEmbedder, dimension=3)):
        with pytest.raises(ConfigError) as told:
            adapter("tiny", base_url="http://127.0.0.1:9", api_key=KEY + bad)
        assert KEY not in str(told.value)
    if "\x00" in bad:  # no environment holds one
        return
    asked = LLMRequest("summarise", (ChatMessage("user", TEXT),), (), 9, 9, default_counter())
    for adapter, name in ((OpenAIChat, "OPENAI"), (AnthropicChat, "ANTHROPIC")):
        monkeypatch.setenv(f"{name}_API_KEY", KEY + bad)
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")
        with pytest.raises(ConfigError, match=f"{name}_API_KEY") as said:
            await adapter("tiny").complete(asked)
        assert KEY not in str(said.value)
        assert said.value.__context__ is None
