"""Embeddings over real HTTP: order, packing, names, failures, and a memory that has them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from provider import Provider

from hiermem import AsyncMemory, ConfigError, Embedder, Message, ModelError
from hiermem.embedders import HashingEmbedder
from hiermem.embedders.openai import OpenAIEmbedder, _rows
from hiermem.remote.responses import MiscastError


@pytest.fixture(scope="module")
def provider():
    with Provider(dimension=48) as running:
        yield running


@pytest.fixture(autouse=True)
def _afresh(provider):
    provider.served.clear()
    provider.meet(None)
    provider.packs = True


def embedder_at(provider, **settings):
    settings = {"dimension": 48, **settings}
    return OpenAIEmbedder("tiny", base_url=provider.openai_url, api_key=provider.key, **settings)


@pytest.mark.parametrize("packed", [True, False])
async def test_texts_come_back_as_vectors_in_their_order(packed, provider):
    """Packed or as numbers, whichever the server takes: a text with another's vector is lost."""
    provider.packs = packed
    embedder = embedder_at(provider)
    assert isinstance(embedder, Embedder)
    texts = ["the pump", "a valve leaks", "oil", "the pump"]
    for _ in range(2):
        found = await embedder.embed(texts, kind="passage")
    await embedder.disconnect()
    expected = await HashingEmbedder(48).embed(texts)
    assert np.allclose(found, expected, atol=1e-6)
    # The refusal of packed vectors costs one request, once.
    assert len(provider.served) == (2 if packed else 3)


async def test_prefixes_tell_questions_from_passages_and_are_part_of_the_name(provider):
    """Vectors made with another prefix are another embedder's; compared, they mean nothing."""
    plain = embedder_at(provider)
    told = embedder_at(provider, query_prefix="query: ", passage_prefix="passage: ")
    await told.embed(["oil"], kind="query")
    await told.embed(["oil"], kind="passage")
    await told.disconnect()
    assert [each.body["input"] for each in provider.served] == [["query: oil"], ["passage: oil"]]
    assert plain.name == "tiny/48"
    assert len({plain.name, told.name, embedder_at(provider, query_prefix="q").name}) == 3


async def test_vectors_are_shortened_where_that_is_asked(provider):
    """The name says so: vectors of another length are never compared."""
    embedder = embedder_at(provider, dimension=16, shorten=True)
    assert (await embedder.embed(["oil"], kind="query")).shape == (1, 16)
    await embedder.disconnect()
    assert provider.served[0].body["dimensions"] == 16
    known = OpenAIEmbedder("text-embedding-3-small", api_key="k")
    assert (known.dimension, known.name) == (1536, "text-embedding-3-small/1536")
    with pytest.raises(ConfigError, match="dimension is not known"):
        OpenAIEmbedder("some-model", api_key="k")


@pytest.mark.parametrize(
    ("fault", "error", "charged"),
    [
        ("429", "transient", False), ("500", "transient", None), ("drop", "transient", None),
        ("drop_body", "transient", None), ("invalid_json", "transient", None),
        ("not_an_object", "transient", None), ("html", "transient", None),
        ("no_choices", "transient", None), ("error_in_200", "transient", None),
        ("hang", "timeout", None), ("401", "permanent", False), ("overflow", "overflow", False),
    ],
)  # fmt: skip
async def test_a_failure_is_one_request_and_one_typed_error(fault, error, charged, provider):
    """The same table as for chats: what an embedder wrongly tells is embedded never, or twice."""
    provider.meet(fault)
    embedder = embedder_at(provider, timeout=1.0 if fault == "hang" else 30.0)
    with pytest.raises(ModelError) as told:
        await embedder.embed(["CANARY of the text"], kind="passage")
    await embedder.disconnect()
    assert told.value.kind == error
    assert told.value.charged is charged
    assert told.value.__context__ is None
    assert "CANARY" not in str(told.value)
    assert len(provider.served) == 1


async def test_a_memory_finds_by_vectors_of_a_server_that_fails_at_times(provider):
    """From append to search over real HTTP, with a rate limit and a dropped connection between."""
    faults = iter(["429", "drop"])
    provider._decide = lambda served: next(faults, None)
    async with AsyncMemory.open(":memory:", embedder=embedder_at(provider)) as memory:
        session = memory.session("pumps")
        await session.append(
            Message.user("The lubrication of the pump is due."), Message.user("Paint the door red.")
        )
        await session.embed()
        (best, *_) = await session.search("lubricating")
    assert "lubrication" in best.text
    assert len(provider.served) == 4
    assert provider.connections() == 0


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {"index": st.integers(-1, 3) | st.none() | st.text(max_size=1)},
                optional={
                    "embedding": st.lists(st.floats(allow_nan=False, width=32), max_size=3)
                    | st.text(max_size=8)
                    | st.lists(st.text(max_size=1), max_size=2)
                },
            ),
        ),
        max_size=4,
    ),
    st.integers(0, 4),
)
@example([{"index": None, "embedding": [1.0]}], 1)
@example([{"index": 3, "embedding": [1.0]}], 1)
@example([{"index": 0, "embedding": [[1.0]]}], 1)
def test_an_answer_of_any_shape_is_one_vector_a_text_or_refused(data, many):
    """A list too short, an index twice, a vector of another length: none may shift the others."""
    try:
        rows = _rows({"data": data}, many)
    except MiscastError:
        return
    assert len(rows) == many
