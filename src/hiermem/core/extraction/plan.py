"""Decides how an extraction goes: its limit, what to ask for, what a failure means, what is told.

The one rule: the engine reads, calls and writes; every choice it makes on the way is a function
here, of values that were read before. Nothing here holds a text of the conversation but the result
itself; what of it is journalled is decided in ``core.extract_record``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hiermem.config import ExtractionOptions
from hiermem.core.calls.failures import Cause
from hiermem.core.extraction.chunks import Chunk
from hiermem.core.extraction.stored_answer import StoredAnswer
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.text import hashes
from hiermem.types import Span
from hiermem.types.trivector import TriVector, answer_schema

ChunkStatus: TypeAlias = Literal["made", "reused", "failed", "pending"]
PhaseState: TypeAlias = Literal["ok", "partial", "failed", "skipped"]


# ---------------------------------------------------------------------------------------------
# What a caller of extract sees


@dataclass(frozen=True, slots=True)
class Failure:
    """One chunk, or one step of the reduce, that gave nothing.

    ``id`` is the chunk's, or ``<session_id>:reduce:<round>:<place>``; ``attempts`` counts the
    calls that were made for it; ``detail`` says more and holds no text.
    """

    id: str
    phase: Literal["map", "reduce"]
    reason: Cause
    attempts: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ChunkReport:
    """What became of one chunk.

    ``made`` was asked for in this run, ``reused`` in an earlier one; ``pending`` was not tried,
    because the run ended before. ``span`` is the hull of its messages and ``spans`` the messages
    themselves, which differ where threads interleave. ``tokens`` are those of its record;
    ``request_tokens`` of the whole request, prompt and schema included; both as the memory's
    counter counts. ``tokens_in`` and ``tokens_out`` are what the provider reported in this run.
    """

    id: str
    span: Span
    status: ChunkStatus
    turns: int
    messages: int
    tokens: int
    request_tokens: int
    oversized: bool
    input_hash: str
    reason: Cause | None = None
    detail: str = ""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """What one phase took."""

    state: PhaseState = "skipped"
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExtractionProgress:
    """How far an extraction is; ``failed`` of the ``done`` items gave nothing.

    ``waiting`` are chunks, or steps of the reduction, that another run is asking for: this one
    waits for the answers, or until that run's lease is over.
    """

    phase: Literal["map", "reduce"]
    done: int
    total: int
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ExtractionReport:
    """What an extraction did.

    ``tri_vector`` is None where the outcome is "error". ``chunked`` says whether the session was
    parted, ``chunking`` why or why not; ``estimate`` is what a single request would take, prompt
    and output reserve included, and ``threshold`` the most that one may (None: no limit is known).
    ``chunked_tokens`` are those of all requests, the chunks' and the reduction's, reused ones
    included: what chunking costs against ``single_pass_tokens``. ``model`` made the answers;
    ``live`` is False where it is no remote model, so that its figures say nothing about one.
    ``cost`` is what the calls cost where the model has prices; ``unknown`` counts calls that were
    cut off, of which nobody knows whether they were charged. ``stopped`` names the cap that ended
    the run, or is "circuit_open" where the provider kept failing: it may be asked again in
    ``retry_after`` seconds. ``degraded``: the summary was put together without
    the model. ``kept``: the result became the session's own on record; where a better one of the
    same messages stands, that one stays. ``seconds`` are those of the whole run.
    """

    session_id: str
    run_id: str
    outcome: Literal["ok", "partial", "error"]
    tri_vector: TriVector | None
    chunks: tuple[ChunkReport, ...]
    failures: tuple[Failure, ...]
    map: PhaseReport
    reduce: PhaseReport
    chunked: bool
    chunking: Literal["under_threshold", "over_threshold", "unknown_window"]
    estimate: int
    threshold: int | None
    model: str
    live: bool
    rounds: int = 0
    single_pass_tokens: int = 0
    chunked_tokens: int = 0
    seconds: float = 0.0
    unknown: int = 0
    stopped: str | None = None
    degraded: bool = False
    kept: bool = False
    messages: int = 0
    cost: float | None = None
    retry_after: float | None = None

    @property
    def calls(self) -> int:
        """Give the calls of both phases."""
        return self.map.calls + self.reduce.calls

    @property
    def tokens_in(self) -> int:
        """Give the tokens that went in, in both phases."""
        return self.map.tokens_in + self.reduce.tokens_in

    @property
    def tokens_out(self) -> int:
        """Give the tokens that came out, in both phases."""
        return self.map.tokens_out + self.reduce.tokens_out

    @property
    def tokens(self) -> int:
        """Give the tokens in and out together."""
        return self.tokens_in + self.tokens_out

    @property
    def reused(self) -> int:
        """Give how many chunks needed no call, because an earlier run had made them."""
        return sum(chunk.status == "reused" for chunk in self.chunks)


# ---------------------------------------------------------------------------------------------
# How a session is parted


def strategy_of(
    template: PromptTemplate,
    options: ExtractionOptions,
    *,
    answer: int,
    model: str,
    counter: str,
) -> str:
    """Hash all that decides an answer besides the messages; the limit is in the spans already."""
    schema = json.dumps(answer_schema(), sort_keys=True)
    return hashes.strategy_hash(
        template=template.identity,
        style="extract",
        lengths=[answer, schema],
        temperature=options.temperature,
        model=model,
        counter=counter,
    )


def join_key(texts: Sequence[str], *, strategy: str, template: PromptTemplate, target: int) -> str:
    """Name one step of the summaries' reduction by what goes into it."""
    made = f"{strategy}/{template.identity}/{target}"
    return hashes.input_hash(level=1, strategy=made, outputs=texts)


