"""Decides the exact form that the content of a context takes in provider messages.

Memory enters a prompt only as a fenced record in a user-role message of its own. A real message is
either rendered whole or quoted inside such a record. The tool calls of an assistant and all their
results appear together in their native form, or none of them does.

This module does not choose what is shown; ``cut`` does.

Render kept units as the lines of a record, with a mark wherever text between two is left out.

Without the mark, two adjacent lines read as question and answer, whatever was said between them.
The rendered text can be parsed back into its units, so that the units of a record are available
when the record is pooled with others.

Evidence next to a cut: which spans the cut already shows raw, and the record of the evidence.

Providers cache the beginning of a prompt, and another question would change the evidence. Therefore
the evidence is one record behind all but the newest turn, in which the question stands. The record
never repeats text that is raw beside it. What the evidence leaves of its room goes to the newest
messages that are not raw, in the same record. ``search.select`` decides what answers.

The verbatim zone: which messages are raw, and which messages may not be separated.

The windows of a thread are contiguous in it, so the raw part of a thread is everything from one
position on. Windows that share a message or an exchange group are either all raw or all
summarised. The part that is still open is the exception, because the newest messages must be raw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from hiermem import needs
from hiermem.convert import request
from hiermem.errors import StoreCorruptError
from hiermem.needs import Reading
from hiermem.protocols import TokenCounter
from hiermem.search.results import Evidence
from hiermem.text import units
from hiermem.text.fence import NOTICE, as_counted, escape, fence, in_turn, unescape
from hiermem.text.measure import MESSAGE_OVERHEAD, body, day, guarded, message_tokens, speaker
from hiermem.text.policy import lowest, trust_of
from hiermem.text.slices import excerpt
from hiermem.tree.fold import OpenWindow, SessionState
from hiermem.tree.turns import Arrival, Flag, Turns
from hiermem.types import (
    Message,
    Node,
    Part,
    Position,
    Span,
    StoredMessage,
    TextPart,
    Trust,
    Unit,
)
from hiermem.types.brief import Brief
from hiermem.types.message import Content, part_text
from hiermem.types.transaction import NeedMessages

#: Part of every sticky state's key: a change of any rendered byte must change it.
RENDERER = "r12"

#: A text of more characters is not counted here: that would hold up the event loop.
_LONG: Final = 50_000
#: What a record of several conversations says of itself.
_ALL_CONVERSATIONS: Final = "all conversations"
#: The mark of text that is left out; the notice in front of the records explains it.
LEFT_OUT: Final = "…"

#: The flag of a stored message of which a context shows an excerpt as its content.
EXCERPT: Final = "excerpt"

Kind: TypeAlias = Literal[
    "summary", "view", "message", "excerpt", "quote", "pins", "recall", "space"
]


@dataclass(frozen=True, slots=True)
class Block(Brief):
    """One piece of a rendered context, in order.

    ``kind`` distinguishes a whole summary, a trimmed view of several summaries, a verbatim message,
    an excerpt of one, a quoted message, pinned messages, what the session's space holds, and the
    record recalled for a question. ``text`` is the fenced text; it is empty for what is rendered
    from ``message``, a verbatim message or an excerpt in its role.
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

    @property
    def shown(self) -> Message | None:
        """Return a verbatim message as every rendering shows it: nothing in it reads like a record.

        None for a record. It is the message itself if nothing has to be escaped.
        """
        if self.text or self.message is None:
            return None
        return guarded(self.message.message, self.message.echoes)


