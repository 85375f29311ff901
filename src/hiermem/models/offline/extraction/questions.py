"""Decides which of the questions that people ask are left without an answer.

The one rule: whoever replies has answered, unless the reply says that it does not know, or asks for
what it lacks; sharing no word with the question is no sign of that, for most answers share none
("Which port?" "8080."). So a question is open where nobody replies, where the next reply comes on
another day and is about something else, or where it was put off, however short it is; and a later
statement that is about the same closes one that was put off.
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

#: So many messages of one's own may stand between a question and the reply to it.
_REACH: Final = 4
#: So many sentences of a reply are looked at for saying that it does not know.
_OPENING: Final = 3
#: So many questions that were put off are watched for an answer.
_WATCHED: Final = 40
#: A later statement answers a question by so many of its telling words, or by this share of them.
_ANSWERS, _SHARE = 3, 0.6
#: A name of code, or a figure, makes a question one of substance by itself.
_NAMED: Final = re.compile(r"\w\(\)|[A-Za-z]_[A-Za-z]|[a-z][A-Z]|\w[./]\w|`|\d")

#: "Which one?" asks for nothing that could be told apart later.
_EMPTY: Final = stems("one ones thing things time stuff else mean say think like know")


@dataclass(slots=True)
class _SpeakerTurn:
    """One message's sentences, by their places in the row of all.

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
            # Who says that they do not know took it for a question of substance.
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
    """Return whether a sentence is a question of substance that somebody waits to have answered.

    What an assistant without a name asks is mostly an offer; it is waiting where it spoke last.
    """
    return one.asks and (one.own or last) and not signs.PHATIC.search(one.text)


def _reply(
    said: Sequence[Sentence], turns: Sequence[_SpeakerTurn], number: int
) -> _SpeakerTurn | None:
    """Return the next message of somebody else, past what the asker goes on to say."""
    asker = said[turns[number].begin].speaker
    for turn in turns[number + 1 : number + 2 + _REACH]:
        if said[turn.begin].speaker != asker:
            return turn
    return None


def _puts_off(said: Sequence[Sentence], reply: _SpeakerTurn) -> bool:
    """Return whether a reply gives no answer: it does not know, or asks for what it lacks."""
    opening = [one.text for one in said[reply.begin : min(reply.end, reply.begin + _OPENING)]]
    if not reply.answers:
        first = next((text for text in opening if not is_back_channel(text)), "")
        return _is_unknown(first) or signs.WILL_CHECK.search(first) is not None
    # An assistant says so at once; what it says further down is about something else.
    short = reply.end - reply.begin <= 2
    unknown = any(_is_unknown(text) for text in opening[: 2 if short else 1])
    return unknown or any(signs.ASKS_BACK.search(text) for text in opening)


def _is_unknown(text: str) -> bool:
    """Return whether a sentence does not know, and does not go on to answer all the same."""
    found = signs.UNKNOWN.search(text)
    return found is not None and signs.BUT.search(text, found.end()) is None


def _passes(
    said: Sequence[Sentence], one: Sentence, reply: _SpeakerTurn, asked: frozenset[str]
) -> bool:
    """Return whether what comes next comes on another day and is about something else."""
    if reply.answers or not one.date or said[reply.begin].date in ("", one.date):
        return False
    return not any(stems(other.text) & asked for other in said[reply.begin : reply.end])


def _answered_late(
    said: Sequence[Sentence], late: Sequence[tuple[int, OpenItem]]
) -> Iterator[OpenItem]:
    """Yield questions that were put off, closed where a later statement is about the same."""
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
        told = stems(said[at].text)
        knows = not any(s.search(said[at].text) for s in (signs.UNKNOWN, signs.WILL_CHECK))
        for key, (found, meant) in list(waiting.items()):
            # A question of few words is answered by what holds all of them.
            short = len(meant) < _ANSWERS and knows and found.words <= told
            if short or len(meant & told) >= max(_ANSWERS, _SHARE * len(meant)):
                messages = (*found.messages, said[at].index)
                yield replace(found, open=False, messages=messages)
                del waiting[key]
    yield from (found for found, _ in waiting.values())
    yield from (each for _, each in ahead[taken:])
