"""What is OpenAIChat's and AnthropicChat's own: keys, addresses, clients, and the missing extra."""

import os
import subprocess
import sys
from functools import partial

import pytest
from asking import chat, request, until
from kinds import of_kind
from provider import Provider
from typer.testing import CliRunner

from hiermem import ConfigError, Memory, Message, ModelError
from hiermem.cli.app import app
from hiermem.embedders.openai import OpenAIEmbedder
from hiermem.embedders.sentence_transformers import SentenceTransformerEmbedder
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.litellm import LiteLLMChat
from hiermem.models.openai import OpenAIChat


@pytest.fixture
def provider():
    with Provider() as running:
        yield running


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_nothing_of_the_environment_goes_to_an_address_that_was_named(
    kind, provider, monkeypatch
):
    """Its key, and the headers that the SDKs add whatever the address, are for another server."""
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-the-environments-key")
        monkeypatch.setenv(
            f"{name}_CUSTOM_HEADERS",
            "X-Gateway-Key: sk-the-environments-key\nAuthorization: Bearer the-environments-token",
        )
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "the-environments-token")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-the-environments")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-the-environments")
    async with chat(kind, provider, api_key=None) as model:
        with pytest.raises(ModelError, match="key is not accepted", check=of_kind("permanent")):
            await model.complete(request())
    async with chat(kind, provider) as model:
        assert (await model.complete(request())).text
    assert len(provider.served) == 2
    for served in provider.served:
        assert "the-environments" not in " ".join(served.headers.values())
        assert served.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_missing_key_is_said_before_anything_is_summarised(monkeypatch, tmp_path, provider):
    """Broken, the first mistake of everybody is three extracts and tokens that nobody spent."""
    for name in list(os.environ):
        if name.startswith(provider.upper()):
            monkeypatch.delenv(name)
    with Memory.open(tmp_path / "k.db", llm=f"{provider}:m") as memory:
        session = memory.session("s")
        session.append(Message.user(f"Pump {n} runs. " * 40) for n in range(30))
        said = f"pass api_key, or set {provider.upper()}_API_KEY"
        for work in (session.update, memory.update_all, session.extract):
            with pytest.raises(ConfigError, match=said) as told:
                work()
            assert told.value.__context__ is None
        assert {each.node.status for each in session.summaries()} == {"pending"}
        assert memory.runs() == []
        assert session.metrics().spent.calls == 0
    args = ["update", "--db", str(tmp_path / "k.db"), "--model", f"{provider}:m"]
    found = CliRunner().invoke(app, args)
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())


async def test_a_client_of_ones_own_is_used_and_left_open_and_does_not_retry(provider):
    """Its owner may use it elsewhere; its retries would be in no journal."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key, max_retries=5)
    model = OpenAIChat("tiny", client=client)
    assert (await model.complete(request())).text
    provider.meet("429")
    with pytest.raises(ModelError, check=of_kind("transient")):
        await model.complete(request())
    assert len(provider.served) == 2
    await model.disconnect()
    assert not client.is_closed()
    await client.close()


async def test_what_makes_clients_makes_one_a_loop_and_they_are_closed(provider):
    """One client for all loops breaks in the second; one for each call pays for a handshake."""
    from openai import AsyncOpenAI

    made = []

    def new():
        made.append(AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key))
        return made[-1]

    model = OpenAIChat("tiny", client=new)
    for _ in range(3):
        assert (await model.complete(request())).text
    assert len(made) == 1
    await model.disconnect()
    assert made[0].is_closed()
    await until(lambda: not provider._transports)


async def test_a_blocking_client_is_refused(provider):
    from openai import OpenAI

    model = OpenAIChat("tiny", client=OpenAI(base_url=provider.openai_url, api_key="k"))
    with pytest.raises(ConfigError, match="asynchronous"):
        await model.complete(request())


@pytest.mark.parametrize(
    ("package", "extra", "build"),
    [
        ("openai", "openai", partial(OpenAIChat, "m", api_key="k")),
        ("openai", "openai", partial(OpenAIEmbedder, "m", dimension=3, api_key="k")),
        ("anthropic", "anthropic", partial(AnthropicChat, "m", api_key="k")),
        ("litellm", "litellm", partial(LiteLLMChat, "m")),
        ("sentence_transformers", "sentence-transformers",
         partial(SentenceTransformerEmbedder, "m")),
    ],
)  # fmt: skip
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    package, extra, build, monkeypatch
):
    """An ImportError from deep inside, at the first call, helps nobody."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as told:
        build()
    assert f"pip install 'hiermem-memory[{extra}]'" in str(told.value)


def test_nothing_of_a_provider_is_loaded_until_it_is_called():
    """The openai package alone takes a second to import."""
    code = (
        "import sys\n"
        "from hiermem.embedders.openai import OpenAIEmbedder\n"
        "from hiermem.models.anthropic import AnthropicChat\n"
        "from hiermem.models.openai import OpenAIChat\n"
        "OpenAIChat('m', api_key='k'), AnthropicChat('m', api_key='k')\n"
        "OpenAIEmbedder('m', dimension=3, api_key='k')\n"
        "known = {'openai', 'anthropic', 'litellm', 'httpx', 'httpx2', 'sentence_transformers'}\n"
        "assert not known & set(sys.modules), known & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
