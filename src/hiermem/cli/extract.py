"""The command ``extract``: runs an extraction with a progress bar and prints its result.

Only the result goes to standard output, as a table, JSON or a graph, so that it can be piped.
Failures go to standard error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import Caps, Model, OneSession, counted
from hiermem.cli.output import Code, echo, picked, progress, result, wants_json
from hiermem.cli.screen import clean, one_line, out, plural, say, table

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
        if not wants_json():
            print_failures(report)
        if graph is None or wants_json():
            result(report_data(report), lambda: print_table(report, most=most))
        elif (vector := report.tri_vector) is not None:
            from hiermem.convert.mermaid import to_mermaid

            echo(clean(to_mermaid(vector, most=most)))
        if report.stopped:
            raise typer.Exit(Code.INCOMPLETE)
        if report.outcome == "error":
            raise typer.Exit(Code.ERROR)


def print_failures(report: types.ExtractionReport) -> None:
    """Print on standard error which chunks failed and why, and what ended the run."""
    for failure in report.failures[:_FAILURES]:
        why = f": {_by_flags(clean(failure.detail))}" if failure.detail else ""
        said = f"failed: {clean(failure.id)}: {failure.reason} after "
        said += f"{plural(failure.attempts, 'call')}{why}"
        say(said, error=True, style="red")
    if (more := len(report.failures) - _FAILURES) > 0:
        say(f"failed: {more:,} more; --json lists all of them", error=True, style="red")
    if report.tri_vector is not None and not report.kept:
        say("not kept: there is a better result, or one that covers more messages", error=True)
    if report.cost is not None:
        say(f"cost {report.cost:,.4f}", error=True)
    if report.retry_after is not None:
        why, again = clean(report.last_error or "?"), f"{report.retry_after:.0f} s"
        say(f"the model is down: {why}; try again in {again}", error=True)
    elif report.stopped:
        say(f"stopped by {report.stopped}; extract again to continue", error=True)


def report_data(report: types.ExtractionReport) -> dict[str, Any]:
    """Return the complete report and result."""
    vector = report.tri_vector
    last = ("map", "reduce", "chunks", "failures")
    names = [each.name for each in fields(report) if each.name not in (*last, "tri_vector")]
    return {
        **picked(report, *names, "calls", "tokens_in", "tokens_out", "reused", *last),
        "tri_vector": vector.model_dump(mode="json") if vector else None,
    }


def print_table(report: types.ExtractionReport, *, most: int) -> None:
    """Print the result as text: the summary, then each vector."""
    console = out()
    console.print(_head(report))
    vector = report.tri_vector
    if vector is None:
        return
    parts: list[RenderableType] = [Text(), Text(clean(vector.summary)), Text()]
    if vector.namespace:
        parts += [Text("Features: " + ", ".join(map(clean, vector.namespace[:most]))), Text()]
    entities = table(
        (
            {
                "name": each.name,
                "type": each.type,
                "mentions": len(each.provenance),
                "description": one_line(each.description, 60),
            }
            for each in vector.entities[:most]
        ),
        title=_title("Entities", len(vector.entities), most),
        boxed=True,
    )
    relations = table(
        (
            {
                "source": each.source.name,
                "relation": each.relation,
                "target": each.target.name,
                "weight": f"{each.weight:.2f}",
            }
            for each in vector.relations[:most]
        ),
        title=_title("Relations", len(vector.relations), most),
        boxed=True,
    )
    parts += [entities, Text()]
    if vector.relations:
        parts += [relations, Text()]
    # The newest first: later statements supersede earlier ones, and a cut drops the oldest.
    newest = vector.deltas[::-1]
    deltas = [each for each in newest if each.open] + [each for each in newest if not each.open]
    lines = [
        f"{'open  ' if delta.open else 'closed'} {delta.kind}: {clean(delta.text)}"
        for delta in deltas
    ]
    parts += _listed("Open deltas", lines, most)
    lines = [f"{each.kind}: {clean(each.text)}" for each in reversed(vector.strategy)]
    parts += _listed("Strategy", lines, most)
    if vector.missing:
        named = ", ".join(map(clean, vector.missing[:most]))
        more = ", …" if len(vector.missing) > most else ""
        parts.append(Text(f"Missing: {len(vector.missing):,}: {named}{more}", style="yellow"))
    console.print(Group(*parts))


def _head(report: types.ExtractionReport) -> Text:
    done = f"{clean(report.session_id)}: {report.outcome}"
    text = Text(done, style="bold")
    reused = f", {report.reused:,} of them from an earlier run" if report.reused else ""
    limit = (
        "the model states no limit"
        if report.threshold is None
        else f"limit {report.threshold:,} a request"
    )
    text.append(
        f"\n{plural(len(report.chunks), 'chunk')}{reused}; in one request {report.estimate:,} "
        f"tokens with prompt and answer, {limit}\n{plural(report.calls, 'call')} to "
        f"{clean(report.model)}{'' if report.live else ' (offline, rule-based)'}",
        style="not bold",
    )
    if report.tokens:
        text.append(f", {report.tokens_in:,} tokens in, {report.tokens_out:,} out", "not bold")
    return text


def _listed(title: str, lines: Sequence[str], most: int) -> list[RenderableType]:
    if not lines:
        return []
    shown: list[RenderableType] = [
        Text(_title(title, len(lines), most, which="newest"), style="italic")
    ]
    return [*shown, *(Text(f"  {line}") for line in lines[:most]), Text()]


def _title(name: str, count: int, most: int, *, which: str = "first") -> str:
    return f"{name}: {count:,}" + (f", the {which} {most:,}" if count > most else "")
