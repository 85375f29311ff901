"""Decides what in a user's message is a standing instruction or a preference, and what replaces it.

"Always answer in metric" governs answers to questions with which it shares no word, so that no
search finds it. Such statements are recognised by their form when they are said: a command with a
word that makes it last ("always", "never", "from now on", "whenever I ask"), a preference in the
first person and the present, or a fact that binds later answers ("call me Ada", "I'm allergic to
nuts"). Questions, one-off requests and narrative are none of these. The rules rather miss a
statement than invent one. The grammar is English; of other languages, some phrases are known
(``data/instruction_words.txt``).

Only a user's own words count. Code, quotations, marked-up text, what follows "Here is the text:"
and memory that was rendered before are left out, and of a long text the middle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Final, Literal

from hiermem.core.text.lexicon import either
from hiermem.core.text.measure import body, speaker
from hiermem.core.text.stemming import stem
from hiermem.data import word_lists
from hiermem.types import Message, StoredMessage

#: The flag of a stored message that holds an instruction.
FLAG: Final = "instruction"
#: The newest messages with instructions that are read; of older ones nothing is known any more.
MOST_MESSAGES: Final = 64
#: What begins the flag of a message one of whose instructions was dropped.
_DROPPED: Final = "dropped:"
#: The most statements of one message, and characters of one statement.
_MOST: Final = 8
_LONGEST: Final = 240
#: So many characters at either end of a longer text are read.
_READ: Final = 4_000
#: If a user's own words are longer, they are a document: only its two ends count.
_OWN: Final = 2_000
_END: Final = 600
_LISTS: Final = word_lists("instruction_words")
#: One of these is in every statement, in lower case, or a phrase of another language that is not
#: ASCII. Only texts with one are looked at further: each append of a user's message asks this.
_CUES: Final = tuple(sorted(_LISTS["cues"]))
#: Those of them that are in a preference.
_PREFERENCE_CUES: Final = tuple(sorted(_LISTS["cues of preferences"]))
_NOT_OWN: Final = re.compile(
    r"\[\[hiermem .*?\[\[/hiermem [^\]]*\]\]"  # rendered memory, genuine or not
    r"|```.*?(?:```|\Z)|`[^`\n]*`"
    r"|<(?P<tag>[A-Za-z][\w-]{0,40})\b[^<>]{0,200}>.*?</(?P=tag)>"
    r'|"[^"\n]{0,1000}"|“[^”]{0,1000}”|«[^»]{0,1000}»|„[^“”]{0,1000}[“”]'
    r"|^[ \t]*[>|][^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_INTRODUCES: Final = re.compile(r"^[^\n]*[:\uff1a][ \t]*$", re.MULTILINE)
_ANNOUNCES: Final = re.compile(
    r"\b(?:(?:my|these|following) (?:\w+ )?(?:rules|preferences|instructions)"
    r"|from now on|going forward|remember|keep in mind|whenever|always)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(
    r"[^\n.!?。\uff01\uff1f]+(?:[.!?](?=[\w)])[^\n.!?。\uff01\uff1f]*)*[.!?。\uff01\uff1f]*"
)
Kind = Literal["instruction", "preference"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """A standing instruction or a preference, in the words of the user who said it.

    ``kind`` is "instruction" for what the assistant is told to do, "preference" for what the user
    says of himself. ``index`` is the message and ``begin`` the place of the text there; ``since``
    is the message's time. The ``id`` stays the same while the message says the same, also in forks.
    ``superseded_by`` is the id of a newer statement on the same subject, which may have been
    dropped since.
    """

    id: str
    text: str
    kind: Kind
    index: int
    begin: int
    speaker: str
    since: datetime
    superseded_by: str | None = None


def flags_of(message: Message, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the flags of a message that had the flags ``before``; FLAG if it holds any."""
    others = tuple(flag for flag in before if flag != FLAG)
    return (*others, FLAG) if message.role == "user" and find(body(message)) else others


