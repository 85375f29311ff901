"""Word lists that tell what kind of name a name is, or that a word is no name.

The lists are in ``hiermem.data``. ``entity_names`` and the offline model decide what a word means
in its text.
"""

from __future__ import annotations

from typing import Final

from hiermem.data import word_lists

_WORDS: Final = word_lists("entity_words")

#: Words that never begin or end a phrase that names something.
FUNCTION_WORDS: Final = _WORDS["function words"]
#: Words too common to be a concept by themselves, or together with another such word.
GENERIC: Final = _WORDS["generic"]
#: Capitalised words that are no names.
NO_NAME: Final = FUNCTION_WORDS | _WORDS["no name"]
CALENDAR: Final = _WORDS["calendar"]
TECHNOLOGIES: Final = _WORDS["technologies"]
#: Countries and large cities, in lower case.
PLACES: Final = _WORDS["places"]
NATIONS: Final = _WORDS["nations"]
ORGANISATION_ENDS: Final = _WORDS["organisation ends"]
GIVEN_NAMES: Final = _WORDS["given names"]
