"""Models for tests: one that answers as asked, and one that fails in every known way.

Both are deterministic. The same request gives the same answer in any process, and a fault comes
where the schedule (or the seed) puts it, so that every failure can be replayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, get_args

from hiermem.calls.limits import Prices, request_tokens
from hiermem.errors import ModelError
from hiermem.models.offline import graph
from hiermem.models.offline import notes as offline
from hiermem.protocols import LLM, LLMRequest, LLMResponse, SourceText, Usage
from hiermem.summaries import salience
from hiermem.summaries.assess import anchor_limit, ends_sentence
from hiermem.text import facts, units
from hiermem.types import Unit
from hiermem.types.bank import BankText

__all__ = [
    "BANK_FAULTS", "FAULTS", "RETURNING", "BankFault", "Fault", "FaultyLLM", "ScriptedLLM",
    "write",
]  # fmt: skip

Fault: TypeAlias = Literal[
    "empty", "error_text", "over_long", "wrong_language", "refusal", "refusal_text", "truncated",
    "truncated_json", "echo", "timeout", "rate_limit", "rate_limit_bare",
    "server_error", "permanent", "overflow", "crash", "never",
]  # fmt: skip
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
#: The faults after which a call returns, with an answer or an error.
RETURNING: Final[tuple[Fault, ...]] = tuple(fault for fault in FAULTS if fault != "never")

#: Further faults of an answer to a consolidation.
BankFault: TypeAlias = Literal[
    "bad_name", "invented_file", "same_file_twice", "emptied_file", "lost_lines",
    "unclosed_code", "front_matter", "unknown_note", "deep_json", "duplicate_key",
]  # fmt: skip
BANK_FAULTS: Final[tuple[BankFault, ...]] = get_args(BankFault)

_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)


#: The tokens of one short thing that is said.
_SHORT: Final = 8


class ScriptedLLM:
    """Answers with texts of the right size: required sections, the weightiest anchors, sentences.

    Each answer takes ``latency`` seconds. ``calls`` counts requests, ``input_tokens`` their tokens
    as sent; ``peak`` is the most that were in flight at once; ``requests`` keeps the newest
    ``keep`` of them. ``script`` may answer some
    requests itself: its return value is the answer, None leaves the request to the built-in writer.
    """

    def __init__(
        self,
        *,
        name: str = "scripted-1",
        latency: float = 0.0,
        remote: bool = False,
        context_window: int | None = None,
        keep: int = 1000,
        script: Callable[[LLMRequest], str | LLMResponse | None] | None = None,
    ) -> None:
        self.name, self.context_window, self.remote = name, context_window, remote
        self._latency, self._keep, self._script = latency, keep, script
        self.calls = 0
        self.in_flight = 0
        self.peak = 0
        self.input_tokens = 0
        self.requests: list[LLMRequest] = []

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer ``request`` after the latency.

        Raises ModelError if prompt and answer do not fit the stated window.
        """
        self.calls += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.requests = [*self.requests, request][-self._keep :] if self._keep else []
        try:
            # The writing itself is part of the latency, as with a server.
            clock = asyncio.get_running_loop().time
            until = clock() + self._latency
            response = self._answer(request)
            if self._latency:
                await asyncio.sleep(max(0.0, until - clock()))
            return response
        finally:
            self.in_flight -= 1

    def _answer(self, request: LLMRequest) -> LLMResponse:
        count = request.counter.count
        prompt = request_tokens(request.messages, count)
        self.input_tokens += prompt
        if self.context_window is not None and prompt + request.max_tokens > self.context_window:
            raise ModelError("the request does not fit the window", charged=False, kind="overflow")
        scripted = self._script(request) if self._script else None
        if isinstance(scripted, LLMResponse):
            return scripted
        text = scripted if scripted is not None else write(request)
        return LLMResponse(text, Usage(prompt, count(text)), model=self.name)


_CALL: Final = re.compile(r"\w+\(\{[^)]*\}\)")


def write(request: LLMRequest) -> str:
    """Write a fit answer: headings, lines of anchors, then lines of what was said and by whom.

    To an extraction or a consolidation it is the answer of the offline default.
    """
    most, count = request.max_tokens, request.counter.count
    if request.task == "extract":
        return graph.extract(request.inputs, max_tokens=most, count=count).model_dump_json()
    if request.bank is not None:
        return offline.consolidate(request.bank, max_tokens=most, count=count).model_dump_json()
    system = request.messages[0].content if request.messages else ""
    return _summary(system, request.inputs, request.target_tokens, most, count)