def without_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that say nothing about what the text of the message is."""
    return tuple(flag for flag in flags if flag != FLAG and not flag.startswith(_DROPPED))


def drop_flag(instruction: Instruction) -> str:
    """Return the flag of the message of an instruction that was dropped."""
    return _DROPPED + _digest(instruction.text)


def of_messages(messages: Sequence[StoredMessage]) -> tuple[Instruction, ...]:
    """Return the instructions in messages, newest first, without those that were dropped.

    One that a newer one of the same speaker repeats or contradicts is marked as superseded. Also a
    dropped one supersedes what is older.
    """
    serving: list[tuple[Instruction, _Subject]] = []
    found: list[Instruction] = []
    for stored in sorted(messages, key=lambda stored: -stored.index):
        if stored.state != "live" or stored.role != "user":
            continue
        text = body(stored.message)
        for begin, end, kind in reversed(find(text)):
            said = _shortened(text[begin:end])
            one = Instruction(
                id=f"m{stored.index}-{_digest(said)}",
                text=said,
                kind=kind,
                index=stored.index,
                begin=begin,
                speaker=speaker(stored.message),
                since=stored.created_at,
            )
            subject = _subject(said)
            by = (o.id for o, s in serving if o.speaker == one.speaker and s.replaces(subject))
            one = replace(one, superseded_by=next(by, None))
            if one.superseded_by is None:
                serving.append((one, subject))
            if drop_flag(one) not in stored.flags:
                found.append(one)
    return tuple(found)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def _digest(text: str) -> str:
    plain = " ".join(re.findall(r"\w+", text.lower()))
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:6]


# ---------------------------------------------------------------------------------------------
# Finding


def find(text: str) -> list[tuple[int, int, Kind]]:
    """Return the statements in a user's text that hold from then on: (begin, end, kind), in order.

    >>> find("Hi! Always answer in metric. How far is it?")
    [(4, 28, 'instruction')]
    >>> find("I always answer in metric. Should I never use miles? Make it shorter.")
    []
    """
    if len(text) > 2 * _READ:
        text = text[:_READ] + "\n" * (len(text) - 2 * _READ) + text[-_READ:]
    plain = _plain(text)
    # Nearly all messages end here, so what is not the user's own is looked for afterwards.
    if not _has_cue(plain) or not _statements(plain):
        return []
    return _statements(_own(plain))


def _plain(text: str) -> str:
    """Return the text in lower case with straight apostrophes, of the same length."""
    lowered = text.lower() if text.isascii() else text.replace("İ", "I").lower()
    return lowered.replace("\u2019", "'") if len(lowered) == len(text) else text


def _has_cue(text: str) -> bool:
    for cue in _CUES:
        if cue in text:
            return True
    return not text.isascii() and any(it in text for it in _LISTS["elsewhere"])


def _statements(text: str) -> list[tuple[int, int, Kind]]:
    found: list[tuple[int, int, Kind]] = []
    for sentence in _SENTENCE.finditer(text):
        place = _statement(sentence[0]) if _has_cue(sentence[0]) else None
        if place is not None:
            begin, end, kind = place
            found.append((sentence.start() + begin, sentence.start() + end, kind))
            if len(found) == _MOST:
                break
    return found


def _own(text: str) -> str:
    """Return a text of the same length, with blanks where the words are not the user's own."""
    text = _NOT_OWN.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), text)
    for line in _INTRODUCES.finditer(text):
        if not _ANNOUNCES.search(line[0]):
            text = text[: line.end()] + "\n" * (len(text) - line.end())
            break
    if len(" ".join(text.split())) > _OWN:
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        first = min(begin + _END, text.find("\n", begin) % (end + 1))
        last = max(end - _END, text.rfind("\n", begin, end), first)
        text = text[:first] + "\n" * (last - first) + text[last:]
    return text


