"""The words that a search leaves out; ``hiermem.data`` holds the lists and their reasons.

The summariser's lists (``lexicon``) have another purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hiermem.core.text.folding import fold
from hiermem.data import word_lists

#: Words that are not indexed.
STOP_WORDS: Final = word_lists("stop_words")["index"]

#: The function words of other languages by their code, and other lists of that file; folded.
FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    title: frozenset(map(fold, members)) for title, members in word_lists("function_words").items()
}

#: Words by which speakers refer to themselves, in any language.
FIRST_PERSON: Final = word_lists("stop_words")["first person"].union(
    *(members for title, members in FUNCTION_WORDS.items() if title.endswith("first person"))
)