@dataclass(frozen=True, slots=True)
class Frame:
    """The provenance that the opening line of a fenced record states.

    ``dates`` are the first and the last day; a record states none whose lines stand under theirs.
    Of the lines that follow it, the first ``requests`` are standing wishes of the user's, and the
    next ``pinned`` what an application pinned. A record of other conversations says ``whose`` they
    are, and no messages.
    """

    name: str
    span: Span
    dates: tuple[str, str] | None = None
    level: int | None = None
    trust: Trust = "conversation"
    requests: int = 0
    pinned: int = 0
    whose: str = ""

    def attributes(self) -> Mapping[str, str]:
        """Return the provenance as attributes, in a fixed order.

        The name of a record of one message states which message it is.
        """
        first, last = self.span.start, self.span.stop - 1
        found: dict[str, str] = {}
        if self.whose:
            found["of"] = self.whose
        elif self.name != name_of(first):
            found["messages"] = str(first) if last == first else f"{first}-{last}"
        if self.level is not None:
            found["level"] = str(self.level)
        if self.dates is not None:
            begin, end = self.dates
            found["dates"] = begin if begin == end else f"{begin}/{end}"
        found |= head_attributes(self.requests, self.pinned)
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
    def is_excerpt(self) -> bool:
        """Return whether an excerpt of the message is shown, or its images by name."""
        return EXCERPT in self.message.flags

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
    """Renders what a tenant's context shows: ``key`` signs fences, ``counter`` counts tokens.

    ``sizes`` are the tokens of messages in a plain text, by what is shown of them.
    """

    key: bytes
    counter: TokenCounter
    sizes: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.counter.count(text)

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
        visible = [
            item
            for item in in_order(shown)
            # A call stands with its result, even with one without text.
            if not item.empty
            or (item.message.state == "live" and item.message.message.tool_call_id is not None)
        ]
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
                message = guarded(stored.message, stored.echoes)
                is_own = message is stored.message
                tokens = stored.tokens if is_own else message_tokens(message, self.counter)
                if seam:  # in a message of the user's, or as one of its own
                    own = 0 if stored.role == "user" else MESSAGE_OVERHEAD
                    tokens += self.count(f"{seam}\n") + own
                # Where a shape has no names, a colon parts the speaker from the text.
                tokens += self._renamed(message, ids) + bool(stored.name)
                tokens = max(tokens, self._in_text(stored, seam))
                kind: Kind = "excerpt" if item.is_excerpt else "message"
                found.append(Block(kind, name, span, tokens, message=stored, seam=seam))
            elif not item.empty:
                line = item.line if date == today else f"[{date}]\n{item.line}"
                frame = frame_of(name, [item])
                kind = "excerpt" if item.is_excerpt else "quote"
                found.append(self.record(kind, frame, line, message=stored))
                today = date
        return found

    def _in_text(self, stored: StoredMessage, seam: str) -> int:
        """Return what a message takes in a plain text, where its lines are indented.

        A long one is not counted again, which would hold up the event loop: each line may add one.
        """
        if len(text := body(stored.message)) > _LONG:
            front = self.count(f"{seam}\n{speaker(stored.message)}:\n\n")
            return stored.tokens + front + 2 * text.count("\n")
        key = stored.hash if EXCERPT not in stored.flags else text, seam
        if key not in self.sizes:
            self.sizes[key] = self.count(f"{in_text(stored.message, seam)}\n\n")
        return self.sizes[key]

    def _renamed(self, message: Message, ids: request.CallIds) -> int:
        """Return what the calls of a message cost more because their ids were used before."""
        if not message.tool_calls:
            return 0
        sent = ids.sent(message).tool_calls
        return sum(
            max(0, self.count(new.id) - self.count(old.id)) + 1
            for new, old in zip(sent, map(request.sent_call, message.tool_calls), strict=True)
            if new.id != old.id
        )

    def cost(self, shown: Iterable[Shown], day_before: str = "") -> int:
        """Return the tokens of verbatim messages, rendered together."""
        return sum(block.tokens for block in self.messages(shown, day_before))


def head_attributes(requests: int, pinned: int) -> dict[str, str]:
    """Return how an opening line says what the first lines are: wishes to follow, and pins.

    It counts them, because no text can imitate this line, but any text a mark between lines.
    """
    found: dict[str, str] = {}
    if requests:
        lines = "first line: follow it" if requests == 1 else f"first {requests} lines: follow them"
        found["user_requests"] = f"{lines} unless a later one or the newest message differs"
    if pinned:
        lines = "line" if pinned == 1 else f"{pinned} lines"
        found["pinned"] = f"{'next' if requests else 'first'} {lines}"
    return found


