"""Finds the words that a mistyped word may stand for.

It is used only for a word that no message of the session contains, so a correctly typed word never
matches another one. There is no dictionary: any word of the session's index that is one typing
error away counts.
"""

from __future__ import annotations

import re
from typing import Final

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
#: Too many shorter words are one typing error apart; longer runs of letters are no words.
_WORD: Final = re.compile("[a-z]{5,24}")


def slips(word: str) -> frozenset[str]:
    """Return the words one typing error from ``word``: a letter added, missing, wrong or swapped.

    The first letter is assumed correct. Words of other scripts have none.

    >>> "receive" in slips("recieve"), "budget" in slips("budgt"), slips("cat")
    (True, True, frozenset())
    """
    if not _WORD.fullmatch(word):
        return frozenset()
    found: set[str] = set()
    for at in range(1, len(word) + 1):
        head, tail = word[:at], word[at:]
        found.update(head + letter + tail for letter in _LETTERS)
        if tail:
            found.add(head + tail[1:])
            found.update(head + letter + tail[1:] for letter in _LETTERS)
        if len(tail) > 1:
            found.add(head + tail[1] + tail[0] + tail[2:])
    return frozenset(found - {word})
