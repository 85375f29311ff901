"""Formats the results of the commands in other modules as tables.

Text from a user, a model or a file is cleaned before it is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hiermem import types
from hiermem.cli.output import Code, picked, result
from hiermem.cli.screen import RETRIED, clean, named, out, plural, print_indented, say, share, table

#: The nouns of what a receipt counts, singular and plural.
_FORMS = {
    "sessions": ("session",),
    "spaces": ("space",),
    "notes": ("note",),
    "files": ("file",),
    "revisions": ("revision",),
    "messages": ("message",),
    "versions": ("earlier version",),
    "summaries": ("summary", "summaries"),
    "views": ("view",),
    "records": ("record",),
    "backups": ("backup",),
}
#: The number of names listed; the rest is only counted.
_NAMED = 20
#: The number of findings printed; JSON has all.
_FINDINGS = 50
#: The characters of a run's id on a terminal; more if these are ambiguous.
_SHORT = 12
#: The names of the promises, for readers who do not know their numbers.
_PROMISES = {
    "P1": "nothing lost",
    "P2": "idempotent ingest",
    "P3": "exact cover",
    "P4": "batch invariance",
    "P5": "seal once",
    "P6": "bounded work",
    "P7": "good is never replaced by bad",
    "P8": "convergence",
    "P9": "bounded spend",
    "P10": "nothing is paid for twice",
    "P11": "erasure",
    "P12": "isolation",
    "P13": "stable rendering",
    "bank": "the bank adds up",
    "dirt": "summaries are up to date, or marked",
}
#: The width of the state of a promise.
_STATE = 8
#: How a point in time is written.
_MOMENT = "%Y-%m-%d %H:%M:%S"


def all_runs(found: list[types.RunRecord]) -> RenderableType:
    """Return a table of runs, one per row; on a terminal, ids are as short as they may be."""
    length = _SHORT if out().is_terminal else None
    while length and len({each.id[:length] for each in found}) < len(found):
        length += 1
    return table(
        {
            "run": each.id[:length],
            "kind": each.kind,
            "subject": each.subject or "all sessions",
            "began": f"{each.started_at:{_MOMENT}}",
            "outcome": Text(each.outcome, style="" if each.outcome == "ok" else "yellow"),
            "result": _result_of(each),
        }
        for each in found
    )


def _result_of(run: types.RunRecord) -> str:
    """Return the result of a run in a few words."""
    if run.kind == "erasure":
        return ", ".join([_erasure_kind(run), *_counts(run.detail.get("removed"))])
    parts = [
        plural(run.detail[name], "call") if name == "calls" else f"{run.detail[name]:,} {name}"
        for name in ("made", "reused", "degraded", "failed", "calls", "unknown")
        if _counted(run.detail.get(name))
    ]
    tokens = [run.detail.get(name, 0) for name in ("tokens_in", "tokens_out")]
    if all(_whole(each) for each in tokens) and sum(tokens):
        parts.append(f"{sum(tokens):,} tokens")
    cost = run.detail.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        parts.append(f"cost {cost:,.4f}")
    parts += [
        str(run.detail[n]) for n in ("stopped", "reason") if isinstance(run.detail.get(n), str)
    ]
    if isinstance(swapped := run.detail.get("swapped"), bool):
        parts.append("the new tree serves" if swapped else "the old tree still serves")
    if not parts and run.outcome == "ok":
        parts.append("no calls")
    return ", ".join(parts)


def _erasure_kind(run: types.RunRecord) -> str:
    deed = run.detail.get("kind")
    return str(deed).replace("_", " ") if isinstance(deed, str) else run.kind


def _counts(removed: Any) -> list[str]:
    """Return what an erasure removed: each count with its noun."""
    if not isinstance(removed, Mapping):
        return []
    found: Mapping[Any, Any] = removed
    return [
        plural(found[name], *_FORMS.get(name, (str(name),)))
        for name in dict.fromkeys((*_FORMS, *found))
        if _counted(found.get(name))
    ]


def _places(run: types.RunRecord) -> list[str]:
    """Return which messages an erasure removed."""
    with suppress(KeyError, TypeError, ValueError):
        runs = [(int(start), int(stop)) for start, stop in run.detail["erased"]]
        said = ", ".join(f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in runs)
        count = sum(stop - start for start, stop in runs)
        return [f"{'messages' if count > 1 else 'message'} {said}"] if runs else []
    return []


def one_run(report: types.RunReport) -> RenderableType:
    """Return one run and its items."""
    record = report.record
    took = "" if report.seconds is None else f", took {report.seconds:.1f} s"
    lines = [
        f"{record.kind} of {clean(record.subject) or 'all sessions'}: {report.outcome}",
        f"began {record.started_at:{_MOMENT}}{took}",
    ]
    if parts := _result_of(record):
        lines.append(clean(parts))
    lines += map(clean, _places(record))
    if report.queue is not None:
        dirty = "" if report.dirty_share is None else f", {_percent(report.dirty_share)} outdated"
        lines.append(f"{report.queue:,} were missing when it began{dirty}")
    if report.latency is not None:
        lines.append(f"{plural(report.calls, 'call')}, {report.latency:.2f} s each")
    if not report.items:
        return Text("\n".join(lines))
    priced = report.cost is not None
    items = table(
        (
            {
                "item": item.id,
                "state": item.state,
                "calls": item.calls,
                "in": item.tokens_in,
                "out": item.tokens_out,
                **({"cost": "" if item.cost is None else f"{item.cost:,.4f}"} if priced else {}),
                "seconds": f"{item.seconds:.1f}",
                "asked again because": ", ".join(item.reasons),
            }
            for item in report.items
        ),
        left=("item", "state", "asked again because"),
    )
    return Group(Text("\n".join(lines)), Text(), items)


def metrics_data(found: types.Metrics) -> dict[str, Any]:
    """Return the fields, and the figures computed from them."""
    more = picked(found, "nodes", "queue", "dirty_share", "prefix_reuse")
    return {**asdict(found), **more, "feedback_mean": found.feedback.mean}


def metrics_table(found: types.Metrics) -> RenderableType:
    """Return a session's metrics: the totals, then the levels."""
    levels = table(
        (
            {
                "level": f"L{level.level}",
                "summaries": level.nodes,
                "made": level.made,
                "degraded": level.degraded,
                "to be made": level.queue,
                "dirty": level.dirty,
                "tokens in": level.input_tokens,
                "tokens out": level.output_tokens,
                "saved": _percent(level.compression),
                "anchors kept": _percent(level.fidelity),
                "seconds each": "" if level.seconds is None else f"{level.seconds:.2f}",
            }
            for level in found.levels
        ),
        left=("level",),
    )
    spent = found.spent
    unknown = f", {spent.unknown:,} of unknown outcome" if spent.unknown else ""
    size = f"{plural(found.messages, 'message')}, {plural(found.tokens, 'token')}"
    fewer = f"{found.tokens_saved:,} fewer ({_percent(found.compression)})"
    calls = f"{plural(spent.calls, 'call')}, {spent.tokens_in:,} tokens in"
    lines = [
        f"{size}; {plural(found.open_tokens, 'token')} not sealed yet",
        f"summaries represent the rest in {found.cover_tokens:,} tokens, {fewer}",
        f"{calls}, {spent.tokens_out:,} out{unknown}",
    ]
    if found.cost_spent is not None:
        saves = "" if found.cost_saved is None else f"; saves {found.cost_saved:,.4f} a request"
        lines.append(f"spent {found.cost_spent:,.4f}{saves}")
    if found.summary_quality_score is not None:
        kept = f"{_percent(found.summary_quality_score)} of the anchors kept"
        measured = [level for level in found.levels if level.fidelity is not None]
        least = min(measured, key=lambda level: level.fidelity or 0.0)
        if len(measured) > 1:
            kept += f", at L{least.level} {_percent(least.fidelity)}"
        lines.append(kept)
    if found.feedback.mean is not None:
        scores = plural(found.feedback.count, "score")
        lines.append(f"feedback: mean {found.feedback.mean:.2f} of {scores}")
    if found.prefix_reuse is not None:
        reused = _percent(found.prefix_reuse)
        lines.append(f"{reused} of a context is the unchanged beginning of the previous one")
    if degraded := sum(level.degraded for level in found.levels):
        lines.append(f"{plural(degraded, 'summary', 'summaries')} degraded, {RETRIED}")
    if found.queue or found.dirty_share:
        missing = plural(found.queue, "summary", "summaries")
        lines.append(f"{missing} to be made, {_percent(found.dirty_share)} outdated")
    return Group(Text("\n".join(lines)), Text(), levels)


