"""Writes what was read of a session or a space as plain values, which the page's script reads.

A text is in the page once: contexts name their messages, and a line of a summary or of a context's
record names the characters of the message, or the line of a summary, that it repeats. Without text,
each text is replaced by its length, and each name by a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from hiermem.bank.records import BankState
from hiermem.calls.report import RunItem
from hiermem.context.read import SessionStatus
from hiermem.context.render import Block
from hiermem.context.selection import ContextSelection
from hiermem.context.zone import Pin
from hiermem.summaries.metrics import Metrics
from hiermem.text.measure import body, speaker
from hiermem.types import SessionRecord, Span, StoredMessage, Summary
from hiermem.types.bank import KnownLine, Note

#: A line of a summary that only states the day.
_DAY: Final = re.compile(r"\[\d{4}-\d\d-\d\d\]")
#: Where a line is parted to find what it repeats, and the least characters of such a part.
_PART: Final = re.compile(r"(?<=[.!?:;…]) ")
_LEAST: Final = 12
#: The records of a context that hold lines of other conversations of the session's space.
_OF_OTHERS: Final = ("space", "recall")
#: The characters of a summary that a list of sessions shows.
_ABOUT: Final = 240


@dataclass(frozen=True, slots=True)
class Wording:
    """How the page says texts and names: as they are, or as lengths and numbers.

    A page of one session ``alone`` names no other.
    """

    text: bool = True
    alone: bool = False
    _numbers: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def say(self, text: str) -> str | int:
        """Return a text, or its length in characters; "" for an empty one."""
        return text if self.text else len(text) or ""

    def name(self, kind: str, name: str) -> str:
        """Return a name, or its number among the names of its kind; "" for none."""
        if self.text or not name:
            return name
        known = self._numbers.setdefault(kind, {})
        return known.setdefault(name, f"{kind} {len(known) + 1}")


#: A context planned for a budget: the budget, whether the session's application asked for it
#: before, and the selection, or the minimum if none fits.
Planned: TypeAlias = tuple[int, bool, ContextSelection | int]


@dataclass(frozen=True, slots=True)
class Lines:
    """Writes the lines of texts by what they repeat of the session's messages and summaries.

    A line is a text; or ``[message, text, begin, length, text, …]``, texts and characters of the
    message in turn; or ``[-1 - summary, line, text]``, a line of a summary and a text behind it.
    """

    messages: Sequence[str]
    words: Wording
    known: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def of_node(self, at: int, text: str, sources: Sequence[int]) -> list[Any]:
        """Return the lines of a summary, of these messages (-1 for none), and know them."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            self.known.setdefault(line, (at, number))
        if not self.words.text:
            return [len(line) for line in lines]
        if not sources:
            return list(lines)
        return [self._of(line, one) or line for line, one in zip(lines, sources, strict=True)]

    def of_record(self, text: str, sources: Sequence[int]) -> list[Any]:
        """Return the lines of a record, which are of these messages, both in order."""
        lines = text.split("\n")
        if not self.words.text:
            return [len(line) for line in lines]
        found: list[Any] = []
        begin = 0
        for line in lines:
            bare = line.removesuffix(" …")
            if bare in self.known and len(bare) > _LEAST:
                node, number = self.known[bare]
                found.append([-1 - node, number, line[len(bare) :]])
                continue
            head = max(_PART.split(line), key=len)
            of = (at for at in range(begin, len(sources)) if head in self.messages[sources[at]])
            place = next(of, None) if len(head) >= _LEAST else None
            quoted = None if place is None else self._of(line, sources[place])
            found.append(quoted or line)
            begin = place if quoted and place is not None else begin
        return found

    def _of(self, line: str, index: int) -> list[Any] | None:
        """Return a line by what it repeats of a message; None if that is nothing."""
        body = self.messages[index] if 0 <= index < len(self.messages) else ""
        found: list[Any] = [index, ""]
        for number, part in enumerate(_PART.split(line)):
            blank = " " if number else ""
            at = body.find(part) if len(part) >= _LEAST else -1
            if at < 0:
                found[-1] += blank + part
            elif len(found) > 2 and not found[-1] and found[-3] + found[-2] + 1 == at:
                found[-2] += 1 + len(part)  # it goes on in the message
            else:
                found[-1] += blank
                found += [at, len(part), ""]
        return found if len(found) > 2 else None


