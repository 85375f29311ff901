"""Decides what a model reads when it extracts, and what follows from its answer.

A request is a function of the chunk, the template and the facts about it. It does not show whether
the session has other chunks: a session that fits as a whole is requested in exactly the same bytes
as without chunking. The constant part comes first, then the record, and a repair is appended at the
end; a repair never makes the request larger than its limit. The room for a record depends on the
template alone, because a changed title or participant must not move the boundaries of chunks that
were paid for.

An answer that cannot be used is asked for again, with the reason, while repairs are left. One that
hit its length limit is not: the missing part was not written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import Final

from hiermem.calls.answers import Accepted, Rejected, Retry, Verdict, parse
from hiermem.calls.failures import InvalidAnswerError, cause_of, finish_cause
from hiermem.calls.limits import request_tokens
from hiermem.errors import ConfigError
from hiermem.prompts import template as summary_prompt
from hiermem.prompts.template import Facts, PromptTemplate, marked
from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse, SourceText, TokenCounter
from hiermem.summaries.assess import MOST_ANCHORS, Standard, assess, source_of
from hiermem.summaries.inputs import Count
from hiermem.text.measure import canonical_json
from hiermem.text.units import split
from hiermem.types import Unit
from hiermem.types.trivector import Answer, answer_schema

#: Tokens reserved for the addition of a repair.
REPAIR_ROOM: Final = 160
#: Tokens by which the two hashes around a record and the figures of its facts may differ, and the
#: date above its first message.
_SLACK: Final = 64
#: Tokens that a title may take, and the participants together.
_TITLE: Final = 64
_PEOPLE: Final = 128
#: Of the latter, the tokens of "and 123 others".
_OTHERS: Final = 8
#: Tokens that the name of a language may take.
_LANGUAGE: Final = 8
#: The most items that an answer of ``_LONG_ANSWER`` tokens is asked for; shorter ones have fewer.
_ITEMS: Final = (("entities", 60), ("relations", 80), ("deltas", 30), ("strategy items", 30))
_FEWEST_ITEMS: Final = 3
_LONG_ANSWER: Final = 16_384
STYLE: Final = "extract"
_WHY_CAP: Final = 400
#: Facts of the largest size, but with a title and participants of one letter.
_MOST: Final = 999_999_999
_MOST_FACTS: Final = Facts(
    "x",
    ("x",),
    datetime(2000, 1, 1, 0, 0, tzinfo=UTC),
    datetime(2001, 12, 31, 23, 59, tzinfo=UTC),
    _MOST,
)
#: A summary line that contains only a day; more lines than any summary has.
_DAY: Final = re.compile(r"\[(?:\w{3} )?(\d{4}-\d\d-\d\d)\]")
_LINES: Final = 10_000


def line(source: SourceText) -> str:
    """Write one message as its line of the record, with its number.

    Each line is independent of the others and ends with a line end, so the cost of a record is the
    sum of its lines and of those that date them (``dated``). Further lines of one text are
    indented, so that none can pass for another message.
    """
    number = "" if source.index is None else f"#{source.index} "
    return f"{number}{summary_prompt.said(source)}\n"


def dated(date: str) -> str:
    """Return the line that stands above the first message of a day; "" where there is no date."""
    return f"{summary_prompt.day_line(date)}\n" if date else ""


def render(
    template: PromptTemplate,
    inputs: Sequence[SourceText],
    *,
    facts: Facts,
    answer: int = _LONG_ANSWER,
) -> tuple[ChatMessage, ...]:
    """Fill the template for one chunk, whose ``answer`` may have so many tokens."""
    lines: list[str] = []
    shown = ""
    for source in inputs:
        if source.date != shown:
            lines.append(dated(source.date))
            shown = source.date
        lines.append(line(source))
    values = summary_prompt.fact_values(facts) | {
        "language": summary_prompt.language_of(inputs),
        "most": most_items(answer),
        "record": marked("record", "".join(lines)),
    }
    return summary_prompt.fill(template, values)


def most_items(answer: int) -> str:
    """Return how many items an answer of so many tokens has room for, in words.

    >>> most_items(4096)
    '15 entities, 20 relations, 7 deltas, 7 strategy items'
    """
    share = min(answer, _LONG_ANSWER) / _LONG_ANSWER
    return ", ".join(f"{max(_FEWEST_ITEMS, int(most * share))} {what}" for what, most in _ITEMS)


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
        messages=render(template, inputs, facts=facts, answer=max_tokens),
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
    """Return title and participants as far as they fit the room that a request reserves for them.

    The title is cut; of the participants the first ones stay, with the number of the others.
    """
    if title is not None:
        title = " ".join(title.split())[:200]
        while title and (tokens := count(title)) > _TITLE:
            title = title[: min(len(title) - 1, len(title) * _TITLE // tokens)].rstrip()
    people = [" ".join(each.split())[:200] for each in participants]
    shown = len(people)
    if count(", ".join(people)) > _PEOPLE:
        sizes = accumulate(count(f"{name}, ") for name in people)
        shown = sum(size <= _PEOPLE - _OTHERS for size in sizes)
    n_hidden = len(people) - shown
    return title, (*people[:shown], *([f"and {n_hidden} others"] if n_hidden else []))


def around(template: PromptTemplate, *, count: Count) -> int:
    """Return the most tokens that a request takes besides its record and the answer.

    That is the prompt with any facts, the schema, and the addition of a repair.
    """
    prompt = request_tokens(render(template, (), facts=_MOST_FACTS), count)
    return prompt + schema_tokens(count) + _facts_room(template) + _SLACK + REPAIR_ROOM


def _facts_room(template: PromptTemplate) -> int:
    places = (("title", _TITLE), ("participants", _PEOPLE), ("language", _LANGUAGE))
    return sum(room * template.user.count(f"{{{{{name}}}}}") for name, room in places)


def room(template: PromptTemplate, *, limit: int, reserve: int, count: Count) -> int:
    """Return the tokens that a record may have under ``limit``.

    That is the limit without the ``reserve`` for the answer and everything else that a request may
    take. It is independent of the session. Raises ConfigError if nothing remains.
    """
    free = limit - around(template, count=count) - reserve
    if free < 1:
        raise ConfigError(
            f"safe_processing_tokens is {limit:,}; set more than {limit - free:,}, which "
            f"prompt and answer take; output_tokens reserves {reserve:,} for the answer"
        )
    return free


def schema_tokens(count: Count) -> int:
    """Count the JSON schema that a request includes."""
    return count(canonical_json(answer_schema()))


def repair(request: LLMRequest, error: InvalidAnswerError, *, limit: int | None) -> LLMRequest:
    """Ask again and say what was wrong, in no more than ``limit`` tokens in all.

    If not everything fits, the reason is left out first; if nothing fits, the request stays as it
    is. Nothing that the model wrote is repeated.
    """
    *before, last = request.messages
    asked = (
        f"An earlier answer could not be read{why} Answer again with one complete JSON object "
        "that has the fields named above, and nothing before or after it."
        for why in (f": {str(error)[:_WHY_CAP]}.", ".")
    )
    repaired = ((*before, ChatMessage(last.role, f"{last.content}\n\n{each}")) for each in asked)
    return _fitting(request, repaired, limit)


def repair_join(request: LLMRequest, complaints: Sequence[str], *, limit: int | None) -> LLMRequest:
    """Ask again for one summary of several and say what was wrong, in at most ``limit`` tokens.

    If not all complaints fit, the last ones are left out; if nothing fits, the request stays as it
    is.
    """
    numbers = range(len(complaints), 0, -1)
    repaired = (summary_prompt.second_request(request.messages, complaints[:n]) for n in numbers)
    return _fitting(request, repaired, limit)


def _fitting(
    request: LLMRequest, repaired: Iterable[tuple[ChatMessage, ...]], limit: int | None
) -> LLMRequest:
    """Return the request with the first of the prompts that fits, or as it is.

    Where nothing else limits a request, REPAIR_ROOM limits what a repair adds.
    """
    count = request.counter.count
    if limit is None:
        limit = request_tokens(request.messages, count) + REPAIR_ROOM
    fitting = (each for each in repaired if request_tokens(each, count) <= limit)
    return replace(request, messages=next(fitting, request.messages))


def join_request(
    template: PromptTemplate,
    summaries: Sequence[str],
    *,
    facts: Facts,
    counter: TokenCounter,
    target: int,
    max_tokens: int,
    temperature: float = 0.0,
) -> LLMRequest:
    """Ask for one summary in place of several, which are in order."""
    inputs = tuple(
        SourceText(
            index=None,
            role="user",
            # Only for a model that reads: nobody said it, so no unit has it as its speaker.
            speaker="Part",
            date="",
            text=text,
            units=tuple(lines_of(text, number)),
        )
        for number, text in enumerate(summaries, start=1)
    )
    length = summary_prompt.Length(target, max_tokens)
    return LLMRequest(
        task="summarise",
        messages=summary_prompt.render(template, inputs, facts=facts, length=length),
        inputs=inputs,
        target_tokens=target,
        max_tokens=max_tokens,
        counter=counter,
        level=2,
        style=STYLE,
        temperature=temperature,
    )


def join_room(
    template: PromptTemplate,
    *,
    limit: int,
    target: int,
    max_tokens: int,
    counter: TokenCounter,
) -> int:
    """Return the tokens of summaries that one step of their reduction may take under ``limit``."""
    most = replace(_MOST_FACTS, summaries=_MOST)
    empty = join_request(
        template, (), facts=most, counter=counter, target=target, max_tokens=max_tokens
    )
    prompt = request_tokens(empty.messages, counter.count)
    return max(1, limit - prompt - _facts_room(template) - _SLACK - REPAIR_ROOM - max_tokens)


def lines_of(summary: str, part: int) -> Iterator[Unit]:
    """Yield the lines of a chunk's summary as units, each under its day.

    ``part`` tells the lines of one summary from those of the next.
    """
    day = ""
    for number, line in enumerate(summary.splitlines()):
        if match := _DAY.fullmatch(line.strip()):
            day = match[1]
            continue
        index = part * _LINES + number % _LINES
        yield from split(line, index=index, role="assistant", speaker="", date=day)


def judge_chunk(
    request: LLMRequest, response: LLMResponse, *, limit: int | None, is_last: bool = False
) -> Verdict[tuple[Answer, int]]:
    """Read the answer to a chunk. ``request`` is the first one, without a repair.

    ``limit`` is the most tokens of a rendered request, None for no limit. The model is asked once
    to repair its answer.
    """
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    try:
        parsed = parse(response.text)
    except InvalidAnswerError as error:
        reason = f"schema:{error.problem}"
        if is_last:
            return Rejected(reason, *cause_of(error))
        again = partial(judge_chunk, request, limit=limit, is_last=True)
        return Retry(repair(request, error, limit=limit), reason, again)
    return Accepted(parsed, response.model)


def judge_joined(
    request: LLMRequest,
    response: LLMResponse,
    *,
    input_tokens: int,
    limit: int | None,
    is_last: bool = False,
) -> Verdict[str]:
    """Judge one summary in place of several, of ``input_tokens`` together."""
    standard = Standard(source_of(request, limit=MOST_ANCHORS), input_tokens)
    draft = assess(request, standard, response)
    if draft.fit:
        return Accepted(draft.text.strip(), draft.model)
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    reason = ",".join(draft.problems)
    if is_last:
        return Rejected(reason, "provider", reason)
    again = partial(judge_joined, request, input_tokens=input_tokens, limit=limit, is_last=True)
    return Retry(repair_join(request, [*draft.problems.values()], limit=limit), reason, again)
