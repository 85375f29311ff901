"""The commands ``update`` and ``work``: they make the summaries that sessions lack.

``update`` is one run over one session or all of them; ``work`` is a process over all tenants that
goes on until it is ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli import options
from hiermem.cli.options import Caps, Model
from hiermem.cli.output import Code, clean, facts, hint, plural, progress, result, shown

Strategy: TypeAlias = Literal["incremental", "full"]
#: The errors that are printed of an update of many sessions.
_ERRORS: Final = 5
#: Seconds between two looks at whether a cap has stopped the worker.
_LOOK: Final = 0.2
#: What is said of an update, of a worker's work and of a plan.
_WORKED: Final = """made reused degraded failed unknown calls tokens_in tokens_out cost stopped
    last_error"""
_MADE: Final = f"{_WORKED} retry_after"
_PLANNED: Final = "by_level reused calls calls_max tokens_in tokens_out cost seconds"
#: A cap of the whole command.
_CAPS: Final = ("max_calls", "max_tokens", "deadline")


def update(
    one: options.OneSession,
    *,
    level: Annotated[int | None, Option(min=1)] = None,
    strategy: Strategy = "incremental",
    caps: Caps,
    search_index: bool = False,
    dry_run: bool = False,
    model: Model,
) -> None:
    """Make missing and outdated summaries, of all sessions by default.

    Args:
        level: Make summaries of one session only up to this level.
        strategy: Make missing and outdated summaries, or re-pack everything.
        search_index: Also make the index of a search over all sessions.
        dry_run: Show what would be done; write nothing.
    """
    llm, policy = model.llm(), model.policy(hiermem.UpdatePolicy)
    session = one.chosen()
    slow = llm is not None
    if search_index and (session is not None or dry_run):
        raise hiermem.UsageError("--search-index goes with neither a session nor --dry-run")
    with one.open(llm, update_policy=policy) as memory:
        chosen = None
        of_one = not search_index and len(memory.sessions(limit=2)) == 1
        if session is not None or level is not None or of_one:
            chosen = options.session_of(memory, session)
        name = (
            options.title_of(chosen.status()) if chosen else f"{memory.count_sessions():,} sessions"
        )
        data = {"session_id": chosen and chosen.id}
        if dry_run:
            plan = (
                chosen.update(level, strategy=strategy, dry_run=True)
                if chosen
                else memory.update_all(strategy=strategy, dry_run=True)
            )
            result({**data, **facts(plan)}, _line_of(name, plan))
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
        result({**data, **facts(report), "errors": errors}, _line_of(name, report))
        for each, error in errors.items():
            hint(f"{clean(each)}: {clean(error)}")
        if llm is not None and not shown(facts(report, _MADE)):
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
            level, strategy=strategy, on_progress=draw, limits=caps.limits
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
            strategy=strategy, on_progress=draw, search_index=search_index, limits=caps.limits
        )
    return report, list(made)


def _errors(
    memory: hiermem.Memory, report: types.UpdateReport | types.BatchReport, touched: Iterable[str]
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


def _hint_model(runs: Iterable[types.RunRecord], name: str) -> None:
    """Say that the summaries are another model's, if the newest update that made any used one."""
    made = (run for run in runs if run.kind == "update" and run.detail.get("made"))
    before = next((str(run.detail.get("model") or name) for run in made), name)
    if before != name:
        again = f"--strategy full makes them again by {clean(name)}"
        hint(f"the newest summaries are by {clean(before)}; {again}")


def _line_of(subject: str, report: Any) -> str:
    """Say on one line what an update or a worker did, or what an update would do."""
    names = _WORKED if isinstance(report, types.WorkerStatus) else _MADE
    if isinstance(report, types.UpdatePlan):
        names = _PLANNED
    return f"{clean(subject)}: {shown(facts(report, names)) or 'nothing to make'}"


def exit_code(report: types.UpdateReport | types.BatchReport | types.WorkerStatus) -> Code:
    """Return the exit code of an update: not 0 where it was stopped, failed or made nothing fit.

    Where all that it tried failed, it says what a stop says: try again.
    """
    made = report.made + report.reused
    if report.stopped is not None or (report.failed and not made + report.degraded):
        return Code.INCOMPLETE
    if isinstance(report, types.WorkerStatus):
        broken = report.resting > 0 and report.last_error is not None  # of a session's turn
    else:
        broken = isinstance(report, types.BatchReport) and bool(report.failures)
    failed = broken or report.failed > 0 or (report.degraded > 0 and not made)
    return Code.ERROR if failed else Code.DONE


def work(
    *,
    db: options.Db = options.DB,
    once: bool = False,
    poll: Annotated[float, Option(min=0.05)] = 1.0,
    caps: Caps,
    model: Model,
) -> None:
    """Make the summaries of all tenants, as they come up, until it is interrupted.

    Any number of these processes share the work, on any number of machines.

    Args:
        once: End when nothing is left that can be made now.
        poll: Seconds between two looks.
    """
    with options.open_existing(
        db, model.connected(), update_policy=model.policy(hiermem.UpdatePolicy)
    ) as memory:
        worker = memory.worker(poll=poll, all_tenants=True, limits=caps.limits)
        try:
            with worker:
                if once:
                    worker.drain()
                else:
                    place = clean(options.shown_db(db))
                    hint(f"working for all tenants of {place}; end it with Ctrl-C")
                    while worker.status.stopped not in _CAPS:
                        time.sleep(_LOOK)
        except KeyboardInterrupt:  # SIGTERM raises it too; what was in flight is committed
            if once:
                raise
        status = worker.status
    result(status, _line_of(plural(status.turns, "turn"), status))
    if once or status.stopped is not None:
        raise typer.Exit(exit_code(status))
