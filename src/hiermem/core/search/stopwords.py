"""The English words that the index leaves out; ``hiermem.data`` holds the list and its reasons.

The summariser's lists (``lexicon``) have another purpose.
"""

from __future__ import annotations

from typing import Final

from hiermem.data import word_lists

#: Words by which speakers refer to themselves.
FIRST_PERSON: Final = word_lists("stop_words")["first person"]

#: Words that are not indexed.
STOP_WORDS: Final = word_lists("stop_words")["index"]
