"""Reads what a context is selected from, has it decided, and stores what was shown.

``hiermem.context.cut`` decides which messages and summaries
appear where. The name under which the shown state is stored does not contain the question, so the
cut stays unchanged whatever the question is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hiermem import arguments, errors
from hiermem.context import cut, layered, selection, shared
from hiermem.context import render as recalled
from hiermem.context import zone as pins
from hiermem.context.cut import Cut, Situation
from hiermem.context.profile import ContextProfile
from hiermem.context.render import (
    RENDERER,
    Block,
    Excerpts,
    Shown,
    Writer,
    images_of,
    notice_tokens,
    noticed,
)
from hiermem.context.selection import ContextBudget, ContextSelection
from hiermem.context.view import SEEN, Piece, Seen, View
from hiermem.context.zone import Pin
from hiermem.handle import Handle, session_state
from hiermem.log.events import taken_back
from hiermem.protocols import TokenCounter
from hiermem.search.results import Evidence
from hiermem.text import wishes
from hiermem.text.measure import MESSAGE_OVERHEAD, body, canonical_json
from hiermem.text.policy import check_name
from hiermem.tokens import sizes_of
from hiermem.tracing import span
from hiermem.tree.fold import config_from
from hiermem.types import SessionRecord, StoredMessage, transaction
from hiermem.types.ranges import each_of, ranges_of
from hiermem.types.tree import EVERY, SessionFilter, member_of

if TYPE_CHECKING:
    from hiermem.context.space import SpaceRecord

_log = logging.getLogger("hiermem.context")

Strategy: TypeAlias = Literal["cut", "layered"]
#: The newest message, if it is a tool's result, takes at most this part of the budget: a third.
_NEWEST_SHARE: Final = 3
#: How many records that were recalled are kept, for turns that go on.
_MOST_RECALLED: Final = 64
#: The most characters of excerpts of tool results that are kept.
_MOST_EXCERPTS: Final = 2_000_000
#: The most messages that are read to fill the room of recall.
_MOST_FILLING: Final = 256
#: What yields to what is required: first what the space holds, and then all that grows with the
#: budget, which must not count in the minimum that an error states. The newest tool result has the
#: excerpt that any result has then, and no system messages lead.
_SPACE: Final = 1
_GROWING: Final = 2
#: The kinds of the blocks before the verbatim zone.
_RECORDS: Final = ("summary", "view")


@dataclass(frozen=True, slots=True)
class Request:
    """One context request: what ``session.context`` was asked for, checked once for all below it.

    ``select_optimal_context`` says what each field means. Raises UsageError where one is no such.
    """

    budget: ContextBudget
    _: KW_ONLY
    strategy: Strategy = "cut"
    view: str = "default"
    sticky: bool = True
    cache_cold: bool = False
    allow_omission: bool = False
    query: str | None = None
    recall_tokens: int | None = None
    profile: ContextProfile | None = None
    #: The space that a session joins with its first message.
    space: str | None = None
    #: Without it, the cut goes on from the stored one and is not stored: nothing is written.
    keep: bool = True
    #: The tokens of the system prompt and of the tools by counter name, a cache.
    _weights: dict[str, tuple[int, int]] = field(
        default_factory=dict[str, tuple[int, int]], init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        arguments.one_of(self.strategy, "strategy", ("cut", "layered"))
        system = arguments.system_prompt(self.budget.system)
        object.__setattr__(self, "budget", replace(self.budget, system=system))
        object.__setattr__(self, "view", check_name(self.view, what="view"))
        for name in ("sticky", "cache_cold", "allow_omission"):
            arguments.switch(getattr(self, name), name)
        query: object = self.query
        if query is not None and not isinstance(query, str):
            raise errors.UsageError(f"query is {type(query).__name__}; it must be text, or None")
        if self.recall_tokens is not None:
            arguments.whole(self.recall_tokens, "recall_tokens")
        if self.profile is not None:
            arguments.optional(self.profile, "profile", ContextProfile)
            if self.strategy != "cut":
                raise errors.UsageError("profile requires strategy='cut'; omit it for 'layered'")

    @property
    def family(self) -> str:
        """Return the first part of the name under which the sticky cut is stored."""
        return self.view if self.profile is None else f"{self.view}/{self.profile.key}"

    @property
    def label(self) -> str:
        """Return the prefix of the names of the trimmed views."""
        own = "" if self.view == "default" else self.view
        return "/".join(filter(None, [own, self.profile.name if self.profile else ""]))

    async def weigh(self, counter: TokenCounter) -> tuple[int, int]:
        """Return the tokens that the system prompt and the tool schemas take in a request.

        They are counted once; long texts are counted off the event loop.
        """
        if counter.name not in self._weights:
            system, tools = self.budget.system, self.budget.tools
            texts = [system or "", canonical_json(list(tools)) if tools else ""]
            system_tokens, tool_tokens = await sizes_of(counter.count, texts)
            self._weights[counter.name] = (
                system_tokens + MESSAGE_OVERHEAD if system is not None else 0,
                tool_tokens if tools else 0,
            )
        return self._weights[counter.name]

    def room_for_recall(self, handle: Handle) -> int:
        """Return the number of tokens that are reserved for recall."""
        if self.recall_tokens is not None:
            return self.recall_tokens
        if self.query is None:
            return 0
        budget = self.budget.max_tokens
        return int(handle.context_policy.recall_share(budget) * budget)


async def context(handle: Handle, session_id: str, request: Request) -> ContextSelection:
    """Return the selection for a context request, within a trace span.

    Raises BudgetTooSmallError, NotFoundError.
    """
    limit = request.budget.max_tokens
    with span("context", subject=session_id, max_tokens=limit, view=request.view) as note:
        selected = await _select(handle, session_id, request)
        shown = selected.shown
        note(
            messages=selected.messages,
            tokens=selected.total_tokens,
            shared_prefix_tokens=selected.shared_prefix_tokens,
            blocks=len(selected.blocks),
            coverage=selected.coverage,
            shown_messages=len(shown.messages),
            shown_by_quarter=tuple(quarter.share for quarter in shown.by_quarter),
        )
    return selected


async def _select(handle: Handle, session_id: str, request: Request) -> ContextSelection:
    room = request.room_for_recall(handle)
    decided, without = None, 0
    while decided is None:
        try:
            decided = await _decide(handle, session_id, request, room, without)
        except errors.BudgetTooSmallError as error:
            if without == _GROWING:
                raise
            if without == _SPACE and request.recall_tokens is None and room:
                # The caller did not ask for this room, so recall yields it to what is required.
                room = max(0, room - max(1, error.minimum - error.budget))
            else:
                without += 1
    recall = await _recalled(handle, request, decided)
    if room and recall[0] is None and any(item.is_excerpt for item in decided.cut.shown):
        # Nothing was found for the room, and no message is left to fill it: excerpts take it.
        decided = await _decide(handle, session_id, request, 0, without)
    shared = await _compared(handle, request, decided, recall[0]) if decided.name else 0
    return await chosen(handle, request, decided, recall, shared=shared)


@dataclass(frozen=True, slots=True)
class Decided:
    """A cut with the record and the situation that it was decided for.

    ``name`` is that of its sticky state, "" if it has none, and ``seen`` the last selection of it.
    ``space`` is the record of the session's space.
    """

    record: SessionRecord
    situation: Situation
    cut: Cut
    name: str = ""
    seen: Seen | None = None
    space: SpaceRecord | None = None


async def situation_of(
    handle: Handle,
    record: SessionRecord,
    request: Request,
    room: int = 0,
    *,
    pinned: Sequence[Pin] = (),
    first: Sequence[StoredMessage],
    least: bool = False,
    space: SpaceRecord | None = None,
) -> Situation:
    """Return the situation of the cut; ``room`` tokens are reserved for other content.

    ``first`` are the session's first messages. With ``least`` its system messages do not lead. The
    record of the ``space`` stands outside the budget, and its wishes take of the room for pins. The
    budget is negative if it does not hold what is outside it.
    """
    overhead, spendable, reserve = await _rooms(handle, request, room)
    writer = Writer(await handle.key(), handle.counter)
    lead = cut.lead_of(first)
    led, too_long = writer.cost(lead), 0
    if least or 2 * led > spendable:
        lead, led, too_long = (), 0, led
    # The record of the space bears the notice for all.
    notice = 0 if space else notice_tokens(handle.counter.count)
    beside = led + notice + (space.block.tokens if space else 0)
    overhead, spendable = overhead + beside, spendable - beside
    policy = handle.context_policy
    pin_room = pins.room_of(policy.pins, request.budget.max_tokens)
    return Situation(
        state=session_state(record),
        budget=spendable,
        writer=writer,
        policy=policy,
        overhead=overhead,
        reserve=None if reserve is None else min(reserve, spendable),
        view=request.label,
        sticky=request.sticky,
        cache_cold=request.cache_cold,
        allow_omission=request.allow_omission,
        pins=tuple(pinned),
        pin_room=max(0, pin_room - space.wish_tokens) if space else pin_room,
        levels=request.profile.levels if request.profile else None,
        recent=request.profile.recent if request.profile else None,
        lead=lead,
        too_long=too_long,
        notice=notice,
        recall=room,
    )


async def _rooms(handle: Handle, request: Request, room: int) -> tuple[int, int, int | None]:
    """Return the tokens outside the cut, the tokens left for it, and its reserve for messages."""
    budget = request.budget
    overhead = sum(await request.weigh(handle.counter)) + budget.reserve_for_output + room
    left, reserve = budget.max_tokens - overhead, budget.reserve_for_messages
    return overhead, left, None if reserve is None else min(reserve, left)


async def _decide(
    handle: Handle,
    session_id: str,
    request: Request,
    room: int,
    without: int,
) -> Decided:
    """Choose the cut ``without`` some of what yields to what is required, and store what it shows.

    What yielded returns only together with the zone, so that the prefix holds. Where it yields or
    returns, no prefix holds, and the cut is made anew.
    """
    _, spendable, reserve = await _rooms(handle, request, room)
    name = f"{request.family}/{spendable}/{reserve}/{RENDERER}"
    record, first, pinned, before, seen = await _known(handle, session_id, request, name)
    plan = partial(_planned, handle, record, room, before=before, first=first, pinned=pinned)
    if request.strategy == "layered":
        return await plan(request, without)
    decided = shown = None
    if before and before.without > without:
        with suppress(errors.BudgetTooSmallError):
            stays = await plan(request, before.without)
            decided = stays if stays.cut.view.pieces == before.pieces else None
    if not decided:
        if before and before.without != without:
            request = replace(request, cache_cold=True)
        limit = request.budget.max_tokens if record.space is not None and not without else 0
        zone = before.pieces[:1] if before else ()
        space_room = shared.room_of(handle.context_policy.space, limit)
        most = space_room if zone else shared.room_alone(space_room, limit)
        stood = before.shared if before and not request.cache_cold else None
        shown = await _space_of(handle, record, stood, most) if space_room else None
        with suppress(*[errors.BudgetTooSmallError] * (most > space_room)):
            decided = await plan(request, without, space=shown)
        # The record changes only together with the zone, so that the prefix holds.
        if not decided or (shown and decided.cut.view.pieces[:1] != zone):
            anew = await _space_of(handle, record, None, space_room)
            if not decided or anew != shown:
                decided = await plan(request, without, space=anew)
            shown = anew
    view = replace(decided.cut.view, shared=shown.state if shown else None)
    decided = replace(decided, cut=replace(decided.cut, view=view), name=name, seen=seen)
    kept = request.sticky and request.keep and record.messages and not decided.cut.omitted
    if kept and view != before:
        # The epoch keeps a view from restoring messages withdrawn since the record was read.
        await _keep(handle, record, name, view)
    return decided


async def _space_of(
    handle: Handle, record: SessionRecord, before: shared.SharedState | None, room: int
) -> SpaceRecord | None:
    from hiermem.context.space import space_of

    return await space_of(handle, record, before, room)


async def _planned(
    handle: Handle,
    record: SessionRecord,
    room: int,
    request: Request,
    without: int,
    *,
    before: View | None,
    space: SpaceRecord | None = None,
    first: Sequence[StoredMessage],
    pinned: Sequence[Pin],
) -> Decided:
    """Plan the cut beside the record of the space, from the view ``before`` if there is one."""
    least = without == _GROWING
    situation = await situation_of(
        handle, record, request, room, pinned=pinned, first=first, least=least, space=space
    )
    shown = Excerpts(
        handle.counter,
        config_from(record.config).tool_result_tokens,
        newest=record.messages - 1,
        newest_most=0 if least else situation.budget // _NEWEST_SHARE,
        made=handle.excerpts,
    )
    held = sum(map(len, handle.excerpts.values()))
    while held > _MOST_EXCERPTS:
        held -= len(handle.excerpts.pop(next(iter(handle.excerpts))))
    is_cut = request.strategy == "cut"
    reading = cut.select(situation, before, shown) if is_cut else layered.shown(situation, shown)
    answer = handle.answer(record.id, reading)
    if before:
        fitted, gone = await answer, before.gone
    else:
        fitted, events = await asyncio.gather(answer, handle.store.events(record.id))
        gone = taken_back(events)
    blocks = fitted.blocks if space else noticed(fitted.blocks, handle.counter.count)
    fitted = replace(fitted, view=replace(fitted.view, gone=gone, without=without), blocks=blocks)
    return Decided(record, situation, fitted, space=space)


async def _compared(
    handle: Handle, request: Request, decided: Decided, recall: Block | None
) -> int:
    """Return the tokens that a selection shares with the one before, and store how far it goes.

    Behind the record that was recalled for a question nothing is a prefix of the next selection.
    """
    fitted, seen = decided.cut, decided.seen
    count = None if recall is None else cut.before_turn(fitted)
    now_seen, shared = _seen(decided, count), _shared(decided, seen)
    if recall is not None:
        shared = min(shared, now_seen.tokens + sum(tokens for _, tokens in now_seen.blocks))
    is_kept = request.keep and request.sticky and decided.record.messages and not fitted.omitted
    if is_kept and decided.name and now_seen != seen:
        beside = (*fitted.lead, *((decided.space.block,) if decided.space else ()))
        rendered = fitted.tokens + sum(each.tokens for each in beside)
        counted = now_seen.after(seen, rendered=rendered, shared=shared)
        await _keep(handle, decided.record, decided.name + SEEN, counted)
    return shared


async def _keep(handle: Handle, record: SessionRecord, name: str, state: View | Seen) -> None:
    """Store a view, if the store takes it: without it, the next context may miss a cache once.

    A disk may be full, and the store read-only or locked. Raises StoreCorruptError.
    """
    try:
        view = transaction.ViewRecord(record.id, name, state.to_json())
        await handle.store.put_view(view, epoch=record.epoch)
    except errors.StoreCorruptError:
        raise
    except errors.ReadOnlyError:
        return
    except errors.StoreError as error:
        _log.warning("session %s: its view was not kept: %s", record.id, error)


#: The record that stands before the newest turn, the evidence in it that answers the question, and
#: the messages that fill the rest of its room.
Recalled: TypeAlias = tuple[Block | None, Evidence | None, tuple[Shown, ...]]


async def _recalled(handle: Handle, request: Request, decided: Decided) -> Recalled:
    """Find evidence that is not verbatim in the cut already, in the room that is kept for it.

    The newest messages that are not verbatim fill the rest of the room.
    """
    if request.query is None:
        return None, None, ()
    # What an excerpt leaves out can be recalled.
    spans = recalled.shown_spans(decided.cut.shown)
    kept, space = decided.situation.recall, decided.record.space
    free = decided.situation.free(decided.cut.blocks)
    # A member's history is its space's, so recall also gets what a whole conversation leaves.
    room = kept + (free if space is not None and decided.cut.is_whole else min(0, free))
    # While the turn goes on, as in a loop of tool calls, the record stays as it is, if it fits.
    turn = cut.turn_of(decided.cut)
    key = (decided.record.id, decided.name, request.query, turn, kept, decided.record.epoch)
    known: dict[Any, Recalled] = handle.recalled
    # Another conversation of the space may be erased at any time.
    is_kept = turn is not None and decided.name and space is None
    before = known.get(key) if is_kept else None
    if before is not None and (before[0] is None or before[0].tokens <= room):
        return before
    block: Block | None = None
    evidence: Evidence | None = None
    if request.query.strip():
        from hiermem.search import search, tenant

        members = SessionFilter(member_of(space)) if space is not None else EVERY
        session_id = decided.record.id
        question = search.Question(session_id, request.query, sessions=members)

        async def find(tokens: int) -> Evidence:
            if space is None:
                return await search.recall(handle, question, tokens, shown=spans)
            stated = decided.space.stated if decided.space else {}
            return await tenant.recall(
                handle, question, tokens, shown={**stated, session_id: spans}
            )

        last = decided.record.messages
        block, evidence = await in_record(handle, find, room, messages=last)
    found: Recalled = (block, evidence, ())
    if decided.situation.recent is None and space is None:
        found = await _filled(handle, decided, block, evidence, room)
    known[key] = found
    for oldest in list(known)[:-_MOST_RECALLED]:
        del known[oldest]
    return found


async def _filled(
    handle: Handle, decided: Decided, block: Block | None, evidence: Evidence | None, room: int
) -> Recalled:
    """Fill the room that the evidence leaves with the newest messages that are not verbatim."""
    writer = decided.situation.writer
    said = {item.message.index for item in decided.cut.shown}
    said |= {message.index for message in (evidence.sources if evidence else ())}
    end = next((at for at in range(decided.record.messages, 0, -1) if at - 1 not in said), 0)
    start = max(0, end - min(_MOST_FILLING, max(0, room) // MESSAGE_OVERHEAD))
    read = await handle.messages(decided.record.id, start, end) if start < end else []
    messages = [each for each in read if recalled.may_stand_beside(each, said)]
    beside = recalled.filled(writer, evidence, messages, room)
    return recalled.record(writer, evidence, beside) if beside else block, evidence, beside


async def in_record(
    handle: Handle, find: Callable[[int], Awaitable[Evidence]], room: int, *, messages: int
) -> tuple[Block | None, Evidence | None]:
    """Put the evidence that ``find`` returns into a record of at most ``room`` tokens.

    ``messages`` is an upper limit of the indices that the frame states. Returns None twice if there
    is no evidence or no room.
    """
    writer = Writer(await handle.key(), handle.counter)
    left = room - recalled.frame_tokens(writer, messages)
    if left <= 0:
        return None, None
    found = await find(left)
    if not found.hits:
        return None, None
    return recalled.record(writer, found), found


async def _known(
    handle: Handle, session_id: str, request: Request, name: str
) -> tuple[SessionRecord, Sequence[StoredMessage], Sequence[Pin], View | None, Seen | None]:
    """Read the record, the first messages, the pinned ones and the views of this name.

    They are read at one time, so no view is stored under an epoch that is newer than the pins in
    it.
    """
    own = sorted(request.profile.pins) if request.profile else []
    has_pins = bool(handle.context_policy.pins)
    needs: list[transaction.Need] = [
        "session",
        transaction.NeedMessages(0, cut.MOST_LEADING),
    ]
    if has_pins:
        needs += [transaction.NeedFlagged(flag, pins.MOST) for flag in wishes.IN_SIGHT]
        needs += [transaction.NeedMessages(index, index + 1) for index in own]
    if request.sticky and request.strategy == "cut":
        needs.append(transaction.NeedViews((name, name + SEEN)))
    answers = await handle.store.read([(session_id, need) for need in needs])
    record, first = handle.checked_or_new(session_id, answers.pop(0)), answers.pop(0)
    if request.space and not record.messages:
        record = replace(record, space=request.space)
    held: tuple[Pin, ...] = ()
    if has_pins:
        pinned = [each for _ in range(len(wishes.IN_SIGHT) + len(own)) for each in answers.pop(0)]
        held = await pins_of(handle, record, pinned, also=own)
    states = {view.name: view.state for views in answers for view in views}
    # An unreadable state only costs a cache miss.
    before = View.from_json(states[name]) if name in states else None
    seen = Seen.from_json(states[name + SEEN]) if before and name + SEEN in states else None
    return record, first, held, before, seen


async def pins_of(
    handle: Handle,
    record: SessionRecord,
    messages: Sequence[StoredMessage],
    *,
    also: Sequence[int] = (),
) -> tuple[Pin, ...]:
    """Return the pins of a session among its messages, newest first."""
    person = None
    if record.space is not None:
        # Most sessions are in no space, and the code of spaces is not loaded for them.
        from hiermem.context.space import person_of

        person = await person_of(handle, record)
    among_people = session_state(record).among_people
    return pins.of_messages(
        messages, handle.counter.count, among_people=among_people, person=person, also=also
    )


def _seen(decided: Decided, count: int | None) -> Seen:
    """Describe a rendered cut with its first ``count`` verbatim blocks, or with all of them."""
    blocks, space = decided.cut.blocks, decided.space.block if decided.space else None
    lead = [(f"{b.name} {b.message.hash}", b.tokens) for b in decided.cut.lead if b.message]
    if space:
        hashed = hashlib.sha256(space.text.encode()).hexdigest()[:16]
        lead.append((f"{space.name} {hashed}", space.tokens))
    records = (*lead, *((b.name, b.tokens) for b in blocks if b.kind in _RECORDS))
    raw = [block for block in blocks if block.message is not None][:count]
    digest = hashlib.sha256()
    for block in raw:
        stored = block.message
        said = body(stored.message) if stored and block.kind == "excerpt" else ""
        content = block.text or block.seam + (stored.hash if stored else "") + said
        digest.update(f"{block.name}\0{content}\0{block.tokens}\0".encode())
    return Seen(records, len(raw), sum(block.tokens for block in raw), digest.hexdigest()[:32])


def _shared(decided: Decided, seen: Seen | None) -> int:
    """Return the tokens that this selection and the previous one have in common at the front."""
    if seen is None:
        return 0
    now = _seen(decided, seen.count)
    shared = 0
    for ours, theirs in zip(now.blocks, seen.blocks, strict=False):
        if ours != theirs:
            return shared
        shared += ours[1]
    if len(now.blocks) == len(seen.blocks) and now.digest == seen.digest:
        shared += seen.tokens
    return shared


async def chosen(
    handle: Handle,
    request: Request,
    decided: Decided,
    recall: Recalled,
    *,
    shared: int = 0,
) -> ContextSelection:
    """Return the selection that the caller receives, from the cut and the recalled record."""
    block, evidence, beside = recall
    total = decided.record.messages
    shown = decided.cut
    hits = [hit for hit in evidence or () if hit.session_id == decided.record.id]
    said = [*(hit.message for hit in hits), *(item.message for item in beside)]
    # A record of text has the names of images.
    named = {stored.index for stored in said if stored and images_of(stored)}
    spans = (*recalled.shown_spans(beside), *(hit.span for hit in hits))
    verbatim = (
        *recalled.shown_spans(shown.shown),
        *(span for span in spans if span.start not in named),
    )
    left_out = _left_out(shown)
    head = layered.head_beside(decided.situation, shown) if request.strategy == "layered" else ()
    pinned = pins.record(decided.situation.writer, head)
    blocks = shown.blocks
    if block is not None:
        # The question stands last, and with it what was called and answered since.
        raw_from = next((at for at, b in enumerate(blocks) if b.message), len(blocks))
        place = raw_from + cut.before_turn(shown)
        blocks = (*blocks[:place], block, *blocks[place:])
    blocks = (*blocks, pinned) if pinned else blocks
    blocks = (decided.space.block, *blocks) if decided.space else blocks
    blocks = (*shown.lead, *noticed(blocks, handle.counter.count))
    rendered = sum(each.tokens for each in blocks)
    system_tokens, tool_tokens = await request.weigh(handle.counter)
    return ContextSelection(
        session_id=decided.record.id,
        max_tokens=request.budget.max_tokens,
        total_tokens=rendered + system_tokens + tool_tokens,
        messages=total,
        coverage=1.0 if not left_out else max(0.0, 1 - left_out / max(1, total)),
        blocks=blocks,
        omitted=shown.omitted,
        trimmed=tuple(node for piece in shown.view.pieces for node in piece.trimmed),
        recent_messages=tuple(item.message for item in shown.shown),
        summaries=_by_level(shown.view.pieces),
        recall=replace(evidence, hits=tuple(hits)).sources if evidence else (),
        evidence=evidence,
        verbatim=verbatim,
        shared_prefix_tokens=shared,
        system=request.budget.system,
        tool_tokens=tool_tokens,
        pins=tuple(pin.index for pin in head) or pins.indices_of(shown.view.pieces),
        _excerpted=ranges_of(
            index
            for runs in (
                *(piece.excerpted for piece in shown.view.pieces),
                ranges_of(pin.index for pin in head),
                ranges_of(item.message.index for item in shown.shown if item.is_excerpt),
                tuple((span.start, span.stop) for span in verbatim if span.sliced),
                ranges_of(named),
            )
            for index in each_of(runs)
        ),
        _summarised=ranges_of(
            index for piece in shown.view.pieces for index in each_of(piece.summarised)
        ),
        _gone=shown.view.gone,
        _too_long=decided.situation.too_long,
    )


def _left_out(decided: Cut) -> int:
    """Return the number of messages that are not fully represented, by the omitted spans."""
    raw = {item.message.index for item in decided.shown if not item.partial}
    found = reached = 0
    for item in sorted(decided.omitted, key=lambda item: item.span.start):
        begin = max(reached, item.span.start)
        found += sum(index not in raw for index in range(begin, item.span.stop))
        reached = max(reached, item.span.stop)
    return found


def _by_level(pieces: Sequence[Piece]) -> selection.ByLevel:
    """Return the nodes that the pieces show, by level."""
    shown = [
        selection.ShownSummary(
            item.id, item.level, item.span, item.messages, item.id in piece.trimmed, piece.name
        )
        for piece in pieces
        for item in piece.covers
    ]
    levels = sorted({each.level for each in shown})
    return selection.ByLevel(
        {level: tuple(each for each in shown if each.level == level) for level in levels}
    )
