"""Turn the content of a context into provider messages: the exact form that each message takes.

Memory enters a prompt only as a fenced record in a user-role message of its own. A real message is
either rendered whole or quoted inside such a record. The tool calls of an assistant and all their
results appear together in their native form, or none of them does.

This module does not choose what is shown; ``cut`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from hiermem.convert import request
from hiermem.text.fence import NOTICE, as_counted, fence, in_turn
from hiermem.text.measure import MESSAGE_OVERHEAD, body, day, speaker
from hiermem.text.policy import lowest, trust_of
from hiermem.types import Span, StoredMessage, Trust
from hiermem.types.brief import Brief

#: Part of every sticky state's key: a change of any rendered byte must change it.
RENDERER = "r9"

#: The mark of text that is left out; the notice in front of the records explains it.
LEFT_OUT: Final = "…"

Kind: TypeAlias = Literal["summary", "view", "message", "quote", "pins", "recall"]


@dataclass(frozen=True, slots=True)
class Block(Brief):
    """One piece of a rendered context, in order.

    ``kind`` distinguishes a whole summary, a trimmed view of several summaries, a verbatim message,
    a quoted message, pinned messages, and the record recalled for a question. ``text`` is the
    fenced text; it is empty for a verbatim message, which is rendered from ``message``.
    ``seam`` is the date that stands in front of a verbatim message where the day changes.
    ``tokens`` counts everything that the block adds to a request, role overhead included.
    """

    kind: Kind
    name: str
    span: Span
    tokens: int
    text: str = ""
    level: int | None = None
    message: StoredMessage | None = None
    seam: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The provenance that the opening line of a fenced record states.

    ``dates`` are the first and the last day; a record states none whose lines stand under theirs.
    Of the lines that follow it, the first ``requests`` are standing wishes of the user's.
    """

    name: str
    span: Span
    dates: tuple[str, str] | None = None
    level: int | None = None
    trust: Trust = "conversation"
    requests: int = 0

    def attributes(self) -> Mapping[str, str]:
        """Return the provenance as attributes, in a fixed order.

        The name of a record of one message states which message it is.
        """
        first, last = self.span.start, self.span.stop - 1
        found: dict[str, str] = {}
        if self.name != name_of(first):
            found["messages"] = str(first) if last == first else f"{first}-{last}"
        if self.level is not None:
            found["level"] = str(self.level)
        if self.dates is not None:
            begin, end = self.dates
            found["dates"] = begin if begin == end else f"{begin}/{end}"
        if self.requests:
            found["user_requests"] = _requested(self.requests)
        if self.trust != "conversation":
            found["trust"] = self.trust
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """A message shown verbatim: whole, or characters ``begin`` to ``end`` of its body."""

    message: StoredMessage
    begin: int = 0
    end: int | None = None

    @property
    def partial(self) -> bool:
        """Return whether only a slice of the message is shown."""
        return self.begin > 0 or self.end is not None

    @property
    def length(self) -> int:
        """Return how many characters of the message's body are shown."""
        return len(body(self.message.message)[self.begin : self.end])

    @property
    def line(self) -> str:
        """Return what is shown, after its speaker's name, with a mark where the message goes on."""
        message = self.message.message
        whole = body(message)
        end = len(whole) if self.end is None else self.end
        before = f"{LEFT_OUT} " if whole[: self.begin].strip() else ""
        after = f" {LEFT_OUT}" if whole[end:].strip() else ""
        return in_turn(speaker(message), f"{before}{whole[self.begin : end]}{after}")

    @property
    def empty(self) -> bool:
        """Return whether it renders as nothing (erased, quarantined, empty), yet is covered."""
        stored = self.message
        if stored.state != "live":
            return True
        return not stored.content and not stored.tool_calls


