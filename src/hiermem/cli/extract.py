"""The command ``extract``: runs an extraction with a progress bar and prints its result.

Only the result goes to standard output, so that it can be piped; failures go to standard error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import typer
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import Caps, Model, OneSession, counted
from hiermem.cli.output import Code, clean, echo, facts, hint, progress, result, shown, wants_json

#: The number of failures listed one by one.
_FAILURES: Final = 20
#: The library's names of options, and their flags on the command line.
_FLAGS: Final = (
    ("safe_processing_tokens", "--limit"),
    ("output_tokens", "--answer"),
    ("oversized='slice'", "--oversized slice"),
)


@contextmanager
def errors_in_flags() -> Generator[None]:
    """Replace the names of options by their flags in an error, which is one of usage then."""
    try:
        yield
    except hiermem.ConfigError as error:
        said = _by_flags(str(error))
        raise (hiermem.ConfigError if said == str(error) else hiermem.UsageError)(said) from None


def _by_flags(text: str) -> str:
    for name, flag in _FLAGS:
        text = text.replace(name, flag)
    return text


def extract(
    one: OneSession,
    *,
    graph: Annotated[
        Literal["mermaid"] | None,
        Option(help="Write the graph instead, in this notation."),
    ] = None,
    most: Annotated[
        int, Option(min=1, help="The number of items of each kind that are shown or drawn.")
    ] = 20,
    limit: Annotated[int | None, counted(1, "The limit of one request.")] = None,
    answer: Annotated[int | None, counted(256, "Reserved for each answer.")] = None,
    on_failure: Annotated[
        Literal["abort", "partial"],
        Option(help="If a chunk fails: no result, or a partial one."),
    ] = "abort",
    oversized: Annotated[
        Literal["fail", "slice"],
        Option(help="A turn that alone exceeds the limit fails, or is sliced."),
    ] = "fail",
    caps: Caps,
    model: Model,
) -> None:
    """Extract a session: a graph of entities, open items, and decisions."""
    if wants_json() and graph is not None:
        raise typer.BadParameter("--graph has a notation of its own; omit --json")
    llm, policy = model.llm(), model.policy(hiermem.UpdatePolicy)
    with errors_in_flags(), one.opened(llm, update_policy=policy) as session:
        options = model.policy(
            hiermem.ExtractionOptions,
            safe_processing_tokens=limit,
            output_tokens=answer,
            on_chunk_failure=on_failure,
            oversized=oversized,
        )
        with progress(session.id, "requests", slow=llm is not None) as show:
            parts: dict[str, tuple[int, int | None]] = {}

            def draw(state: types.ExtractionProgress) -> None:
                parts["chunks" if state.phase == "map" else "reduce"] = (state.done, state.total)
                show(parts)

            report = session.extract(options, on_progress=draw, **vars(caps))
    for failure in report.failures[:_FAILURES]:
        hint(f"failed: {_by_flags(shown(failure))}")
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
        {
            "source": each.source.name,
            "relation": each.relation,
            "target": each.target.name,
            "weight": each.weight,
        }
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
