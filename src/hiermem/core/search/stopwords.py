"""The English words that the index leaves out, as they stand in every message.

The one rule: a word is here only where hardly any question turns on it; "may", a month, and "won",
a victory, are not. First-person words are kept on purpose: in a chat with an assistant they say
whose matter a message is, and a question about "my budget" wants what "I" said. The summariser's
lists (``lexicon``) serve another end.
"""

from __future__ import annotations

from typing import Final

from hiermem.data import word_lists

#: Words by which a speaker names himself or herself.
FIRST_PERSON: Final = word_lists("stop_words")["first person"]

#: Words that are not indexed. A word split at its apostrophe leaves the short pieces.
STOP_WORDS: Final = word_lists("stop_words")["index"]
