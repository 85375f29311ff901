"""Writes the journal record of an extraction's run: ids, counts and reasons.

It holds no text of the conversation, of the model or of an error, so it can go into any log.
``plan`` defines the terms.
"""

from __future__ import annotations

from typing import Any

from hiermem.core.extraction.plan import ExtractionReport, Failure, PhaseReport


def detail(report: ExtractionReport) -> dict[str, Any]:
    """Return the detail of the run's record: ids, counts and reasons, no text."""
    return {
        "model": report.model,
        "live": report.live,
        "chunked": report.chunked,
        "chunking": report.chunking,
        "estimate": report.estimate,
        "threshold": report.threshold,
        "single_pass_tokens": report.single_pass_tokens,
        "chunked_tokens": report.chunked_tokens,
        "chunks": [
            {
                "id": chunk.id,
                "span": [chunk.span.start, chunk.span.stop],
                "status": chunk.status,
                "calls": chunk.calls,
                "tokens_in": chunk.tokens_in,
                "tokens_out": chunk.tokens_out,
                "ms": round(chunk.seconds * 1000),
                **({"reason": chunk.reason, "detail": chunk.detail} if chunk.reason else {}),
            }
            for chunk in report.chunks
        ],
        "failures": [failure_detail(failure) for failure in report.failures],
        "map": _phase(report.map),
        "reduce": _phase(report.reduce) | {"rounds": report.rounds, "degraded": report.degraded},
        "calls": report.calls,
        "tokens_in": report.tokens_in,
        "tokens_out": report.tokens_out,
        "cost": report.cost,
        "unknown": report.unknown,
        "stopped": report.stopped,
        "kept": report.kept,
    }


def failure_detail(failure: Failure) -> dict[str, Any]:
    """Return a failure as the run's record holds it."""
    return {
        "id": failure.id,
        "phase": failure.phase,
        "reason": failure.reason,
        "attempts": failure.attempts,
        "detail": failure.detail,
    }


def _phase(phase: PhaseReport) -> dict[str, Any]:
    return {
        "state": phase.state,
        "calls": phase.calls,
        "tokens_in": phase.tokens_in,
        "tokens_out": phase.tokens_out,
        "ms": round(phase.seconds * 1000),
    }
