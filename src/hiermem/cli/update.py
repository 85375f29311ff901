"""The commands ``update`` and ``work``: they make the summaries that sessions lack.

``update`` is one run over one session, all of them, or all tenants; ``work`` is a process that goes
on until it is ended.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import DB, Caps, Db, Model, OneSession, open_existing, session_of, shown
from hiermem.cli.output import Code, exit_code, hint, progress, result, wants_json
from hiermem.cli.screen import RETRIED, clean, duration, per_level, plural, say, title_of

Strategy: TypeAlias = Literal["incremental", "full"]
#: The errors that are printed of an update of many sessions.
_ERRORS: Final = 5
#: Seconds between two looks at whether a cap has stopped the worker.
_LOOK: Final = 0.2
#: A cap of the whole command.
_CAPS: Final = ("max_calls", "max_tokens", "deadline")


def update(
    one: OneSession,
    *,
    all_tenants: Annotated[
        bool, Option("--all-tenants", help="Update the sessions of every tenant.")
    ] = False,
    after: Annotated[
        str | None, Option(help="With --all-tenants: begin after this tenant, to resume.")
    ] = None,
    level: Annotated[
        int | None, Option(min=1, help="Make summaries of one session only up to this level.")
    ] = None,
    strategy: Annotated[
        Strategy, Option(help="Make missing and outdated summaries, or re-pack everything.")
    ] = "incremental",
    caps: Caps,
    search_index: Annotated[
        bool, Option("--search-index", help="Also make the index of a search over all sessions.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    model: Model,
) -> None:
    """Make missing and outdated summaries, of all sessions by default."""
    llm, policy = model.llm(), model.policy(hiermem.UpdatePolicy)
    session = one.chosen()
    slow = llm is not None
    if all_tenants and (session is not None or level is not None or dry_run):
        raise hiermem.UsageError("--all-tenants goes with neither a session, --level nor --dry-run")
    if search_index and (all_tenants or session is not None or dry_run):
        raise hiermem.UsageError(
            "--search-index goes with neither a session, --all-tenants nor --dry-run"
        )
    if after is not None and not all_tenants:
        raise hiermem.UsageError("--after goes with --all-tenants")
    with one.open(llm, update_policy=policy) as memory:
        if all_tenants:
            _update_tenants(memory, one.db, after, strategy, caps, slow=slow)
            return
        chosen = None
        of_one = not search_index and len(memory.sessions(limit=2)) == 1
        if session is not None or level is not None or of_one:
            chosen = session_of(memory, session)
        name = title_of(chosen.status()) if chosen else f"{memory.count_sessions():,} sessions"
        data = {"session_id": chosen and chosen.id}
        if dry_run:
            plan = (
                chosen.update(level, strategy=strategy, dry_run=True)
                if chosen
                else memory.update_all(strategy=strategy, dry_run=True)
            )
            result({**data, **asdict(plan)}, _planned(name, plan))
            return
        report: types.UpdateReport | types.BatchReport
        if chosen:
            touched = [chosen.id]
            report = _updated(chosen, level, strategy, caps, slow=slow)
        else:
            report, touched = _updated_all(
                memory, strategy, caps, search_index=search_index, slow=slow
            )
        errors = _errors(memory, report, touched)
        result({**data, **asdict(report), "errors": errors}, _made(name, report))
        _hint_errors(errors)
        if llm is not None and _idle(report):
            _hint_model((chosen or memory).runs(), llm.name)
        if code := exit_code(report):
            raise typer.Exit(code)


def _updated(
    session: hiermem.Session, level: int | None, strategy: Strategy, caps: Caps, *, slow: bool
) -> types.UpdateReport:
    """Update one session, with the progress of each level that has work."""
    with progress(session.id, "summaries", slow=slow) as show:

        def draw(now: types.UpdateProgress) -> None:
            show({f"L{number}": part for number, part in sorted(now.by_level.items())})

        report: types.UpdateReport = session.update(
            level, strategy=strategy, on_progress=draw, **vars(caps)
        )
        return report


def _updated_all(
    memory: hiermem.Memory, strategy: Strategy, caps: Caps, *, search_index: bool, slow: bool
) -> tuple[types.BatchReport, list[str]]:
    """Update all sessions; return the report, and which of them were worked on."""
    made: dict[str, int] = {}
    with progress("all", "sessions", slow=slow) as show:

        def draw(now: types.BatchProgress) -> None:
            made.setdefault(now.session_id, 0)
            if now.nodes is not None:
                made[now.session_id] = now.nodes.done
            show({"sessions": (now.done, now.total)}, f", {sum(made.values()):,} summaries")

        report = memory.update_all(
            strategy=strategy, on_progress=draw, search_index=search_index, **vars(caps)
        )
    return report, list(made)


def _update_tenants(
    memory: hiermem.Memory,
    db: str,
    after: str | None,
    strategy: Strategy,
    caps: Caps,
    *,
    slow: bool,
) -> None:
    """Update all sessions of one tenant after the other, by name; each result is printed at once.

    A cap is that of the whole command. The last printed line says where to resume.
    """
    code, reports = Code.DONE, list[dict[str, Any]]()
    for tenant in _tenants(memory, after):
        with memory.for_tenant(tenant) as one:
            report, touched = _updated_all(one, strategy, caps, search_index=False, slow=slow)
            errors = _errors(one, report, touched)
        caps = caps.less(report.calls, report.tokens)
        reports.append({"tenant": tenant, **asdict(report), "errors": errors})
        code = max(code, exit_code(report))
        if not wants_json():
            say(_made(f"tenant {tenant}", report))
        _hint_errors(errors)
        if report.stopped is not None:
            begin = f" --after {shlex.quote(clean(after))}" if after is not None else ""
            hint(f"resume with: hiermem update --all-tenants --db {shown(db)}{begin}")
            break
        after = tenant
    result({"tenants": reports}, lambda: None)
    if code:
        raise typer.Exit(code)


def _tenants(memory: hiermem.Memory, after: str | None) -> Iterator[str]:
    """Yield the names of the tenants after ``after``, read page by page."""
    while page := memory.tenants(after=after):
        yield from page
        after = page[-1]


def _errors(
    memory: hiermem.Memory,
    report: types.UpdateReport | types.BatchReport,
    touched: Iterable[str],
) -> dict[str, str]:
    """Return the errors by session, where not everything was made; a few of many."""
    found: dict[str, str] = {}
    if isinstance(report, types.BatchReport):
        found = dict(islice(report.failures.items(), _ERRORS))
    for each in touched if exit_code(report) else ():
        if len(found) >= _ERRORS:
            break
        error = memory.session(each).status().last_error
        if each not in found and error not in (None, report.last_error):
            found[each] = error
    return found


def _hint_errors(errors: dict[str, str]) -> None:
    for session, error in errors.items():
        hint(f"{clean(session)}: {clean(error)}")


def _hint_model(runs: Iterable[types.RunRecord], name: str) -> None:
    """Say that the summaries are another model's, if the newest update that made any used one."""
    made = (run for run in runs if run.kind == "update" and run.detail.get("made"))
    before = next((str(run.detail.get("model") or name) for run in made), name)
    if before != name:
        again = f"--strategy full makes them again by {clean(name)}"
        hint(f"the newest summaries are by {clean(before)}; {again}")


