"""Writes for a reader, or as JSON, what the commands of ``upkeep`` found.

The one rule: whatever came from a user, a model or a file is cleaned before it is printed, and JSON
is in ASCII, so that nothing in it can move a cursor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hiermem import CheckReport, Metrics, Receipt, RunRecord, RunReport, Scrubbed
from hiermem.cli.screen import clean, out, plural, share

#: What a receipt counts, one and many.
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
#: More messages that may quote what went are only counted.
_NAMED = 20
#: More findings than this are left to the JSON.
_FINDINGS = 50
#: So much of a run's id is shown in a terminal, or more where it takes more to tell them apart.
_SHORT = 12


def all_runs(found: list[RunRecord], *, ids: int | None = None) -> Table:
    """Draw runs as a table, one a row; an id is never broken, so that it can be used."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    longest = max((len(each.id[:ids]) for each in found), default=0)
    table.add_column("run", no_wrap=True, min_width=longest)
    for name in ("kind", "of", "began", "outcome", "what came of it"):
        table.add_column(name, overflow="fold")
    for each in found:
        table.add_row(
            clean(each.id[:ids]),
            each.kind,
            clean(each.subject),
            _moment(each.started_at),
            Text(each.outcome, style="" if each.outcome == "ok" else "yellow"),
            clean(_told(each)),
        )
    return table


def short(found: list[RunRecord]) -> int:
    """Give how much of an id tells these runs apart, and is easily typed."""
    length = _SHORT
    while len({each.id[:length] for each in found}) < len(found):
        length += 1
    return length


def _told(run: RunRecord) -> str:
    """Say in a few words what a run's record holds."""
    if run.kind == "erasure":
        return ", ".join([_deed(run), *_counts(run.detail.get("removed"))])
    words = ("made", "reused", "degraded", "failed", "calls", "unknown")
    told = [f"{run.detail[word]:,} {word}" for word in words if _counted(run.detail.get(word))]
    tokens = [run.detail.get(name, 0) for name in ("tokens_in", "tokens_out")]
    if all(_whole(each) for each in tokens) and sum(tokens):
        told.append(f"{sum(tokens):,} tokens")
    cost = run.detail.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        told.append(f"cost {cost:,.4f}")
    told += [
        str(run.detail[n]) for n in ("stopped", "reason") if isinstance(run.detail.get(n), str)
    ]
    if isinstance(swapped := run.detail.get("swapped"), bool):
        told.append("the new tree serves" if swapped else "the old tree serves still")
    return ", ".join(told)


def _deed(run: RunRecord) -> str:
    deed = run.detail.get("kind")
    return str(deed).replace("_", " ") if isinstance(deed, str) else run.kind


def _counts(removed: Any) -> list[str]:
    """Write what an erasure removed: each count with its noun."""
    if not isinstance(removed, Mapping):
        return []
    found: Mapping[Any, Any] = removed
    return [
        plural(found[name], *_FORMS.get(name, (str(name),)))
        for name in dict.fromkeys((*_FORMS, *found))
        if _counted(found.get(name))
    ]


def _places(run: RunRecord) -> list[str]:
    """Say of an erasure which messages of which sessions went."""
    sessions = run.detail.get("sessions")
    if run.kind != "erasure" or not isinstance(sessions, Mapping):
        return []
    found: Mapping[Any, Any] = sessions
    return [
        f"{name}: {'messages' if len(at) > 1 else 'message'} {_stretches(at)}"
        for name, at in found.items()
        if isinstance(at, list) and at and all(_whole(index) for index in at)
    ]


def _stretches(indices: list[int]) -> str:
    """Write indices as one would name them: ``3-5, 60``."""
    found: list[list[int]] = []
    for index in sorted(indices):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)


