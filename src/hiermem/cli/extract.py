"""The command ``extract``: runs an extraction with a progress bar and prints its result.

Only the result goes to standard output, so that it can be piped; failures go to standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import typer
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import Caps, Model, OneSession, counted
from hiermem.cli.output import Code, clean, echo, facts, hint, progress, result, shown, wants_json

#: The number of failures listed one by one.
_FAILURES: Final = 20


def extract(
    one: OneSession,
    *,
    graph: Literal["mermaid"] | None = None,
    most: Annotated[int, Option(min=1)] = 20,
    safe_processing_tokens: Annotated[int | None, counted(1)] = None,
    output_tokens: Annotated[int | None, counted(256)] = None,
    on_chunk_failure: Literal["abort", "partial"] = "abort",
    oversized: Literal["fail", "slice"] = "fail",
    caps: Caps,
    model: Model,
) -> None:
    """Extract a session: a graph of entities, open items, and decisions.

    Args:
        graph: Write the graph instead, in this notation.
        most: The number of items of each kind that are shown or drawn.
        safe_processing_tokens: The limit of one request.
        output_tokens: Reserved for each answer.
        on_chunk_failure: If a chunk fails: no result, or a partial one.
        oversized: A turn that alone exceeds the limit fails, or is sliced.
    """
    if wants_json() and graph is not None:
        raise typer.BadParameter("--graph has a notation of its own; omit --json")
    llm, policy = model.llm(), model.policy(hiermem.UpdatePolicy)
    with one.opened(llm, update_policy=policy) as session:
        options = model.policy(
            hiermem.ExtractionOptions,
            safe_processing_tokens=safe_processing_tokens,
            output_tokens=output_tokens,
            on_chunk_failure=on_chunk_failure,
            oversized=oversized,
        )
        with progress(session.id, "requests", slow=llm is not None) as show:
            parts: dict[str, tuple[int, int | None]] = {}

            def draw(state: types.ExtractionProgress) -> None:
                parts["chunks" if state.phase == "map" else "reduce"] = (state.done, state.total)
                show(parts)

            report = session.extract(options, on_progress=draw, limits=caps.limits)
    for failure in report.failures[:_FAILURES]:
        hint(f"failed: {shown(failure)}")
    if len(report.failures) > _FAILURES:
        hint(f"failed: {len(report.failures) - _FAILURES:,} more; --json lists all of them")
    vector = report.tri_vector
    if vector is not None and not report.kept:
        hint("not kept: there is a better result, or one that covers more messages")
    if report.stopped:
        hint(f"stopped by {report.stopped}; extract again to continue")
    if graph is None:
        dumped = vector.model_dump(mode="json") if vector else None
        data = {**facts(report), "reused": report.reused, "tri_vector": dumped}
        result(data, _view(report, most))
    elif vector is not None:
        from hiermem.convert.mermaid import to_mermaid

        echo(clean(to_mermaid(vector, most=most)))
    if report.stopped:
        raise typer.Exit(Code.INCOMPLETE)
    if report.outcome == "error":
        raise typer.Exit(Code.ERROR)


def _view(report: types.ExtractionReport, most: int) -> dict[str, Any]:
    """Return what people see of a result: its figures, then each vector, the newest first."""
    found = facts(
        report, "session_id outcome model chunking calls tokens_in tokens_out cost reused estimate "
        "threshold retry_after last_error"
    )  # fmt: skip
    vector = report.tri_vector
    if vector is None:
        return found
    # The newest first: later statements supersede earlier ones, and a cut drops the oldest.
    newest = list(vector.deltas[::-1])
    newest.sort(key=lambda delta: not delta.open)
    entities = [
        {**facts(each, "name type"), "mentions": len(each.provenance), **facts(each, "description")}
        for each in vector.entities
    ]
    relations = [
        {"source": each.source.name, "relation": each.relation, "target": each.target.name}
        | facts(each, "weight")
        for each in vector.relations
    ]
    return {
        **found,
        "features": vector.namespace[:most],
        "missing": vector.missing,
        "summary": f"{vector.summary}\n",
        **_first("entities", entities, most),
        **_first("relations", relations, most),
        **_first("deltas", [facts(each, "open kind text") for each in newest], most),
        **_first("strategy", [facts(each, "kind text") for each in vector.strategy[::-1]], most),
    }


def _first(name: str, items: Sequence[object], most: int) -> dict[str, Sequence[object]]:
    more = f", {most:,} of {len(items):,}" if len(items) > most else ""
    return {f"{name}{more}": items[:most]}