# ---------------------------------------------------------------------------------------------
# What to ask for


@dataclass(frozen=True, slots=True)
class ChunkAgenda:
    """What a run does about its chunks: ``make`` in order, ``reuse`` as kept, ``fail`` at once."""

    make: tuple[Chunk, ...]
    reuse: Mapping[str, StoredAnswer] = field(default_factory=dict[str, StoredAnswer])
    fail: tuple[Failure, ...] = ()


def chunk_agenda(
    chunks: Sequence[Chunk],
    kept: Mapping[str, StoredAnswer],
    options: ExtractionOptions,
    *,
    room: int | None = None,
    answer: int = 0,
) -> ChunkAgenda:
    """Say which chunks to make, given what is kept by input hash.

    ``room`` is the tokens that a record may have, ``answer`` those kept for the answer.

    A turn that is over the limit alone fails without a call, unless the caller had it sliced. Where
    one failure ends the run, nothing is asked for that could not be used.
    """
    failures = tuple(
        Failure(
            chunk.id,
            "map",
            "oversized",
            0,
            _too_large(chunk, room=room, answer=answer),
        )
        for chunk in chunks
        if chunk.oversized and options.oversized == "fail"
    )
    failed = {failure.id for failure in failures}
    reuse = {
        chunk.id: kept[chunk.input_hash]
        for chunk in chunks
        if chunk.input_hash in kept and chunk.id not in failed
    }
    make = tuple(chunk for chunk in chunks if chunk.id not in failed and chunk.id not in reuse)
    if failures and options.on_chunk_failure == "abort":
        make = ()
    return ChunkAgenda(make, reuse, failures)


def _too_large(chunk: Chunk, *, room: int | None, answer: int) -> str:
    """Say by how much a turn is too large, and what may be done about it."""
    beside = "" if room is None else f" of {room:,} that the limit leaves for a record"
    return (
        f"one turn has {chunk.tokens:,} tokens, over the room{beside}; use oversized='slice', a "
        f"larger safe_processing_tokens, or fewer output_tokens than the {answer:,} that are kept "
        "for the answer"
    )


def outcome_of(
    *, chunks: int, done: Collection[str], failures: Sequence[Failure], options: ExtractionOptions
) -> Literal["ok", "partial", "error"]:
    """Say how an extraction of so many ``chunks`` ends, of which the ``done`` ones have answers.

    Abort: all or nothing. Partial: what there is, unless that is nothing.
    """
    if not failures and len(done) == chunks:
        return "ok"
    return "partial" if options.on_chunk_failure == "partial" and done else "error"


# ---------------------------------------------------------------------------------------------
# What a failure means
