"""That ranking is the published formula, whatever way the index came about.

The reference below is written straight from the formula, with lists and loops; the library's arrays
must agree with it on drawn sessions.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.search import rank
from hiermem.search.index import Index, collect
from hiermem.search.query import read_query
from hiermem.search.rank import Leg, best
from hiermem.text.terms import number, terms
from hiermem.types import Message, StoredMessage


def score(index, query, **fields):
    return rank.score(index, query, **fields)[0]


START = datetime(2024, 5, 6, 9, tzinfo=UTC)
VOCABULARY = """
I my car cars red dog puppy pet London city budget summary did you say Ada Bob may turtle the
of planning planned python 会議 ?
"""
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.lists(WORDS, min_size=1, max_size=30).map(" ".join)


def count(text: str) -> int:
    return 10 * len(text.split())


def session(texts, *, gaps=None, roles=None, names=None, threads=None):
    at, found = START, []
    for i, text in enumerate(texts):
        at += timedelta(hours=gaps[i] if gaps else 0)
        message = Message(
            roles[i] if roles else "user", text, name=names[i] if names else None,
            thread=threads[i] if threads else "main", created_at=at,
        )  # fmt: skip
        found.append(StoredMessage(index=i, message=message, tokens=0, size=0, hash=""))
    return found


@st.composite
def sessions(draw):
    texts = draw(st.lists(TEXTS, min_size=1, max_size=25))

    def each(values):
        return draw(st.lists(st.sampled_from(values), min_size=len(texts), max_size=len(texts)))

    return session(
        texts, gaps=each([0, 0, 0, 9]), roles=each(["user", "assistant", "tool"]),
        names=each([None, None, "Ada", "Bob"]), threads=each(["main", "main", "side"]),
    )  # fmt: skip


@drawn(60)
@given(sessions(), st.lists(st.integers(0, 25), max_size=4), TEXTS)
def test_a_grown_index_ranks_like_one_built_at_once(messages, cuts, asked):
    """Otherwise an answer would depend on when the process was started."""
    edges = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    grown = Index(collect([], count))
    for low, high in pairwise(edges):
        grown = grown.extended(collect(messages[low:high], count))
    whole = Index(collect(messages, count))
    query = read_query(asked)
    assert np.array_equal(score(grown, query), score(whole, query))


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
            index = index.extended(collect(messages[len(index.units.message) : stop], count))
        for _ in range(2):
            for wanted in [*([each] for each in numbers[:100]), numbers[:3], numbers, [1]]:
                assert found(index, wanted) == plain(index, wanted)
        assert len(index._terms[0].units)


def test_an_empty_session_can_be_asked():
    index = Index(collect([], count))
    assert len(score(index, read_query("my car"))) == 0
    assert len(best(score(index, read_query("my car")), 5)) == 0


def first(texts, asked, **fields):
    index = Index(collect(session(texts, **fields), count))
    return int(best(score(index, read_query(asked)), 1)[0])


FILL = ["The weather is fine.", "Lunch was at noon.", "Nothing much happened.", "See it later."]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("We spent a week in Portugal.", "Which countries did they visit?"),
        ("The kitten sleeps all day.", "What pets are there?"), ("明日の会議は十時です", "会議"),
        ("ฉันพูดภาษาไทยได้", "ภาษาไทย"), ("It was planned by Grace.", "planning"),
    ],
)  # fmt: skip
def test_what_is_meant_is_found(text, asked):
    """By its kind, in a script without spaces, in another form."""
    assert first([*FILL[:2], text, *FILL[2:]], asked) == 2


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


def test_repeats_are_dropped_and_short_texts_are_not():
    long = "the committee decided to buy seven turtles for the garden pond"
    index = Index(collect(session([long, "yes", long, "yes", long + " today"]), count))
    assert rank.distinct(index, [4, 0, 2, 1], most=9) == [4, 1]
    assert rank.distinct(index, [0, 1, 2], most=1) == [0]


def test_whose_matter_it_is_does_not_outweigh_the_matter():
    """Where few say "we", a message that does would come before the one that is asked for."""
    texts = ["PostgreSQL is the database.", "Before choosing the limit we look at the spread."]
    index = Index(collect(session([*texts, *["The cheese is ripe."] * 30]), count))
    assert rank.best(rank.score(index, read_query("which database did we choose?"))[0], 1)[0] == 0


def test_what_holds_nothing_of_the_question_is_told_apart():
    """A search would otherwise show the whole session for a word that nobody used."""
    index = Index(collect(session(["the red car", "a dog", "some kitten"]), count))
    assert rank.score(index, read_query("pets"))[1].tolist() == [False, True, True]
    assert not rank.score(index, read_query("qwertyuiop"))[1].any()
