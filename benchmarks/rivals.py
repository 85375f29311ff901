"""What other memory libraries return for the same vectors: used by ``recall.py``.

Each is asked as its documentation says, for as many as a large budget holds, nearest first. They
index whole messages or slices just as hiermem cuts them, so that only the ranking differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

import numpy as np
import numpy.typing as npt

__all__ = ["RIVALS", "Search"]

Vectors = npt.NDArray[np.float32]
#: From a question and its vector to the places of the units found, nearest first.
Search = Callable[[str, Vectors, int], list[int]]


def chroma(_texts: Sequence[str], rows: Vectors) -> Search:
    """Chroma in memory, with cosine distance."""
    import chromadb

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection(
        f"c{uuid4().hex}", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    for start in range(0, len(rows), 1_000):
        part = rows[start : start + 1_000]
        collection.add(ids=[str(start + i) for i in range(len(part))], embeddings=part)

    def search(_question: str, vector: Vectors, limit: int) -> list[int]:
        found = collection.query(query_embeddings=vector[None], n_results=min(limit, len(rows)))
        return [int(name) for name in found["ids"][0]]

    return search


def langgraph(texts: Sequence[str], rows: Vectors) -> Search:
    """LangGraph's in-memory store with its semantic index."""
    from langgraph.store.memory import InMemoryStore

    known = dict(zip(texts, rows, strict=True))
    store = InMemoryStore(
        index={"dims": rows.shape[1], "embed": lambda wanted: [known[t].tolist() for t in wanted]}
    )
    for place, text in enumerate(texts):
        store.put(("chat",), str(place), {"text": text}, index=["text"])

    def search(question: str, vector: Vectors, limit: int) -> list[int]:
        known[question] = vector
        found = store.search(("chat",), query=question, limit=min(limit, len(rows)))
        return [int(item.key) for item in found]

    return search


RIVALS: dict[str, Callable[[Sequence[str], Vectors], Search]] = {
    "Chroma": chroma,
    "LangGraph store": langgraph,
}
