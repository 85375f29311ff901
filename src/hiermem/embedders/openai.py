"""Vectors from any server with OpenAI's embeddings API: OpenAI, Azure, Ollama, vLLM, gateways.

The vectors are put into the order of the texts and not changed otherwise. The caller checks whether
they are fit to be stored, and the engine retries.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from hiermem import arguments
from hiermem.calls.failures import refused_field, to_error
from hiermem.errors import ConfigError, ModelError
from hiermem.remote import object_storage as remote
from hiermem.remote.responses import MiscastError, read

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from openai import AsyncOpenAI

__all__ = ["OpenAIEmbedder"]

#: The dimensions of the known models.
_NATIVE: Final[Mapping[str, int]] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
#: The most bytes of an answer: ten thousand vectors of two thousand numbers, packed.
_MOST_BYTES: Final = 128 * 1024 * 1024
#: Longer answers than this are read on a thread.
_LONG: Final = 100_000


class OpenAIEmbedder:
    """An embedding model behind any OpenAI-compatible server. Needs the extra ``openai``.

    ``dimension`` is how many numbers its vectors have; it may be left out for OpenAI's own models.
    With ``shorten`` the server is asked for vectors of that many, for models whose vectors can be
    cut. ``query_prefix`` and ``passage_prefix`` are put before questions and before what is
    searched, for models that were trained with such words ("query: ", "passage: ").

    ``base_url``, ``api_key`` and ``client`` are as for ``OpenAIChat``: with an address, only the
    key that is given is sent there. ``timeout`` is in seconds. ``weight`` is what cosines count for
    in a ranking, relative to the words. ``extra`` are further fields of every request.

    The ``name`` identifies the vectors. It is made of what changes them: model, dimension,
    prefixes. Raises ConfigError for impossible settings, and where the extra is missing.
    """

    def __init__(
        self,
        model: str,
        *,
        dimension: int | None = None,
        shorten: bool = False,
        query_prefix: str = "",
        passage_prefix: str = "",
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None = None,
        name: str | None = None,
        timeout: float = 60.0,
        weight: float = 1.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = remote.text(model, "model")
        native = _NATIVE.get(self._model)
        wanted = native if dimension is None else dimension
        if wanted is None:
            raise ConfigError(
                f"dimension is not known for {model!r}; give how many numbers its vectors have"
            )
        self.dimension = arguments.whole(wanted, "dimension", least=1)
        self._shorten = arguments.switch(shorten, "shorten") or self.dimension != (native or wanted)
        self._prefixes = remote.prefixes_of(query_prefix, passage_prefix)
        usual = remote.vectors_name(f"{self._model}/{self.dimension}", self._prefixes)
        self.name = remote.text(name, "name") if name is not None else usual
        self.weight = arguments.share(weight, "weight")
        self._extra = remote.fields(extra)
        self._packed = True
        self._where = remote.server_of(base_url)
        self._connection = remote.Connection(
            "openai",
            "AsyncOpenAI",
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=arguments.seconds(timeout, "timeout"),
            most_bytes=_MOST_BYTES,
            what=type(self).__name__,
        )

    def __repr__(self) -> str:
        at = f", base_url={self._where!r}" if self._where else ""
        return f"OpenAIEmbedder({self._model!r}, dimension={self.dimension}{at})"

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"]
    ) -> npt.NDArray[np.float32]:
        """Return one vector a text, in their order, as the rows of an array.

        Raises the error that ``calls.failures`` makes of the SDK's exception.
        """
        prefixed = [self._prefixes[kind] + each for each in texts]
        while True:
            packed = self._packed
            try:
                answer = await self._exchange(prefixed, packed=packed)
                long = sum(map(len, prefixed)) > _LONG or len(texts) * self.dimension > _LONG
                if long:
                    return await asyncio.to_thread(_rows, answer, len(texts))
                return _rows(answer, len(texts))
            except (ModelError, ConfigError):
                raise
            except Exception as error:  # noqa: BLE001 - an SDK may raise anything; it is classified below
                failure = read(error, key=self._connection.key)
                raised = type(error).__name__
            if failure is None:
                raise ModelError(f"{self.name}: the call ended in {raised}")
            refused = refused_field(failure, ("encoding_format", "base64"), at_all=False)
            if not packed or refused is None:
                raise to_error(failure, model=self.name)
            self._packed = False

    async def disconnect(self) -> None:
        """Close the connections that the running event loop has open; the next call opens new ones.

        A memory does this for its embedder when it is closed. A client that was passed in stays
        open.
        """
        await self._connection.disconnect()

    async def _exchange(self, texts: list[str], *, packed: bool) -> dict[str, Any]:
        """Send one request; as an extra body, fields that the SDK does not know pass through."""
        shortened = {"dimensions": self.dimension} if self._shorten else {}
        return await self._connection.ask(
            lambda client: client.embeddings,
            content="data",
            model=self._model,
            input=texts,
            encoding_format="base64" if packed else "float",
            extra_body={**shortened, **self._extra},
        )


def _rows(answer: Mapping[str, Any], many: int) -> npt.NDArray[np.float32]:
    """Read the vectors into the order of the texts. Raises MiscastError."""
    import numpy as np

    data = answer.get("data")
    if not isinstance(data, list) or len(data) != many:
        raise MiscastError("the answer does not hold one vector a text")
    if not many:
        return np.empty((0, 0), dtype=np.float32)
    rows: dict[int, npt.NDArray[np.float32]] = {}
    for place, item in enumerate(data):
        try:
            encoded, position = item["embedding"], item.get("index", place)
            if isinstance(encoded, str):
                vector = np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
            else:
                vector = np.array(encoded, dtype=np.float32)
        except (TypeError, LookupError, AttributeError, ValueError, OverflowError):
            raise MiscastError("the answer holds something that is no vector") from None
        if not isinstance(position, int) or vector.ndim != 1:
            raise MiscastError("the answer holds something that is no vector")
        rows[position] = vector
    if set(rows) != set(range(many)) or len(set(map(len, rows.values()))) != 1:
        raise MiscastError("the answer does not hold one vector a text")
    return np.stack([rows[position] for position in range(many)])