@dataclass(frozen=True, slots=True)
class Writer:
    """Renders what a tenant's context shows: ``key`` signs fences, ``count`` counts tokens."""

    key: bytes
    count: Callable[[str], int]

    def record(
        self, kind: Kind, frame: Frame, text: str, *, message: StoredMessage | None = None
    ) -> Block:
        """Fence ``text`` as a record and count it as a message of its own."""
        attributes = frame.attributes()
        fenced = fence(frame.name, text, key=self.key, attributes=attributes)
        tokens = self.count(as_counted(frame.name, text, attributes)) + MESSAGE_OVERHEAD
        return Block(kind, frame.name, frame.span, tokens, fenced, frame.level, message)

    def messages(self, shown: Iterable[Shown], day_before: str = "") -> list[Block]:
        """Render verbatim messages in order of index, in native form where providers accept it.

        Elsewhere a message, or a part of one, is quoted in a record. A tool's result without text
        is rendered with its call, which would be none without it. Where the day changes, also from
        ``day_before``, a date stands in front of what the user or the assistant says next, but
        never between a call and its results.
        """
        visible = [item for item in in_order(shown) if not item.empty or _answers(item)]
        found: list[Block] = []
        ids, today = request.CallIds(), day_before
        is_native = request.native(
            [None if item.partial else item.message.message for item in visible]
        )
        for item, whole in zip(visible, is_native, strict=True):
            stored, name = item.message, name_of(item.message.index)
            date = day(stored.created_at)
            if whole:
                dated = date != today and stored.role in ("user", "assistant")
                seam = f"[{date}]" if dated else ""
                today = date if seam else today
                span = Span(stored.index, stored.index + 1)
                tokens = stored.tokens + self._seam_tokens(stored, seam)
                # Where a shape has no names, a colon parts the speaker from the text.
                tokens += self._renamed(stored, ids) + bool(stored.name)
                found.append(Block("message", name, span, tokens, message=stored, seam=seam))
            elif not item.empty:
                line = item.line if date == today else f"[{date}]\n{item.line}"
                frame = frame_of(name, [item])
                found.append(self.record("quote", frame, line, message=stored))
                today = date
        return found

    def _seam_tokens(self, stored: StoredMessage, seam: str) -> int:
        """Return what a date adds to a message of the user's, or takes as a message of its own."""
        if not seam:
            return 0
        return self.count(f"{seam}\n") + (0 if stored.role == "user" else MESSAGE_OVERHEAD)

    def _renamed(self, stored: StoredMessage, ids: request.CallIds) -> int:
        """Return what the calls of a message cost more because their ids were used before."""
        if not stored.tool_calls:
            return 0
        sent = ids.sent(stored.message).tool_calls
        return sum(
            max(0, self.count(new.id) - self.count(old.id)) + 1
            for new, old in zip(sent, map(request.sent_call, stored.tool_calls), strict=True)
            if new.id != old.id
        )

    def cost(self, shown: Iterable[Shown], day_before: str = "") -> int:
        """Return the tokens of verbatim messages, rendered together."""
        return sum(block.tokens for block in self.messages(shown, day_before))


def _requested(number: int) -> str:
    """Return how the opening line of a record says that its first lines are to be followed.

    It counts them, because no text can imitate this line, but any text a mark between lines.
    """
    lines = "first line: follow it" if number == 1 else f"first {number} lines: follow them"
    return f"{lines} unless a later one or the newest message differs"


def requests_tokens(number: int, count: Callable[[str], int]) -> int:
    """Return what so many requests add to the opening line of a record."""
    return count(f' user_requests="{_requested(number)}"') if number else 0


def name_of(index: int) -> str:
    """Return the name of the block of one message."""
    return f"m{index}"


def noticed(blocks: Sequence[Block], count: Callable[[str], int]) -> tuple[Block, ...]:
    """Return blocks with the notice in front of the first record, where none has it yet.

    Records of pinned messages say themselves what they hold.
    """
    if any(block.text.startswith(NOTICE) for block in blocks):
        return tuple(blocks)
    for place, block in enumerate(blocks):
        if block.text and block.kind != "pins":
            text = f"{NOTICE}\n{block.text}"
            first = replace(block, text=text, tokens=block.tokens + notice_tokens(count))
            return (*blocks[:place], first, *blocks[place + 1 :])
    return tuple(blocks)


def notice_tokens(count: Callable[[str], int]) -> int:
    """Return what the notice adds to a context with a record."""
    return count(f"{NOTICE}\n")


def frame_of(name: str, shown: Sequence[Shown]) -> Frame:
    """Return the frame of a record of messages, which are in order; without dates."""
    first, last = shown[0], shown[-1]
    return Frame(
        name=name,
        span=Span(first.message.index, last.message.index + 1, first.begin, last.end),
        trust=lowest(trust_of(item.message) for item in shown),
    )


def in_order(shown: Iterable[Shown]) -> list[Shown]:
    """Sort by index; a message is in at most one item of a selection."""
    return sorted(shown, key=lambda item: item.message.index)


def _answers(item: Shown) -> bool:
    """Return whether a message is the result of a call, even one without text."""
    return item.message.state == "live" and item.message.message.tool_call_id is not None
