"""The commands and their options: what each one does, in the calls an application would use.

The one rule: a command prints its result on standard output and everything else (progress, advice,
errors) on standard error, so that its result can be piped. Exit codes: 0 done, 1 failed, 2 usage.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TaskID

import hiermem
from hiermem import (
    ExtractionOptions,
    Memory,
    Session,
    UpdatePlan,
    UpdateProgress,
    UpdateReport,
    UsageError,
)
from hiermem.cli import asking, bank, conversations, extract, show, upkeep
from hiermem.cli.demo import run as run_demo
from hiermem.cli.models import Model, ModelUrl, ModelWindow, model_of
from hiermem.cli.opening import DB, Db, SessionId, Tenant, bars, chosen, existing
from hiermem.cli.screen import clean, out, plural, readable, trouble

app = typer.Typer(
    name="hiermem",
    help="Conversation memory without end: messages in, a tree of summaries, a context out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_BATCH = 200


class Shape(StrEnum):
    """How an extraction is printed."""

    table = "table"
    json = "json"


class Notation(StrEnum):
    """How a graph is written."""

    mermaid = "mermaid"
    graphml = "graphml"


class OnFailure(StrEnum):
    """What a failed chunk does to the result."""

    abort = "abort"
    partial = "partial"


class Oversized(StrEnum):
    """What is done about a turn that is over the limit alone."""

    fail = "fail"
    slice = "slice"


class Strategy(StrEnum):
    """What an update does."""

    incremental = "incremental"
    full = "full"


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        out().print(f"hiermem {hiermem.__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Conversation memory without end: messages in, a tree of summaries, a context out."""
    del version
    readable()


@app.command()
def demo(
    *,
    budget: Annotated[int, typer.Option(min=1_500, help="Tokens of the context.")] = 8_000,
    fast: Annotated[bool, typer.Option("--fast", help="No pauses in the animation.")] = False,
    db: Annotated[
        Path | None, typer.Option("--db", help="Keep the memory in this file; otherwise in none.")
    ] = None,
) -> None:
    """Show the whole of it on a bundled conversation: append, update, context."""
    with trouble():
        run_demo(budget=budget, fast=fast, db=db)


@app.command()
def ingest(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSONL or JSON of OpenAI-style messages, or a transcript of 'Name: text'.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session; by default the file's name.")
    ] = None,
    tenant: Tenant = "default",
    title: Annotated[str | None, typer.Option(help="What the conversation is about.")] = None,
    assistant: Annotated[
        list[str] | None,
        typer.Option("--assistant", help="A speaker of the transcript that is the assistant."),
    ] = None,
) -> None:
    """Append a conversation. Doing it again appends only what is new."""
    with trouble(), Memory.open(db, tenant=tenant) as memory:
        target = memory.session(session or file.stem, title=title)
        known = {record.id: record.messages for record in memory.sessions()}
        before = known.get(target.id, 0)
        messages = conversations.read(file, assistants=frozenset(assistant or ()))
        read = 0
        with bars() as progress:
            task = progress.add_task("messages", total=None)
            while batch := list(islice(messages, _BATCH)):
                target.append(batch)
                read += len(batch)
                progress.update(task, completed=read)
        if not read:
            raise UsageError(f"{file.name} holds no messages")
        status = target.status()
        sealed = ", ".join(f"{count:,} L{level}" for level, count in status.nodes.items() if count)
        out().print(
            f"{plural(read, 'message')} read, {status.messages - before:,} new; session "
            f"{clean(target.id)!r} holds {status.messages:,}. Sealed: {sealed or 'nothing yet'}.",
            soft_wrap=True,
        )


@app.command()
def update(
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session; by default all of them.")
    ] = None,
    tenant: Tenant = "default",
    level: Annotated[
        int | None, typer.Option(min=1, help="Only up to this level of summaries.")
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(help="Make what is missing or out of date, or re-pack everything.")
    ] = Strategy.incremental,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would do; write nothing.")
    ] = False,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
) -> None:
    """Make the summaries that are missing or out of date."""
    with (
        trouble(),
        existing(db, tenant, model_of(model, url=model_url, window=model_window)) as memory,
    ):
        ids = [session] if session else [record.id for record in memory.sessions()]
        failed = 0
        for each in ids:
            if dry_run:
                plan = memory.session(each).update(level, strategy=strategy.value, dry_run=True)
                _print_plan(each, plan)
                continue
            report = _updated(
                memory.session(each), level, strategy, calls=max_calls, tokens=max_tokens
            )
            _print_report(each, report)
            failed += report.failed
        if failed:
            raise typer.Exit(1)


