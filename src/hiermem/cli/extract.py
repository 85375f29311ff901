"""The command ``extract``: runs an extraction with a progress bar and prints its result.

Only the result goes to standard output, as a table, JSON or a graph, so that it can be piped.
Failures go to standard error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hiermem import (
    ConfigError,
    Entity,
    ExtractionOptions,
    ExtractionProgress,
    ExtractionReport,
    Session,
    TriVector,
    UsageError,
    to_graphml,
    to_mermaid,
)
from hiermem.cli.output import progress
from hiermem.cli.screen import clean, one_line, out, plural

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
    except ConfigError as error:
        said = _by_flags(str(error))
        raise (ConfigError if said == str(error) else UsageError)(said) from None


def _by_flags(text: str) -> str:
    for name, flag in _FLAGS:
        text = text.replace(name, flag)
    return text


def extracted(
    session: Session,
    options: ExtractionOptions,
    *,
    max_calls: int | None,
    max_tokens: int | None,
    slow: bool,
) -> ExtractionReport:
    """Extract a session, with the progress of each phase."""
    with progress(session.id, "requests", slow=slow) as show:
        parts: dict[str, tuple[int, int | None]] = {}

        def draw(state: ExtractionProgress) -> None:
            parts["chunks" if state.phase == "map" else "reduce"] = (state.done, state.total)
            aside = f" ({state.waiting:,} in progress in another run)" if state.waiting else ""
            show(parts, aside)

        return session.extract(
            options, on_progress=draw, max_calls=max_calls, max_tokens=max_tokens
        )


def print_failures(report: ExtractionReport) -> None:
    """Print on standard error which chunks failed and why, and what ended the run."""
    console = out(error=True)
    for failure in report.failures[:_FAILURES]:
        why = f": {_by_flags(clean(failure.detail))}" if failure.detail else ""
        console.print(
            f"failed: {clean(failure.id)}: {failure.reason} after "
            f"{plural(failure.attempts, 'call')}{why}",
            style="red",
            soft_wrap=True,
        )
    if (more := len(report.failures) - _FAILURES) > 0:
        console.print(
            f"failed: {more:,} more; --json lists all of them", style="red", soft_wrap=True
        )
    if report.tri_vector is not None and not report.kept:
        console.print(
            "not kept: there is a better result, or one that covers more messages",
            soft_wrap=True,
        )
    if report.cost is not None:
        console.print(f"cost {report.cost:,.4f}", soft_wrap=True)
    if report.retry_after is not None:
        again = f"{report.retry_after:.0f} s"
        console.print(f"the model's provider keeps failing; try again in {again}", soft_wrap=True)
    elif report.stopped:
        console.print(f"stopped by {report.stopped}; extract again to continue", soft_wrap=True)


def report_data(report: ExtractionReport) -> dict[str, Any]:
    """Return the complete report and result."""
    vector = report.tri_vector
    value: dict[str, Any] = {
        each.name: getattr(report, each.name)
        for each in fields(report)
        if each.name not in ("chunks", "failures", "map", "reduce", "tri_vector")
    }
    return value | {
        "calls": report.calls,
        "tokens_in": report.tokens_in,
        "tokens_out": report.tokens_out,
        "reused": report.reused,
        "map": asdict(report.map),
        "reduce": asdict(report.reduce),
        "chunks": [asdict(chunk) for chunk in report.chunks],
        "failures": [asdict(failure) for failure in report.failures],
        "tri_vector": vector.model_dump(mode="json") if vector else None,
    }


def as_graph(vector: TriVector, form: str, *, most: int) -> str:
    """Return the graph in one of the two notations."""
    return clean(to_mermaid(vector, most=most) if form == "mermaid" else to_graphml(vector))


def print_table(report: ExtractionReport, *, most: int) -> None:
    """Print the result as text: the summary, then each vector."""
    console = out()
    console.print(_head(report))
    vector = report.tri_vector
    if vector is None:
        return
    parts: list[RenderableType] = [Text(), Text(clean(vector.summary)), Text()]
    if vector.namespace:
        parts += [Text("Features: " + ", ".join(map(clean, vector.namespace[:most]))), Text()]
    parts += [_entities(vector.entities, most), Text()]
    if vector.relations:
        parts += [_relations(vector, most), Text()]
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


def _head(report: ExtractionReport) -> Text:
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


def _entities(entities: Sequence[Entity], most: int) -> Table:
    table = Table(title=_title("Entities", len(entities), most), title_justify="left")
    for name in ("name", "type", "mentions", "description"):
        table.add_column(name, overflow="fold" if name == "name" else "ellipsis")
    for each in entities[:most]:
        said = one_line(clean(each.description), 60)
        table.add_row(clean(each.name), each.type, str(len(each.provenance)), said)
    return table


def _relations(vector: TriVector, most: int) -> Table:
    table = Table(title=_title("Relations", len(vector.relations), most), title_justify="left")
    for name in ("source", "relation", "target", "weight"):
        table.add_column(name, overflow="fold")
    for each in vector.relations[:most]:
        table.add_row(
            clean(each.source.name), clean(each.relation), clean(each.target.name),
            f"{each.weight:.2f}",
        )  # fmt: skip
    return table


def _listed(title: str, lines: Sequence[str], most: int) -> list[RenderableType]:
    if not lines:
        return []
    shown: list[RenderableType] = [
        Text(_title(title, len(lines), most, which="newest"), style="italic")
    ]
    return [*shown, *(Text(f"  {line}") for line in lines[:most]), Text()]


def _title(name: str, count: int, most: int, *, which: str = "first") -> str:
    return f"{name}: {count:,}" + (f", the {which} {most:,}" if count > most else "")
