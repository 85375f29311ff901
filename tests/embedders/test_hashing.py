"""What vectors without a model promise: always the same, always usable."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.embedders import HashingEmbedder
from hiermem.protocols import Embedder
from hiermem.search import vectors


@given(st.lists(st.text(max_size=60), max_size=6))
async def test_every_text_has_a_usable_vector(texts):
    """An empty text or one of signs alone must not give a zero vector, which has no direction."""
    embedder = HashingEmbedder(64)
    assert isinstance(embedder, Embedder)
    rows = await embedder.embed(texts, kind="passage")
    checked = vectors.check(rows, many=len(texts), dimension=64)
    assert np.allclose(checked, rows, atol=1e-6)


async def test_shared_parts_of_words_are_near_and_the_dimension_is_a_usable_one():
    rows = await HashingEmbedder().embed(
        ["the budget planning", "a buget plan", "turtles swim slowly"], kind="query"
    )
    assert rows[0] @ rows[1] > 0.3 > abs(rows[0] @ rows[2])
    for dimension in (15, 65_537):
        with pytest.raises(ValueError, match="dimension"):
            HashingEmbedder(dimension)


def test_other_processes_give_the_same_vector():
    """Python's own hash differs by process; vectors that used it could not be stored."""
    code = (
        "import asyncio; from hiermem.embedders import HashingEmbedder as H;"
        "print(asyncio.run(H(32).embed(['Ada bought a car'])).tobytes().hex())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
