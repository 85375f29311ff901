"""What the tests of the bank's core share: notes, states, answers."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hiermem.bank.batches import BatchSettings, next_batch
from hiermem.bank.prompt import NoteBatch
from hiermem.bank.records import BankState, note_key
from hiermem.bank.rules import read_rules
from hiermem.config import BankPolicy
from hiermem.prompts import load_named
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.tokens import FunctionCounter
from hiermem.types.bank import Note

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
COUNTER = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")
TEMPLATE = load_named("consolidate")
RULES = """\
# Files

- progress.md: what works, what is left
- decisions.md: what was decided and why
- techContext.md: stack, set-up
"""
PROGRESS = "# Progress\n\n## What works\n\n" + "".join(f"- feature {n}\n" for n in range(12))


def note(text: str, number: int = 1, **more: Any) -> Note:
    at = NOW + timedelta(minutes=number)
    return Note(note_key(at, number, "abc123"), text, at, **more)


def notes(count: int) -> list[Note]:
    return [
        note(f"Decided to use tool {n} for job {n}.", n, agent="dev") for n in range(1, count + 1)
    ]


def state(files: Mapping[str, str] | None = None, *, rules: str = RULES) -> BankState:
    held = dict(sorted((files or {}).items()))
    return BankState(
        "x",
        read_rules(rules),
        texts=held,
        versions=dict.fromkeys(held, 1),
        synthesis="Before.",
        synthesis_version=1,
    )


def planned(
    bank: BankState,
    given: list[Note],
    answer: int = 4_000,
    *,
    tokens: int | None = None,
    is_local: bool = False,
) -> NoteBatch | Note | str:
    settings = BatchSettings(TEMPLATE, COUNTER, answer, tokens, 500, is_local, BankPolicy())
    return next_batch(bank, given, settings)


def batch_of(bank: BankState, given: list[Note], **limits: Any) -> NoteBatch:
    made = planned(bank, given, **limits)
    assert isinstance(made, NoteBatch)
    return made


def response(
    *files: Mapping[str, Any], dropped: tuple[int, ...] = (), synthesis: str = "After."
) -> LLMResponse:
    drops = [{"note": number, "reason": "a file says it"} for number in dropped]
    return LLMResponse(json.dumps({"bank_files": files, "dropped": drops, "synthesis": synthesis}))


def answer_of(*files: Mapping[str, Any], dropped: Any = (), synthesis: str = "So it is.") -> str:
    """Write an answer of these files."""
    return json.dumps({"bank_files": files, "dropped": dropped, "synthesis": synthesis})


def grown(request: LLMRequest, name: str, notes: Iterable[int] | None = None) -> dict[str, Any]:
    """Answer one file whole, with the notes of these numbers (all of them by default) below."""
    bank = request.bank
    assert bank is not None
    numbers = list(range(1, len(bank.notes) + 1) if notes is None else notes)
    text = {**dict(bank.missing), **dict(bank.files)}[name].rstrip("\n")
    lines = "\n".join(f"- {bank.notes[number - 1].text}" for number in numbers)
    return whole(name, f"{text}\n{lines}\n", notes=tuple(numbers))


def whole(name: str, content: str, *, notes: tuple[int, ...] = (1,)) -> dict[str, Any]:
    return {"filename": name, "content": content, "notes": notes}