def in_text(message: Message, seam: str) -> str:
    """Return a verbatim message as a paragraph, below the date that stands in front of it."""
    said = escape(in_turn(speaker(message), body(message)))
    return "\n".join(filter(None, (seam, said)))


def name_of(index: int) -> str:
    """Return the name of the block of one message."""
    return f"m{index}"


def noticed(blocks: Sequence[Block], count: Callable[[str], int]) -> tuple[Block, ...]:
    """Return blocks with the notice in front of the first record, where none has it yet.

    Records of pinned messages say themselves what they hold.
    """
    records = (at for at, block in enumerate(blocks) if block.text and block.kind != "pins")
    place = next(records, None)
    if place is None or any(block.text.startswith(NOTICE) for block in blocks):
        return tuple(blocks)
    first = blocks[place]
    tokens = first.tokens + notice_tokens(count)
    first = replace(first, text=f"{NOTICE}\n{first.text}", tokens=tokens)
    return (*blocks[:place], first, *blocks[place + 1 :])


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


#: The mark after a line if the next line is not its neighbour in the source.
GAP: Final = f" {LEFT_OUT}"


def render(kept: Sequence[Unit]) -> str:
    """Write units as text: ``[date]`` where the date changes, ``Speaker: ...`` per message."""
    return units.render(kept, gap=GAP)


def unpack(packed: str, text: str) -> tuple[Unit, ...]:
    """Return the units that ``render`` wrote as ``text`` and ``units.pack`` as ``packed``.

    The result is () if the two do not belong together.
    """
    try:
        return units.unpack(packed, text, gap=GAP)
    except StoreCorruptError:
        return ()


def body_of(record: str) -> str:
    """Return the body of a rendered record: the text between the lines of its frame."""
    inner = record.split("\n", 1)[1:]
    return unescape(inner[0].rpartition("\n")[0]) if inner else ""


#: The name of the record.
NAME: Final = "recall"
#: How the lines of messages are parted, and a line that is a date.
_LINE: Final = re.compile(r"\n(?!\s)")
_HEADER: Final = re.compile(r"\[\d{4}-\d\d-\d\d\]")
#: A margin, because a tokenizer may merge tokens where the text meets its frame.
_SEAMS: Final = 4


def shown_spans(shown: Sequence[Shown]) -> tuple[Span, ...]:
    """Return one span for each raw message; for a partial message, the span of its part.

    There is none for a message of which an excerpt is shown.
    """
    return tuple(
        Span(item.message.index, item.message.index + 1, item.begin, item.end)
        for item in shown
        if not (item.empty or item.is_excerpt)
    )


def frame_tokens(writer: Writer, messages: int) -> int:
    """Return the cost of a record without its text, in a session of so many messages."""
    widest = Frame(NAME, Span(0, max(1, messages)), trust="tool")
    return writer.record("recall", widest, "").tokens + _SEAMS


def record(writer: Writer, evidence: Evidence | None, beside: Sequence[Shown] = ()) -> Block:
    """Fence evidence and the messages ``beside`` it, of which there is at least one, as a record.

    None of the messages is evidence. They stand whole, in their places in time.
    """
    said = [Shown(message) for message in evidence.sources] if evidence else []
    # The text is escaped already, for callers who read it without a fence.
    lines = [unescape(evidence.text)] if evidence else []
    if beside:
        # Each message of the evidence is one line at the margin; its further lines are indented.
        plain = [line for line in _LINE.split("".join(lines)) if not _HEADER.fullmatch(line)]
        lines = list(_in_time([*zip(said, plain, strict=False), *((i, i.line) for i in beside)]))
    frame = frame_of(NAME, in_order([*said, *beside]))
    if evidence and evidence.session_id is None:
        # Indices of several sessions say nothing; the headers name the sessions.
        frame = replace(frame, span=Span(0, 0), whose=_ALL_CONVERSATIONS)
    return writer.record("recall", frame, "\n".join(lines))


