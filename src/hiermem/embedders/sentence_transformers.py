"""Vectors from a sentence-transformers model on your own machine.

The event loop never waits for an answer: the model runs on threads, one call at a time, since
neither its tokenizer nor its device supports two. Where the dimension is given, the model is also
loaded on a thread. Otherwise the first caller that asks for the dimension waits for it, such as a
memory that is being opened.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hiermem import arguments
from hiermem.errors import ConfigError, ModelError
from hiermem.remote.object_storage import prefixes_of, require, text, vectors_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["SentenceTransformerEmbedder"]


class Encoder(Protocol):
    """The part of ``SentenceTransformer`` that this adapter uses."""

    def encode(self, sentences: list[str], /, **settings: Any) -> Any:
        """Return one vector a text."""
        ...


class SentenceTransformerEmbedder:
    """A model of sentence-transformers. Needs the extra ``sentence-transformers``.

    ``model`` is a name, a folder, or a ``SentenceTransformer`` of your own. A named model is loaded
    when it is first needed, on ``device`` where that is given; with ``dimension`` it is not loaded
    just to find its dimension. Without prefixes, a model's own prompts for questions and passages
    are used, where it has any; ``query_prefix`` and ``passage_prefix`` replace them. ``batch_size``
    texts are encoded at once. ``weight`` is what cosines count for in a ranking, relative to the
    words.

    The ``name`` identifies the vectors; a model object needs one. Raises ConfigError for impossible
    settings, and where the extra is missing.
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
        chosen: Any = model
        self._loaded: Any = None
        if isinstance(chosen, str):
            require(
                "sentence_transformers", extra="sentence-transformers", what=type(self).__name__
            )
            self._model = text(chosen, "model")
        elif not callable(getattr(chosen, "encode", None)):
            raise ConfigError(
                f"model is {type(chosen).__name__}; it must be a name or a SentenceTransformer"
            )
        else:
            if name is None:
                raise ConfigError("give a name for a model of your own; it identifies its vectors")
            self._model, self._loaded = name, chosen
        if dimension is not None:
            arguments.whole(dimension, "dimension", least=1)
        self._dimension = dimension
        self._prefixes = prefixes_of(query_prefix, passage_prefix)
        usual = vectors_name(self._model, self._prefixes)
        self.name = text(name, "name") if name is not None else usual
        self.weight = arguments.share(weight, "weight")
        self._device = device
        self._batch = arguments.whole(batch_size, "batch_size", least=1)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEmbedder({self._model!r})"

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; loads the model where this was not given."""
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
        """Return one vector a text, in their order, as the rows of an array.

        Raises ModelError where the model fails.
        """
        try:
            return await asyncio.to_thread(self._encode, list(texts), kind)
        except (ModelError, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - its words may hold the texts
            raised = type(error).__name__
        raise ModelError(f"{self.name}: the model ended in {raised}", charged=False)

    def _ready(self) -> Any:
        """Return the model, loaded. The caller holds the lock."""
        if self._loaded is None:
            package = import_module("sentence_transformers")
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
