"""sentence-transformers: off the loop, one call at a time; the real package where it is there."""

import asyncio
import threading
import time

import numpy as np
import pytest

from hiermem import ConfigError, Embedder, ModelError
from hiermem.embedders.sentence_transformers import SentenceTransformerEmbedder


class Stand:
    """An encoder as the adapter's Protocol has it, which notes how it is used."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.at_once = self.most = 0
        self.asked: list[tuple[str, list[str]]] = []

    def get_embedding_dimension(self) -> int:
        return 3

    def encode(self, texts, /, **settings):
        return self._rows("plain", texts)

    def encode_query(self, texts, /, **settings):
        return self._rows("query", texts)

    def encode_document(self, texts, /, **settings):
        return self._rows("passage", texts)

    def _rows(self, how, texts):
        self.threads.add(threading.get_ident())
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        time.sleep(0.005)
        self.at_once -= 1
        self.asked.append((how, list(texts)))
        if any("explode" in text for text in texts):
            raise RuntimeError(f"cannot encode {texts}")
        return np.array([[len(text), 1.0, 2.0] for text in texts], dtype=np.float64)


async def test_it_is_an_embedder_that_runs_off_the_loop_and_once_at_a_time():
    """A model that is run on the loop stops every session; two runs at once break tokenizers."""
    stand = Stand()
    embedder = SentenceTransformerEmbedder(stand, name="stand-1")
    assert isinstance(embedder, Embedder)
    assert (embedder.name, embedder.dimension) == ("stand-1", 3)
    texts = ["a", "bb", "ccc"]
    found = await asyncio.gather(*(embedder.embed(texts, kind="passage") for _ in range(4)))
    assert all(each.dtype == np.float32 for each in found)
    assert found[0][:, 0].tolist() == [1, 2, 3]
    assert threading.get_ident() not in stand.threads
    assert stand.most == 1
    assert (await embedder.embed([], kind="passage")).shape == (0, 3)


async def test_a_models_own_prompts_are_used_unless_others_are_given():
    """Models that were trained with prompts find worse without them, and worse with two."""
    stand = Stand()
    own = SentenceTransformerEmbedder(stand, name="s")
    await own.embed(["x"], kind="query")
    await own.embed(["x"], kind="passage")
    given = SentenceTransformerEmbedder(stand, name="s", query_prefix="q: ", passage_prefix="p: ")
    await given.embed(["x"], kind="query")
    await given.embed(["x"], kind="passage")
    assert stand.asked == [
        ("query", ["x"]), ("passage", ["x"]), ("plain", ["q: x"]), ("plain", ["p: x"]),
    ]  # fmt: skip


async def test_a_failure_names_its_kind_and_none_of_the_texts():
    with pytest.raises(ModelError, match="RuntimeError") as told:
        await SentenceTransformerEmbedder(Stand(), name="s").embed(["explode CANARY"], kind="query")
    assert "CANARY" not in str(told.value)
    assert told.value.__context__ is None


def test_what_cannot_be_is_refused_where_it_is_made():
    with pytest.raises(ConfigError, match="give a name"):
        SentenceTransformerEmbedder(Stand())
    with pytest.raises(ConfigError, match="must be a name or a SentenceTransformer"):
        SentenceTransformerEmbedder(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="query_prefix"):
        SentenceTransformerEmbedder(Stand(), name="s", query_prefix=None)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
async def test_a_real_model_gives_its_own_vectors():
    """Built in memory, with weights at random: what the real package takes and gives."""
    package = pytest.importorskip("sentence_transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    modules = pytest.importorskip("sentence_transformers.models")
    words = {word: place for place, word in enumerate(["[UNK]", "pump", "oil", "valve"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    model = package.SentenceTransformer(
        modules=[modules.StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu"
    )
    embedder = SentenceTransformerEmbedder(model, name="static-8")
    assert embedder.dimension == 8
    texts = ["pump oil", "valve", "oil"]
    for kind in ("query", "passage"):
        found = await embedder.embed(texts, kind=kind)
        assert np.allclose(found, model.encode(texts), atol=1e-6)
