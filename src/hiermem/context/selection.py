"""Decides how the answer to a context request renders for each provider, and what it counts.

The same selection renders to the same bytes. ``total_tokens`` counts everything that ``to_openai``
returns, including the system prompt and the tools. This module makes no decisions.

Counts the messages that a context shows something of: verbatim, excerpted or summarised.

Coverage means that every message is under some block; it does not mean that the block says anything
about the message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hiermem import arguments
from hiermem.context.cut import Omitted
from hiermem.context.render import Block, in_text
from hiermem.convert import request
from hiermem.errors import UsageError
from hiermem.search.results import Evidence
from hiermem.types import Message, Span, StoredMessage
from hiermem.types.brief import Bar, Brief
from hiermem.types.ranges import Ranges, each_of, ranges_of


@dataclass(frozen=True, slots=True)
class ShownQuarter:
    """One quarter of a session: its messages, and how many of them stand how in a context.

    ``verbatim`` stand whole, raw or recalled, ``excerpted`` are shown in part, by a line of their
    own words or more, ``summarised`` are covered by a model's
    text of which a line is shown. A line does not speak of every message that its text covers, so
    ``summarised`` is an upper bound. Each message counts once.
    """

    messages: int = 0
    verbatim: int = 0
    excerpted: int = 0
    summarised: int = 0

    @property
    def share(self) -> float:
        """Return the share of the messages that are shown; 1.0 for a quarter without messages."""
        shown = self.verbatim + self.excerpted + self.summarised
        return shown / self.messages if self.messages else 1.0


@dataclass(frozen=True, slots=True)
class ShownMessages(Brief):
    """The messages that a context shows something of.

    ``messages`` are their indices, sorted. ``by_quarter`` counts the quarters of the session,
    oldest first. Messages that were erased or put in quarantine are not counted at all.
    """

    messages: tuple[int, ...] = ()
    by_quarter: tuple[ShownQuarter, ...] = (ShownQuarter(),) * 4

    def explain(self) -> str:
        """Return a description of their number and of the share of each quarter."""
        quarters = ", ".join(f"{quarter.share:.0%}" for quarter in self.by_quarter)
        return f"{len(self.messages):,} (by quarter, oldest first: {quarters})"


class _Default(int):
    """A default number of tokens, as a type of its own to distinguish it from a given number."""


#: A quarter of the default budget.
_RESERVE: Final = _Default(2_000)


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """The number of tokens that a request may take, and their division.

    ``reserve_for_messages`` is reserved for the newest messages, which are verbatim. With None the
    policy decides; the default shrinks with a smaller budget. ``system`` and ``tools`` are counted
    and subtracted from the budget, as is ``reserve_for_output``.

    ``available_for_summaries`` is what the two reserves leave. If it is given, it divides the
    budget: what is left over is added to ``reserve_for_output``, and without ``max_tokens`` the
    budget is the sum of the parts.

    Raises UsageError if the parts are more than ``max_tokens``.
    """

    max_tokens: int = _Default(8_000)
    reserve_for_messages: int | None = _RESERVE
    reserve_for_output: int = 0
    system: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    available_for_summaries: int = _Default(0)

    def __post_init__(self) -> None:
        reserve = self.reserve_for_messages
        available = arguments.whole(self.available_for_summaries, "available_for_summaries")
        divided = not isinstance(available, _Default)
        most = arguments.whole(self.max_tokens, "max_tokens", least=1)
        if reserve is not None:
            arguments.whole(reserve, "reserve_for_messages")
        output = arguments.whole(self.reserve_for_output, "reserve_for_output")
        if divided and isinstance(most, _Default):
            most = max(1, available + (reserve or 0) + output)
        elif reserve is _RESERVE:
            reserve = min(_RESERVE, most // 4)
        elif reserve is not None and reserve > most - output:
            raise UsageError(
                f"reserve_for_messages is {reserve}; the budget leaves only "
                f"{max(0, most - output)} tokens"
            )
        left = most - (reserve or 0) - output
        if divided and available > left:
            raise UsageError(
                f"available_for_summaries is {available}; the budget leaves only "
                f"{max(0, left)} tokens"
            )
        settled = {
            "max_tokens": int(most),
            "reserve_for_messages": None if reserve is None else int(reserve),
            "reserve_for_output": output + left - available if divided else output,
            "available_for_summaries": available if divided else _Default(max(0, left)),
            "tools": arguments.tool_schemas(self.tools),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class ShownSummary(Brief):
    """A node that a selection shows: whole, or trimmed inside the view with the name ``block``."""

    id: str
    level: int
    span: Span
    messages: int
    trimmed: bool
    block: str


class ByLevel(dict[int, tuple[ShownSummary, ...]]):
    """The shown summaries by level; a level without summaries returns ()."""

    def __missing__(self, level: int) -> tuple[ShownSummary, ...]:
        """Return () for a level without shown summaries."""
        return ()


@dataclass(frozen=True, slots=True)
class ContextSelection(Brief):
    """The best context that fits the budget: the whole history, each message exactly once.

    ``coverage`` is the share of messages that are represented, each under one block, whether or not
    the block says anything about the message; it is 1.0 unless ``omitted`` has entries. ``shown``
    lists the messages that the selection shows something of. ``trimmed`` names the nodes that a
    view shows in part. ``recall`` are the session's older messages that are verbatim because of a
    question, in whole or in part; ``evidence`` contains the parts, and those of its space's other
    sessions. ``verbatim`` are the spans of all verbatim
    text, recalled text included. A message of which an excerpt stands has no such span; its entry
    in ``recent_messages`` holds the excerpt and the flag "excerpt". ``shared_prefix_tokens`` is the
    number of tokens at the beginning that are unchanged from the previous selection of the same
    view. ``pins`` are the pinned messages that a record of their own shows; others stand in raw
    messages.
    """

    _brief = "session_id total_tokens max_tokens messages coverage"

    session_id: str
    max_tokens: int
    total_tokens: int
    messages: int
    coverage: float
    blocks: tuple[Block, ...]
    omitted: tuple[Omitted, ...] = ()
    trimmed: tuple[str, ...] = ()
    recent_messages: tuple[StoredMessage, ...] = ()
    summaries: ByLevel = field(default_factory=ByLevel)
    recall: tuple[StoredMessage, ...] = ()
    evidence: Evidence | None = None
    verbatim: tuple[Span, ...] = ()
    shared_prefix_tokens: int = 0
    system: str | None = None
    tool_tokens: int = 0
    pins: tuple[int, ...] = ()
    _excerpted: Ranges = field(default=(), repr=False)
    _summarised: Ranges = field(default=(), repr=False)
    _gone: Ranges = field(default=(), repr=False)
    _too_long: int = field(default=0, repr=False)

    def _strip(self) -> tuple[int, dict[str, list[Bar]]]:
        views = [(each.span, 1, each.name) for each in self.blocks if each.kind == "view"]
        levels = sorted(self.summaries, reverse=True)
        nodes = [(each.span, level, each.id) for level in levels for each in self.summaries[level]]
        raw = [(b.span, int(b.kind == "excerpt"), "") for b in self.blocks if b.message]
        rows = {"context": [*views, *nodes, *raw]}
        if self.recall:
            rows["recalled"] = [(Span(each.index, each.index + 1), 0, "") for each in self.recall]
        return self.messages, {
            name: [(span.start, span.stop, level, label) for span, level, label in parts]
            for name, parts in rows.items()
        }

    def _below(self) -> str:
        return self.explain()

    def __copy__(self) -> Self:
        return self  # a value that does not change is its own copy

    def __deepcopy__(self, _: object) -> Self:
        return self

    @property
    def shown(self) -> ShownMessages:
        """Return the messages of which something is shown: raw, recalled, or by a record's line."""
        whole = ((each.start, each.stop) for each in self.verbatim if not each.sliced)
        kinds = dict.fromkeys(each_of(self._summarised), "summarised")
        kinds |= dict.fromkeys(each_of(self._excerpted), "excerpted")
        kinds |= dict.fromkeys(each_of(whole), "verbatim")
        shown = sorted(
            index
            for index in kinds
            if 0 <= index < self.messages and not any(a <= index < b for a, b in self._gone)
        )

        def of_quarter(quarter: int) -> ShownQuarter:
            begin, end = self.messages * quarter // 4, self.messages * (quarter + 1) // 4
            lost = sum(max(0, min(end, b) - max(begin, a)) for a, b in self._gone)
            inside = shown[bisect_left(shown, begin) : bisect_left(shown, end)]
            return ShownQuarter(end - begin - lost, **Counter(kinds[index] for index in inside))

        return ShownMessages(tuple(shown), tuple(map(of_quarter, range(4))))

    def to_openai(self) -> list[dict[str, Any]]:
        """Render as a list of OpenAI chat messages.

        Like the other renderings, it is one that the provider accepts (``convert.request``), and
        has the extra fields that a message was read with (``metadata``) left out.
        """
        return request.to_chat(self._entries(), self.system)

    def to_anthropic(self) -> dict[str, Any]:
        """Render as the ``system`` and ``messages`` of an Anthropic request.

        Content is always a list of blocks, and each record is a block of its own. System messages
        that lead the context join ``system``; a later one appears in its place as the user's text
        ``System: …``. In this way, earlier rendered content stays unchanged when further messages
        follow. A named message begins with its speaker's name, as the interface has no names.
        """
        return request.to_messages(self._entries(), self.system)

    def to_responses(self) -> list[dict[str, Any]]:
        """Render as items of the OpenAI Responses interface, the ``input`` of a request.

        Items have no ids: a context may hold an item without the one that its id is bound to. A
        named message begins with its speaker's name, as the interface has no names.
        """
        return request.to_items(self._entries(), self.system)

    def _entries(self) -> list[request.Entry]:
        """Return the blocks as messages with their seams, each record as one of the user's."""
        return [
            ("", Message.user(block.text))
            if (message := block.shown) is None
            else (block.seam, message)
            for block in self.blocks
        ]

    def to_text(self) -> str:
        """Render as plain text, one paragraph per block.

        The further lines of a message are indented, so that none begins a turn or a record.
        """
        found = [] if self.system is None else [self.system]
        found += [
            block.text or (in_text(block.message.message, block.seam) if block.message else "")
            for block in self.blocks
        ]
        return "\n\n".join(found)

    def explain(self) -> str:
        """Return a short description of the blocks, their costs and the omissions."""
        spent = f"{self.total_tokens:,} of {self.max_tokens:,} tokens"
        said = f"{spent}; the session has no messages yet."
        if self.messages:
            said = (
                f"{spent} cover {self.coverage:.0%} of {self.messages:,} messages and show "
                f"something of {self.shown.explain()}."
            )
        if self.shared_prefix_tokens:
            said += f" The first {self.shared_prefix_tokens:,} stand as before."
        lines = [said]
        if self.system is not None:
            lines.append("  system prompt")
        if self.tool_tokens:
            lines.append(f"  tool schemas: {self.tool_tokens:,} tokens")
        lines += _explain_blocks(self.blocks, self.summaries)
        if self.pins:
            lines.append(f"Pinned messages: {', '.join(map(str, self.pins))}.")
        if self.trimmed:
            lines.append(f"Trimmed inside views: {_some(self.trimmed)}.")
        if self._too_long:
            lines.append(
                f"The system messages that lead the session do not lead this context: their "
                f"{self._too_long:,} tokens are more than half of its budget."
            )
        if self.omitted:
            lines.append(
                f"Left out: {sum(item.messages for item in self.omitted):,} messages in "
                f"{_some([item.name for item in self.omitted])}."
            )
        return "\n".join(lines)