@cache
def _forms() -> Mapping[str, re.Pattern[str]]:
    """Return what statements look like.

    "commands" are matched after "lead"; a question is one only if its lead is "polite".
    "preferences" stand there too, or after "joint", and go on to a question ("asks"); the
    "passing" ones choose between what was offered. What follows a preference after a word of
    "leading" rests on it. "elsewhere" are of other languages.
    """

    def any_of(name: str) -> str:
        return either(_LISTS[name])

    verb = rf"{any_of('verbs')}\b(?! (?:up\b|never\b|me know\b))"
    lasting = any_of("lasting")
    no = r"(?:don't|do not|dont)"
    polite = r"(?:(?:can|could|would|will) you (?:please |kindly )?)"
    you = (
        r"(?:(?:please|pls|kindly|just|also),? |i(?: want|'d like| would like| need) you to "
        r"|you (?:should|must|have to|need to|ought to|are to) "
        r"|(?:make|be) sure (?:that you |you |to |that )|(?:remember|try) to )"
    )
    order = rf"(?:{you}|{polite})*(?:(?:{no}|never|always|only) )?(?:{you})*{verb}"
    asked = r"(?:ask|say|request|mention|tell|write|want|need|send|share|give|post|bring|talk)"
    often = r"(?:(?:really|generally|usually|always|strongly|much|also|still|personally|now|do) )*"
    every = r"(?:whenever|every time|each time|any ?time)"
    saying = r"(?:answer|reply|respond|write|explain|summari[sz]e)"
    # What follows "call me" where it is no name.
    later = (
        r"(?:at|on|in|by|when|if|back|later|now|after|before|again|tomorrow|tonight|today|a|an|the|"
        r"crazy|old|any|every|and|or|so)\b"
    )
    past = r"(?: \w+)? (?:was|were|had|did|told|said|asked|\w+ed)\b"
    commands = (
        rf"(?:always|never)(?: ever| also| please| only| again)? {verb}",
        # When it holds, and then the command.
        rf"(?:{lasting}[^,]{{0,40}}?|in (?:the )?future|by default),? {order}",
        rf"(?:{every}|when|if) i {asked}\b[^,]{{2,160}}, {order}",
        rf"(?:when you {saying}|{every} (?:you|we|there|anyone|my|the))\b[^,]{{2,160}}, {order}",
        # A command, and then how long it holds.
        rf"(?:{no} )?{verb}.*\b(?:{lasting}|when(?:ever)? i {asked})\b",
        r"(?:answer|reply|respond|speak) (?:\w+ ){0,2}always\b",
        rf"{no} ever {verb}",
        rf"{no} {verb}.*\b(?:again|any ?more|ever|any longer)\b",
        rf"stop {any_of('gerunds')}\b",
        rf"you (?:can|may) (?:now )?{verb}.*\bagain\b",
        rf"you (?:don't|do not|no longer) (?:have|need) to {verb}.*\bany ?more\b",
        rf"(?:you (?:can|may|should) )?call me (?!{later})\w+[.!]*$",
        # What is to be remembered, unless it tells of the past.
        rf"(?:remember|keep in mind|bear in mind) (?:that )?(?:i|i'm|my|we|we're|our)\b(?!{past})",
    )
    preferences = (
        rf"i {often}(?:tend to )?prefer\b",
        r"i(?:'d| would) (?:much |really )?prefer (?:it )?(?:if|that) you\b",
        r"i(?:'d| would) (?:much |really )?rather (?:that )?you\b",
        r"my (?:strong |personal )?preference is\b",
        r"my preferred (?:\w+ ){1,3}is\b",
        r"my pronouns are\b",
        rf"i(?:'m| am) (?:\w+ly |also |a ){{0,2}}{any_of('traits')}(?!\w)",
        r"i (?:don't|do not|can't|cannot) (?:eat|drink) (?!much|enough|a lot|it|that|this)\w",
    )
    narrating = any_of("narrating")
    word = r"[^\s,]+"
    return {
        "lead": re.compile(
            r"\s*(?:(?:[-*•]|\(?\d{1,2}[.)]) +)?"
            r"(?:(?:hi|hey|hello|ok|okay|also|and|but|so|oh|well|yes|thanks|thank you|"
            r"btw|"
            r"by the way|one more thing|another thing|plus|then|great|perfect|sure|no)[,:!-]* )*"
            rf"(?:{you}|{polite})*",
        ),
        "polite": re.compile(polite),
        "commands": re.compile("|".join(commands)),
        "preferences": re.compile("|".join(preferences)),
        "joint": re.compile(
            r"(?:[,;:(—\u2013-]|\b(?:and|but|so|because|since|as|though|although|while)) ?$"
        ),
        "leading": re.compile(
            r"(?:^[ \t]*|[,;:(—\u2013-] ?)(because|since|as|though|although|while) $"
        ),
        "passing": re.compile(
            r".*?prefer (?:this|that|these|those|it|them|option|version|yours|not to say|"
            r"the (?:first|second|third|last|latter|former|original|other|new|old|\w+er) "
            r"(?:one|version|option|draft|idea)|the (?:former|latter))\b",
        ),
        "asks": re.compile(
            r"[,;]? +(?:(?:so|and|but|then|also) )?(?:can|could|would|will|do|does|should|shall|"
            r"how|what|which|where|why|who|is|are|am) (?:you|i|we|it|there|this|that|the|my|to|a|"
            r"are|is|do|does|can|should|would)\b|[,;] (?:and |but )?i(?:'m| am) (?:not sure|"
            r"wondering|trying|stuck)\b",
        ),
        "elsewhere": re.compile(
            rf" *(?:bitte |por favor,? |s'il te plaît,? )?{any_of('elsewhere')}"
            rf"(?![ ,]+(?:{word} )?{narrating}\b)"
            r"| *bitte (?:\w+ ){0,3}(?:immer|nie|niemals)\b",
        ),
    }


