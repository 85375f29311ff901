"""The words by which the offline extraction knows a name's kind, or knows it to be none.

The one rule: lists of words and nothing else. They are English and short on purpose: a list decides
only where the form of a name and what stands around it say nothing. What a word in a text is made
to mean is decided by ``extract_names`` and its neighbours.
"""

from __future__ import annotations

from typing import Final

from hiermem.data import word_lists

_WORDS: Final = word_lists("entity_words")

#: Words that never begin or end a phrase worth a name.
FUNCTION_WORDS: Final = _WORDS["function words"]
#: Words too common to be a concept by themselves, and that make none with another such word.
GENERIC: Final = _WORDS["generic"]
#: Capitalised words that are no names.
NO_NAME: Final = FUNCTION_WORDS | _WORDS["no name"]
CALENDAR: Final = _WORDS["calendar"]
TECHNOLOGIES: Final = _WORDS["technologies"]
#: Countries and large cities, in small letters.
PLACES: Final = _WORDS["places"]
NATIONS: Final = _WORDS["nations"]
ORGANISATION_ENDS: Final = _WORDS["organisation ends"]
GIVEN_NAMES: Final = _WORDS["given names"]