def _explain_blocks(blocks: Sequence[Block], summaries: ByLevel) -> list[str]:
    """Return one line for each record, one for all verbatim messages, and one for excerpts."""
    lines: list[str] = []
    raw = [block for block in blocks if block.message is not None and block.kind != "excerpt"]
    short = [block for block in blocks if block.kind == "excerpt"]
    recalled: list[str] = []
    for block in (block for block in blocks if block.message is None):
        first, last = block.span.start, block.span.stop - 1
        if block.kind == "recall":
            of = f"of messages {first}-{last}, " if first <= last else ""
            recalled.append(f"  recalled: {of}{block.tokens:,} tokens")
        elif block.kind == "space":
            lines.append(f"  of the space: {block.tokens:,} tokens")
        else:
            shown = (each for level in summaries.values() for each in level)
            inside = Counter(each.level for each in shown if each.block == block.name)
            of = ", ".join(f"{inside[level]} L{level}" for level in sorted(inside, reverse=True))
            what = "pooled view" if inside else "open view"
            what = {"summary": "summary", "pins": "pinned"}.get(block.kind, what)
            lines.append(
                f"  {what} {block.name}: messages {first}-{last}, {block.tokens:,} tokens"
                + (f" ({of})" if of else "")
            )
    if raw:
        tokens = sum(block.tokens for block in raw)
        quoted = sum(block.kind == "quote" for block in raw)
        partly = sum(block.span.sliced for block in raw)
        lines.append(
            f"  verbatim: {len(raw)} messages, {_runs(raw)}, {tokens:,} tokens"
            + (f", {quoted} of them quoted" if quoted else "")
            + (f", {partly} in part" if partly else "")
        )
    if short:
        tokens = sum(block.tokens for block in short)
        lines.append(f"  excerpts: {len(short)} messages, {_runs(short)}, {tokens:,} tokens")
    return lines + recalled


def _runs(blocks: Sequence[Block]) -> str:
    """Return the indices of blocks in order, adjacent ones as a range: ``0, 325-347``."""
    runs = ranges_of(at for each in blocks for at in range(each.span.start, each.span.stop))
    return _some([f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in runs])


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
