"""That only usable vectors are used, and that they are compared rightly."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sampling
from hypothesis import given
from hypothesis import strategies as st

from hiermem.search import vectors
from hiermem.search.index import Index, collect
from hiermem.types import Message, StoredMessage


def drawn(many: int, dimension: int, seed: int = 0):
    rows = np.random.default_rng(seed).normal(size=(many, dimension))
    return vectors.check(rows, many=many, dimension=dimension)


def over(index, parts, *, dimension):
    """Return runs of vectors over an index, all placed at once."""
    return vectors.Vectors.none(dimension).extended(index, parts)


def compared(index, parts, query):
    leg = vectors.compare(index, over(index, parts, dimension=len(query)), query)
    return leg.own, leg.levels


def said(threads):
    """Return messages of threads and some pauses, so that windows end in the middle of others."""
    at = datetime(2024, 5, 6, tzinfo=UTC)
    made = [
        Message.user(f"text {i}", thread=thread, created_at=at + timedelta(hours=i // 7 * 5))
        for i, thread in enumerate(threads)
    ]
    return [StoredMessage(i, message, tokens=0, size=0, hash="") for i, message in enumerate(made)]


def count(text):
    return 60 * len(text.split())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([[1.0, float("nan")]], "finite"),
        ([[float("inf"), 0.0]], "finite"),
        ([[0.0, 0.0]], "zero"),
        ([[1.0, 0.0, 0.0]], "dimension 3"),
        ([[1.0, 0.0], [1.0, 0.0]], "shape"),
        ([], "shape"),
        ([1.0, 2.0], "shape"),
        ([["a", "b"]], "no table"),
        ([[1.0], [1.0, 2.0]], "no table"),
        (None, "shape|no table"),
        ({"data": 1}, "no table"),
        ([[10**400, 0]], "no table"),
    ],
)
def test_an_unusable_answer_is_refused(answer, says):
    with pytest.raises(ValueError, match=says):
        vectors.check(answer, many=1, dimension=2)


def test_a_window_is_its_mean_vector_and_what_has_none_yet_is_left_open():
    index, rows = Index(collect(said("a" * 7), count)), drawn(7, 6)
    query = drawn(1, 6, seed=1)[0]
    own, levels = compared(index, [(0, rows[:4]), (4, rows[4:])], query)
    window, many = index.windows[0], len(index.window_lengths[0])
    assert many > 1
    means = np.array([rows[window == n].mean(axis=0) for n in range(many)])
    cosines = means @ query / np.linalg.norm(means, axis=1)
    spread = (cosines - cosines.min()) / (cosines.max() - cosines.min())
    assert levels[0] == pytest.approx(spread, abs=1e-5)
    assert (own.min(), np.argmax(own)) == (0, np.argmax(rows @ query))
    assert own.max() == pytest.approx(1)
    own, _ = compared(index, [(1, rows[:5])], query)
    assert np.isnan(own).tolist() == [True, *[False] * 5, True]
    own, levels = compared(index, [], query)
    assert all(np.isnan(scores).all() for scores in (own, *levels))


@given(st.data())
@sampling.drawn(60)
def test_vectors_that_grew_are_those_that_were_placed_at_once(data):
    """Appends and passes come in any order; what is worked out of them must not tell in which."""
    threads = data.draw(st.lists(st.sampled_from("abc"), min_size=2, max_size=40))
    messages = said(threads)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(threads)), min_size=1, max_size=4)))
    rows = drawn(len(threads), 70)
    index, held, placed = Index(collect([], len)), vectors.Vectors.none(70), set()
    before = []
    for cut in cuts:
        index = index.extended([collect(messages[len(index) : cut], count)])
        new = data.draw(st.sets(st.integers(0, cut - 1))) - placed
        placed |= new
        before.append((held, held.rows[held.present].copy(), held.norms))
        held = held.extended(index, [(i, rows[i : i + 1]) for i in sorted(new)])
    at_once = over(index, [(i, rows[i : i + 1]) for i in sorted(placed)], dimension=70)
    assert (held.rows == at_once.rows).all()
    assert (held.present == at_once.present).all()
    assert all((a == b).all() for a, b in zip(held.norms, at_once.norms, strict=True))
    for old, seen, norms in before:
        assert (old.rows[old.present] == seen).all()
        assert old.norms is norms
