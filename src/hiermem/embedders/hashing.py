"""Vectors without a model: words are cut into letter groups, each hashed into a bucket.

The same text gives the same vector in every process; any change of the vectors changes the
embedder's name. Texts that share parts of words are near, so typing errors, inflections and
compounds match in any language. Meanings are not known: "car" and "automobile" are unrelated to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from hiermem.text.terms import STOP_WORDS, words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["HashingEmbedder"]

#: The sizes of the letter groups; a blank is added before and after each word.
_SIZES = (3, 4, 5)


class HashingEmbedder:
    """The zero-download embedder: signed feature hashing of letter 3- to 5-grams.

    (Weinberger et al. 2009.) A bucket holds the sum of its groups' signed counts, damped by the
    logarithm; vectors have length 1. ``weight`` is what its cosines count for in a ranking,
    relative to the words: little, since ``benchmarks/recall.py`` finds hardly more with them than
    without.
    """

    def __init__(self, dimension: int = 512) -> None:
        if not 16 <= dimension <= 65_536:
            raise ValueError(f"dimension is {dimension}; it must be from 16 to 65,536")
        self.name = "hashing-2"
        self.dimension = dimension
        self.weight = 0.15

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage"
    ) -> npt.NDArray[np.float32]:
        """Return one vector a text, as the rows of an array."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for place, text in enumerate(texts):
            for bucket, value in self._buckets(text).items():
                rows[place, bucket] = math.copysign(math.log1p(abs(value)), value)
        # A text without a letter still needs a direction.
        rows[~rows.any(axis=1), 0] = 1.0
        unit: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    def _buckets(self, text: str) -> Counter[int]:
        """Return the sum of signed counts in each bucket that is hit."""
        found_words = words(text)
        found: Counter[int] = Counter()
        for word in [word for word in found_words if word not in STOP_WORDS] or found_words:
            spaced = f" {word} "
            for size in _SIZES:
                for start in range(max(1, len(spaced) - size + 1)):
                    code = crc32(spaced[start : start + size].encode("utf-8", "surrogatepass"))
                    found[code % self.dimension] += 1 if code >> 31 else -1
        return found