def print_receipt(receipt: types.Receipt) -> None:
    """Print what was removed, where it was found, and what is left to do.

    Ends with the code for incomplete work where the file may still hold bytes of it.
    """
    result(receipt, "\n".join(_receipt_lines(receipt)))
    if not receipt.scrubbed and receipt.scrub_reason and receipt.kind != "quarantine":
        raise typer.Exit(Code.INCOMPLETE)


def _receipt_lines(receipt: types.Receipt) -> list[str]:
    done = {"quarantine": "quarantined"}.get(receipt.kind, "erased")
    fresh = len(receipt.indices) - len(receipt.already)
    what = plural(fresh, "message") if fresh else "nothing"
    if receipt.kind == "erase_session":
        what = f"session {clean(receipt.session_id or '')!r}"
    elif receipt.kind == "erase_space":
        what = f"space {clean(receipt.space or '')!r}"
    elif receipt.kind == "erase_tenant":
        what = "everything"
    lines = [] if receipt.already and not fresh else [f"{done}: {what}"]
    if receipt.already:
        lines.append(f"already {done}: {plural(len(receipt.already), 'message')}")
    if gone := _counts(receipt.removed):
        lines.append(f"removed: {', '.join(gone)}")
    for title, names in (
        ("also in these forks, whose own messages stay", receipt.forks_reached),
        ("still kept in", receipt.kept_in),
        ("may quote it, please check", receipt.unproven),
        (
            "copies that may hold it (delete them, or erase there)",
            [copy.place for copy in receipt.copies],
        ),
    ):
        if names:
            lines.append(f"{title}: {named(names, _NAMED)}")
    remake = sum(len(ids) for ids in receipt.to_remake.values())
    if remake:
        lines.append(f"{plural(remake, 'summary', 'summaries')} to be made again: hiermem update")
    if receipt.scrubbed:
        apart = "apart from that, " if receipt.unproven else ""
        lines.append(f"{apart}no trace of them is left in the file")
        lines.append("other messages that repeat them stay")
    elif receipt.scrub_reason:
        lines.append(f"the store may still hold bytes of it: {clean(receipt.scrub_reason)}")
        if receipt.kind != "quarantine":
            lines.append("try again with: hiermem scrub")
    if receipt.run_id:
        lines.append(f"run {receipt.run_id}")
    return lines