def _idle(report: types.UpdateReport | types.BatchReport) -> bool:
    """Return whether an update found nothing to make."""
    done = report.made or report.reused or report.degraded or report.failed or report.stopped
    return not done


def _counts(
    report: types.UpdateReport | types.BatchReport | types.WorkerStatus,
    *,
    degraded: str,
) -> list[str]:
    """Return what was not simply made, each count with its word."""
    return [
        f"{count:,} {what}"
        for count, what in (
            (report.reused, "reused"),
            (report.degraded, degraded),
            (report.failed, "failed"),
            (report.unknown, "cut-off calls with unknown outcome"),
        )
        if count
    ]


def _made(session: str, report: types.UpdateReport | types.BatchReport) -> str:
    """Say what an update did."""
    if _idle(report):
        return f"{clean(session)}: nothing to make."
    done = [f"{report.made:,} made", *_counts(report, degraded=f"degraded, {RETRIED}")]
    # The offline model reports no tokens, because nobody is paid.
    cost = "" if report.cost is None else f", cost {report.cost:,.4f}"
    tokens = f"{report.tokens:,} tokens"
    spent = f" {plural(report.calls, 'call')}, {tokens}{cost}." if report.tokens else ""
    stopped = f" Stopped by {clean(report.stopped)}." if report.stopped else ""
    if report.retry_after is not None:
        again = f"{report.retry_after:.0f} s"
        stopped = f" The model is down: {clean(report.last_error or '?')}. Try again in {again}."
    return f"{clean(session)}: {', '.join(done)}.{spent}{stopped}"


def _planned(session: str, plan: types.UpdatePlan) -> str:
    """Say what an update would do."""
    count = sum(plan.by_level.values())
    if not count:
        return f"{clean(session)}: nothing to make."
    levels = per_level(dict(sorted(plan.by_level.items())))
    reused = f", {plan.reused:,} of them reused without a call" if plan.reused else ""
    cost = "" if plan.cost is None else f", cost about {plan.cost:,.4f}"
    calls = plural(plan.calls, "call")
    if plan.calls_max > plan.calls:
        calls = f"{plan.calls:,} to {plan.calls_max:,} calls"
    return (
        f"{clean(session)}: {plural(count, 'summary', 'summaries')} to make ({levels}){reused}. "
        f"{calls}, {plan.tokens_in:,} tokens in, "
        f"{plan.tokens_out:,} out{cost}, about {duration(plan.seconds)}."
    )


def work(
    *,
    db: Db = DB,
    once: Annotated[
        bool, Option("--once", help="End when nothing is left that can be made now.")
    ] = False,
    poll: Annotated[float, Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    caps: Caps,
    model: Model,
) -> None:
    """Make the summaries of all tenants, as they come up, until it is interrupted.

    Any number of these processes share the work, on any number of machines.
    """
    with open_existing(
        db, model.connected(), update_policy=model.policy(hiermem.UpdatePolicy)
    ) as memory:
        worker = memory.worker(poll=poll, all_tenants=True, **vars(caps))
        try:
            with worker:
                if once:
                    worker.drain()
                else:
                    hint(f"working for all tenants of {clean(shown(db))}; end it with Ctrl-C")
                    while worker.status.stopped not in _CAPS:
                        time.sleep(_LOOK)
        except KeyboardInterrupt:  # SIGTERM raises it too; what was in flight is committed
            if once:
                raise
        status = worker.status
    made = f"made {plural(status.made, 'summary', 'summaries')}"
    counts = ", ".join([made, *_counts(status, degraded="degraded")])
    stopped = f" Stopped by {clean(status.stopped)}." if status.stopped else ""
    result(status, f"{counts} in {plural(status.turns, 'turn')}.{stopped}")
    if once or status.stopped is not None:
        raise typer.Exit(exit_code(status))
