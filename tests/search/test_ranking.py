"""That ranking is the published formula, whatever way the index came about.

The reference below is written straight from the formula, with lists and loops; the library's arrays
must agree with it on drawn sessions.
"""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.search import evidence, rank
from hiermem.search.index import ASKS, LEVELS, NAMES_TIME, SPEAKS_OF_SELF, Index, collect
from hiermem.search.query import read_query
from hiermem.search.rank import WEIGHTS, Leg, best
from hiermem.text.terms import FIRST_PERSON, number, terms
from hiermem.types import ROLES, Message, StoredMessage


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


class Reference:
    """The formula with lists and loops."""

    def __init__(self, index: Index) -> None:
        units = index.units
        self.n = len(units)
        ends = np.cumsum(units.sizes).tolist()
        begins = [0, *ends[:-1]]
        self.bags = [
            Counter(dict(zip(units.terms[b:e].tolist(), units.counts[b:e].tolist(), strict=True)))
            for b, e in zip(begins, ends, strict=True)
        ]
        self.units, self.index = units, index
        self.lengths = [max(1, int(length)) for length in units.length]
        rows = range(self.n)
        self.order = sorted(rows, key=lambda i: (int(units.thread[i]), i))
        self.sittings = self._sittings()
        self.windows = [self._windows(limit) for limit in LEVELS]

    def _sittings(self):
        found = [[self.order[0]]]
        for before, unit in pairwise(self.order):
            same = self.units.thread[before] == self.units.thread[unit]
            pause = abs(int(self.units.at[unit]) - int(self.units.at[before]))
            if same and pause <= 4 * 3600 * 10**6:
                found[-1].append(unit)
            else:
                found.append([unit])
        return found

    def _windows(self, limit):
        found = []
        for sitting in self.sittings:
            window, held = [], 0
            for unit in sitting:
                tokens = int(self.units.tokens[unit])
                if window and held + tokens > limit:
                    found.append(window)
                    window, held = [], 0
                window.append(unit)
                held += tokens
            found.append(window)
        return found

    def bm25(self, sets, bags, lengths):
        mean = sum(lengths) / len(lengths)
        found = [0.0] * len(bags)
        for numbers, weight in sets:
            tf = [sum(bag[n] for n in numbers) for bag in bags]
            df = sum(1 for t in tf if t)
            idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
            for i, t in enumerate(tf):
                part = t + 0.8 * (0.25 + 0.75 * lengths[i] / mean)
                found[i] += weight * idf * t * 1.8 / part
        top = max(found)
        return [value / top if top > 0 else value for value in found]

    def sets(self, query):
        for term in query.terms:
            weight = term.count * (0.3 if term.of_form else 1.0)
            weight *= 0.6 if term.word in FIRST_PERSON else 1.0
            yield (term.number, *term.forms), weight
            yield term.parts, weight * 0.4
            yield term.members, weight * 0.7

    def scores(self, query):
        sets = [(numbers, weight) for numbers, weight in self.sets(query) if numbers]
        own = self.bm25(sets, self.bags, self.lengths)
        context = [0.0] * self.n
        for windows in self.windows:
            bags = [sum((self.bags[u] for u in window), Counter()) for window in windows]
            lengths = [sum(self.lengths[u] for u in window) for window in windows]
            for window, value in zip(windows, self.bm25(sets, bags, lengths), strict=True):
                for unit in window:
                    context[unit] += value / len(self.windows)
        near = [0.0] * self.n
        for sitting in self.sittings:
            for one, other in pairwise(sitting):
                near[one] += own[other]
                near[other] += own[one]
        found = []
        for i in range(self.n):
            lone = 1 / (1 + (int(self.units.whole[i]) / 130) ** 2)
            flags = int(self.units.flags[i])
            said = bool(flags & SPEAKS_OF_SELF) - bool(flags & ASKS)
            said += query.for_time * bool(flags & NAMES_TIME)
            found.append(
                own[i] + lone * (0.7 * context[i] + 0.3 * near[i])
                + 0.3 * self.who(i, query) + 0.1 * said
            )  # fmt: skip
        if query.overview or query.to_assistant:
            return self.with_replies(found, found, lambda reply, asked, _: max(reply, asked))
        if query.first_person:
            return self.with_replies(
                found, own, lambda reply, asked, most: max(reply, min(reply + 0.4 * asked, most))
            )
        return found

    def who(self, i, query):
        name = self.units.speakers[self.units.speaker[i]]
        if name not in ("User", "Assistant", "Tool") and set(map(number, terms(name))) & set(
            query.numbers
        ):
            return True
        if query.overview or len(set(self.units.role.tolist())) < 2:
            return False
        role = ROLES[self.units.role[i]]
        return role == ("assistant" if query.to_assistant else "user") and (
            query.to_assistant or query.first_person
        )

    def with_replies(self, found, value, joined):
        """Let the best units of each reply gain by the best ``value`` of what it replies to."""
        result = list(found)
        asked = {}
        for i in self.order:
            thread = int(self.units.thread[i])
            role = ROLES[self.units.role[i]]
            message = self.units.message[i]
            same = [j for j in range(self.n) if self.units.message[j] == message]
            if role == "user":
                asked[thread] = max(value[j] for j in same), max(found[j] for j in same)
            elif (
                role == "assistant" and thread in asked and found[i] == max(found[j] for j in same)
            ):
                result[i] = joined(result[i], *asked[thread])
        return result