def one_run(report: RunReport) -> RenderableType:
    """Draw one run: what it was, then its items."""
    record = report.record
    lines = [
        f"{record.kind} of {clean(record.subject)}: {report.outcome}",
        f"began {_moment(record.started_at)}"
        + ("" if report.seconds is None else f", took {report.seconds:.1f} s"),
    ]
    if told := _told(record):
        lines.append(clean(told))
    lines += map(clean, _places(record))
    if report.queue is not None:
        dirty = "" if report.dirty_share is None else f", {report.dirty_share:.0%} out of date"
        lines.append(f"{report.queue:,} waited when it began{dirty}")
    if report.latency is not None:
        lines.append(f"{plural(report.calls, 'call')}, {report.latency:.2f} s each")
    if not report.items:
        return Text("\n".join(lines))
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    priced = report.cost is not None
    for name in (
        "item",
        "state",
        "calls",
        "in",
        "out",
        *(["cost"] if priced else []),
        "s",
        "why again",
    ):
        table.add_column(
            name,
            justify="left" if name in ("item", "state", "why again") else "right",
            no_wrap=name == "item",
        )
    for item in report.items:
        table.add_row(
            clean(item.id),
            item.state,
            f"{item.attempts}",
            f"{item.tokens_in:,}",
            f"{item.tokens_out:,}",
            *([] if not priced else ["" if item.cost is None else f"{item.cost:,.4f}"]),
            f"{item.seconds:.1f}",
            clean(", ".join(item.reasons)),
        )
    return Group(Text("\n".join(lines)), Text(), table)


def metrics_data(found: Metrics) -> dict[str, Any]:
    """Give the fields, and what is worked out of them."""
    return {
        **asdict(found),
        "nodes": found.nodes,
        "queue": found.queue,
        "dirty_share": found.dirty_share,
        "prefix_reuse": found.prefix_reuse,
        "feedback_mean": found.feedback.mean,
    }


def metrics_table(found: Metrics) -> RenderableType:
    """Draw a session's metrics: the sums, then its levels."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("level")
    for name in ("summaries", "made", "stale", "in", "out", "shorter by", "kept", "s each"):
        table.add_column(name, justify="right")
    for level in found.levels:
        table.add_row(
            f"L{level.level}",
            f"{level.nodes:,}",
            f"{level.made:,}",
            f"{level.dirty + level.stale:,}",
            f"{level.input_tokens:,}",
            f"{level.output_tokens:,}",
            _percent(level.compression),
            _percent(level.fidelity),
            "" if level.seconds is None else f"{level.seconds:.2f}",
        )
    spent = found.spent
    unknown = f", {spent.unknown:,} of unknown outcome" if spent.unknown else ""
    size = f"{plural(found.messages, 'message')}, {plural(found.tokens, 'token')}"
    fewer = f"{found.tokens_saved:,} fewer ({_percent(found.compression)})"
    calls = f"{plural(spent.calls, 'call')}, {spent.tokens_in:,} tokens in"
    lines = [
        f"{size}; {plural(found.open_tokens, 'token')} not sealed yet",
        f"summaries stand for the rest in {found.cover_tokens:,} tokens, {fewer}",
        f"{calls}, {spent.tokens_out:,} out{unknown}",
    ]
    if found.cost_spent is not None:
        saves = "" if found.cost_saved is None else f"; saves {found.cost_saved:,.4f} a request"
        lines.append(f"spent {found.cost_spent:,.4f}{saves}")
    if found.summary_quality_score is not None:
        lines.append(f"anchors kept {_percent(found.summary_quality_score)}")
    if found.feedback.mean is not None:
        given = f"of {found.feedback.count:,} given"
        lines.append(f"feedback: mean {found.feedback.mean:.2f} {given}")
    if found.prefix_reuse is not None:
        reused = _percent(found.prefix_reuse)
        lines.append(f"{reused} of the tokens of a context stood at the front of the one before it")
    if found.queue or found.dirty_share:
        lines.append(f"{found.queue:,} to be made, {found.dirty_share:.0%} out of date")
    return Group(Text("\n".join(lines)), Text(), table)


def print_receipt(receipt: Receipt) -> None:
    """Print what went, what it reached, and what is left to be done."""
    done = {"quarantine": "quarantined"}.get(receipt.kind, "erased")
    what = plural(len(receipt.indices), "message") if receipt.indices else "nothing"
    if receipt.kind == "erase_session":
        what = f"session {clean(receipt.session_id or '')!r}"
    elif receipt.kind == "erase_space":
        what = f"space {clean(receipt.space or '')!r}"
    elif receipt.kind == "erase_tenant":
        what = "everything"
    lines = [f"{done}: {what}"]
    if receipt.already:
        lines.append(f"{plural(len(receipt.already), 'message')} had gone before")
    if gone := _counts(receipt.removed):
        lines.append(f"removed: {', '.join(gone)}")
    for title, names in (
        ("reached the forks", receipt.forks_reached),
        ("still held by", receipt.kept_in),
        ("may quote it, look at them", receipt.unproven),
    ):
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            lines.append(f"{title}: {', '.join(map(clean, names[:_NAMED]))}{more}")
    remake = sum(len(ids) for ids in receipt.to_remake.values())
    if remake:
        lines.append(f"{plural(remake, 'summary', 'summaries')} to be made again: hiermem update")
    if receipt.scrubbed:
        apart = "apart from that, " if receipt.unproven else ""
        lines.append(f"{apart}no trace of them is left in the file")
        lines.append("messages that say them again in other words were not looked for")
    elif receipt.scrub_reason:
        lines.append(f"the file may still hold bytes of it: {clean(receipt.scrub_reason)}")
        if receipt.kind != "quarantine":
            lines.append("hiermem erase --scrub does the same")
    if receipt.run_id:
        lines.append(f"run {receipt.run_id}")
    out().print("\n".join(lines), soft_wrap=True)


def print_scrubbed(found: Scrubbed) -> None:
    """Print whether the file's bytes are clean, and why not."""
    lines = ["the file holds nothing any more of what was erased"]
    if not found.done:
        lines = [f"the file may still hold bytes of what was erased: {clean(found.reason)}"]
    if found.removed:
        lines.append(f"removed: {plural(len(found.removed), 'backup')}")
    out().print("\n".join(lines), soft_wrap=True)


