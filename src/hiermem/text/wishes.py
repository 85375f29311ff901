"""Decides what in a user's message is a standing wish: what holds for all that follows.

"Always answer in metric" shares no word with the questions that it governs, so no search finds it.
Such sentences are recognised by cue words when they are said: a command with a word that makes it
last, or what the user prefers or is. Questions, one-time requests and narrative are no wishes. The
cues are data (``data/wish_words.txt``), those of other languages too. They miss a wish rather than
invent one.

Only a user's own words count. Code, quotations, marked-up text, what follows "Here is the text:"
and memory that was rendered before are left out, and of a long text the middle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from hiermem.data import word_lists
from hiermem.text.measure import body
from hiermem.text.policy import either
from hiermem.types import Message

#: The flags of a stored message: a pinned one; one that is pinned for its wishes; and one whose
#: wishes an application has withdrawn.
PIN: Final = "pin"
WISH: Final = "wish"
WITHDRAWN: Final = "withdrawn wish"
#: The most wishes of one message, and code points of one wish.
_MOST: Final = 8
_LONGEST: Final = 240
#: The most characters before a preference that are shown with it.
_LEADS: Final = 80
#: So many characters at either end of a longer text are read.
_READ: Final = 4_000
#: If a user's own words are longer, they are a document: only its two ends count.
_OWN: Final = 2_000
_END: Final = 600
_LISTS: Final = word_lists("wish_words")
_NOT_OWN: Final = re.compile(
    r"\[\[hiermem .*?\[\[/hiermem [^\]]*\]\]"  # rendered memory, genuine or not
    r"|```.*?(?:```|\Z)|`[^`\n]*`"
    r"|<(?P<tag>[A-Za-z][\w-]{0,40})\b[^<>]{0,200}>.*?</(?P=tag)>"
    r'|"[^"\n]{0,1000}"|“[^”]{0,1000}”|«[^»]{0,1000}»|„[^“”]{0,1000}[“”]'
    r"|^[ \t]*[>|][^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_INTRODUCES: Final = re.compile(r"^[^\n]*[:\uff1a][ \t]*$", re.MULTILINE)
_BEGINS: Final = re.compile(r"\S")
_SENTENCE: Final = re.compile(
    r"[^\n.!?。\uff01\uff1f]+(?:[.!?](?=[\w)])[^\n.!?。\uff01\uff1f]*)*[.!?。\uff01\uff1f]*"
)
#: The lists whose members a phrase of the data may stand for.
IN_PHRASES: Final = (
    "verb",
    "gerund",
    "lasting",
    "when",
    "ended",
    "thing",
    "said",
    "ignore",
    "being",
)
#: What follows a verb where nothing in the sentence says what is meant.
_VAGUE: Final = r" (?:that|it|this|so|these|those)(?:[.,;!?]|$| again| any ?more| any longer)"
#: What makes of "as I prefer" no preference.
_DENIED: Final = re.compile(
    r"n't\b|\b(?:no|not|never|nothing|nobody|none|without|unlike|if|whether)\b"
)
_POLITE: Final = r"(?:can|could|would|will) you (?:please |kindly )?"


def flags_of(message: Message, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the flags of a message that had the flags ``before``, by what it says now.

    An application's pin stays; withdrawn wishes stay withdrawn.
    """
    found = tuple(flag for flag in before if flag not in (PIN, WISH))
    if PIN in before and WISH not in before:
        return (*found, PIN)
    wishes = message.role == "user" and WITHDRAWN not in before and bool(find(body(message)))
    return (*found, PIN, WISH) if wishes else found


def without_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that say nothing about what the text of the message is."""
    return tuple(flag for flag in flags if flag not in (PIN, WISH, WITHDRAWN)) if flags else ()


def wishes_in(text: str) -> tuple[str, ...]:
    """Return the wishes in a user's text, in order, each on one line and shortened."""
    return tuple(_shortened(text[begin:end]) for begin, end in find(text))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"


def find(text: str) -> list[tuple[int, int]]:
    """Return the places of the wishes in a user's text, in order.

    >>> find("Hi! Always answer in metric. How far is it?")
    [(4, 28)]
    >>> find("I always answer in metric. Should I never use miles? Make it shorter.")
    []
    """
    if len(text) > 2 * _READ:
        text = text[:_READ] + "\n" * (len(text) - 2 * _READ) + text[-_READ:]
    plain = _plain(text)
    # Nearly all messages end here, so what is not the user's own is looked for afterwards.
    return _found(_own(plain)) if _found(plain) else []


def _plain(text: str) -> str:
    """Return the text in lower case with straight apostrophes, of the same length."""
    lowered = text.lower() if text.isascii() else text.replace("İ", "I").lower()
    return lowered.replace("\u2019", "'") if len(lowered) == len(text) else text


