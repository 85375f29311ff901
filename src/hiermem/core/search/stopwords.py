"""The English words that the index leaves out, as they stand in every message.

The one rule: a word is here only where hardly any question turns on it; "may", a month, and "won",
a victory, are not. First-person words are kept on purpose: in a chat with an assistant they say
whose matter a message is, and a question about "my budget" wants what "I" said. The summariser's
lists (``lexicon``) serve another end.
"""

from __future__ import annotations

from typing import Final

from hiermem.core.text.lexicon import words

#: Words by which a speaker names himself or herself.
FIRST_PERSON: Final = words("i me my mine myself we us our ours ourselves")

#: Words that are not indexed. A word split at its apostrophe leaves the short pieces.
STOP_WORDS: Final = words(
    """
    a an the this that these those
    and or but nor so yet if because as until while although though unless whereas whether
    of at by for with about against between into through during before after above below to from
    up down in out on off over under upon within without toward towards onto per via among
    again further then once here there when where why how what which who whom whose
    all any both each few more most other some such no not only own same than too very
    can could will would shall should might must ought
    am is are was were be been being do does did doing done have has had having
    you your yours yourself yourselves he him his himself she her hers herself it its itself
    they them their theirs themselves
    just also even still however
    s t d m o re ve ll don isn aren wasn weren hasn haven hadn doesn didn wouldn shan shouldn
    mustn couldn mightn needn ain
    """
)