def _in_time(said: Iterable[tuple[Shown, str]]) -> Iterator[str]:
    """Yield messages in order of index under their dates, with a mark where some are left out."""
    ordered = sorted(said, key=lambda each: each[0].message.index)
    today = ""
    for (item, line), after in zip_longest(ordered, ordered[1:]):
        if (date := day(item.message.created_at)) != today:
            yield f"[{date}]"
            today = date
        is_parted = after is not None and after[0].message.index > item.message.index + 1
        yield f"{line}{GAP}" if is_parted and not line.endswith(LEFT_OUT) else line


def may_stand_beside(stored: StoredMessage, said: Container[int]) -> bool:
    """Return whether a message is spoken text, of which nothing stands in the context yet."""
    is_spoken = stored.state == "live" and stored.role != "tool"
    return is_spoken and stored.index not in said and bool(body(stored.message).strip())


def filled(
    writer: Writer, evidence: Evidence | None, messages: Sequence[StoredMessage], room: int
) -> tuple[Shown, ...]:
    """Return as many messages as fit a record beside the evidence, the newest first.

    ``messages`` are in order of index, and ``room`` is the size of the record in tokens.
    """
    left = room - (evidence.total_tokens if evidence else 0)
    left -= frame_tokens(writer, messages[-1].index + 1) if messages else 0
    chosen: list[Shown] = []
    for stored in reversed(messages):
        item, date = Shown(stored), day(stored.created_at)
        dated = not chosen or day(chosen[0].message.created_at) != date
        if stored.tokens > left + _SEAMS:
            continue  # A long message need not be counted.
        cost = writer.count(f"[{date}]\n{item.line}{GAP}\n" if dated else f"{item.line}{GAP}\n")
        if cost <= left:
            chosen.insert(0, item)
            left -= cost
    while chosen and record(writer, evidence, chosen).tokens > room:
        del chosen[0]
    return tuple(chosen)


T = TypeVar("T")


def with_excerpts(reading: Reading[T], shown: Excerpts) -> Reading[T]:
    """Run a decision that reads messages, with long tool results as excerpts, old images by name.

    They count and render as what is shown of them.
    """
    reply: Any = None
    while True:
        try:
            need = reading.send(reply)
        except StopIteration as done:
            return cast("T", done.value)
        reply = yield need
        if isinstance(need, NeedMessages):
            reply = list(map(shown.of, reply))
        elif isinstance(need, tuple) and reply is not None:
            reply = [
                list(map(shown.of, answer)) if isinstance(one, NeedMessages) else answer
                for one, answer in zip(need, reply, strict=True)
            ]


