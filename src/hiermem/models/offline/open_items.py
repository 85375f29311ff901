"""Decides what a conversation leaves open, sentence by sentence.

An item is one clause that somebody said. It is open only where the words themselves say that
something is left to do: a mark such as TODO, "still need to", a promise to do one thing, a point
that is called open, a question that nobody answered. What a user needs from an assistant is served
by its next answer; advice from an assistant is nobody's task. Neither a later statement nor the
passing of time closes an item. The patterns are English; in other
languages only marks, boxes to tick and questions are found.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from hiermem.models.offline.speech import (
    ASIDE,
    CAP,
    ROLE_LABELS,
    Sentence,
    clause,
    numbered,
    phrases,
    signs,
    stems,
    telling,
)
from hiermem.protocols import SourceText
from hiermem.text.policy import is_back_channel
from hiermem.types.trivector import AnswerDelta, DeltaKind

#: A question is answered in at most this many messages after it.
_REACH: Final = 4
#: An item is compared with this many before it.
_HELD: Final = 40
#: A task or question of fewer telling words says too little.
_LEAST: Final = 2


_DONE: Final = phrases("done")
#: A mark of a task, in any language, and a box to tick.
_MARK: Final = re.compile(
    r"(?:(?:^|[#/*;%>-])[ \t]*(?:TODO|FIXME)\b(?:\([^)]{0,40}\))?[:\s-]+|\b(?:TODO|FIXME)"
    r"(?:\([^)]{0,40}\))?: *|[#/*;%][ \t]*XXX\b:?[ \t]+)(?P<rest>[^\n]{4,240})",
    re.MULTILINE,
)
_BOX: Final = re.compile(r"^[ \t]*[-*+] \[(?P<tick>[ xX])\] (?P<rest>[^\n]{3,240})", re.MULTILINE)
_LATER: Final = signs(rf"\b{phrases('later')}\b")
#: What says that something is left to do, whoever answers.
_LEFT: Final = signs(
    rf"\b(?:{phrases('left to do')}|(?:needs?|has|have) to be (?:{_DONE}))\b",
    rf"\b(?:haven['’]t|not) (?:\w+ )?{phrases('not yet done')}\b",  # noqa: RUF001
    r"(?:^\W*|[.,;:!?] |\b(?:please|you|and) )remind me to\b",
)
#: What somebody has to do, or says they will; the verb behind it says whether that can be done.
_NEED: Final = signs(rf"\b{phrases('need')}\b")
_PROMISE: Final = signs(rf"\b{phrases('promise')}\b")
_KEEPS: Final = signs(
    rf"^\W*(?:(?:also|just|then|\w+ly|go ahead and|make sure to|try to) )*"
    rf"{phrases('keeps')}\b(?! {phrases('keeps nothing')})"
)
_NO_PROMISE: Final = signs(
    rf"\b{phrases('before no promise')}(?:,| that)?(?: if)? [\"“‘']?$|[\"“‘]$",  # noqa: RUF001
    r"\b(?:if|let me know|unless|in case) [^.;]{0,80}$",
)
#: What is called open, or does not work, or is not decided.
_LISTED: Final = signs(
    r"\b(?:open|pending|outstanding|unresolved) (?:point|item|issue|matter|task|question)s?\b",
    r"\b(?:remaining|remains?|still|left) open\b(?! (?:until|to|for|from|on|at))",
    r"\b(?:put (?:it|that|this|them) (?:down )?|goes |go )on (?:the|my|our) (?:open |to-?do )?"
    r"list\b",
    r"\b(?:open|todo|backlog)\.(?:md|txt)\b[^.:]{0,12}:",
    rf"\b(?:{phrases('undecided')}|waiting (?:for|on) (?:\w+ ){{0,3}}{phrases('awaited')})\b",
)
_TROUBLE: Final = signs(
    rf"\b{phrases('trouble')}\b(?! out)",
    r"\b(?:i['’]m|i am) getting (?:an?|the|this)\b[^.;]{0,40}?(?:error|exception|failure|crash)",  # noqa: RUF001
)
#: Questions that need no substantial answer, and replies that give none.
_PHATIC: Final = signs(rf"\b{phrases('phatic')}|(?:^\W*|, )(?:and )?(?:you|right)\?")
_UNKNOWN: Final = signs(
    rf"\b{phrases('unknown')}\b",
    r"\b(?:i |we )?do(?:n['’]t| not) (?:know|remember|recall)\b(?! (?:about|how|if) you| what i)",  # noqa: RUF001
    r"\bdo(?:n['’]t| not) have (?:\w+ ){0,3}(?:information|info|data|details)\b",  # noqa: RUF001
    r"\bhave(?:n['’]t| not) (?:yet )?(?:found|decided|figured|checked|heard|looked|asked)\b",  # noqa: RUF001
)
_EMPTY: Final = stems("one ones thing things time stuff else mean say think like know")


def open_ends(sentences: Sequence[Sentence], sources: Sequence[SourceText]) -> list[AnswerDelta]:
    """Return what is left open, in order; what nearly repeats an earlier item is left out."""
    items = [*_marks(sources), *_questions(sentences), *_statements(sentences)]
    items.sort(key=lambda item: item.messages[0])
    kept: list[tuple[AnswerDelta, frozenset[str]]] = []
    for each in items:
        words = stems(each.text)
        if not any(
            (each.kind == other.kind or each.messages[0] == other.messages[0])
            and len(words & known) >= 0.75 * max(1, len(words))
            for other, known in kept[-_HELD:]
        ):
            kept.append((each, words))
    return [item for item, _ in kept]


def _item(kind: DeltaKind, text: str, *messages: int) -> AnswerDelta:
    return AnswerDelta(kind=kind, text=text, messages=messages)


def _marks(sources: Sequence[SourceText]) -> Iterator[AnswerDelta]:
    """Yield marks that mean a task in any language: TODO, FIXME, boxes to tick.

    Marks in a program's output are other people's tasks. An assistant that only advises puts them
    into its examples; its list of boxes is a plan if one is ticked, or has a date.
    """
    agent = any(source.role == "tool" for source in sources)
    adviser = [s.role == "assistant" and s.speaker in ROLE_LABELS and not agent for s in sources]
    for position, (index, source) in enumerate(numbered(sources)):
        if source.role in ("system", "tool"):
            continue
        advice = adviser[position]
        # What is to do in code that a user shows to an assistant, the next answer does.
        shown = any(adviser[position + 1 : position + 2])
        text = "\n".join(source.text.split("```")[::2]) if shown else source.text
        for match in () if advice else _MARK.finditer(text):
            if said := match["rest"].strip(" */#->"):
                yield _item("task", said, index)
        boxes = list(_BOX.finditer(source.text))
        ticked = any(match["tick"] != " " for match in boxes)
        for match in boxes:
            text = match["rest"].strip()
            if text and match["tick"] == " " and (not advice or ticked or re.search(r"\d", text)):
                yield _item("task", text, index)


def _statements(sentences: Sequence[Sentence]) -> Iterator[AnswerDelta]:
    """Yield tasks, promises and problems that people state."""
    order = list(dict.fromkeys((s.index, s.speaker, s.role, s.named) for s in sentences))
    helped = {
        before[0]
        for before, after in itertools.pairwise(order)
        if after[2] == "assistant" and not after[3] and before[1] != after[1]
    }
    had: set[tuple[DeltaKind, int]] = set()
    for s in sentences:
        item = _read(s, helped=s.index in helped)
        # A message states one item of a kind; further sentences elaborate on it.
        if item is not None and (item.kind, s.index) not in had:
            had.add((item.kind, s.index))
            yield item


def _read(unit: Sentence, *, helped: bool) -> AnswerDelta | None:
    """Return what a sentence leaves open, None for nothing.

    ``helped`` says that an assistant answers the message.
    """
    text = unit.text
    listed = _LISTED.search(text) if unit.own and not unit.asks else None
    if listed:
        says_what = telling(stems(text) - stems(listed.group()))
        return _item("unresolved", clause(text, listed.start()), unit.index) if says_what else None
    trouble = _TROUBLE.search(text) if unit.own and not helped else None
    if trouble and not re.search(r"\b(?:if|when|could|would)\b", text[: trouble.start()]):
        return _item("unresolved", clause(text, trouble.start()), unit.index)
    if unit.asks and not ASIDE.search(text):
        return None
    kind: DeltaKind = "task"
    match = _LEFT.search(text) if unit.own else None
    if match is None and unit.own and not helped and (need := _NEED.search(text)):
        match = need if _KEEPS.match(text[need.end() :]) else None
    if match is None:
        kind, match = "promise", _promise(unit, helped=helped)
    duty = clause(text, match.start()) if match else ""
    plain = stems(re.sub(r"\w+ly\b", "", duty))
    too_little = unit.own and (len(plain) < _LEAST or not telling(plain))
    return _item(kind, duty, unit.index) if duty and not too_little else None


def _promise(unit: Sentence, *, helped: bool) -> re.Match[str] | None:
    """Return where somebody says what they will do; None if they do it at once, or hope to."""
    match = _PROMISE.search(unit.text)
    if match is None or _NO_PROMISE.search(unit.text[: match.start()]):
        return None
    rest = unit.text[match.end() :]
    # What users tell an assistant that they will do is mostly thanks, unless it has a time.
    needs_time = helped or unit.agent or not unit.own
    return match if _KEEPS.match(rest) and (not needs_time or _LATER.search(rest)) else None


def _questions(sentences: Sequence[Sentence]) -> Iterator[AnswerDelta]:
    """Yield the questions that nobody answered, and those that were put off.

    A reply counts as an answer, unless it says that it does not know.
    Questions of an assistant without a name are mostly offers; such a question is open if the
    assistant spoke last.
    """
    turns = [list(each) for _, each in itertools.groupby(sentences, key=lambda s: s.index)]
    for number, turn in enumerate(turns):
        last = number == len(turns) - 1
        for sentence in turn:
            if not sentence.asks or not (sentence.own or last) or _PHATIC.search(sentence.text):
                continue
            topic = stems(sentence.text) - stems(sentence.speaker)
            after = range(number + 1, min(len(turns), number + 2 + _REACH))
            reply = next((at for at in after if turns[at][0].speaker != sentence.speaker), None)
            put_off = reply is not None and _puts_off(turns[reply])
            # A reply that does not know shows that the question was substantial.
            least = 1 if put_off else _LEAST
            if len(topic - _EMPTY if put_off or last else telling(topic)) < least:
                continue
            text = sentence.text[-CAP:]
            if reply is None:
                yield _item("question", text, sentence.index)
            elif put_off:
                yield _item("question", text, sentence.index, turns[reply][0].index)


def _puts_off(reply: Sequence[Sentence]) -> bool:
    """Return whether a reply says that it does not know."""
    opening = [one.text for one in reply[:3] if not is_back_channel(one.text)]
    advises = reply[0].role == "assistant" and not reply[0].named and not reply[0].agent
    return any(map(_UNKNOWN.search, opening[:1] if not advises or len(reply) > 2 else opening))
