"""Decides a fork: a session that shares another one's first messages, windows and summaries.

The sealed nodes of the source that end before the fork are copied as they are, with their texts and
marks, so that nothing sealed is paid for again. The messages behind them are folded again, under
the configuration that the source has now. One transaction reads and writes everything: a parent
never describes a text of its child that is not there.

A thread goes on as it does in the source. For that, the turns of LEAD messages before the first one
that is folded are followed too; of what was said earlier, an unanswered call is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Final

from hiermem.errors import ConflictError, NotFoundError
from hiermem.log import events as logged
from hiermem.log.rebuild import Refold
from hiermem.needs import existing
from hiermem.tree.fold import Opening, SessionState, config_from, reopen
from hiermem.tree.levels import Root, pack
from hiermem.tree.turns import GROUP_LIMIT
from hiermem.tree.windows import Limits, Weigher, Window
from hiermem.types import Node, SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import (
    Asking,
    Batch,
    Changes,
    Copy,
    Deciding,
    LogEvent,
    Rewrite,
)

#: The flag of a message whose tool calls were given up, perhaps only after the fork.
_GIVEN_UP: Final = "missing_result"
LEAD: Final = 2 * GROUP_LIMIT
#: Nodes and messages read in one go.
_PAGE: Final = 512


def fork(
    source_id: str,
    new_id: str,
    *,
    at: int | None,
    title: str | None,
    first_epoch: int,
    now: datetime,
    weigher: Weigher,
) -> Deciding[int]:
    """Make ``new_id`` a fork with the first ``at`` messages, or all; return their number.

    ``first_epoch`` is the first number of the fork's epochs and of its trees.

    Raises NotFoundError if the source does not have so many, and ConflictError.
    """
    answers: tuple[SessionRecord | None, SessionRecord | None, Sequence[LogEvent]]
    answers = yield (
        (new_id, "session"),
        (source_id, "session"),
        (source_id, "events"),
    )
    source, events = existing(source_id, answers[1]), answers[2]
    stop = source.messages if at is None else at
    if stop > source.messages:
        raise NotFoundError(
            f"session {source_id!r} cannot be forked at {stop}; it has {source.messages} messages"
        )
    if answers[0] is not None:
        raise ConflictError(
            f"session {new_id!r} exists already; give the fork another id",
            kind="exists",
            session_id=new_id,
        )
    state = SessionState.from_json(source.state)
    log, nodes = logged.before(events, stop), (yield from _sealed(source, state, stop))
    rest = Refold(config_from(source.config), state)
    rewrites: dict[int, StoredMessage] = {}
    if stop < source.messages:
        rest, rewrites = yield from _rest(source, nodes, stop, log, weigher)
    elif state.closed:
        rest.state = reopen(state).state
        log = (*log, LogEvent("reopen", stop, now))
    record = SessionRecord(
        id=new_id,
        title=source.title if title is None else title,
        participants=source.participants,
        config=source.config,
        counter=source.counter,
        created_at=now,
        last_activity=now,
        messages=stop,
        state=rest.state.to_json(),
        version=1,
        epoch=first_epoch,
        tree=first_epoch,
        forked_from=source.id,
        forked_at=stop,
        metadata=source.metadata,
        space=source.space,
    )
    copied = (_copied(node, rest.parents.get(node.id, node.parent)) for node in nodes.values())
    changes: Changes[None] = Changes(
        None,
        session=record,
        copy=Copy(source.id, stop, tuple((n.id, n.revision) for n in nodes.values() if n.revision)),
        flags=tuple(rest.flags),
        rewrites=tuple(Rewrite(stored, "mark") for stored in rewrites.values()),
        nodes=(*copied, *rest.nodes.values()),
        events=log,
    )
    return Batch(stop, ((new_id, changes),))


def _copied(node: Node, parent: str | None) -> Node:
    """Return a node as it is in the fork, where no run makes it or was asked for it once more."""
    plain = replace(node, parent=parent, version=0, forced=False)
    if node.revision:
        return replace(plain, status="active")
    return replace(plain, status="pending", attempts=0, error=None, degraded=False, dirty=False)


def _sealed(source: SessionRecord, state: SessionState, stop: int) -> Asking[dict[str, Node]]:
    """Read the nodes that end before message ``stop``, the roots among them without a parent.

    They are the first ones of each level: later windows were closed by later messages.
    """
    sealed: dict[str, Node] = {}
    windows: int | None = None
    for level, count in enumerate(state.ordinals, start=1):
        for start in range(0, count, _PAGE):
            last = min(start + _PAGE, count)
            page: Sequence[Node] = yield source.id, transaction.NeedLevel(level, start, last)
            ended = list(takewhile(partial(_ends, stop, windows), page))
            sealed |= {node.id: node for node in ended}
            if len(ended) < last - start:
                break
        windows = len(sealed) if windows is None else windows
    return {
        id_: node if node.parent in sealed else replace(node, parent=None)
        for id_, node in sealed.items()
    }


def _ends(stop: int, windows: int | None, node: Node) -> bool:
    """Return whether a window ends before a message, or a node before this number of windows."""
    return node.span.stop <= stop if windows is None else node.windows[1] <= windows


def _state(nodes: Iterable[Node], start: int) -> SessionState:
    """Return the state in which these nodes are sealed and message ``start`` is next."""
    ordinals: list[int] = []
    groups: list[list[Root]] = []
    for node in nodes:
        ordinals += [0] * (node.level - len(ordinals))
        ordinals[node.level - 1] += 1
        if node.parent is None:
            groups += [[] for _ in range(node.level - len(groups))]
            groups[node.level - 1].append(Root.of(node))
    return SessionState(start, ordinals=tuple(ordinals), groups=tuple(map(pack, groups)))


def _rest(
    source: SessionRecord,
    nodes: dict[str, Node],
    stop: int,
    events: Sequence[LogEvent],
    weigher: Weigher,
) -> Asking[tuple[Refold, dict[int, StoredMessage]]]:
    """Fold the messages before ``stop`` that are in none of these nodes.

    Returns the fold, and the messages that are not as in the source, by index.
    """
    config = config_from(source.config)
    openings: dict[str, Opening] = {}
    remaining = stop
    for node in nodes.values():
        if node.level == 1:
            begun = node.span.stop_char is not None  # its last message goes on behind it
            window = Window(char=node.span.stop_char or 0, linked=begun)
            openings[node.thread or ""] = Opening(node.span.stop - begun, window)
            remaining -= node.messages - begun
    other = Opening(0)
    # Threads that spoke so shortly before are not forgotten.
    reach = stop - 2 * Limits.of(config).idle
    start, messages = stop, list[StoredMessage]()
    while start > 0 and (remaining > 0 or start > reach - LEAD):
        first = max(0, start - _PAGE)
        page: list[StoredMessage] = yield source.id, transaction.NeedMessages(first, start)
        open_ = [m.index for m in page if m.index >= openings.get(m.thread, other).begin]
        remaining, reach = remaining - len(open_), min([reach, *open_])
        start, messages = first, page + messages
    people = SessionState.from_json(source.state).people.before(stop)
    refold = Refold(config, replace(_state(nodes.values(), start), people=people), openings)
    late = [event for event in events if event.at >= start]
    refold.fold_in(refold.arrivals(messages, weigher), late)
    rewrites = dict(refold.rewrites)
    state = refold.state
    for thread in state.threads:
        # Their results may still arrive in the fork, though the source gave up on them since.
        for _, index in state.strand(thread).turns.waiting:
            stored = rewrites.get(index, messages[index - start])
            flags = tuple(flag for flag in stored.flags if flag != _GIVEN_UP)
            if flags != stored.flags:
                rewrites[index] = replace(stored, flags=flags)
    return refold, rewrites
