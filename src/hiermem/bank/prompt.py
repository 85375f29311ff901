"""Decides what a model reads when it consolidates: rules, files, synthesis and notes, as data.

Text from notes and files appears only between marks that it cannot contain, and each note is on a
line of its own with its number, so that no note passes for another or for an instruction. Parts
that seldom change come first, because providers' prompt caches reward that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from hiermem.bank.answer import answer_schema
from hiermem.bank.rules import Rules
from hiermem.calls.request_limits import request_tokens
from hiermem.prompts.template import PromptTemplate, fill, marked
from hiermem.protocols import ChatMessage, LLMRequest, SourceText, TokenCounter
from hiermem.summaries.inputs import Count
from hiermem.text.measure import canonical_json, day
from hiermem.types.bank import BankText, Note

#: Tokens kept free for what a repair adds.
REPAIR_ROOM: Final = 320
#: The longest agent, category or tag that is shown, and the most tags.
_LONGEST: Final = 120
_MOST_TAGS: Final = 16
_ANONYMOUS: Final = "agent"


@dataclass(frozen=True, slots=True)
class NoteBatch:
    """One request, its notes, and the bank that it shows.

    ``id`` is the id of its journal entries. ``texts`` are the texts of all files; an answer can
    only add to those of ``append_only``. ``limit`` is the most tokens of the prompt, a repair
    included.
    """

    id: str
    notes: tuple[Note, ...]
    request: LLMRequest
    input_tokens: int
    rules: Rules
    texts: Mapping[str, str]
    append_only: Collection[str]
    synthesis: str
    limit: int | None = None


def note_line(number: int, note: Note) -> str:
    """Write one note as its line; further lines of its text are indented."""
    time = f"{note.timestamp.astimezone(UTC):%Y-%m-%d %H:%M}"
    category = f" [{_short(note.category)}]" if note.category.strip() else ""
    tags = ", ".join(_short(tag) for tag in note.tags[:_MOST_TAGS])
    # Every kind of line end counts; otherwise what follows one could pass for another note.
    text = "\n  ".join(note.text.splitlines())
    who = _short(note.agent) or _ANONYMOUS
    return f"#{number} {time} {who}{category}{f' ({tags})' if tags else ''}: {text}\n"


def file_shown(name: str, text: str) -> str:
    """Write a file that an answer may write anew."""
    return "\n" + marked("file", text.rstrip("\n"), name=name)


def append_only_shown(name: str, text: str) -> str:
    """Write a file that an answer can only add to; ``text`` is "" if only its name is shown."""
    return "\n" + marked("append-only file", text.rstrip("\n"), name=name)


def request(
    template: PromptTemplate,
    bank: BankText,
    *,
    counter: TokenCounter,
    max_tokens: int,
    temperature: float = 0.0,
) -> LLMRequest:
    """Make the request to take the notes of ``bank`` into its files."""
    notes = list(enumerate(bank.notes, start=1))
    values = {
        "rules": "\n" + marked("rules", bank.rules),
        "files": "".join(file_shown(name, text) for name, text in bank.files),
        "append_only": "".join(append_only_shown(name, text) for name, text in bank.append_only),
        "missing": "".join(file_shown(name, text) for name, text in bank.missing),
        "synthesis": "\n" + marked("synthesis", bank.synthesis) if bank.synthesis else "",
        "count": f"{len(notes)} note{'' if len(notes) == 1 else 's'}",
        "period": _period(bank.notes),
        "record": "\n" + marked("notes", "".join(note_line(at, note) for at, note in notes)),
    }
    return LLMRequest(
        task="consolidate",
        messages=fill(template, values),
        inputs=tuple(
            SourceText(
                index=number,
                role="user",
                speaker=_short(note.agent) or _ANONYMOUS,
                date=day(note.timestamp.astimezone(UTC)),
                text=note.text,
            )
            for number, note in notes
        ),
        target_tokens=max_tokens,
        max_tokens=max_tokens,
        counter=counter,
        style="bank",
        temperature=temperature,
        schema=answer_schema(),
        bank=bank,
    )


def tokens(messages: Sequence[ChatMessage], count: Count) -> int:
    """Count a request with its schema."""
    return request_tokens(messages, count) + count(canonical_json(answer_schema()))


def repair(
    messages: Sequence[ChatMessage], wrong: Iterable[str], *, count: Count, limit: int | None
) -> tuple[ChatMessage, ...]:
    """Ask again and name what was wrong, in no more than ``limit`` tokens in all.

    If not everything fits, the last faults are left out. Nothing that the model wrote is repeated.
    """
    *before, last = messages
    named = [f"\n- {each}" for each in wrong]
    for shown in range(len(named), -1, -1):
        asked = (
            f"An earlier answer could not be used:{''.join(named[:shown])}\n"
            "Answer again with one complete JSON object that has the fields named above, and "
            "nothing before or after it."
        )
        repaired = (*before, ChatMessage(last.role, f"{last.content}\n\n{asked}"))
        if limit is None or tokens(repaired, count) <= limit:
            return repaired
    return tuple(messages)


def _period(notes: Sequence[Note]) -> str:
    if not notes:
        return ""
    days = [day(note.timestamp.astimezone(UTC)) for note in (notes[0], notes[-1])]
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def _short(name: str) -> str:
    """Write a name on one short line."""
    return " ".join(name.split())[:_LONGEST]
