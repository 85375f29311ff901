"""Finds the words of a text that a question's words matched, for display.

A word is marked by the same terms under which the index holds it. Offsets refer to the original
text, not to the folded one. The caller decides what a mark looks like.
"""

from __future__ import annotations

from hiermem.core.search.forms import held, languages
from hiermem.core.search.query import Query, read_query
from hiermem.core.search.terms import number, spans, terms, words
from hiermem.core.text.folding import fold


def marks(text: str, query: Query) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` with a query term, in order, joined where they touch.

    >>> from hiermem.core.search.query import read_query
    >>> marks("Two kittens and a car", read_query("What pets are there?"))
    ((4, 11),)
    """
    wanted = set(query.numbers)
    for term in query.terms:
        wanted.update(term.synonyms, term.members)
    codes = languages(text, words(text))
    found: list[tuple[int, int]] = []
    for begin, end in spans(text):
        piece = text[begin:end]
        others = [other for word in words(piece) for other in held(word, codes)]
        alone = {other for other in others if len(other) == 1}
        if any(number(term) in wanted for term in [*terms(piece), *others] if term not in alone):
            stretches = [(begin, end)]
        else:
            # One character of a run is marked only if it was asked for by itself.
            asked = {each for each in alone if number(each) in query.numbers}
            stretches = [(at, at + 1) for at in range(begin, end) if fold(text[at]) in asked]
        for low, high in stretches:
            if found and low <= found[-1][1]:
                found[-1] = (found[-1][0], max(high, found[-1][1]))
            else:
                found.append((low, high))
    return tuple(found)


def matched(text: str, query: str) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` that match ``query``, in order.

    They are (begin, end) in characters, so that ``text[begin:end]`` can be shown as a match.

    >>> matched("We planned the trips.", "trip plans")
    ((3, 10), (15, 20))
    """
    return marks(text, read_query(query))