def print_check(report: CheckReport) -> None:
    """Print each promise with its state, then the findings."""
    console = out()
    console.print(
        f"{plural(report.sessions, 'session')}, {plural(report.messages, 'message')}, "
        f"{plural(report.nodes, 'summary', 'summaries')} read",
        soft_wrap=True,
    )
    broken: dict[str, int] = {}
    for finding in report.findings:
        broken[finding.promise] = broken.get(finding.promise, 0) + 1
    for promise, what in report.checked.items():
        count = broken.get(promise, 0)
        state = Text("kept  ", style="green") if not count else Text("BROKEN", style="bold red")
        line = Text(f"{promise:<5} ").append_text(state).append(f" {clean(what)}")
        console.print(line.append(f" ({count:,})" if count else ""), soft_wrap=True)
    for promise, why in report.not_shown.items():
        line = Text(f"{promise:<5} ").append("unseen", style="yellow").append(f" {clean(why)}")
        console.print(line, soft_wrap=True)
    for skipped in report.skipped:
        console.print(Text(clean(skipped), style="yellow"), soft_wrap=True)
    for finding in report.findings[:_FINDINGS]:
        console.print(Text(clean(str(finding)), style="red"), soft_wrap=True)
    if len(report.findings) > _FINDINGS:
        more = len(report.findings) - _FINDINGS
        console.print(f"and {more:,} more; --format json gives all", soft_wrap=True)


def as_json(value: Any) -> str:
    """Write values as JSON in ASCII, so that nothing in them can move a cursor."""
    data = asdict(value) if hasattr(value, "__dataclass_fields__") else value
    return json.dumps(data, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else dict(value)


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"


def _percent(value: float | None) -> str:
    return "" if value is None else share(round(value * 10_000), 10_000)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counted(value: Any) -> bool:
    return _whole(value) and value > 0
