"""Decides roughly which language a text is in: enough to notice an answer in another language.

A missing guess is better than a wrong guess. The result is None for short, mixed or unknown text.
Only a bounded sample is read, so the cost does not depend on the length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from hiermem.data import word_lists

_SAMPLE: Final = 6000
#: A sample with fewer letters than this proves nothing.
_LETTERS_NEEDED: Final = 40
_SCRIPTS: Final = {
    "latin": "A-Za-z\u00c0-\u024f",
    "greek": "\u0370-\u03ff",
    "cyrillic": "\u0400-\u04ff",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "han": "\u3400-\u9fff",
    "kana": "\u3040-\u30ff",
    "hangul": "\uac00-\ud7af",
}
_SCRIPT: Final = {name: re.compile(f"[{ranges}]+") for name, ranges in _SCRIPTS.items()}
#: A code point of these scripts carries about as much as three letters.
_DENSE: Final = frozenset({"han", "kana", "hangul"})
_WORD: Final = re.compile(r"[^\W\d_]+")
#: All ASCII characters but letters, as blanks.
_BLANKS: Final = {code: " " for code in range(128) if not chr(code).isalpha()}

#: Frequent words that occur in one of these languages only.
_LISTS: Final = word_lists("language_words")
_TELLING: Final = {code: words for code, words in _LISTS.items() if code != "names"}


def guess(text: str) -> str | None:
    """Return a language's code, or its script's name if only that is known; None if unsure.

    >>> guess("The meeting was moved to Friday, and they have agreed to pay for the room.")
    'en'
    >>> guess("Error 404: /etc/passwd") is None
    True
    """
    sample = text[:_SAMPLE]
    if sample.isascii():
        spoken = sample.translate(_BLANKS).lower().split()
        return _latin(spoken) if sum(map(len, spoken)) >= _LETTERS_NEEDED else None
    letters = {
        name: sum(map(len, pattern.findall(sample))) * (3 if name in _DENSE else 1)
        for name, pattern in _SCRIPT.items()
    }
    total = sum(letters.values())
    if total < _LETTERS_NEEDED:
        return None
    if letters["kana"] > 0.1 * total:
        return "ja"
    script = max(letters, key=letters.__getitem__)
    if letters[script] < 0.7 * total:
        return None
    return script if script != "latin" else _latin(_WORD.findall(sample.lower()))


def _latin(spoken: Sequence[str]) -> str | None:
    """Return the language whose marker words are clearly the most frequent in ``spoken``."""
    said = Counter(spoken)
    hits = [
        (sum(said[word] for word in telling if word in said), code)
        for code, telling in _TELLING.items()
    ]
    (most, code), (second, _) = sorted(hits, reverse=True)[:2]
    if most < 6 or most < 2 * second or most < 0.1 * len(spoken):
        return None
    return code


#: The names of the languages that ``guess`` returns, and of those that one script stands for.
_NAMES: Final = dict(pair.split(">") for pair in _LISTS["names"])
#: Letters of one language of the Cyrillic script; the first found decides.
_CYRILLIC: Final = (("Ukrainian", "\u0457\u0454\u0491"), ("Russian", "\u044b\u044d"))
#: Letters of Belarusian, Serbian and Macedonian; Belarusian has the Russian letters, too.
_OTHER_CYRILLIC: Final = "\u045e\u0452\u0458\u0459\u045a\u045b\u045f"


def name(text: str) -> str | None:
    """Return the English name of the language of ``text``; None if unsure.

    A script that several languages share, such as Arabic, names none of them.

    >>> name("The meeting was moved to Friday, and they have agreed to pay for the room.")
    'English'
    """
    found = guess(text)
    if found != "cyrillic":
        return _NAMES.get(found or "")
    letters = set(text[:_SAMPLE].lower())
    if letters & set(_OTHER_CYRILLIC):
        return None
    return next((each for each, telling in _CYRILLIC if letters & set(telling)), None)
