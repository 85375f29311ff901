"""Vectors from a sentence-transformers model on one's own machine.

The one rule: the event loop never waits for an answer: the model is run on threads, one call at a
time, since neither its tokenizer nor its device likes two. It is loaded on one too where its
dimension is given; else whoever asks for that first, such as a memory that is opened, waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol
from zlib import crc32

from hiermem.core import arguments
from hiermem.errors import ConfigError, ModelError
from hiermem.remote.optional import load, require
from hiermem.remote.settings import text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["SentenceTransformerEmbedder"]


class Encoder(Protocol):
    """What a ``SentenceTransformer`` is to this adapter."""

    def encode(self, sentences: list[str], /, **settings: Any) -> Any:
        """Give one vector a text."""
        ...


class SentenceTransformerEmbedder:
    """A model of sentence-transformers. Needs the extra ``sentence-transformers``.

    ``model`` is a name or a folder, or a ``SentenceTransformer`` of one's own; one that is named is
    loaded when it is first needed, on ``device`` where that is given. ``dimension`` may be given so
    that it need not be loaded to say it. Without prefixes, a model's own prompts for questions and
    passages are used, where it has any; ``query_prefix`` and ``passage_prefix`` take their place.
    ``batch_size`` texts go through it at once. ``weight`` is what cosines count for beside the
    words in a ranking.

    The ``name`` identifies the vectors; one must be given with a model object. Raises ConfigError
    for settings that cannot be, and where the extra is missing.
    """

    def __init__(
        self,
        model: str | Encoder,
        *,
        dimension: int | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        device: str | None = None,
        name: str | None = None,
        batch_size: int = 32,
        weight: float = 1.0,
    ) -> None:
        given: Any = model
        self._loaded: Any = None
        if isinstance(given, str):
            require(
                "sentence_transformers", extra="sentence-transformers", what=type(self).__name__
            )
            self._model = text(given, "model")
        elif not callable(getattr(given, "encode", None)):
            raise ConfigError(
                f"model is {type(given).__name__}; it must be a name or a SentenceTransformer"
            )
        else:
            if name is None:
                raise ConfigError("give a name for a model of your own; it identifies its vectors")
            self._model, self._loaded = name, given
        if dimension is not None:
            arguments.whole(dimension, "dimension", least=1)
        self._dimension = dimension
        self._prefixes = {"query": query_prefix, "passage": passage_prefix}
        for kind, prefix in self._prefixes.items():
            if not isinstance(prefix, str):
                raise ConfigError(f"{kind}_prefix is {type(prefix).__name__}; it must be text")
        self.name = text(name, "name") if name is not None else self._own_name()
        self.weight = arguments.share(weight, "weight")
        self._device = device
        self._batch = arguments.whole(batch_size, "batch_size", least=1)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEmbedder({self._model!r})"

    @property
    def dimension(self) -> int:
        """Give how many numbers a vector has; the model is loaded to say it, where nobody did."""
        if self._dimension is None:
            with self._lock:
                model = self._ready()
                # The name of the method changed; newer versions warn about the older one.
                ask = getattr(model, "get_embedding_dimension", None)
                ask = ask or model.get_sentence_embedding_dimension
                found = ask()
            if not isinstance(found, int) or found < 1:
                raise ConfigError(f"{self._model!r} does not say its dimension; give it")
            self._dimension = found
        return self._dimension

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"]
    ) -> npt.NDArray[np.float32]:
        """Give one vector a text, in their order, as the rows of an array.

        Raises ModelError where the model fails.
        """
        try:
            return await asyncio.to_thread(self._encode, list(texts), kind)
        except (ModelError, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - its words may hold the texts
            raised = type(error).__name__
        raise ModelError(f"{self.name}: the model ended in {raised}", charged=False)

    def _own_name(self) -> str:
        prefixes = "\0".join(self._prefixes.values())
        return self._model + (f"+{crc32(prefixes.encode()):08x}" if prefixes != "\0" else "")

    def _ready(self) -> Any:
        """Give the model, loaded. The lock is held."""
        if self._loaded is None:
            package = load("sentence_transformers")
            self._loaded = package.SentenceTransformer(self._model, device=self._device)
        return self._loaded

    def _encode(self, texts: list[str], kind: Literal["query", "passage"]) -> Any:
        import numpy as np

        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        with self._lock:
            model = self._ready()
            method = model.encode
            if any(self._prefixes.values()):
                texts = [self._prefixes[kind] + each for each in texts]
            else:
                own = "encode_query" if kind == "query" else "encode_document"
                method = getattr(model, own, method)
            rows = method(
                texts,
                batch_size=self._batch,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.asarray(rows, dtype=np.float32)
