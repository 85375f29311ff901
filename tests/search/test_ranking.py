"""What ranking decides of an index alone."""

from datetime import UTC, datetime

import numpy as np

from hiermem.search import rank
from hiermem.search.index import Index, collect
from hiermem.search.query import read_query
from hiermem.search.rank import Leg, best
from hiermem.text.terms import number, terms
from hiermem.types import Message, StoredMessage


def score(index, query, **fields):
    return rank.score(index, query, **fields)[0]


START = datetime(2024, 5, 6, 9, tzinfo=UTC)


def count(text: str) -> int:
    return 10 * len(text.split())


def session(texts):
    return [
        StoredMessage(i, Message.user(text, created_at=START), tokens=0, size=0, hash="")
        for i, text in enumerate(texts)
    ]


def test_terms_are_found_alike_before_and_after_they_are_sorted():
    """A first search does not sort a long index; later ones do, and it grows in between."""
    words = [f"word{n}" for n in range(300)]
    texts = [" ".join(words[(7 * n + k) % 300] for k in range(40)) for n in range(200)]
    messages = session(texts)
    numbers = [number(term) for word in words for term in terms(word)]

    def plain(index, wanted):
        units = index.units
        rows = np.repeat(np.arange(len(units)), units.sizes)
        held = np.isin(units.terms, wanted)
        total = np.bincount(rows[held], units.counts[held], len(units))
        return [(row, total[row]) for row in np.flatnonzero(total)]

    def found(index, wanted):
        rows, counts = index.find(wanted)
        return list(zip(rows.tolist(), counts.tolist(), strict=True))

    index = Index(collect(messages[:150], count))
    assert not len(index._terms[0].units)
    for stop in (150, 160, 200):
        if stop > 150:
            index = index.extended([collect(messages[len(index) : stop], count)])
        for _ in range(2):
            for wanted in [*([each] for each in numbers[:100]), numbers[:3], numbers, [1]]:
                assert found(index, wanted) == plain(index, wanted)
        assert len(index._terms[0].units)


def test_whose_matter_it_is_does_not_outweigh_the_matter_and_what_holds_nothing_is_told_apart():
    """Where few say "we", a message that does would come before the one that is asked for."""
    texts = ["PostgreSQL is the database.", "We look at the limit before choosing."]
    index = Index(collect(session([*texts, *["The cheese is ripe."] * 30]), count))
    scores, holds, _ = rank.score(index, read_query("which database did we choose?"))
    assert rank.best(scores, 1)[0] == 0
    assert holds.tolist() == [True, True] + [False] * 30
    assert not rank.score(index, read_query("qwertyuiop"))[1].any()


def test_missing_vectors_leave_the_words_in_charge():
    """A search while the embedding worker is half-way must not sink what has no vector yet."""
    index = Index(collect(session(["red car", "blue house", "green tree"]), count))
    query = read_query("green tree")
    levels = tuple(np.full(len(lengths), np.nan) for lengths in index.window_lengths)
    half = Leg(np.array([0.4, 0.1, np.nan]), levels)
    assert best(score(index, query, dense=half), 1).tolist() == [2]
    none = Leg(np.full(3, np.nan), levels)
    plain = best(score(index, query), 3).tolist()
    assert best(score(index, query, dense=none), 3).tolist() == plain