def _statement(sentence: str) -> tuple[int, int, Kind] | None:
    """Return what of a sentence is a statement that holds from then on, and its kind."""
    forms = _forms()
    end = len(sentence.rstrip())
    asks = sentence.endswith(("?", "\uff1f"))
    lead = forms["lead"].match(sentence)
    at = lead.end() if lead else 0
    begin = len(sentence) - len(sentence.lstrip(" \t-*•"))
    orders = not asks or forms["polite"].search(sentence[:at])
    if orders and forms["commands"].match(sentence, at):
        return begin, end, "instruction"
    if not asks and forms["elsewhere"].match(sentence):
        return begin, end, "instruction"
    if not any(cue in sentence for cue in _PREFERENCE_CUES):
        return None
    for said in forms["preferences"].finditer(sentence):
        joined = said.start() <= max(at, begin) or forms["joint"].search(
            sentence[: said.start()][-12:]
        )
        if joined and not forms["passing"].match(sentence, said.start()):
            question = forms["asks"].search(sentence, said.end())
            end = question.start() if question else end
            if end - said.start() <= 9:
                return None
            # Without its "since", a clause that leads its sentence would run into the next one.
            led = None if question else forms["leading"].search(sentence[: said.start()])
            return led.start(1) if led else said.start(), end, "preference"
    return None


# ---------------------------------------------------------------------------------------------
# Replacing

_KINDS: Final = ("language", "unit", "length", "tone", "number", "weekday")
_DENIES: Final = re.compile(
    r"\b(?:never|don't|do not|dont|stop|avoid|no longer|not)\b", re.IGNORECASE
)
_SAME_VERB: Final = dict.fromkeys(("reply", "respond", "write", "speak", "talk", "say"), "answer")


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a statement is about: its words, its members of kinds, and whether it denies."""

    words: frozenset[str]
    members: frozenset[tuple[str, str]]
    denies: bool

    def replaces(self, older: _Subject) -> bool:
        """Return whether an ``older`` statement is repeated or contradicted by this one."""
        if not self.words or not older.words:
            return self == older
        shared = len(self.words & older.words)
        alike = shared / len(self.words | older.words)
        if self.denies != older.denies:
            return shared >= 0.75 * min(len(self.words), len(older.words))
        other = {kind for kind, _ in self.members ^ older.members}
        named = {kind for kind, _ in self.members} & {kind for kind, _ in older.members}
        return alike >= (0.5 if other & named else 0.75)


def _subject(text: str) -> _Subject:
    kinds = {word: kind for kind in _KINDS for word in _LISTS[kind]}
    words: set[str] = set()
    members: set[tuple[str, str]] = set()
    for word in re.findall(r"[\w'-]+", text.lower().replace("\u2019", "'")):
        kind = "number" if word.isdigit() else kinds.get(word)
        if kind is not None:
            members.add((kind, word))
        if kind is not None or word not in _LISTS["plain"]:
            words.add(f"<{kind}>" if kind else stem(_SAME_VERB.get(word, word)))
    return _Subject(frozenset(words), frozenset(members), _DENIES.search(text) is not None)
