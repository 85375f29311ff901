"""The commands and their options.

A command prints its result on standard output and everything else (progress, hints, errors) on
standard error, so that its result can be piped. ``output`` has the exit codes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from typing import Annotated, NamedTuple

import typer

import hiermem
from hiermem import (
    BatchProgress,
    BatchReport,
    ExtractionOptions,
    Memory,
    Session,
    UpdatePlan,
    UpdatePolicy,
    UpdateProgress,
    UpdateReport,
    UsageError,
)
from hiermem.cli import (
    bank,
    extract,
    import_cmd,
    maintenance,
    mcp_cmd,
    search_cmd,
    sessions,
    show,
    work,
)
from hiermem.cli.demo import run as run_demo
from hiermem.cli.models import (
    Concurrency,
    MaxCalls,
    MaxTokens,
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
    SessionId,
    Tenant,
    open_existing,
    session_of,
    shown,
)
from hiermem.cli.output import (
    Code,
    Commands,
    Json,
    echo,
    exit_code,
    hint,
    print_json,
    progress,
)
from hiermem.cli.screen import RETRIED, clean, duration, out, plural, replace_unencodable

app = typer.Typer(
    name="hiermem",
    cls=Commands,
    help="Unbounded conversation memory: messages, a tree of summaries, contexts that fit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


#: The errors that are printed of an update of many sessions.
_ERRORS = 5


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
    as_json: Json = False,
) -> None:
    """Show append, update, context and search on a bundled conversation."""
    run_demo(budget=budget, fast=fast, db=db, as_json=as_json)


@app.command()
def update(
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session; all sessions by default.")
    ] = None,
    tenant: Tenant = "default",
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Update the sessions of every tenant.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(help="With --all-tenants: begin after this tenant, to resume."),
    ] = None,
    level: Annotated[
        int | None, typer.Option(min=1, help="Make summaries of one session only up to this level.")
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(help="Make missing and outdated summaries, or re-pack everything.")
    ] = Strategy.incremental,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
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
    as_json: Json = False,
) -> None:
    """Make missing and outdated summaries. Caps are those of the whole command."""
    llm = model_of(
        model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
    )
    policy = UpdatePolicy(**calls_of(timeout=timeout, retries=retries, concurrency=concurrency))
    caps = _Caps(max_calls, max_tokens)
    if all_tenants:
        if session is not None or level is not None or dry_run:
            raise UsageError("--all-tenants goes with neither --session, --level nor --dry-run")
        with open_existing(db, tenant, llm, update_policy=policy) as memory:
            _update_tenants(
                memory, db, after, strategy, caps, slow=llm is not None, as_json=as_json
            )
        return
    if after is not None:
        raise UsageError("--after goes with --all-tenants")
    with open_existing(db, tenant, llm, update_policy=policy) as memory:
        chosen = _chosen(memory, session, level)
        name = chosen.id if chosen else f"{memory.count_sessions():,} sessions"
        data = {"session_id": chosen and chosen.id}
        if dry_run:
            plan = (
                chosen.update(level, strategy=strategy.value, dry_run=True)
                if chosen
                else memory.update_all(strategy=strategy.value, dry_run=True)
            )
            if as_json:
                print_json({**data, **asdict(plan)})
            else:
                _print_plan(name, plan)
            return
        slow = llm is not None
        report: UpdateReport | BatchReport
        if chosen:
            touched = [chosen.id]
            report = _updated(chosen, level, strategy, caps, slow=slow)
        else:
            report, touched = _updated_all(memory, strategy, caps, slow=slow)
        errors = _errors(memory, report, touched)
        if as_json:
            print_json({**data, **asdict(report), "errors": errors})
        else:
            _print_report(name, report)
            for each, error in errors.items():
                hint(f"{clean(each)}: {clean(error)}")
        if code := exit_code(report):
            raise typer.Exit(code)


class _Caps(NamedTuple):
    """The most calls and tokens of one command."""

    calls: int | None
    tokens: int | None


def _chosen(memory: Memory, session: str | None, level: int | None) -> Session | None:
    """Return the session to update; None for all of several."""
    if session is None and level is None and len(memory.sessions(limit=2)) != 1:
        return None
    return session_of(memory, session)


def _updated(
    session: Session, level: int | None, strategy: Strategy, caps: _Caps, *, slow: bool
) -> UpdateReport:
    """Update one session, with the progress of each level that has work."""
    with progress(session.id, "summaries", slow=slow) as show:

        def draw(now: UpdateProgress) -> None:
            show({f"L{number}": part for number, part in sorted(now.by_level.items())})

        return session.update(
            level,
            strategy=strategy.value,
            on_progress=draw,
            max_calls=caps.calls,
            max_tokens=caps.tokens,
        )


def _updated_all(
    memory: Memory, strategy: Strategy, caps: _Caps, *, slow: bool
) -> tuple[BatchReport, list[str]]:
    """Update all sessions; return the report, and which of them were worked on."""
    made: dict[str, int] = {}
    with progress("all", "sessions", slow=slow) as show:

        def draw(now: BatchProgress) -> None:
            made.setdefault(now.session_id, 0)
            if now.nodes is not None:
                made[now.session_id] = now.nodes.done
            show({"sessions": (now.done, now.total)}, f", {sum(made.values()):,} summaries")

        report = memory.update_all(
            strategy=strategy.value,
            on_progress=draw,
            max_calls=caps.calls,
            max_tokens=caps.tokens,
        )
    return report, list(made)


def _update_tenants(
    memory: Memory,
    db: str,
    after: str | None,
    strategy: Strategy,
    caps: _Caps,
    *,
    slow: bool,
    as_json: bool,
) -> None:
    """Update all sessions of one tenant after the other, by name; each result is printed at once.

    A cap is that of the whole command. What is printed at the end says where to resume.
    """
    code, calls, tokens = Code.DONE, 0, 0
    reports: list[dict[str, object]] = []
    for tenant in _tenants(memory, after):
        left = _Caps(
            None if caps.calls is None else max(0, caps.calls - calls),
            None if caps.tokens is None else max(0, caps.tokens - tokens),
        )
        with memory.for_tenant(tenant) as one:
            report, touched = _updated_all(one, strategy, left, slow=slow)
            errors = _errors(one, report, touched)
        calls, tokens = calls + report.calls, tokens + report.tokens
        reports.append({"tenant": tenant, **asdict(report), "errors": errors})
        code = max(code, exit_code(report))
        if not as_json:
            _print_report(f"tenant {tenant}", report)
            for each, error in errors.items():
                hint(f"{clean(each)}: {clean(error)}")
        if report.stopped is not None:
            begin = f" --after {shlex.quote(clean(after))}" if after is not None else ""
            hint(f"resume with: hiermem update --all-tenants --db {shown(db)}{begin}")
            break
        after = tenant
    if as_json:
        print_json({"tenants": reports})
    if code:
        raise typer.Exit(code)


def _tenants(memory: Memory, after: str | None) -> Iterator[str]:
    """Yield the names of the tenants after ``after``, read page by page."""
    while page := memory.tenants(after=after):
        yield from page
        after = page[-1]


def _errors(
    memory: Memory, report: UpdateReport | BatchReport, touched: Iterable[str]
) -> dict[str, str]:
    """Return the errors by session, where not everything was made; a few of many."""
    found: dict[str, str] = {}
    if isinstance(report, BatchReport):
        found = dict(islice(report.failures.items(), _ERRORS))
    if exit_code(report):
        for each in touched:
            if len(found) >= _ERRORS:
                break
            if each not in found and (error := memory.session(each).status().last_error):
                found[each] = error
    return found


def _print_report(session: str, report: UpdateReport | BatchReport) -> None:
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
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
    as_json: Json = False,
) -> None:
    """Extract a session: a graph of entities, open items, and decisions."""
    if as_json and graph is not None:
        raise typer.BadParameter("--graph has a notation of its own; omit --json")
    with (
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
            max_calls=max_calls,
            max_tokens=max_tokens,
            slow=model is not None,
        )
        if as_json:
            print_json(extract.report_data(report))
        else:
            extract.print_failures(report)
            if graph is None:
                extract.print_table(report, most=most)
            elif report.tri_vector is not None:
                echo(extract.as_graph(report.tri_vector, graph.value, most=most))
        if report.stopped:
            raise typer.Exit(Code.INCOMPLETE)
        if report.outcome == "error":
            raise typer.Exit(Code.ERROR)


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
    as_json: Json = False,
) -> None:
    """Show the tree of a session: levels as rows, then the summaries."""
    with open_existing(db, tenant) as memory:
        chosen = session_of(memory, session)
        if node is not None:
            found = show.find(chosen, node)
            if as_json:
                print_json(show.summary_data(found))
            else:
                show.summary(found)
        elif as_json:
            print_json(show.tree_data(chosen, lowest=level))
        else:
            show.tree(chosen, lowest=level)


app.add_typer(import_cmd.app)
app.add_typer(sessions.app)
app.add_typer(search_cmd.app)
app.add_typer(bank.app, name="bank")
app.add_typer(maintenance.app)
app.add_typer(mcp_cmd.app)
app.add_typer(work.app)
