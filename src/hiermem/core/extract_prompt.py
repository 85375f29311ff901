"""Decides what a model reads when it extracts: the request for a chunk, its repair, the join.

The one rule: a request is a function of the chunk, the template and the facts about it; whether
the session has other chunks shows nowhere in it, so a session that fits whole is asked for in the
very bytes that it would be asked for if there were no chunks at all. The constant part stands
first, the record after it, and what a repair adds comes last; a repair never makes the request
larger than its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hiermem.core.measure import canonical_json
from hiermem.core.prompt import Facts, Length, PromptTemplate, fill, marked, told
from hiermem.core.prompt import render as render_summary
from hiermem.errors import ConfigError, InvalidAnswerError
from hiermem.protocols import ChatMessage, LLMRequest, SourceText, TokenCounter
from hiermem.trivector import answer_schema

__all__ = [
    "AROUND",
    "FRAME",
    "REPAIR_ROOM",
    "STYLE",
    "join_request",
    "line",
    "render",
    "repair",
    "request",
    "request_tokens",
    "room",
    "schema_tokens",
]

Count: TypeAlias = Callable[[str], int]

#: Tokens that a provider adds to each message of a request.
FRAME: Final = 4
#: Tokens kept free for what a repair adds.
REPAIR_ROOM: Final = 160
#: Tokens that the two hashes around a record and the figures of its facts may differ by.
_SLACK: Final = 48
#: What a request may take beside its prompt, record and answer.
AROUND: Final = _SLACK + REPAIR_ROOM
STYLE: Final = "extract"
_WHY_CAP: Final = 400


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


def request_tokens(messages: Sequence[ChatMessage], count: Count) -> int:
    """Count a rendered request."""
    return sum(count(message.content) + FRAME for message in messages)


def room(template: PromptTemplate, *, facts: Facts, limit: int, reserve: int, count: Count) -> int:
    """Give the tokens that a record may have under ``limit``.

    What remains of it after the prompt around the record (schema and facts included), what a
    repair adds and the ``reserve`` for the answer. Raises ConfigError where that is nothing.
    """
    around = request_tokens(render(template, (), facts=facts), count) + schema_tokens(count)
    left = limit - around - AROUND - reserve
    if left < 1:
        raise ConfigError(
            f"safe_processing_tokens is {limit}; the prompt, a repair and the answer alone take "
            f"{limit - left + 1}, so it must be more than that"
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
        SourceText(index=None, role="user", speaker=f"Part {number}", date="", text=text)
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
