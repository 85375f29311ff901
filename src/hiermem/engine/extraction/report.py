"""Reports what an extraction did: what became of its chunks and of its summary.

The report repeats what the run noted. The terms of a report are defined in
``core.extraction.plan``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from hiermem.core.extraction.chunks import Chunk, chunk_number
from hiermem.core.extraction.plan import (
    ChunkReport,
    ChunkStatus,
    ExtractionReport,
    Failure,
    PhaseReport,
    PhaseState,
)
from hiermem.engine.extraction.chunk import ChunkResult, ExtractionRun
from hiermem.engine.extraction.reduce import SummaryReduction
from hiermem.engine.extraction.split import SplitSession


def report_of(
    run: ExtractionRun,
    parts: SplitSession,
    outcome: Literal["ok", "partial", "error"],
    *,
    results: Mapping[str, ChunkResult],
    failures: Sequence[Failure],
    mapped: float,
    seconds: float,
) -> ExtractionReport:
    """Report the chunks; ``mapped`` and ``seconds`` are the times of the map and of all so far."""
    chunks = tuple(_chunk(each, results.get(each.id), parts.overhead) for each in parts.chunks)
    state: PhaseState = "failed" if outcome == "error" else outcome
    chunking: Literal["under_threshold", "over_threshold", "unknown_window"] = (
        "over_threshold" if parts.chunked else "under_threshold"
    )
    return ExtractionReport(
        session_id=run.session_id,
        run_id=run.run_id,
        outcome=outcome,
        tri_vector=None,
        chunks=chunks,
        failures=tuple(sorted(failures, key=lambda each: chunk_number(each.id))),
        map=PhaseReport(
            state,
            calls=sum(each.calls for each in chunks),
            tokens_in=sum(each.tokens_in for each in chunks),
            tokens_out=sum(each.tokens_out for each in chunks),
            seconds=mapped,
        ),
        reduce=PhaseReport(),
        chunked=parts.chunked,
        chunking="unknown_window" if run.limit.tokens is None else chunking,
        estimate=parts.estimate,
        threshold=run.limit.tokens,
        model=run.llm.name,
        live=run.llm.remote,
        single_pass_tokens=parts.overhead + parts.tokens,
        chunked_tokens=sum(each.request_tokens for each in chunks),
        seconds=seconds,
        stopped=run.budget.stopped,
        messages=run.record.messages,
    )


def _chunk(chunk: Chunk, result: ChunkResult | None, overhead: int) -> ChunkReport:
    failure = result.failure if result else None
    status: ChunkStatus = "pending"
    if result is not None:
        status = "failed" if failure else ("reused" if result.reused else "made")
    return ChunkReport(
        id=chunk.id,
        span=chunk.span,
        status=status,
        turns=chunk.turns,
        messages=chunk.messages,
        tokens=chunk.tokens,
        request_tokens=overhead + chunk.tokens,
        oversized=chunk.oversized,
        input_hash=chunk.input_hash,
        reason=failure.reason if failure else None,
        detail=failure.detail if failure else "",
        calls=result.calls if result else 0,
        tokens_in=result.tokens_in if result else 0,
        tokens_out=result.tokens_out if result else 0,
        seconds=result.seconds if result else 0.0,
        spans=chunk.spans,
    )


def with_summary(
    report: ExtractionReport, summary: SummaryReduction, *, seconds: float
) -> ExtractionReport:
    """Add what the reduction of the summary took so far, and its failure."""
    failed = summary.failure is not None
    return replace(
        report,
        chunked_tokens=report.chunked_tokens + summary.asked,
        failures=report.failures + ((summary.failure,) if summary.failure else ()),
        rounds=summary.rounds,
        degraded=summary.degraded,
        reduce=PhaseReport(
            "failed" if failed else "ok",
            calls=summary.calls,
            tokens_in=summary.tokens_in,
            tokens_out=summary.tokens_out,
            seconds=seconds,
        ),
    )