def entry(
    status: SessionStatus,
    record: SessionRecord,
    messages: Sequence[StoredMessage],
    summaries: Sequence[Summary],
    words: Wording,
) -> dict[str, Any]:
    """Return a session as a list of sessions shows it."""
    made = [each for each in summaries if each.made]
    top = max(made, key=lambda each: (each.level, -each.span.start), default=None)
    about = "" if top is None else " ".join(_DAY.sub("", top.text).split())[:_ABOUT]
    return _slim(
        id=words.name("session", status.id),
        title=words.say(status.title or ""),
        people=[words.name("speaker", each) for each in status.participants],
        messages=len(messages),
        tokens=sum(each.tokens for each in messages),
        first=_moment(messages[0].created_at) if messages else None,
        last=_moment(messages[-1].created_at) if messages else None,
        source=words.name("source", record.metadata.get("source", "")),
        forked="" if words.alone else words.name("session", status.forked_from or ""),
        space="" if words.alone else words.name("space", record.space or ""),
        closed=status.closed,
        queue=sum(status.queue.values()),
        degraded=sum(status.degraded.values()),
        about=words.say(about),
    )


def session(
    status: SessionStatus,
    messages: Sequence[StoredMessage],
    summaries: Sequence[Summary],
    words: Wording,
    *,
    pins: Sequence[Pin],
    contexts: Sequence[Planned],
    metrics: Metrics,
    calls: Mapping[str, RunItem],
) -> dict[str, Any]:
    """Return all that the page shows of a session."""
    places = {each.id: at for at, each in enumerate(summaries)}
    bodies = [body(each.message) for each in messages]
    # A browser counts characters beyond the first 65,536 twice, so those texts are not referred to.
    lines = Lines([each if max(each, default="") < "\U00010000" else "" for each in bodies], words)
    left_out = _OF_OTHERS if words.alone and status.space else ()
    return {
        "error": status.last_error,
        "repacking": status.repacking,
        "config": status.config.model_dump_json(exclude_defaults=True),
        "messages": _messages(messages, words),
        "nodes": [_node(each, places, calls, lines) for each in summaries],
        "open": [[each.messages, each.tokens] for each in status.open_windows],
        "pins": [[each.index, each.reason, words.say(each.text)] for each in pins],
        "contexts": [_context(each, places, lines, left_out) for each in contexts],
        "levels": [
            [each.level, each.nodes, each.made, each.degraded, each.dirty, each.queue,
             each.fidelity, each.calls, each.tokens_in, each.tokens_out]
            for each in metrics.levels
        ],
        "spent": [metrics.spent.calls, metrics.spent.tokens_in, metrics.spent.tokens_out,
                  metrics.cost_spent],
        "sealed": metrics.tokens - metrics.open_tokens,
        "cover": metrics.cover_tokens,
        "reuse": metrics.prefix_reuse,
    }  # fmt: skip


def space(
    name: str, bank: BankState, notes: Sequence[Note], lines: Sequence[KnownLine], words: Wording
) -> dict[str, Any]:
    """Return all that the page shows of a space: files, lines, and the notes they are made of."""

    def sources(each: Note | KnownLine) -> list[list[Any]]:
        return [[words.name("session", one), index] for one, index in each.sources]

    return {
        "name": words.name("space", name),
        "revision": bank.meta.revision,
        "synthesis": words.say(bank.synthesis),
        "files": [[words.name("file", of), words.say(text)] for of, text in bank.texts.items()],
        "lines": [
            _slim(
                text=words.say(each.text),
                place=each.place,
                since=_moment(each.since),
                was=words.say(each.was),
                sources=sources(each),
            )
            for each in lines
        ],
        "notes": [
            _slim(
                text=words.say(each.text),
                agent=words.name("agent", each.agent or ""),
                at=_moment(each.timestamp),
                sources=sources(each),
                files=[words.name("file", of) for of in each.files],
                dropped=words.say(each.dropped_for),
            )
            for each in notes
        ],
    }


def _messages(messages: Sequence[StoredMessage], words: Wording) -> dict[str, Any]:
    """Return messages as columns; names are numbers into a list of them."""
    speakers = [words.name("speaker", speaker(each.message)) for each in messages]
    threads = [words.name("thread", each.thread) for each in messages]
    names = {name: at for at, name in enumerate(dict.fromkeys(speakers))}
    numbers = {name: at for at, name in enumerate(dict.fromkeys(threads))}
    return {
        "role": "".join(each.role[0] for each in messages),
        "who": [names[each] for each in speakers],
        "thread": [numbers[each] for each in threads],
        "tokens": [each.tokens for each in messages],
        "at": [_moment(each.created_at) for each in messages],
        "text": [words.say(body(each.message)) for each in messages],
        "states": {each.index: each.state for each in messages if each.state != "live"},
        "names": list(names),
        "threads": list(numbers),
    }