#: The place of an image: the index of its message, and the number of its part there.
ImageAt: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class Excerpts:
    """What contexts show of tool results: at most ``most`` tokens, of message ``newest`` more.

    With ``most`` None all of them is shown. So is a result that has other parts than text, or that
    was cut under another configuration. ``shortened`` holds the results of which an excerpt is
    shown, whole, by index. Images before ``images_from`` stand by name. ``made`` are excerpts that
    need not be made again, by hash, limit and whether they are filled, the last used at the end.
    """

    counter: TokenCounter
    most: int | None
    newest: int
    newest_most: int
    made: dict[tuple[str, int, bool], str] = field(default_factory=dict[tuple[str, int, bool], str])
    images_from: ImageAt = (0, 0)
    shortened: dict[int, StoredMessage] = field(default_factory=dict[int, StoredMessage])

    def of(self, stored: StoredMessage) -> StoredMessage:
        """Return a message as it is shown."""
        most, stored = self.most, self._named(stored)
        if most is None or stored.role != "tool" or stored.tokens <= most:
            return stored
        if stored.index == self.newest:
            most = max(most, self.newest_most)
        content = stored.content
        plain = isinstance(content, str) or all(isinstance(part, TextPart) for part in content)
        if stored.slices or stored.echoes or not plain:
            return stored
        short = self._excerpt(stored, most)
        if short == body(stored.message):
            return stored
        self.shortened[stored.index] = stored
        return self._saying(stored, short)

    def lengthened(self, stored: StoredMessage, tokens: int) -> StoredMessage:
        """Return a shown message in at most so many ``tokens``: whole, or by a longer excerpt.

        It stays as it is shown if that takes as many, or if it is not shortened.
        """
        whole = self.shortened.get(stored.index)
        if whole is None or tokens <= stored.tokens:
            return stored
        if whole.tokens <= tokens:
            return whole
        room = tokens - message_tokens(replace(whole.message, content=""), self.counter)
        return self._saying(whole, self._excerpt(whole, room, filled=True))

    def _excerpt(self, stored: StoredMessage, limit: int, *, filled: bool = False) -> str:
        key = (stored.hash, limit, filled)
        made = self.made.pop(key, None)
        if made is None:
            made = excerpt(body(stored.message), limit, self.counter.count, filled=filled)
        self.made[key] = made
        return made

    def _named(self, stored: StoredMessage) -> StoredMessage:
        """Return a message with those of its images by name that stand before ``images_from``."""
        named = [at for at in images_of(stored) if (stored.index, at) < self.images_from]
        if not named:
            return stored
        # The places of slices count the text that stands for a part as it came.
        read = (lambda part: part) if stored.slices else request.understood
        return self._saying(
            stored,
            tuple(
                TextPart(part_text(read(part))) if at in named else part
                for at, part in enumerate(cast("tuple[Part, ...]", stored.content))
            ),
        )

    def _saying(self, stored: StoredMessage, content: Content) -> StoredMessage:
        message = replace(stored.message, content=content)
        tokens = message_tokens(message, self.counter)
        return replace(stored, message=message, tokens=tokens, flags=(*stored.flags, EXCERPT))


def images_of(stored: StoredMessage) -> list[int]:
    """Return the numbers of the parts of a message that are images."""
    content = stored.content
    if isinstance(content, str) or stored.state != "live":
        return []
    return [at for at, part in enumerate(content) if request.is_image(part)]


def newest_images(blocks: Iterable[Block], most: int, keep: int) -> ImageAt | None:
    """Return from where on images may stand: None if at most ``most`` do in these blocks.

    Otherwise it is the place of the first of the newest ``keep``.
    """
    standing = [
        (block.message.index, at)
        for block in blocks
        if block.message is not None and not block.text
        for at in images_of(block.message)
    ]
    if len(standing) <= most:
        return None
    index, at = standing[-1]
    return standing[-keep] if keep else (index, at + 1)


def starts(windows: Iterable[Node], opened: Iterable[OpenWindow]) -> dict[str, Position]:
    """Return for each thread the position from which on the thread is raw."""
    found: dict[str, Position] = {}
    begins = [(w.thread, w.span.begin) for w in windows if w.thread is not None]
    begins += [(w.thread, w.begin) for w in opened]
    for thread, begin in begins:
        found[thread] = min(begin, found.get(thread, begin))
    return found


def read(state: SessionState, windows: Iterable[Node]) -> Reading[list[Shown]]:
    """Read the messages of these windows and of all open windows."""
    begins = starts(windows, state.open_windows())
    if not begins:
        return []
    first = min(begin.index for begin in begins.values())
    return shown_from(begins, (yield from needs.messages(first, state.next_index)))


def shown_from(begins: dict[str, Position], messages: Iterable[StoredMessage]) -> list[Shown]:
    """Return the raw part of ``messages``; a thread's first message may begin at a slice."""
    return [
        Shown(stored, begin.char if stored.index == begin.index else 0)
        for stored in messages
        if (begin := begins.get(stored.thread)) and stored.index >= begin.index
    ]


