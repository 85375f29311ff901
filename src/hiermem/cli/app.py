"""The commands and their options.

A command prints its result on standard output and everything else (progress, hints, errors) on
standard error, so that its result can be piped. Exit codes: 0 success, 1 failure, 2 wrong usage, 3
stopped before the end (by a cap, or because the model's provider keeps failing), 130 and 143
interrupted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.progress import TaskID

import hiermem
from hiermem import (
    ExtractionOptions,
    Session,
    UpdatePlan,
    UpdatePolicy,
    UpdateProgress,
    UpdateReport,
)
from hiermem.cli import bank, extract, import_cmd, maintenance, search_cmd, sessions, show
from hiermem.cli.demo import run as run_demo
from hiermem.cli.models import (
    Concurrency,
    Model,
    ModelUrl,
    ModelWindow,
    Retries,
    Temperature,
    Timeout,
    calls_of,
    model_of,
)
from hiermem.cli.options import (
    DB,
    Db,
    Form,
    ProgressLines,
    SessionId,
    Shape,
    Tenant,
    open_existing,
    progress_bars,
    session_of,
    sessions_of,
)
from hiermem.cli.screen import (
    RETRIED,
    clean,
    duration,
    out,
    plural,
    replace_unencodable,
    reported_errors,
)

app = typer.Typer(
    name="hiermem",
    help="Unbounded conversation memory: messages, a tree of summaries, contexts that fit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Notation(StrEnum):
    """The notation of a graph."""

    mermaid = "mermaid"
    graphml = "graphml"


class OnFailure(StrEnum):
    """The result after a chunk failed."""

    abort = "abort"
    partial = "partial"


class Oversized(StrEnum):
    """What happens to a turn that alone exceeds the limit."""

    fail = "fail"
    slice = "slice"


class Strategy(StrEnum):
    """The scope of an update."""

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
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Unbounded conversation memory: messages, a tree of summaries, contexts that fit."""
    del version
    replace_unencodable()


@app.command()
def demo(
    *,
    budget: Annotated[
        int, typer.Option(min=1_500, help="The token budget of the context.")
    ] = 8_000,
    fast: Annotated[bool, typer.Option("--fast", help="Skip the pauses of the animation.")] = False,
    db: Annotated[
        str | None,
        typer.Option("--db", help="Keep the memory in this file; without it, nothing is kept."),
    ] = None,
) -> None:
    """Show append, update, context and search on a bundled conversation."""
    with reported_errors():
        run_demo(budget=budget, fast=fast, db=db)


@app.command()
def update(
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session; all sessions by default.")
    ] = None,
    tenant: Tenant = "default",
    level: Annotated[
        int | None, typer.Option(min=1, help="Make summaries only up to this level.")
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(help="Make missing and outdated summaries, or re-pack everything.")
    ] = Strategy.incremental,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
) -> None:
    """Make missing and outdated summaries."""
    with reported_errors():
        llm = model_of(
            model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
        )
        policy = UpdatePolicy(**calls_of(timeout=timeout, retries=retries, concurrency=concurrency))
    with reported_errors(), open_existing(db, tenant, llm, update_policy=policy) as memory:
        ids = (
            [session_of(memory, session).id]
            if session
            else [record.id for record in sessions_of(memory)]
        )
        codes = {0}
        for each in ids:
            if dry_run:
                plan = memory.session(each).update(level, strategy=strategy.value, dry_run=True)
                _print_plan(each, plan)
                continue
            report = _updated(
                memory.session(each),
                level,
                strategy,
                calls=max_calls,
                tokens=max_tokens,
                slow=llm is not None,
            )
            _print_report(each, report)
            codes.add(_exit_code(report))
            if _exit_code(report) and (error := memory.session(each).status().last_error):
                out(error=True).print(f"{clean(each)}: {clean(error)}", soft_wrap=True)
        if code := max(codes):
            raise typer.Exit(code)


def _exit_code(report: UpdateReport) -> int:
    """Return the exit code of an update: not 0 where it was stopped, failed or made nothing fit.

    Where all that it tried failed, it says what a stop says: try again.
    """
    made = report.made + report.reused
    if report.stopped is not None or (report.failed and not made + report.degraded):
        return 3
    return int(report.failed > 0 or (report.degraded > 0 and not made))