def print_scrubbed(found: types.Scrubbed) -> None:
    """Print whether the file's bytes are clean, or why not, and end with the code for that."""
    lines = ["the store holds no bytes of what was erased"]
    if not found.done:
        lines = [f"the store may still hold bytes of what was erased: {clean(found.reason)}"]
    if found.removed:
        lines.append(f"removed: {plural(len(found.removed), 'backup')}")
    result(found, "\n".join(lines))
    if not found.done:
        raise typer.Exit(Code.INCOMPLETE)


def print_copy(report: types.CopyReport) -> None:
    """Print what a copy did, and what is wrong at the target."""
    what = (
        (report.copied, "copied"),
        (report.replaced, "copied anew"),
        (report.unchanged, "there already"),
        (report.removed, "removed, as they were erased"),
    )
    counts = ", ".join(f"{count:,} {how}" for count, how in what if count) or "nothing to copy"
    of = f" of {plural(report.tenants, 'tenant')}" if report.tenants else ""
    say(f"{plural(report.sessions, 'session')}{of} at {clean(report.place)}: {counts}")
    for name in report.changing:
        said = f"session {clean(name)!r} was written to all the time; copy again for the rest"
        say(Text(said, style="yellow"))
    _print_findings(report.findings)


def print_check(report: types.CheckReport) -> None:
    """Print each promise with its state, then the findings."""
    console = out()
    read = f"{plural(report.sessions, 'session')}, {plural(report.messages, 'message')}, "
    say(f"{read}{plural(report.nodes, 'summary', 'summaries')} read")
    broken = Counter(finding.promise for finding in report.findings)
    for promise, what in report.checked.items():
        count = broken[promise]
        state = Text("kept    ", style="green") if not count else Text("BROKEN  ", style="bold red")
        found = f": {count:,} found" if count else ""
        console.print(state.append(f"{_promise(promise)}{found}", "default not bold"))
        print_indented(console, Text(clean(what), style="bright_black"), _STATE)
    if report.not_shown:
        names = ", ".join(_promise(promise) for promise in report.not_shown)
        unseen = f"Stored data cannot show these; the library's tests prove them: {names}."
        console.print(Text(unseen, style="yellow"))
    for skipped in report.skipped:
        say(Text(clean(skipped), style="yellow"))
    _print_findings(report.findings)


def _print_findings(findings: Sequence[types.Finding]) -> None:
    for finding in findings[:_FINDINGS]:
        subject = finding.subject
        said = f"{_promise(finding.promise)}: {subject}, {finding.where}"
        say(Text(clean(f"{said}: {finding.what}"), style="red"))
    if len(findings) > _FINDINGS:
        say(f"and {len(findings) - _FINDINGS:,} more; --json gives all")


def _promise(name: str) -> str:
    """Return the name of a promise in words."""
    return _PROMISES.get(name, name)


def _percent(value: float | None) -> str:
    return "" if value is None else share(round(value * 10_000), 10_000)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counted(value: Any) -> bool:
    return _whole(value) and value > 0