def in_window(window: Node, messages: Iterable[StoredMessage]) -> list[Shown]:
    """Return the part of ``messages`` that a level-1 node covers, slices at its ends included."""
    span = window.span
    return [
        Shown(
            stored,
            span.start_char if stored.index == span.start else 0,
            span.stop_char if stored.index == span.stop - 1 else None,
        )
        for stored in messages
        if stored.thread == window.thread and span.start <= stored.index < span.stop
    ]


def allowed_boundaries(
    windows: Sequence[Node], opened: Iterable[OpenWindow], total: int
) -> set[int]:
    """Return the ordinals at which the zones may meet without separating linked windows.

    ``windows`` are consecutive level-1 nodes up to ``total``, the number of sealed windows. The
    boundary ``total`` is always allowed: an open part can be raw without its sealed part.
    """
    if not windows:
        return {total}
    first = windows[0].ordinal
    parted: set[int] = set()
    last_of: dict[str | None, int] = {}
    for window in windows:
        if window.linked:
            parted.update(range(last_of.get(window.thread, first - 1) + 1, window.ordinal + 1))
        last_of[window.thread] = window.ordinal
    for still_open in opened:
        if still_open.linked and still_open.thread in last_of:
            parted.update(range(last_of[still_open.thread] + 1, total))
    return {at for at in range(first, total + 1) if at not in parted} | {total}


def window_of_each(windows: Sequence[Node], shown: Sequence[Shown]) -> list[int | None]:
    """Return for each raw message the ordinal of the window in which it ends; None if open."""
    by_thread: dict[str | None, list[Node]] = {}
    for window in windows:
        by_thread.setdefault(window.thread, []).append(window)
    places: dict[str, int] = {}
    found: list[int | None] = []
    for item in shown:
        thread, index = item.message.thread, item.message.index
        own = by_thread.get(thread, [])
        place = places.get(thread, 0)
        while place < len(own) and own[place].span.end <= Position(index, 1):
            place += 1
        # A message that continues in later slices ends where its last slice ends.
        while place < len(own) and own[place].span.stop_char and own[place].span.stop - 1 == index:
            place += 1
        places[thread] = place
        found.append(own[place].ordinal if place < len(own) else None)
    return found


def pieces_of(shown: Sequence[Shown]) -> list[list[Shown]]:
    """Divide raw messages into inseparable pieces: exchange groups and single messages.

    The pieces are ordered by their last messages, so that the last piece is the newest exchange
    group. Groups begin and end by the same rules as for sealing.
    """
    pieces: list[list[Shown]] = []
    ends: dict[str, Turns] = {}
    groups: dict[str, list[Shown]] = {}
    noted: list[Flag] = []
    for item in shown:
        thread, arrival = item.message.thread, Arrival.of(item.message)
        turns = ends.get(thread, Turns()).before(arrival, noted)
        if not turns.members:
            groups[thread] = []
            pieces.append(groups[thread])
        groups[thread].append(item)
        ends[thread] = turns.after(arrival, noted)
    return sorted(pieces, key=lambda members: members[-1].message.index)


def newest(pieces: Sequence[Sequence[Shown]], turns: int) -> int:
    """Return how many of the last ``pieces`` make up the newest ``turns`` turns, at least one.

    A turn begins with a user message and lasts until the user speaks again. If only users speak,
    two messages are a turn.
    """
    spoken = [piece for piece in pieces if not all(item.empty for item in piece)]
    if not any(item.message.role != "user" for piece in spoken for item in piece):
        first = spoken[-2 * turns :][:1]
        return len(pieces) - pieces.index(first[0]) if first else 1
    found, asked = 0, False
    for number, piece in enumerate(reversed(pieces)):
        role = piece[0].message.role
        if asked and role != "user":
            found += 1
            asked = False
        if found == turns:
            return max(1, number)
        asked = asked or role == "user"
    return max(1, len(pieces))