@drawn(150)
@given(sessions(), TEXTS)
def test_the_arrays_agree_with_the_formula(messages, asked):
    index = Index(collect(messages, count))
    assume(len(index))
    query = read_query(asked)
    assert score(index, query) == pytest.approx(Reference(index).scores(query), abs=1e-9)


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
        ("The kitten sleeps all day.", "What pets are there?"),
        ("明日の会議は十時です", "会議"),
        ("ฉันพูดภาษาไทยได้", "ภาษาไทย"),
        ("It was planned by Grace.", "planning"),
    ],
)
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


SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), max_size=30)


@given(SCORES, st.integers(-1, 35), st.data())
def test_the_best_are_a_stable_sort(values, limit, data):
    """Equal scores must not change places with the limit or the platform's partition."""
    allowed = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    expected = sorted((i for i in range(len(values)) if allowed[i]), key=lambda i: (-values[i], i))
    found = best(np.array(values), limit, allowed=np.array(allowed, dtype=bool))
    assert found.tolist() == expected[: max(0, limit)]


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=30),
    st.integers(0, 400),
    st.randoms(use_true_random=False),
)
def test_packing_keeps_the_budget(units, budget, random):
    cost = np.array([price for price, _ in units], dtype=int)
    sitting = np.array([place for _, place in units], dtype=int)
    header = np.array([3, 5, 7, 11])
    ranked = list(range(len(units)))
    random.shuffle(ranked)
    chosen = evidence.pack(ranked, budget, cost=cost, sitting=sitting, header=header)
    spent = cost[chosen].sum() + sum(header[place] for place in {units[i][1] for i in chosen})
    assert spent <= budget
    assert chosen == sorted(set(chosen))
    if ranked and cost[ranked[0]] + header[sitting[ranked[0]]] <= budget:
        assert ranked[0] in chosen


def test_neighbouring_slices_are_one_stretch():
    index = Index(collect(session(["one two three. " * 40, "four"]), count))
    last = len(index) - 1
    assert last > 3
    found = evidence.stretches(index, [0, 1, 3, last])
    assert [s.units for s in found] == [(0, 1), (3,), (last,)]
    assert found[0].end == int(index.units.end[1])


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


def test_weights_are_what_the_page_says():
    assert (WEIGHTS.context, WEIGHTS.near, WEIGHTS.lone, WEIGHTS.who) == (0.7, 0.3, 130.0, 0.3)
    assert (WEIGHTS.form, WEIGHTS.asker, WEIGHTS.reply) == (0.3, 0.6, 0.4)
