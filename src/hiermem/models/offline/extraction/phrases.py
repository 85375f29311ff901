"""Decides which recurring phrases of a conversation are concepts.

A phrase counts where nouns occur: after a determiner or a preposition, before a stop or a function
word, and seldom after words that verbs follow. It is kept if it recurs in what people say.
Everything is counted in one pass, at most three words at a time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hiermem.core.text.entity_names import NameMention
from hiermem.core.text.entity_words import CALENDAR, FUNCTION_WORDS, GENERIC, NO_NAME, TECHNOLOGIES
from hiermem.core.text.lexicon import stem
from hiermem.data import word_lists
from hiermem.models.offline.extraction.speech import Sentence

#: The most phrases that are returned.
MOST_PHRASES: Final = 40
_WORDS: Final = word_lists("offline_words")
_DETERMINERS: Final = _WORDS["determiners"]
#: Words before an object, and seldom before a name.
_ARTICLES: Final = _WORDS["articles"]
_VERB_BEFORE: Final = _WORDS["before a verb"]
#: Nouns of which the noun before them tells the kind: "pottery class" is about pottery.
_HEADS: Final = _WORDS["heads"]
_AFTER: Final = FUNCTION_WORDS | frozenset({"", ".", ",", "!", "?", ";", ":", ")"})
#: Words before the subject of a clause, and after it.
_CLAUSE_BEFORE: Final = _WORDS["before a subject"]
_VERB_AFTER: Final = _WORDS["after a subject"]
#: Forms in -ing that are as good as prepositions or verbs wherever they stand.
_NEVER: Final = _WORDS["never nouns"]
#: Words after a form in -ing that has an object.
_OBJECTS: Final = _WORDS["objects"]
#: From this share of occurrences with an object on, a form in -ing is a verb.
_DOING: Final = 0.15
#: From this certainty that a word is a verb on, its form in -s counts as one too.
_MOSTLY_VERB: Final = 0.5
_WEAK: Final = re.compile(r".*(?:ly|ful|ous|able|ible|ish|less)$")
_PART: Final = re.compile(r"[^\W\d_]{5,40}")
TOKEN: Final = re.compile(r"[^\W\d_][\w'’-]*|[.,!?;:)]|\S")  # noqa: RUF001


@dataclass(slots=True)
class _Phrase:
    """A phrase: how often it occurs, how often as a noun, and in which messages."""

    often: int = 0
    as_noun: int = 0
    behind_article: int = 0
    where: dict[int, bool] = field(default_factory=dict)
    text: str = ""


def phrases(
    said: Sequence[Sentence], mentions: Sequence[Sequence[NameMention]]
) -> dict[str, tuple[list[int], list[int], str]]:
    """Return recurring noun phrases, with the messages that contain them."""
    met: dict[str, _Phrase] = {}
    words_met: Counter[str] = Counter()
    as_verb: Counter[str] = Counter()
    doing: Counter[str] = Counter()
    files: set[str] = set()
    for one, found in zip(said, mentions, strict=True):
        taken = [(m.start, m.stop) for m in found if m.sure > 0.3]
        tokens = [
            "." if any(a <= t.start() < b for a, b in taken) else t.group().lower()
            for t in TOKEN.finditer(one.text)
        ]
        tokens.append(".")
        before = "."
        for at, token in enumerate(tokens):
            words_met[token] += 1
            as_verb[token] += before in _VERB_BEFORE
            if token.endswith("ing"):
                doing[token] += tokens[at + 1 : at + 2] != [] and tokens[at + 1] in _OBJECTS
            for size in (1, 2, 3):
                gram = tokens[at : at + size]
                if at + size < len(tokens) and _is_phrase(gram):
                    phrase = met.setdefault(" ".join(gram), _Phrase())
                    phrase.often += 1
                    after = tokens[at + size]
                    ends = after in _AFTER or (after in _HEADS and not gram[-1].endswith("ing"))
                    subject = size == 1 and before in _CLAUSE_BEFORE and after in _VERB_AFTER
                    stands = before in _DETERMINERS or size > 1
                    phrase.as_noun += (ends and stands) or subject
                    phrase.behind_article += before in _ARTICLES
                    phrase.where[one.index] = phrase.where.get(one.index, False) or one.own
                    if not phrase.text or (one.own and len(phrase.text) < 40 < len(one.text)):
                        phrase.text = one.text
            before = token
        files.update(part for m in found if m.type == "file" for part in _parts(m.name))
    total = len({one.index for one in said})
    verbs = {word for word, number in as_verb.items() if number >= 0.2 * words_met[word]}
    verbs |= {
        f"{word}s"
        for word, number in as_verb.items()
        if number >= _MOSTLY_VERB * words_met[word] and number > as_verb[f"{word}s"]
    }
    # "Expressing my", "reducing the": an activity is no concept.
    gerunds = {word for word, number in doing.items() if number >= _DOING * words_met[word]}
    names = {
        word
        for word in files & met.keys()
        # A word in file names that hardly ever has an article is a name, of a project for example.
        if 8 * met[word].behind_article <= met[word].often and met[word].as_noun > 1
    }
    return _chosen(met, verbs, names, total, gerunds)


def _parts(path: str) -> list[str]:
    """Return the words in the names of a file and its folders."""
    return _PART.findall(path.rpartition(".")[0].lower())


def _is_phrase(gram: Sequence[str]) -> bool:
    """Return whether words may be a phrase at all, whatever their frequency."""
    if any(len(word) < 3 or not word[0].isalpha() for word in gram):
        return False
    if any(word in FUNCTION_WORDS or word in CALENDAR or word.endswith("'s") for word in gram):
        return False
    if gram[0] in _NEVER or gram[-1] in _NEVER:
        return False
    if _WEAK.match(gram[-1]) or any(word.endswith("ly") for word in gram):
        return False
    if len(gram) == 1:
        word = gram[0]
        return len(word) >= 5 and word not in GENERIC and word not in NO_NAME
    return gram[-1] not in TECHNOLOGIES and sum(word in GENERIC for word in gram) <= len(
        gram
    ) - 2 + (gram[-1] not in GENERIC and len(gram) == 2)


def _is_doing(name: str, phrase: _Phrase, gerunds: set[str]) -> bool:
    """Return whether a phrase is an activity: "expressing", "reducing paper use".

    "A signing bonus" is an object, because it follows an article.
    """
    first, _, rest = name.partition(" ")
    if not first.endswith("ing") or rest.rpartition(" ")[2] in _HEADS:
        return False
    return first in gerunds or (rest != "" and 8 * phrase.behind_article < phrase.often)


def _chosen(
    met: dict[str, _Phrase], verbs: set[str], names: set[str], total: int, gerunds: set[str]
) -> dict[str, tuple[list[int], list[int], str]]:
    """Choose the phrases that recur; of two, the longer one if it is as frequent as the shorter."""
    scored: list[tuple[float, str]] = []
    for name, phrase in met.items():
        size = name.count(" ") + 1
        own, spread = sum(phrase.where.values()), len(phrase.where)
        if spread < (4 if size == 1 else 3) or own < (3 if size == 1 else 1):
            continue
        if spread > max(24, total // 2) or any(word in verbs for word in name.split()[:1]):
            continue
        if _is_doing(name, phrase, gerunds):
            continue
        least = 0.6 if size == 1 and name.endswith("ing") else 0.4
        as_noun = name in names or phrase.as_noun >= least * phrase.often
        if not as_noun or name.split()[-1] in verbs:
            continue
        weight = (spread + 2 * own) ** 0.5 * math.log(1 + total / spread) * (1 + 0.5 * (size - 1))
        scored.append((weight, name))
    scored.sort(key=lambda pair: (-pair[0], pair[1]))
    chosen: dict[str, tuple[list[int], list[int], str]] = {}
    stems: dict[str, int] = {}
    for _, name in scored:
        parts = [stem(word[:-1] if word[-1] == "s" else word) for word in name.split()]
        whole = " ".join(parts)
        # A phrase inside a chosen one, or around it, adds nothing; nor does a third one of a word.
        if any(f" {whole} " in f" {other} " or f" {other} " in f" {whole} " for other in stems):
            continue
        if any(stems.get(f"#{part}", 0) >= 3 for part in parts):
            continue
        stems[whole] = 1
        for part in parts:
            stems[f"#{part}"] = stems.get(f"#{part}", 0) + 1
        places = met[name].where
        chosen[name] = (list(places), [i for i, own in places.items() if own], met[name].text)
        if len(chosen) == MOST_PHRASES:
            break
    return chosen
