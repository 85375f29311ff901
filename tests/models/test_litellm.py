"""LiteLLM as a carrier, where it is installed: answers, counts, errors, one request a call."""

import asyncio
import os

import pytest
from asking import request
from kinds import of_kind
from provider import Provider

from hiermem import ModelError
from hiermem.models.litellm import LiteLLMChat

# It would fetch a list of prices when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
pytest.importorskip("litellm")
pytestmark = pytest.mark.filterwarnings("ignore")

#: Where the answer itself is broken, LiteLLM tells a server error; so may it be asked again.
TOLD = {
    "401": ("permanent", False), "404": ("permanent", False), "429": ("transient", False),
    "quota": ("permanent", False), "overflow": ("overflow", False), "filtered": ("refused", False),
    "500": ("transient", None), "503": ("transient", None), "drop": ("transient", None),
    "invalid_json": ("transient", None), "html": ("transient", None), "hang": ("timeout", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def provider():
    with Provider() as running:
        yield running


def model_at(provider, **settings):
    return LiteLLMChat(
        "openai/tiny", base_url=provider.openai_url, api_key=provider.key, **settings
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_comes_with_its_counts(stream, provider):
    provider.meet(None)
    model = model_at(provider, stream=stream)
    answer = await model.complete(request())
    served = provider.served[-1]
    assert answer.text == served.answer
    assert answer.usage.input_tokens == served.tokens_in
    assert answer.usage.output_tokens == served.tokens_out
    assert answer.finish_reason == "stop"
    await model.disconnect()


async def test_a_failure_is_one_request_and_one_typed_error(provider):
    """LiteLLM retries by itself where it is not told otherwise."""
    told = {}
    for fault in TOLD:
        provider.meet(fault)
        before = len(provider.served)
        model = model_at(provider, timeout=0.3 if fault == "hang" else 30.0)
        with pytest.raises(ModelError) as raised:
            await model.complete(request())
        assert len(provider.served) == before + 1, fault
        assert "CANARY" not in str(raised.value)
        assert raised.value.__context__ is None
        told[fault] = (raised.value.kind, raised.value.charged)
        await model.disconnect()
    assert told == TOLD


def test_one_model_object_serves_loop_after_loop(provider):
    """Each memory has a loop of its own; LiteLLM's clients belong to the process."""
    provider.meet(None)
    model = model_at(provider)
    for _ in range(3):
        assert asyncio.run(model.complete(request())).text


async def test_retry_after_comes_through(provider):
    """It is in headers that LiteLLM keeps beside the error."""
    provider.meet("429")
    model = model_at(provider)
    with pytest.raises(ModelError, check=of_kind("transient")) as told:
        await model.complete(request())
    assert told.value.retry_after == provider.retry_after
    await model.disconnect()
