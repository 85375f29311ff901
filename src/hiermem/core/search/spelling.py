"""The words that a mistyped one may have meant.

The one rule: it is asked only for a word that no message of the session holds, so that a word typed
right never finds another. There is no dictionary: whatever is one slip away and stands in the
session's index is what was meant.
"""

from __future__ import annotations

import re
from typing import Final

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
#: Of shorter words too many are one slip apart; longer ones are no words.
_WORD: Final = re.compile("[a-z]{5,24}")


def slips(word: str) -> frozenset[str]:
    """Return what one slip away from ``word`` could be: a letter too many, missing, wrong or
    swapped.

    The first letter is taken as typed right. Words of other scripts give none.

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
