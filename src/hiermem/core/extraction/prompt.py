"""Decides what a model reads when it extracts: the request for a chunk, its repair, the join.

The one rule: a request is a function of the chunk, the template and the facts about it; whether
the session has other chunks shows nowhere in it, so a session that fits whole is asked for in the
very bytes that it would be asked for if there were no chunks at all. The constant part stands
first, the record after it, and what a repair adds comes last; a repair never makes the request
larger than its limit. What a request may take beside its record is a figure of the template alone:
a title or a participant that changes must not move the boundaries of what was paid for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.summaries.prompt import (
    Facts,
    Length,
    PromptTemplate,
    fill,
    marked,
    stricter,
    told,
)
from hiermem.core.summaries.prompt import render as render_summary
from hiermem.core.summaries.validate import Problem
from hiermem.core.text.measure import canonical_json
from hiermem.core.text.units import split
from hiermem.errors import ConfigError, InvalidAnswerError
from hiermem.protocols import ChatMessage, LLMRequest, SourceText, TokenCounter
from hiermem.types import Unit
from hiermem.types.trivector import answer_schema

Count: TypeAlias = Callable[[str], int]

#: Tokens kept free for what a repair adds.
REPAIR_ROOM: Final = 160
#: Tokens that the two hashes around a record and the figures of its facts may differ by.
_SLACK: Final = 48
#: Tokens that a title may take, and those who take part together.
_TITLE: Final = 64
_PEOPLE: Final = 128
#: Of those, what "and 123 others" takes.
_OTHERS: Final = 8
STYLE: Final = "extract"
_WHY_CAP: Final = 400
#: The facts that take the most, but for their title and people, who stand there in one letter.
_MOST: Final = 999_999_999
_MOST_FACTS: Final = Facts(
    "x",
    ("x",),
    datetime(2000, 1, 1, 0, 0, tzinfo=UTC),
    datetime(2001, 12, 31, 23, 59, tzinfo=UTC),
    _MOST,
)
#: A line of a summary that says no more than a day, and more lines than a summary has.
_DAY: Final = re.compile(r"\[(\d{4}-\d\d-\d\d)\]")
_LINES: Final = 10_000


def line(source: SourceText) -> str:
    """Write one message as its line of the record, with its number.

    Each line stands by itself and ends with a line end, so that what a record costs is the sum of
    its lines; further lines of one text are indented, so that none can pass for another message.
    """
    number = "" if source.index is None else f"#{source.index} "
    date = f"{source.date} " if source.date else ""
    who = " ".join(source.speaker.split())[:200]
    text = source.text.replace("\n", "\n  ")
    return f"{number}{date}{who} ({source.role}): {text}\n"


def render(
    template: PromptTemplate, inputs: Sequence[SourceText], *, facts: Facts
) -> tuple[ChatMessage, ...]:
    """Fill the template for one chunk."""
    record = "".join(map(line, inputs))
    return fill(template, told(facts) | {"record": marked("record", record)})


def request(
    template: PromptTemplate,
    inputs: Sequence[SourceText],
    *,
    facts: Facts,
    counter: TokenCounter,
    max_tokens: int,
    temperature: float = 0.0,
) -> LLMRequest:
    """Make the request for one chunk; ``max_tokens`` is the output reserve."""
    return LLMRequest(
        task="extract",
        messages=render(template, inputs, facts=facts),
        inputs=tuple(inputs),
        target_tokens=max_tokens,
        max_tokens=max_tokens,
        counter=counter,
        style=STYLE,
        temperature=temperature,
        schema=answer_schema(),
    )


def introduced(
    title: str | None, participants: Sequence[str], *, count: Count
) -> tuple[str | None, tuple[str, ...]]:
    """Give title and participants as far as the room that a request keeps for them reaches.

    The title is cut; of the participants the first ones stay, with the number of the others.
    """
    if title is not None:
        title = " ".join(title.split())[:200]
        while title and (tokens := count(title)) > _TITLE:
            title = title[: min(len(title) - 1, len(title) * _TITLE // tokens)].rstrip()
    people = [" ".join(each.split())[:200] for each in participants]
    shown = len(people)
    if count(", ".join(people)) > _PEOPLE:
        shown, held = 0, 0
        for name in people:
            held += count(f"{name}, ")
            if held > _PEOPLE - _OTHERS:
                break
            shown += 1
    left = len(people) - shown
    return title, (*people[:shown], *([f"and {left} others"] if left else []))


def around(template: PromptTemplate, *, count: Count) -> int:
    """Give the most tokens that a request takes beside its record and the answer to it.

    The prompt with any facts, the schema, and what a repair adds.
    """
    prompt = request_tokens(render(template, (), facts=_MOST_FACTS), count)
    return prompt + schema_tokens(count) + _facts_room(template) + _SLACK + REPAIR_ROOM


def _facts_room(template: PromptTemplate) -> int:
    title, people = (template.user.count(f"{{{{{it}}}}}") for it in ("title", "participants"))
    return _TITLE * title + _PEOPLE * people


def room(template: PromptTemplate, *, limit: int, reserve: int, count: Count) -> int:
    """Give the tokens that a record may have under ``limit``.

    What remains of it beside the ``reserve`` for the answer and whatever else a request may take.
    It depends on nothing of the session. Raises ConfigError where nothing remains.
    """
    left = limit - around(template, count=count) - reserve
    if left < 1:
        raise ConfigError(
            f"safe_processing_tokens is {limit:,}; the prompt, a repair and the answer alone take "
            f"{limit - left:,}, so it must be more than that; {reserve:,} of it are kept for the "
            "answer, which output_tokens sets"
        )
    return left


def schema_tokens(count: Count) -> int:
    """Count the JSON schema that goes with a request."""
    return count(canonical_json(answer_schema()))


def repair(
    messages: Sequence[ChatMessage], error: InvalidAnswerError, *, count: Count, limit: int
) -> tuple[ChatMessage, ...]:
    """Ask again, saying what was wrong, in no more than ``limit`` tokens in all.

    What does not fit is left out, the reason first; where nothing fits, the request stays as it
    is. Nothing that the model wrote is repeated.
    """
    *before, last = messages
    for why in (f" ({error.problem.replace('_', ' ')}): {str(error)[:_WHY_CAP]}.", "."):
        asked = (
            f"An earlier answer to this request could not be read{why} Answer again with one JSON "
            "object of the schema, complete, and nothing before or after it."
        )
        repaired = (*before, ChatMessage(last.role, f"{last.content}\n\n{asked}"))
        if request_tokens(repaired, count) <= limit:
            return repaired
    return tuple(messages)


def repair_join(
    messages: Sequence[ChatMessage], problems: Sequence[Problem], *, count: Count, limit: int
) -> tuple[ChatMessage, ...]:
    """Ask again for one summary of several, saying what was wrong, in ``limit`` tokens at most.

    Of several problems the last ones are left out first; where nothing fits, the request stays.
    """
    for told_of in range(len(problems), 0, -1):
        repaired = stricter(messages, problems[:told_of])
        if request_tokens(repaired, count) <= limit:
            return repaired
    return tuple(messages)


def join_request(
    template: PromptTemplate,
    summaries: Sequence[str],
    *,
    facts: Facts,
    counter: TokenCounter,
    target: int,
    max_tokens: int,
) -> LLMRequest:
    """Ask for one summary in place of several, which are given in order."""
    inputs = tuple(
        SourceText(
            index=None,
            role="user",
            # For a model that reads: it is not said by anyone, so no unit bears it as its speaker.
            speaker=f"Part {number}",
            date="",
            text=text,
            units=tuple(lines_of(text, number)),
        )
        for number, text in enumerate(summaries, start=1)
    )
    length = Length(target, max_tokens, 1 / max(1, len(inputs)))
    return LLMRequest(
        task="summarise",
        messages=render_summary(template, inputs, facts=facts, length=length),
        inputs=inputs,
        target_tokens=target,
        max_tokens=max_tokens,
        counter=counter,
        level=2,
        style=STYLE,
        temperature=0.0,
    )


def join_room(
    template: PromptTemplate, *, limit: int, target: int, max_tokens: int, counter: TokenCounter
) -> int:
    """Give the tokens of summaries that one step of their reduction may take under ``limit``."""
    most = replace(_MOST_FACTS, summaries=_MOST)
    empty = join_request(
        template, (), facts=most, counter=counter, target=target, max_tokens=max_tokens
    )
    prompt = request_tokens(empty.messages, counter.count)
    return max(1, limit - prompt - _facts_room(template) - _SLACK - REPAIR_ROOM - max_tokens)


def lines_of(summary: str, part: int) -> Iterator[Unit]:
    """Give the lines of a chunk's summary as units: each stands by itself, under its day.

    ``part`` tells the lines of one summary from those of the next.
    """
    day = ""
    for number, each in enumerate(summary.splitlines()):
        if found := _DAY.fullmatch(each.strip()):
            day = found[1]
            continue
        index = part * _LINES + number % _LINES
        yield from split(each, index=index, role="assistant", speaker="", date=day)
