"""Decides how a session is split for an extraction: into turns, and into chunks of whole turns.

A turn is a user message and all that answers it in its thread, up to the thread's next user
message. Messages before a thread's first user message are a turn of their own. Turns are taken in
the order in which they begin, and put into chunks greedily, from left to right.

The chunks cover every message exactly once and split no turn. Where threads interleave, the hulls
of their chunks overlap: ``Chunk.spans`` says exactly what a chunk contains, and in a session of one
thread it equals the one ``Chunk.span``. A turn that exceeds the limit alone becomes a chunk marked
``oversized``. It is cut only if the caller asks for that: between exchange groups if possible, then
between messages, then inside a message.

An appended message changes only the last chunk of a session with one thread. A message that answers
an old turn of another thread changes that turn's chunk and may move the chunks after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from hiermem.errors import UsageError
from hiermem.extraction.prompt import dated, line
from hiermem.protocols import SourceText, TokenCounter
from hiermem.summaries.inputs import Count, from_messages
from hiermem.text import measure as hashes
from hiermem.text.measure import body, day, slice_points
from hiermem.tree.turns import Arrival, Flag, Turns
from hiermem.types import Role, Span, StoredMessage

_MARK: Final = ":chunk:"
#: The time is irrelevant for finding exchange groups.
_ANY_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Measured:
    """A message as the chunker sees it, or a piece of one: from ``begin`` up to before ``end``.

    ``tokens`` are those of its line in the record, and of the line with its day where that stands
    above it; ``hash`` is its output hash. A message that is covered but not read (erased,
    quarantined, empty, or memory that came back) has no line, and the hash is "".
    ``calls`` and ``result_of`` identify exchange groups.
    """

    index: int
    thread: str
    role: Role
    tokens: int
    hash: str
    calls: tuple[str, ...] = ()
    result_of: str | None = None
    day: str = ""
    day_tokens: int = 0
    begin: int = 0
    end: int | None = None


#: Cuts a message (by index) into pieces of at most so many tokens.
Cut: TypeAlias = Callable[[int, int], Sequence[Measured]]
#: The messages of one turn, in order; there is at least one.
Turn: TypeAlias = tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a session that is extracted by itself.

    ``span`` is the hull of its messages and ``spans`` the messages themselves. ``turns`` and
    ``messages`` count its content; a slice counts as one message. ``oversized`` marks a turn that
    exceeds the limit alone, or a part of such a turn.
    """

    id: str
    number: int
    span: Span
    spans: tuple[Span, ...]
    turns: int
    messages: int
    tokens: int
    oversized: bool
    input_hash: str


def chunk_id(session_id: str, number: int) -> str:
    """Return the id of a session's chunk.

    >>> chunk_id("support-42", 3)
    'support-42:chunk:3'
    """
    return f"{session_id}{_MARK}{number}"


def chunk_number(name: str) -> int:
    """Return the number in a chunk's id. Raises UsageError if it is no chunk's id.

    >>> chunk_number("a:chunk:b:chunk:12")
    12
    """
    _, mark, number = name.rpartition(_MARK)
    if not (mark and number.isascii() and number.isdigit()):
        raise UsageError("a chunk's id has the form <session_id>:chunk:<number>")
    return int(number)


def measure(stored: StoredMessage, *, count: Count) -> Measured:
    """Measure a message as its line of the record."""
    source, units_read = _read(stored, Span(stored.index, stored.index + 1))
    message = stored.message
    above = day(stored.created_at)
    day_tokens = count(dated(above))
    return Measured(
        index=stored.index,
        thread=stored.thread,
        role=stored.role,
        tokens=day_tokens + (count(line(source)) if source else 0),
        hash=units_read,
        calls=tuple(call.id for call in message.tool_calls),
        result_of=message.tool_call_id,
        day=above,
        day_tokens=day_tokens,
    )


def with_days_once(messages: Iterable[Measured]) -> Iterator[Measured]:
    """Yield messages, sorted by index, without the tokens of a day that stands above them already.

    From the second thread on every message counts its day, because a chunk may separate it from
    the message before. A message that is not read keeps the tokens of a day that it begins: no
    append and no erasure changes what another message counts.
    """
    before: Measured | None = None
    alone = True
    for message in messages:
        alone = alone and (before is None or message.thread == before.thread)
        if alone and before is not None and message.day == before.day:
            yield replace(message, tokens=message.tokens - message.day_tokens, day_tokens=0)
        else:
            yield message
        before = message