def _updated(
    session: Session,
    level: int | None,
    strategy: Strategy,
    *,
    calls: int | None,
    tokens: int | None,
    slow: bool,
) -> UpdateReport:
    """Update one session, with a progress bar for each level that has work, or lines in a file."""
    with progress_bars() as progress:
        tasks: dict[int, TaskID] = {}
        lines = ProgressLines(session.id, slow=slow)

        def draw(state: UpdateProgress) -> None:
            lines.draw(state.done, state.total)
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
            (report.degraded, f"degraded, {RETRIED}"),
            (report.failed, "failed"),
            (report.unknown, "cut-off calls with unknown outcome"),
        )
        if count
    ]
    # The offline model reports no tokens, because nobody is paid.
    cost = "" if report.cost is None else f", cost {report.cost:,.4f}"
    tokens = f"{report.tokens:,} tokens"
    spent = f" {plural(report.calls, 'call')}, {tokens}{cost}." if report.tokens else ""
    stopped = f" Stopped by {clean(report.stopped)}." if report.stopped else ""
    if report.retry_after is not None:
        again = f"{report.retry_after:.0f} s"
        stopped = f" The model's provider keeps failing; try again in {again}."
    out().print(f"{clean(session)}: {', '.join(done)}.{spent}{stopped}", soft_wrap=True)


def _print_plan(session: str, plan: UpdatePlan) -> None:
    count = sum(plan.by_level.values())
    if not count:
        out().print(f"{clean(session)}: nothing to make.")
        return
    levels = ", ".join(f"{each:,} L{level}" for level, each in sorted(plan.by_level.items()))
    reused = f", {plan.reused:,} of them reused without a call" if plan.reused else ""
    cost = "" if plan.cost is None else f", cost about {plan.cost:,.4f}"
    retried = f", {plan.retries:,} of them for refused texts" if plan.retries else ""
    calls = plural(plan.calls, "call")
    if plan.calls_if_unfit > plan.calls:
        calls = f"{plan.calls:,} to {plan.calls_if_unfit:,} calls"
    if plan.calls_max > plan.calls_if_unfit:
        calls += f" ({plan.calls_max:,} if the provider fails)"
    out().print(
        f"{clean(session)}: {plural(count, 'summary', 'summaries')} to make ({levels}){reused}. "
        f"{calls}{retried}, {plan.tokens_in:,} tokens in, "
        f"{plan.tokens_out:,} out{cost}, about {duration(plan.seconds)}.",
        soft_wrap=True,
    )


@app.command(name="extract")
def extract_command(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    form: Form = Shape.table,
    graph: Annotated[
        Notation | None, typer.Option("--graph", help="Write the graph instead, in this notation.")
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, help="The number of items of each kind that are shown or drawn.")
    ] = 20,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The token limit of one request.")
    ] = None,
    answer: Annotated[
        int | None, typer.Option("--answer", min=256, help="Tokens reserved for each answer.")
    ] = None,
    on_failure: Annotated[
        OnFailure,
        typer.Option("--on-failure", help="If a chunk fails: no result, or a partial one."),
    ] = OnFailure.abort,
    oversized: Annotated[
        Oversized, typer.Option(help="A turn that alone exceeds the limit fails, or is sliced.")
    ] = Oversized.fail,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")] = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
) -> None:
    """Extract a session: a graph of entities, open items, and decisions."""
    if form is Shape.json and graph is not None:
        raise typer.BadParameter("--graph has a notation of its own; omit --format json")
    with (
        reported_errors(),
        extract.errors_in_flags(),
        open_existing(
            db,
            tenant,
            model_of(
                model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
            ),
        ) as memory,
    ):
        options = ExtractionOptions(
            **calls_of(timeout=timeout, retries=retries, concurrency=concurrency),
            safe_processing_tokens=limit,
            output_tokens=answer,
            on_chunk_failure=on_failure.value,
            oversized=oversized.value,
        )
        report = extract.extracted(
            session_of(memory, session),
            options,
            progress_bars(),
            max_calls=max_calls,
            max_tokens=max_tokens,
        )
        extract.print_failures(report)
        if form is Shape.json:
            typer.echo(extract.as_json(report))
        elif graph is None:
            extract.print_table(report, most=most)
        elif report.tri_vector is not None:
            typer.echo(extract.as_graph(report.tri_vector, graph.value, most=most), nl=False)
        if report.stopped:
            raise typer.Exit(3)
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
) -> None:
    """Show the tree of a session: levels as rows, then the summaries."""
    with reported_errors(), open_existing(db, tenant) as memory:
        if node is not None:
            show.summary(session_of(memory, session), node)
        else:
            show.tree(session_of(memory, session), lowest=level)


app.add_typer(import_cmd.app)
app.add_typer(sessions.app)
app.add_typer(search_cmd.app)
app.add_typer(bank.app, name="bank")
app.add_typer(maintenance.app)
