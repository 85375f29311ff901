"""Finds the words of a text that a question's words matched, for display.

A word is marked by the same terms under which the index holds it. Offsets refer to the original
text, not to the folded one. The caller decides what a mark looks like.
"""

from __future__ import annotations

from hiermem.core.search.query import Query, read_query
from hiermem.core.search.terms import number, spans, terms


def marks(text: str, query: Query) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` with a query term, in order, joined where they touch.

    >>> from hiermem.core.search.query import read_query
    >>> marks("Two kittens and a car", read_query("What pets are there?"))
    ((4, 11),)
    """
    wanted = set(query.numbers)
    for term in query.terms:
        wanted.update(term.synonyms, term.members)
    found: list[tuple[int, int]] = []
    for begin, end in spans(text):
        if any(number(term) in wanted for term in terms(text[begin:end])):
            if found and begin <= found[-1][1]:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin, end))
    return tuple(found)


def matched(text: str, query: str) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` that match ``query``, in order.

    They are (begin, end) in characters, so that ``text[begin:end]`` can be shown as a match.

    >>> matched("We planned the trips.", "trip plans")
    ((3, 10), (15, 20))
    """
    return marks(text, read_query(query))