def _node(
    summary: Summary, places: Mapping[str, int], calls: Mapping[str, RunItem], lines: Lines
) -> dict[str, Any]:
    node, made, words = summary.node, summary.revision, lines.words
    found = _slim(
        id=node.id,
        level=node.level,
        span=_ends(node.span),
        first=_moment(node.first_at),
        last=_moment(node.last_at),
        up=None if node.parent is None else places.get(node.parent),
        messages=node.messages,
        status=node.status,
        given=node.input_tokens,
        degraded=summary.degraded or node.degraded,
        dirty=node.dirty,
        error=node.error,
        tries=node.attempts,
    )
    item = calls.get(node.id)
    if item is not None and (node.error or summary.degraded or not summary.made):
        found["reasons"] = list(item.reasons)
    if made is not None:
        found |= _slim(
            lines=lines.of_node(places[node.id], made.text, _sources(made.text, made.provenance)),
            tokens=made.tokens,
            model=made.model,
            made=_moment(made.created_at),
            calls=made.calls,
            spent=[made.tokens_in, made.tokens_out],
            # An id names another summary after a re-pack; its calls are not this one's.
            cost=item.cost if item and item.tokens_in == made.tokens_in else None,
            fidelity=made.fidelity,
            unsupported=[words.say(each) for each in made.unsupported],
            reused=made.reused,
            style=made.style,
        )
    return found


def _sources(text: str, provenance: str) -> list[int]:
    """Return for each line of an extract the message that it is of, -1 for a line of a day.

    The result is [] for a text that is no extract.
    """
    if not provenance:
        return []
    try:
        rows = [row[0] if isinstance(row[0], int) else -1 for row in json.loads(provenance)[2]]
    except (ValueError, TypeError, LookupError):
        return []
    days = [bool(_DAY.fullmatch(line)) for line in text.split("\n")]
    if days.count(False) != len(rows):
        return []
    left = iter(rows)
    return [-1 if is_day else next(left) for is_day in days]


def _context(
    planned: Planned, places: Mapping[str, int], lines: Lines, left_out: Collection[str]
) -> dict[str, Any]:
    """Return a context without its blocks of some kinds."""
    budget, is_asked, chosen = planned
    found = {"budget": budget, "asked": is_asked}
    if isinstance(chosen, int):
        return {**found, "least": chosen}
    shown = [item for level in chosen.summaries.values() for item in level]
    excerpted = [
        index
        for begin, end in chosen._excerpted  # noqa: SLF001 - what its counts are made of
        for index in range(begin, min(end, len(lines.messages)))
    ]
    return {
        **found,
        "total": chosen.total_tokens,
        "shared": chosen.shared_prefix_tokens,
        "blocks": [
            _block(each, excerpted, lines) for each in chosen.blocks if each.kind not in left_out
        ],
        "nodes": [places[item.id] for item in shown if item.id in places],
        "verbatim": _runs(_ends(each) for each in chosen.verbatim if not each.sliced),
        "excerpted": _runs(chosen._excerpted),  # noqa: SLF001
        "summarised": _runs(chosen._summarised),  # noqa: SLF001
        "recalled": [] if "recall" in left_out else [each.index for each in chosen.recall],
    }


def _block(block: Block, excerpted: Sequence[int], lines: Lines) -> list[Any]:
    """Return a block: its kind, tokens and messages, and the lines of a record or an excerpt."""
    text, sources = block.text, excerpted
    if block.message and block.kind == "excerpt":
        text, sources = text or body(block.message.message), [block.message.index]
    record = [lines.of_record(text, sources)] if text else []
    return [block.kind, block.tokens, *_ends(block.span), *record]


def _runs(runs: Iterable[Sequence[int]]) -> list[int]:
    return [end for run in runs for end in run]


def _ends(span: Span) -> list[int]:
    return [span.start, span.stop]


def _moment(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def _slim(**values: Any) -> dict[str, Any]:
    """Return values without those that say nothing."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value not in ("", [])
    }