def pieces(stored: StoredMessage, room: int, *, counter: TokenCounter) -> tuple[Measured, ...]:
    """Cut a message into pieces whose lines in the record have at most ``room`` tokens each.

    A piece is larger only if one character alone, or the frame of the line, exceeds that.
    """
    frame = replace(stored, echoes=())
    source, _ = _read(frame, Span(stored.index, stored.index + 1))
    if source is None:
        return ()
    around = counter.count(line(replace(source, text="")))
    target = room - around
    while target > 0:
        cut = tuple(_pieces(stored, target, counter))
        # Indented line ends cost a little more than the text alone, so the cut is checked.
        excess = max((piece.tokens for piece in cut), default=0) - room
        if excess <= 0 or target == 1:
            return cut
        target = max(1, min(target - excess, target * 7 // 8))
    return tuple(_pieces(stored, 1, counter))


def _pieces(stored: StoredMessage, target: int, counter: TokenCounter) -> Iterator[Measured]:
    inner = slice_points(stored.message, unit="tokens", target=target, counter=counter)
    length = len(body(stored.message))
    for begin, end in pairwise((0, *inner, length)):
        last = None if end == length else end
        source, units_read = _read(stored, Span(stored.index, stored.index + 1, begin, last))
        tokens = counter.count(line(source)) if source else 0
        yield Measured(
            stored.index, stored.thread, stored.role, tokens, units_read, begin=begin, end=last
        )


def _read(stored: StoredMessage, span: Span) -> tuple[SourceText | None, str]:
    """Return the text of a stretch of one message, with its hash; None if nothing is read."""
    read = from_messages(span, (stored,), count=len)
    if not read.sources:
        return None, ""
    return read.sources[0], read.outputs[0]


def turns(messages: Iterable[Measured]) -> tuple[Turn, ...]:
    """Group messages, sorted by index, into turns, in the order in which the turns begin."""
    turns_read: list[list[Measured]] = []
    current: dict[str, list[Measured]] = {}
    for message in messages:
        turn = current.get(message.thread)
        if turn is None or message.role == "user":
            turn = current[message.thread] = []
            turns_read.append(turn)
        turn.append(message)
    return tuple(map(tuple, turns_read))


def plan(
    session_id: str,
    turns: Sequence[Turn],
    *,
    limit: int | None,
    strategy: str = "",
    oversized: Literal["fail", "slice"] = "fail",
    cut: Cut | None = None,
) -> tuple[Chunk, ...]:
    """Put turns into chunks of at most ``limit`` tokens; None puts all into one.

    ``strategy`` names everything besides the messages that decides an answer (template, model,
    settings) and goes into each input hash. ``cut`` is called only if ``oversized`` is "slice" and
    a message alone exceeds the limit.
    """
    chunks: list[Chunk] = []
    parts: list[Measured] = []
    held = number_of_turns = 0

    def seal(parts: Sequence[Measured], *, turns: int, oversized: bool = False) -> None:
        if not parts:
            return
        parts = sorted(parts, key=lambda part: (part.index, part.begin))
        spans = tuple(_runs(parts))
        chunks.append(
            Chunk(
                id=chunk_id(session_id, len(chunks)),
                number=len(chunks),
                span=Span(spans[0].start, spans[-1].stop, spans[0].start_char, spans[-1].stop_char),
                spans=spans,
                turns=turns,
                messages=len({part.index for part in parts}),
                tokens=sum(part.tokens for part in parts),
                oversized=oversized,
                input_hash=input_hash(parts, strategy),
            )
        )

    for turn in turns:
        tokens = sum(message.tokens for message in turn)
        if limit is not None and parts and held + tokens > limit:
            seal(parts, turns=number_of_turns)
            parts, held, number_of_turns = [], 0, 0
        if limit is not None and tokens > limit:
            for slab in _sliced(turn, limit, cut) if oversized == "slice" else [turn]:
                seal(slab, turns=1, oversized=True)
            continue
        parts += turn
        held += tokens
        number_of_turns += 1
    seal(parts, turns=number_of_turns)
    return tuple(chunks)


def input_hash(parts: Iterable[Measured], strategy: str = "") -> str:
    """Return the hash of what is read of messages, or pieces of them, in order."""
    # The numbers of messages are part of the record, so they are part of the hash as well.
    outputs = [f"{part.index}={part.hash}" for part in parts if part.hash]
    return hashes.input_hash(level=0, strategy=strategy, outputs=outputs)


def _sliced(turn: Turn, limit: int, cut: Cut | None) -> Iterator[list[Measured]]:
    """Split a turn that exceeds the limit: by exchange groups, then messages, then their pieces."""
    pending: list[Measured] = []
    weight = 0
    for group in _groups(turn):
        fits = sum(message.tokens for message in group) <= limit
        for bundle in [group] if fits else [[message] for message in group]:
            # The pieces of a cut message are placed one by one; everything else stays together.
            units: Iterable[list[Measured]] = [bundle]
            if bundle[0].tokens > limit:
                assert cut is not None
                units = [[piece] for piece in cut(bundle[0].index, limit)]
            for unit in units:
                tokens = sum(part.tokens for part in unit)
                if pending and weight + tokens > limit:
                    yield pending
                    pending, weight = [], 0
                pending += unit
                weight += tokens
    if pending:
        yield pending


def _groups(turn: Turn) -> Iterator[list[Measured]]:
    """Yield a turn's messages in stretches that no exchange group crosses."""
    state = Turns()
    group: list[Measured] = []
    flags: list[Flag] = []
    for m in turn:
        arrival = Arrival(
            m.index, m.thread, m.role, m.tokens, m.tokens, _ANY_TIME, m.calls, m.result_of
        )
        state = state.before(arrival, flags)
        if not state.members and group:
            yield group
            group = []
        state = state.after(arrival, flags)
        group.append(m)
    if group:
        yield group


def _runs(parts: Sequence[Measured]) -> Iterator[Span]:
    """Yield the contiguous stretches of ``parts``, which are in order."""
    first = last = parts[0]
    for part in parts[1:]:
        joined = (part.index == last.index + 1 and last.end is None and part.begin == 0) or (
            part.index == last.index and part.begin == last.end
        )
        if not joined:
            yield Span(first.index, last.index + 1, first.begin, last.end)
            first = part
        last = part
    yield Span(first.index, last.index + 1, first.begin, last.end)


def sources(messages: Iterable[StoredMessage], chunk: Chunk) -> tuple[SourceText, ...]:
    """Return the content of a chunk, as the inputs of a request.

    ``messages`` are sorted by index and include at least those of the chunk.
    """
    spans = iter(chunk.spans)
    span = next(spans, None)
    texts: list[SourceText | None] = []
    for stored in messages:
        while span is not None and stored.index >= span.stop:
            span = next(spans, None)
        if span is not None and stored.index >= span.start:
            texts.append(_read(stored, span)[0])
    return tuple(filter(None, texts))
