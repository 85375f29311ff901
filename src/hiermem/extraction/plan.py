"""Decides the steps of an extraction: its limit, which chunks to ask for, its outcome and report.

The engine reads, calls and writes; each choice that it makes on the way is a function here, of
values that were read before. Only the result itself holds text of the conversation; ``detail`` is
what of a report is journalled.

The life cycle of a chunk, by the status in its report:

========  ======================================================  =================================
status    how a chunk gets there                                  what follows
========  ======================================================  =================================
pending   it was planned, and the run has not asked for it yet    made, reused or failed; a run that
                                                                  ends early reports it as pending
made      the model answered and the answer was stored            a later run reuses it
reused    an answer with the same input hash was stored before,   no call is made
          by an earlier run or by another one meanwhile
failed    it is oversized and may not be sliced, or its answer    a later run asks for it again
          could not be used after all attempts
========  ======================================================  =================================

While another run extracts the session, this one waits for it, at most until its deadline.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from hiermem.calls.failures import Cause
from hiermem.config import ExtractionOptions
from hiermem.extraction.chunks import Chunk
from hiermem.extraction.stored_answer import StoredAnswer
from hiermem.prompts.template import PromptTemplate
from hiermem.text import hashes
from hiermem.types import Span
from hiermem.types.brief import Brief
from hiermem.types.trivector import TriVector, answer_schema

ChunkStatus: TypeAlias = Literal["made", "reused", "failed", "pending"]
PhaseState: TypeAlias = Literal["ok", "partial", "failed", "skipped"]


# ---------------------------------------------------------------------------------------------
# What a caller of extract sees


@dataclass(frozen=True, slots=True)
class Failure(Brief):
    """One chunk, or the reduction of the summaries, without a usable answer.

    ``id`` is the chunk's, or ``<session_id>:reduce``; ``attempts`` counts the calls
    made for it; ``detail`` says more and holds no text.
    """

    id: str
    phase: Literal["map", "reduce"]
    reason: Cause
    attempts: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ChunkReport(Brief):
    """The outcome of one chunk.

    ``made`` chunks were asked for in this run, ``reused`` ones in an earlier run; ``pending`` ones
    were not tried, because the run ended before. ``span`` is the hull of the chunk's messages and
    ``spans`` the messages themselves; the two differ where threads interleave. ``tokens`` are those
    of its record, ``request_tokens`` those of the whole request, prompt and schema included; both
    as the memory's counter counts. ``tokens_in`` and ``tokens_out`` are the usage that the provider
    reported in this run.
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
    """The cost of one phase."""

    state: PhaseState = "skipped"
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExtractionProgress(Brief):
    """The progress of an extraction; ``failed`` of the ``done`` items have no usable answer."""

    phase: Literal["map", "reduce"]
    done: int
    total: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ExtractionReport(Brief):
    """What an extraction did.

    ``tri_vector`` is None if the outcome is "error". ``chunked`` says whether the session was
    split, ``chunking`` why or why not. ``estimate`` is what a single request would take, prompt and
    output reserve included, and ``threshold`` the most that one may take (None: no limit is known).
    ``chunked_tokens`` are those of all requests for the chunks and the reduction, reused ones
    included: the cost of chunking to compare with ``single_pass_tokens``. ``model`` made the
    answers; ``live`` is False if it is no remote model, so that its figures say nothing about one.
    ``cost`` is the price of the calls if the model has prices. ``unknown`` counts calls that were
    cut off, of which nobody knows whether they were charged. ``stopped`` names the cap that ended
    the run, or is "model_down" if the provider kept failing: it may be asked again in
    ``retry_after`` seconds. ``degraded``: the summary was put together without the model. ``kept``:
    the result was stored as the session's own; a better result of the same messages is not
    replaced. ``seconds`` are those of the whole run.
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
        """Return the calls of both phases."""
        return self.map.calls + self.reduce.calls

    @property
    def tokens_in(self) -> int:
        """Return the tokens that went in, in both phases."""
        return self.map.tokens_in + self.reduce.tokens_in

    @property
    def tokens_out(self) -> int:
        """Return the tokens that came out, in both phases."""
        return self.map.tokens_out + self.reduce.tokens_out

    @property
    def tokens(self) -> int:
        """Return the tokens of both directions together."""
        return self.tokens_in + self.tokens_out

    @property
    def reused(self) -> int:
        """Return how many chunks needed no call, because an earlier run had made them."""
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
    """Hash everything that decides an answer besides the messages; the spans imply the limit."""
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
    """Name the reduction of the summaries by its inputs."""
    made = f"{strategy}/{template.identity}/{target}"
    return hashes.input_hash(level=1, strategy=made, outputs=texts)


# ---------------------------------------------------------------------------------------------
# What to ask for


def chunk_agenda(
    chunks: Sequence[Chunk],
    kept: Mapping[str, StoredAnswer],
    options: ExtractionOptions,
    *,
    room: int | None = None,
    answer: int = 0,
) -> tuple[tuple[Chunk, ...], dict[str, StoredAnswer], tuple[Failure, ...]]:
    """Decide what a run does with its chunks, given the stored answers by input hash.

    Returns the chunks to make, in order, the answers to reuse by the chunks' ids, and the failures.
    ``room`` is the tokens that a record may have, ``answer`` those reserved for the answer.

    A turn that alone exceeds the limit fails without a call, unless the caller had it sliced. If
    one failure ends the run, nothing is requested that could not be used.
    """
    failures = tuple(
        Failure(chunk.id, "map", "oversized", 0, _too_large(chunk, room=room, answer=answer))
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
    return make, reuse, failures


def _too_large(chunk: Chunk, *, room: int | None, answer: int) -> str:
    """Say by how much a turn is too large, and what can be done about it."""
    beside = "" if room is None else f" of {room:,} that the limit leaves for a record"
    return (
        f"one turn has {chunk.tokens:,} tokens, over the room{beside}; use oversized='slice', a "
        f"larger safe_processing_tokens, or fewer output_tokens than the {answer:,} that are kept "
        "for the answer"
    )


def outcome_of(
    *, chunks: int, done: Collection[str], failures: Sequence[Failure], options: ExtractionOptions
) -> Literal["ok", "partial", "error"]:
    """Return the outcome of an extraction of so many ``chunks``, of which ``done`` have answers.

    With "abort" it is all or nothing; with "partial" whatever there is, unless that is nothing.
    """
    if not failures and len(done) == chunks:
        return "ok"
    return "partial" if options.on_chunk_failure == "partial" and done else "error"


# ---------------------------------------------------------------------------------------------
# The journal


#: What the journal has of a report under the report's own names.
_JOURNALLED: Final = (
    "model", "live", "chunked", "chunking", "estimate", "threshold", "single_pass_tokens",
    "chunked_tokens", "calls", "tokens_in", "tokens_out", "cost", "unknown", "stopped", "kept",
)  # fmt: skip


def detail(report: ExtractionReport) -> dict[str, Any]:
    """Return the detail of the run's record: ids, counts and reasons.

    It holds no text of the conversation, of the model or of an error, so it can go into any log.
    """
    return {
        **{name: getattr(report, name) for name in _JOURNALLED},
        "chunks": [
            {
                "id": chunk.id,
                "span": [chunk.span.start, chunk.span.stop],
                "status": chunk.status,
                **_costs(chunk),
                **({"reason": chunk.reason, "detail": chunk.detail} if chunk.reason else {}),
            }
            for chunk in report.chunks
        ],
        "failures": [asdict(failure) for failure in report.failures],
        "map": {"state": report.map.state, **_costs(report.map)},
        "reduce": {
            "state": report.reduce.state,
            **_costs(report.reduce),
            "degraded": report.degraded,
        },
    }


def _costs(part: ChunkReport | PhaseReport) -> dict[str, int]:
    return {
        "calls": part.calls,
        "tokens_in": part.tokens_in,
        "tokens_out": part.tokens_out,
        "ms": round(part.seconds * 1000),
    }