def _found(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for sentence in _SENTENCE.finditer(text) if _has_cue(text) else ():
        place = _wish(sentence[0]) if _has_cue(sentence[0]) else None
        if place is not None:
            found.append((sentence.start() + place[0], sentence.start() + place[1]))
    return found[:_MOST]


def _has_cue(text: str) -> bool:
    """Return whether a text in lower case may hold a wish: each append of a user's text asks this.

    In every wish is a cue, or a phrase of another language that is not ASCII.
    """
    cues, foreign = _cues()
    return bool(cues.search("\n" + text) or (not text.isascii() and foreign.search(text)))


@cache
def _cues() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of the cues, each after a character that is no letter, and of the phrases."""
    foreign = (phrase for phrase in _LISTS["elsewhere"] if not phrase.isascii())
    cues = either(cue.lstrip() for cue in _LISTS["cues"])
    return re.compile("[^a-z]" + cues), re.compile(either(foreign))


def _own(text: str) -> str:
    """Return a text of the same length, with blanks where the words are not the user's own."""
    whole, text = text, _NOT_OWN.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), text)
    for line in _INTRODUCES.finditer(text):
        follows = _BEGINS.search(whole, line.end())
        if follows and text[follows.start()] == " ":
            continue  # What it introduces is marked, and so is its end.
        if not any(word in line[0] for word in _LISTS["announcing"]):
            text = text[: line.end()] + "\n" * (len(text) - line.end())
            break
    if len(" ".join(text.split())) > _OWN:
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        first = min(begin + _END, text.find("\n", begin) % (end + 1))
        last = max(end - _END, text.rfind("\n", begin, end), first)
        text = text[:first] + "\n" * (last - first) + text[last:]
    return text


def _wish(sentence: str) -> tuple[int, int] | None:
    """Return the place of the wish in a sentence, without a question that follows it."""
    lead, commands, preferences, question, elsewhere = _patterns()
    asks = sentence.endswith(("?", "\uff1f"))
    opening = lead.match(sentence)
    at = opening.end() if opening else 0
    begin, end = len(sentence) - len(sentence.lstrip(" \t-*•")), len(sentence.rstrip())
    may_order = not asks or re.search(_POLITE, sentence[:at])
    ordered = commands.match(sentence, at) or commands.match(sentence, begin)
    if may_order and (ordered or elsewhere.match(sentence)):
        return begin, end
    said = preferences.search(sentence)
    if said is None:
        return None
    # A clause alone would run into the next sentence, so what leads to it stays, if it is short.
    start = begin if said.start("wish") - begin <= _LEADS else said.start("wish")
    asked = question.search(sentence, said.end())
    end = asked.start() if asked else len(sentence[:end].rstrip("?\uff1f"))
    if end - said.end() > 2 or said["wish"].rsplit(None, 1)[-1] not in _LISTS["leading"]:
        return start, end
    # "Clips at the front, like I prefer" says it before; "it is not laid out as I prefer" does not.
    states_how = said["how"] and start == begin and not _DENIED.search(sentence, 0, said.start())
    return (start, end) if states_how else None


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return patterns of a sentence's opening, of wishes, and of a question that follows one.

    In the phrases of the data, a word in capitals stands for any member of that list, "SOME" for
    none to two words, and "*" for any words.
    """
    parts = {name.upper(): rf"{either(_LISTS[name])}\b" for name in IN_PHRASES}
    parts["VERB"] += rf"(?! (?:up|of|never|me know)\b)(?!(?: do| say)?{_VAGUE})"
    parts["GERUND"] += f"(?!{_VAGUE})"
    parts["NAME"] = rf"(?!{either(_LISTS['no name'])}\b)\w+[.!]*$"
    parts["SOME"] = rf"(?:(?!{either(_LISTS['pointing'])}\b)[\w-]+ ){{0,2}}"
    parts["*"] = r"[^\n]{0,200}?"
    places = re.compile(f"({'|'.join(map(re.escape, parts))})")

    def any_of(name: str) -> str:
        found = (
            "".join(parts.get(word) or re.escape(word) for word in places.split(phrase))
            for phrase in sorted(_LISTS[name])
        )
        return f"(?:{'|'.join(found)})"

    you = (
        r"(?:(?:please|pls|kindly|just|also),? |i(?: want|'d like| would like| need) you to "
        r"|you (?:should|must|have to|need to|ought to|are to) "
        rf"|(?:make|be) sure (?:that you |you |to |that )|try to |{_POLITE})"
    )
    word, then = r"[^\s,]+", r"(?:(?:so|and|but|then|also) )"
    return (
        re.compile(
            rf"\s*(?:(?:[-*•]|\(?\d{{1,2}}[.)]) +)?(?:{either(_LISTS['openings'])}[,:!-]* )*{you}*"
        ),
        re.compile(any_of("commands")),
        re.compile(
            r"(?:^|[,;:(—\u2013-] ?"
            r"|\b(?:(?P<how>as|like|in)|and|but|so|because|since|though|although|while"
            r"|given|considering|account|per|with) )"
            rf"\s*(?:{either(_LISTS['openings'])}[,:!-]* )*"
            rf"(?P<wish>{any_of('preferences')})"
            rf"(?! (?:this|these|those)\b| {either(_LISTS['passing'])}(?:[.,;!?]|$))"
        ),
        re.compile(
            rf"(?:[,;]? +{then}?(?:can|could|would|will|do|does|should|shall|is|are|am)"
            # "To see which is best" asks nothing.
            rf"|(?:[,;] +{then}?| +{then})(?:how|what|which|where|why|who))"
            r" (?:you|i|we|it|there|this|that|the|my|to|a|"
            r"are|is|do|does|can|should|would)\b|[,;] (?:and |but )?i(?:'m| am) (?:not sure|"
            r"wondering|trying|stuck)\b"
        ),
        re.compile(
            rf" *(?:bitte |por favor,? |s'il te plaît,? )?{either(_LISTS['elsewhere'])}"
            rf"(?![ ,]+(?:{word} )?{either(_LISTS['narrating'])}\b)"
            r"| *bitte (?:\w+ ){0,3}(?:immer|nie|niemals|nicht mehr|keine? (?:\w+ )?mehr)\b"
            r"| *n(?:e |')\w+ (?:plus|jamais)\b"
        ),
    )