@lru_cache(maxsize=256)
def _summary(
    system: str,
    inputs: tuple[SourceText, ...],
    budget: int,
    max_tokens: int,
    count: Callable[[str], int],
) -> str:
    """Write a summary, once for equal requests: a test that kills a run everywhere repeats them."""
    headings = _HEADING.findall(system)
    required = headings[:2]
    texts = [source.text for source in inputs]
    held = facts.Source(texts, limit=anchor_limit(budget)).fidelity("").required
    lines = [f"## {heading}" for heading in required]
    for place, anchor in enumerate(held):
        where = 1 + place % 2 * (len(lines) > 1)
        longer = [*lines[:where], f"- noted: {anchor}", *lines[where:]]
        if count("\n".join(longer)) > budget:
            break
        lines = longer
    room = budget - count("\n".join(lines)) - 2
    if len(lines) == len(required):
        # A summary of a few tokens says one short thing at least: else it would say nothing.
        room = max(room, min(_SHORT, max_tokens - count("\n".join(lines)) - 2))
    pieces = [unit for source in inputs for unit in units.of_source(source)]
    if room > 4 and pieces:
        chosen = salience.select(pieces, room, count)
        for unit in chosen.units:
            line = _reported(unit)
            most = budget if lines[len(required) :] else max_tokens
            if count("\n".join([*lines, line])) > most:
                break
            lines.append(line)
    text = "\n".join(lines)
    while text and count(text) > max_tokens:
        text = text[: len(text) * 3 // 4]
    return text or "."


def _reported(unit: Unit) -> str:
    """Write a sentence as a line of a summary, which no check takes for a turn of the talk."""
    # A model ends its sentences; a piece of a long one may end anywhere.
    said = unit.text if ends_sentence(unit.text) else f"{unit.text} …"
    # A quoted call would be taken for code where little else is said.
    said = _CALL.sub("a call", said)
    return f'- {unit.speaker} said: "{said}"' if unit.speaker else f"- {said.removeprefix('- ')}"


_RAISED: Final[Mapping[str, Callable[[], Exception]]] = {
    "timeout": lambda: ModelError("timed out", charged=None, kind="timeout"),
    "rate_limit": lambda: ModelError("429", charged=False, retry_after=0.01, kind="transient"),
    "rate_limit_bare": lambda: ModelError("429", charged=False, kind="transient"),
    "server_error": lambda: ModelError("503", charged=None, kind="transient"),
    "permanent": lambda: ModelError("401", charged=False),
    "overflow": lambda: ModelError("400", charged=False, kind="overflow"),
    "crash": lambda: RuntimeError("a fault inside the adapter"),
}


class FaultyLLM:
    """A model that fails by plan and otherwise passes requests on to ``inner``.

    ``schedule`` lists the fault of the first, second, … call, None for none; after its end nothing
    fails, unless ``rate`` is given: then each later call fails with that probability, by ``seed``.
    ``failed`` counts the faults by kind. Faults of a consolidation's answer are skipped in other
    requests. Name, window, prices and the like are those of the model inside.
    """

    def __init__(
        self,
        inner: LLM | None = None,
        schedule: Iterable[Fault | BankFault | None] = (),
        *,
        rate: float = 0.0,
        seed: int = 0,
        faults: Sequence[Fault | BankFault] = RETURNING,
    ) -> None:
        self.inner: LLM = ScriptedLLM() if inner is None else inner
        self.name, self.remote = self.inner.name, self.inner.remote
        self.context_window = self.inner.context_window
        self.prices: Prices | None = getattr(self.inner, "prices", None)
        self.overhead_tokens = int(getattr(self.inner, "overhead_tokens", 0) or 0)
        self._schedule = list(schedule)
        self._rate, self._faults = rate, tuple(faults)
        self._random = random.Random(seed)  # noqa: S311  # a replayable schedule, no secret
        self.calls = 0
        self.failed: dict[str, int] = {}

    async def disconnect(self) -> None:
        """Have the model inside close its connections, if it has any."""
        leave = getattr(self.inner, "disconnect", None)
        if leave is not None:
            await leave()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Fail as the schedule says, or pass the request on."""
        fault = self._next()
        self.calls += 1
        if fault is None or (fault in BANK_FAULTS and request.bank is None):
            return await self.inner.complete(request)
        self.failed[fault] = self.failed.get(fault, 0) + 1
        if fault == "never":
            await asyncio.Event().wait()
        if fault in _RAISED:
            error = _RAISED[fault]()
            raise error
        if fault == "refusal" and self.calls % 2:
            raise ModelError("the provider declined", kind="refused")
        return spoil(fault, request, await self.inner.complete(request))

    def _next(self) -> Fault | BankFault | None:
        if self.calls < len(self._schedule):
            return self._schedule[self.calls]
        if self._rate and self._random.random() < self._rate:
            return self._random.choice(self._faults)
        return None


def spoil(fault: Fault | BankFault, request: LLMRequest, good: LLMResponse) -> LLMResponse:
    """Turn a good answer into the faulty one."""
    text = good.text
    if request.bank is not None and fault in BANK_FAULTS:
        return replace(good, text=_spoilt_bank(fault, request.bank, text))
    words = [hashlib.sha256(bytes([n % 251])).hexdigest()[:6] for n in range(request.max_tokens)]
    spoilt: dict[str, str] = {
        "empty": "  \n",
        "error_text": "Error: 503 Service Unavailable",
        "over_long": f"{text}\n{' '.join(words)}",
        "wrong_language": _other_language(request),
        "refusal": "",
        "refusal_text": "I'm sorry, but I can't help with summarising this.",
        "truncated": text[: len(text) // 2],
        "truncated_json": '{"error": {"message": "overl',
        "echo": " ".join(source.text for source in request.inputs),
    }
    made = replace(good, text=spoilt[fault], units=())
    if fault == "refusal":
        return replace(made, finish_reason="refusal")
    return replace(made, finish_reason="length") if fault == "truncated" else made


def _spoilt_bank(fault: str, bank: BankText, text: str) -> str:
    """Turn a good answer to a consolidation into the faulty one."""
    if fault == "deep_json":
        return '{"bank_files": ' + "[" * 100 + "]" * 100 + ', "synthesis": ""}'
    if fault == "duplicate_key":
        return text[:-1] + ', "synthesis": "again"}'
    answer = json.loads(text)
    held = dict(bank.files)
    notes = list(range(1, len(bank.notes) + 1))
    name = next(iter((*held, *dict(bank.missing), "notes.md")))
    lines = held.get(name, "").splitlines()
    wrong: dict[str, dict[str, Any]] = {
        "bad_name": {"filename": "../../etc/passwd.md", "content": "# Out"},
        "invented_file": {"filename": "invented-by-the-model.md", "content": "# Mine"},
        "same_file_twice": {"content": "# Again"},
        "emptied_file": {"content": " \n"},
        "lost_lines": {"content": "\n".join(lines[:1]) or " "},
        "unclosed_code": {"content": "\n".join(lines) + "\n```\nopen"},
        "front_matter": {"content": "---\ntitle: mine\n---\n" + "\n".join(lines)},
        "unknown_note": {"notes": [9999], "content": "\n".join(lines) or "# New"},
    }
    others = [each for each in answer["bank_files"] if each["filename"] != name]
    if fault == "same_file_twice":
        once = {"filename": name, "content": "# Once", "notes": notes}
        others = [*others, once]
    elif fault == "unknown_note":
        others = []
    spoilt = {"filename": name, "notes": notes, **wrong[fault]}
    return json.dumps({"bank_files": [*others, spoilt], "dropped": [], "synthesis": "Spoilt."})


def _other_language(request: LLMRequest) -> str:
    """Return a German text, or an English one if the inputs are German."""
    german = (
        "Der Nutzer hat gesagt, dass die Arbeit noch nicht fertig ist, und die anderen wollen das "
        "morgen mit ihm besprechen. Es wurde auch über die Kosten und über die Zeit geredet."
    )
    english = (
        "The user said that the work is not finished yet, and the others want to talk about it "
        "with them tomorrow. They also spoke about what it costs and how long it will take."
    )
    spoken = " ".join(source.text for source in request.inputs)[:4000].lower()
    text = english if spoken.count(" und ") > spoken.count(" and ") else german
    while request.counter.count(text) > request.max_tokens and " " in text:
        text = text.rsplit(" ", 1)[0]
    return text