def _updated(
    session: Session,
    level: int | None,
    strategy: Strategy,
    *,
    calls: int | None,
    tokens: int | None,
) -> UpdateReport:
    """Update one session with a progress bar for each level that has work."""
    with bars() as progress:
        tasks: dict[int, TaskID] = {}

        def draw(state: UpdateProgress) -> None:
            for number, (done, total) in sorted(state.by_level.items()):
                if number not in tasks:
                    tasks[number] = progress.add_task(f"L{number}", total=total)
                progress.update(tasks[number], completed=done, total=total)

        return session.update(
            level,
            strategy=strategy.value,
            on_progress=draw,
            max_calls=calls,
            max_tokens=tokens,
        )


def _print_report(session: str, report: UpdateReport) -> None:
    if not (report.made or report.reused or report.degraded or report.failed or report.stopped):
        out().print(f"{clean(session)}: nothing to make.")
        return
    done = [f"{report.made:,} made"]
    done += [
        f"{count:,} {what}"
        for count, what in (
            (report.reused, "reused"),
            (report.degraded, "degraded, to be made again"),
            (report.failed, "failed"),
            (report.unknown, "cut-off calls with unknown outcome"),
        )
        if count
    ]
    # The offline model reports no tokens, for there is nobody to pay.
    cost = "" if report.cost is None else f", cost {report.cost:,.4f}"
    tokens = f"{report.tokens:,} tokens"
    spent = f" {plural(report.calls, 'call')}, {tokens}{cost}." if report.tokens else ""
    stopped = f" Stopped by {clean(report.stopped)}." if report.stopped else ""
    if report.retry_after is not None:
        again = f"{report.retry_after:.0f} s"
        stopped = f" The model's provider keeps failing; it may be asked again in {again}."
    out().print(f"{clean(session)}: {', '.join(done)}.{spent}{stopped}", soft_wrap=True)


def _print_plan(session: str, plan: UpdatePlan) -> None:
    count = sum(plan.by_level.values())
    if not count:
        out().print(f"{clean(session)}: nothing to make.")
        return
    levels = ", ".join(f"{each:,} L{level}" for level, each in sorted(plan.by_level.items()))
    reused = f", {plan.reused:,} of them reused without a call" if plan.reused else ""
    cost = "" if plan.cost is None else f", about {plan.cost:,.4f} in money"
    out().print(
        f"{clean(session)}: {plural(count, 'summary', 'summaries')} to make ({levels}){reused}. "
        f"{plural(plan.calls, 'call')} (at most {plan.calls_max:,}), {plan.tokens_in:,} tokens in, "
        f"{plan.tokens_out:,} out{cost}.",
        soft_wrap=True,
    )


@app.command(name="extract")
def extract_command(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    form: Annotated[Shape, typer.Option("--format", help="A table, or all of it as JSON.")] = (
        Shape.table
    ),
    graph: Annotated[
        Notation | None, typer.Option("--graph", help="Write the graph instead, to be drawn.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="How many of each are shown or drawn.")] = 20,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Tokens that one request may take.")
    ] = None,
    answer: Annotated[
        int | None, typer.Option("--answer", min=256, help="Tokens kept for each answer.")
    ] = None,
    on_failure: Annotated[
        OnFailure, typer.Option("--on-failure", help="No result without all chunks, or a part.")
    ] = OnFailure.abort,
    oversized: Annotated[
        Oversized, typer.Option(help="A turn over the limit alone fails, or is sliced.")
    ] = Oversized.fail,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")] = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
) -> None:
    """Extract a session: its graph of entities, what is open, and where it is going."""
    if form is Shape.json and graph is not None:
        raise typer.BadParameter("--graph writes a notation of its own; leave --format json out")
    with (
        trouble(),
        extract.named_by_flags(),
        existing(db, tenant, model_of(model, url=model_url, window=model_window)) as memory,
    ):
        options = ExtractionOptions(
            safe_processing_tokens=limit,
            output_tokens=answer,
            on_chunk_failure=on_failure.value,
            oversized=oversized.value,
        )
        report = extract.extracted(
            chosen(memory, session), options, bars(), max_calls=max_calls, max_tokens=max_tokens
        )
        extract.print_failures(report)
        if form is Shape.json:
            typer.echo(extract.as_json(report))
        elif graph is None:
            extract.print_table(report, most=most)
        elif report.tri_vector is not None:
            typer.echo(extract.as_graph(report.tri_vector, graph.value, most=most), nl=False)
        if report.outcome == "error":
            raise typer.Exit(1)


@app.command(name="show")
def show_command(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    level: Annotated[
        int | None, typer.Option(min=1, help="List the summaries from this level up.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", "-n", help="Print one summary, such as L2.3.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the sessions.")] = False,
) -> None:
    """Show the tree of a session: levels as rows, then the summaries."""
    with trouble(), existing(db, tenant) as memory:
        if list_all:
            show.sessions(memory)
        elif node is not None:
            show.summary(chosen(memory, session), node)
        else:
            show.tree(chosen(memory, session), lowest=level)


app.add_typer(asking.app)
app.add_typer(bank.app, name="bank")
app.add_typer(upkeep.app)
