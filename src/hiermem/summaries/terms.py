"""Decides whether a text tells of a record, by the words that say what the two are about.

A text is related if the record has some of its telling words. Nearly every text has one word of a
long record by chance, so one is enough only in a text of few words. A text whose words come from
one message of many tells of that message alone; mostly it does what the message orders.

Of 128 session summaries in LoCoMo all tell of their session; of 256 pairs of a session and a
summary of another conversation, with the names of the session put in, six do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hiermem.data import word_lists
from hiermem.text.entity_names import GENERIC, NO_NAME
from hiermem.text.terms import FUNCTION_WORDS, STOP_WORDS, fold, stem, words

#: Letters by which two forms of a word are the same.
_HEAD: Final = 5
#: A record with fewer words than this is not judged.
_FEWEST_WORDS: Final = 6
#: One of this many telling words of a text stands in the record.
_SHARE: Final = 5
#: In a record of this many messages or more, a text has words of several, unless the one message
#: has a third of all words. So many words of a text may stand in that message alone.
_SEVERAL: Final = 4
_FEW: Final = 3
#: Scripts in which a word may have a prefix of one letter: Hebrew, Arabic.
_PREFIXING: Final = re.compile("[\u0590-\u07ff]")
#: Scripts that write words of several letters without spaces: Thai, Lao, Tibetan, Burmese, Khmer.
#: A pair of such letters stands in any text by chance, four rarely.
_RUNS: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
_STRETCH: Final = re.compile(f"(?=([{_RUNS}]{{4}}))")
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t].*$", re.MULTILINE)
#: Signs of grammar in scripts without spaces, and the letters that ``_STRETCH`` reads.
_PARTICLE: Final = re.compile(
    f"[{_RUNS}\u3040-\u309f的了是在和与及也都就不很我你他她它们这那有要把被给对到从将一个来去上下里]"
)


def _stems(*lists: Iterable[str]) -> frozenset[str]:
    plain = {fold(word) for each in lists for word in each}
    return frozenset(plain | {stem(word) for word in plain})


#: Words that say nothing in any text, and English words that say little.
_EMPTY: Final = _stems(
    word_lists("answer_words")["contentless"], STOP_WORDS, *FUNCTION_WORDS.values()
)
_WEAK: Final = _stems(GENERIC, NO_NAME)


def tells_of(text: str, record: Sequence[str], *, names: str) -> bool | None:
    """Return whether ``text`` tells of the messages of ``record``; None if these have few words.

    ``names`` are those of the speakers, which prove nothing.
    """
    met = [{head for term in _terms(message) for head in _heads(term)} for message in record]
    vocabulary = frozenset().union(*met)
    if sum(not head.isdigit() for head in vocabulary) < _FEWEST_WORDS:
        return None
    speakers = {head for name in words(names) for head in _heads(stem(name))}
    own = [term for term in _terms(_HEADING.sub("", text)) if speakers.isdisjoint(_heads(term))]
    places = {
        term: [number for number, heads in enumerate(met) if not heads.isdisjoint(_heads(term))]
        for term in own
    }
    shared = [term for term in own if places[term]]
    # A figure of the text may follow from those of the record.
    stated = [term for term in own if places[term] or not term.isdigit()]
    telling = [term for term in stated if term not in _WEAK]
    found_count = sum(bool(places[term]) for term in telling)
    is_related = found_count > 1 and _SHARE * found_count >= len(telling)
    is_mostly = shared and 2 * len(shared) >= len(stated) and (found_count or not telling)
    if not is_related and not is_mostly:
        return False
    most = max(range(len(met)), key=lambda number: sum(number in places[term] for term in shared))
    if len(met) < _SEVERAL or 3 * len(met[most]) >= len(vocabulary):
        return True
    alone = [term for term in shared if places[term] == [most]]
    is_named = any(not speakers.isdisjoint(_heads(stem(word))) for word in words(text))
    # Figures of one sentence stand together, also in a fair summary.
    lone, common = (sum(not term.isdigit() for term in each) for each in (alone, shared))
    is_spread = len(met) < 2 * _SEVERAL or lone <= _FEW or 4 * lone <= 3 * common
    return is_spread and (len(alone) < len(shared) or is_named)


def _terms(text: str) -> Iterable[str]:
    """Return the stems of the words of ``text`` that say something, each once."""
    telling = (
        stem(word)
        for word in words(text)
        if len(word) >= (2 if word.isdigit() or not word.isascii() else 3)
        and not (word in _EMPTY or _PARTICLE.search(word))
    )
    terms = (term for term in telling if term not in _EMPTY)
    return dict.fromkeys([*_STRETCH.findall(fold(text)), *terms])


def _heads(term: str) -> tuple[str, ...]:
    """Return the beginnings by which the forms of a word are found."""
    if not term.isalpha():
        return (term,)
    if _PREFIXING.match(term) and len(term) > _FEW:
        return term[:_HEAD], term[1 : 1 + _HEAD]
    return (term[:_HEAD],)
