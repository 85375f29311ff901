"""Decides which of the questions that people ask are left without an answer.

A reply counts as an answer, unless it says that it does not know, or asks for missing information.
Sharing no word with the question is no sign of a missing answer, because most answers share none
("Which port?" "8080."). A question is open if nobody replies, if the next reply comes on another
day and has another subject, or if it was put off. A later statement on the same subject closes a
question that was put off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core.text.lexicon import is_back_channel
from hiermem.models.offline.extraction import signs
from hiermem.models.offline.extraction.clause import CAP, OpenItem, labels, stems, telling
from hiermem.models.offline.extraction.speech import Sentence

#: The most messages of the asker between a question and the reply to it.
_REACH: Final = 4
#: The number of sentences of a reply in which "I don't know" is looked for.
_OPENING: Final = 3
#: The most questions that were put off for which an answer is looked for.
_WATCHED: Final = 40
#: A later statement answers a question with this many of its significant words, or this share.
_ANSWERS, _SHARE = 3, 0.6
#: A name of code, or a figure, makes a question substantial by itself.
_NAMED: Final = re.compile(r"\w\(\)|[A-Za-z]_[A-Za-z]|[a-z][A-Z]|\w[./]\w|`|\d")

#: Words of questions like "Which one?", which cannot be matched with a later answer.
_EMPTY: Final = stems("one ones thing things time stuff else mean say think like know")


@dataclass(slots=True)
class _SpeakerTurn:
    """The sentences of one message, by their positions in the list of all.

    ``answers`` marks an assistant without a name, who answers what it is asked.
    """

    begin: int
    end: int
    answers: bool


def questions(said: Sequence[Sentence]) -> Iterator[OpenItem]:
    """Yield the questions that nobody answered, and those that were put off and answered later."""
    turns = _turns(said)
    late: list[tuple[int, OpenItem]] = []
    for number, turn in enumerate(turns):
        for at in range(turn.begin, turn.end):
            one = said[at]
            if not _is_asking(one, last=number == len(turns) - 1):
                continue
            asked = stems(one.text) - stems(one.speaker)
            if not asked - _EMPTY:
                continue
            reply = _reply(said, turns, number)
            put_off = reply is not None and _puts_off(said, reply)
            # A reply that does not know shows that the question was substantial.
            if not put_off and len(telling(asked)) < (1 if _NAMED.search(one.text) else 2):
                continue
            if reply is not None and not put_off and not _passes(said, one, reply, asked):
                continue
            text = one.text[-CAP:] if len(one.text) > CAP else one.text
            where = (one.index, said[reply.begin].index) if reply and put_off else (one.index,)
            found = OpenItem("question", text, where, asked, labels=labels(text))
            if reply and put_off:
                late.append((reply.end, found))
            else:
                yield found
    yield from _answered_late(said, late)


def _turns(said: Sequence[Sentence]) -> list[_SpeakerTurn]:
    turns: list[_SpeakerTurn] = []
    for at, one in enumerate(said):
        if turns and said[at - 1].index == one.index:
            turns[-1].end = at + 1
        else:
            answers = one.role == "assistant" and not one.named and not one.agent
            turns.append(_SpeakerTurn(at, at + 1, answers))
    return turns


def _is_asking(one: Sentence, *, last: bool) -> bool:
    """Return whether a sentence is a question of substance to which somebody expects an answer.

    Questions of an assistant without a name are mostly offers; such a question is open if the
    assistant spoke last.
    """
    return one.asks and (one.own or last) and not signs.PHATIC.search(one.text)


def _reply(
    said: Sequence[Sentence], turns: Sequence[_SpeakerTurn], number: int
) -> _SpeakerTurn | None:
    """Return the next message of somebody else, after further messages of the asker."""
    asker = said[turns[number].begin].speaker
    for turn in turns[number + 1 : number + 2 + _REACH]:
        if said[turn.begin].speaker != asker:
            return turn
    return None


def _puts_off(said: Sequence[Sentence], reply: _SpeakerTurn) -> bool:
    """Return whether a reply gives no answer: it does not know, or asks for missing information."""
    opening = [one.text for one in said[reply.begin : min(reply.end, reply.begin + _OPENING)]]
    if not reply.answers:
        first = next((text for text in opening if not is_back_channel(text)), "")
        return _is_unknown(first) or signs.WILL_CHECK.search(first) is not None
    # An assistant says so at once; later sentences have another subject.
    short = reply.end - reply.begin <= 2
    unknown = any(_is_unknown(text) for text in opening[: 2 if short else 1])
    return unknown or any(signs.ASKS_BACK.search(text) for text in opening)


def _is_unknown(text: str) -> bool:
    """Return whether a sentence says that the answer is unknown, and does not answer after all."""
    found = signs.UNKNOWN.search(text)
    return found is not None and signs.BUT.search(text, found.end()) is None


def _passes(
    said: Sequence[Sentence], one: Sentence, reply: _SpeakerTurn, asked: frozenset[str]
) -> bool:
    """Return whether the reply comes on another day and has another subject."""
    if reply.answers or not one.date or said[reply.begin].date in ("", one.date):
        return False
    return not any(stems(other.text) & asked for other in said[reply.begin : reply.end])


def _answered_late(
    said: Sequence[Sentence], late: Sequence[tuple[int, OpenItem]]
) -> Iterator[OpenItem]:
    """Yield questions that were put off; closed ones if a later statement has the same subject."""
    waiting: dict[int, tuple[OpenItem, frozenset[str]]] = {}
    ahead = sorted(late, key=lambda each: each[0])
    taken = 0
    for at in range(ahead[0][0] if ahead else len(said), len(said)):
        while taken < len(ahead) and ahead[taken][0] <= at:
            found = ahead[taken][1]
            waiting[taken] = found, telling(found.words)
            taken += 1
        for oldest in list(waiting)[:-_WATCHED]:
            yield waiting.pop(oldest)[0]
        if not waiting or said[at].asks:
            continue
        known = stems(said[at].text)
        knows = not any(s.search(said[at].text) for s in (signs.UNKNOWN, signs.WILL_CHECK))
        for key, (found, meant) in list(waiting.items()):
            # A question of few words is answered by a statement with all of them.
            short = len(meant) < _ANSWERS and knows and found.words <= known
            if short or len(meant & known) >= max(_ANSWERS, _SHARE * len(meant)):
                messages = (*found.messages, said[at].index)
                yield replace(found, open=False, messages=messages)
                del waiting[key]
    yield from (found for found, _ in waiting.values())
    yield from (each for _, each in ahead[taken:])
