"""Decides whether the stored data of a session keeps the promises that stored data can show.

Whatever can be computed again is computed: a message's hash and tokens from its content, a tree's
shape from intervals, a summary's hashes from its text and its inputs. A finding names the promise,
the place and the problem, and never contains text. Promises that stored data cannot show are listed
as such. ``run_check`` reads the data, and reads it twice if needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from hiermem.errors import StoreCorruptError
from hiermem.summaries.inputs import Count, Inputs
from hiermem.summaries.plan import made_hash
from hiermem.text import units
from hiermem.text.measure import body, fingerprint, message_hash, output_hash
from hiermem.tree.fold import SessionState
from hiermem.tree.levels import node_id
from hiermem.types import Node, Position, Revision, StoredMessage
from hiermem.types.brief import Brief
from hiermem.types.transaction import KeyEntry
from hiermem.types.tree import Finding

#: The promises that a check verifies, with what it examines.
CHECKED: Final[Mapping[str, str]] = {
    "P1": "messages are without gaps and read as they were hashed and counted",
    "P2": "each key names the message that bears it, as it was first appended",
    "P3": "the windows tile each thread and the levels tile the windows, each exactly once",
    "P7": "what serves is a text: not empty, counted, and the one that its hash names",
    "P8": "no summary is larger than what it was made from",
    "P11": "tombstones are empty and have no earlier version; no summary that serves and is not "
    "marked was made from what was erased or quarantined",
    "P12": "everything read through this tenant's handle belongs to a session of this tenant",
    "bank": "each note of a space waits or went in once, the figures are their sum, and the files "
    "are those that the history gives",
    "dirt": "each text that is not marked was made from what its inputs say now",
}
#: The promises that stored data cannot show, and why.
NOT_SHOWN: Final[Mapping[str, str]] = {
    "P4": "how appends were batched and when updates ran is not on record",
    "P5": "the log is not folded again: why a window was closed where it was is not compared",
    "P6": "how much work an append or an edit took is not on record",
    "P9": "the caps that a run was given are not all on record",
    "P10": "what a provider charged is not on record",
    "P13": "how a context was rendered before is not on record",
}
#: A text made from more tokens than this must be smaller than its inputs.
_SMALL: Final = 200


@dataclass(frozen=True, slots=True)
class CheckReport(Brief):
    """The result of a check of a tenant.

    ``checked`` says what was examined for each promise, ``not_shown`` why others cannot be seen in
    stored data. ``skipped`` says what could not be examined this time. If a session was written to
    during the check, only problems found twice are findings.
    """

    tenant: str
    sessions: int
    messages: int
    nodes: int
    findings: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()
    checked: Mapping[str, str] = field(default_factory=lambda: CHECKED)
    not_shown: Mapping[str, str] = field(default_factory=lambda: NOT_SHOWN)

    @property
    def ok(self) -> bool:
        """Return whether nothing was found."""
        return not self.findings


#: What is wrong: (promise, where, what).
Fault: TypeAlias = tuple[str, str, str]
Faults: TypeAlias = Iterator[Fault]


def of_message(stored: StoredMessage, *, index: int, tokens: int | None) -> Faults:
    """Check one message at its place; ``tokens`` is its count made now, None if unknown."""
    where = f"message {index}"
    if stored.index != index:
        yield "P1", where, f"message {stored.index} stands in its place"
        return
    if stored.state == "erased":
        message = stored.message
        rest = (stored.content, message.name, message.tool_calls, message.metadata, stored.echoes)
        if any(rest) or message.tool_call_id is not None or stored.tokens:
            yield "P11", where, "it was erased and is not empty"
        return
    if stored.hash != message_hash(stored.message):
        yield "P1", where, "its hash is not that of its content"
    if tokens is not None and stored.state == "live" and stored.tokens != tokens:
        yield "P1", where, f"it has {tokens} tokens, not {stored.tokens}"
    length = len(body(stored.message))
    inner = (0, *stored.slices, length)
    if any(first > second for first, second in pairwise(inner)):
        yield "P1", where, "its slices do not join to the message"
    if any(not 0 <= begin <= end <= length for begin, end in stored.echoes):
        yield "P1", where, "an echo lies outside the message"


def of_key(
    stored: StoredMessage, entry: KeyEntry | None, earlier: Sequence[StoredMessage]
) -> Faults:
    """Check the stored entry of a message's key, and that an erased message has no past."""
    where = f"message {stored.index}"
    if stored.state == "erased" and earlier:
        yield "P11", where, "earlier versions of it were kept"
    if stored.key is None:
        return
    if entry is None:
        yield "P2", where, "its key is not remembered"
    elif entry.index != stored.index:
        yield "P2", where, f"its key names message {entry.index}"
    elif stored.state == "erased":
        if entry.fingerprint is not None:
            yield "P11", where, "its key's fingerprint was kept"
    else:
        first = earlier[0] if earlier else stored
        if entry.fingerprint != fingerprint(first.message):
            yield "P2", where, "its key is not that of what was first appended"


def of_versions(stored: StoredMessage, earlier: Sequence[StoredMessage]) -> Faults:
    """Check the stored versions of a message that the log says was edited."""
    where = f"message {stored.index}"
    if stored.state == "erased":
        return
    if not earlier:
        yield "P1", where, "it was edited and no earlier version is kept"
    for number, version in enumerate(earlier):
        if version.hash != message_hash(version.message):
            yield "P1", where, f"the hash of its version {number} is not that of its content"
        if (version.index, version.key) != (stored.index, stored.key):
            yield "P1", where, f"its version {number} is of another message"


def of_threads(
    windows: Sequence[Node], threads: Mapping[str, Sequence[int]], state: SessionState
) -> Faults:
    """Check that sealed and open windows tile each thread, ``threads`` giving its indices."""
    reached = dict.fromkeys(threads, Position(0))
    for node in windows:
        indices = threads.get(node.thread or "")
        if node.thread is None or indices is None:
            yield "P3", node.id, "it is of a thread that has no messages"
            continue
        if node.span.begin != _next(indices, reached[node.thread]):
            yield "P3", node.id, "it does not begin where the window before it ends"
        reached[node.thread] = max(node.span.begin, node.span.end)
        n_messages = _between(indices, node.span.start, node.span.stop)
        if n_messages != node.messages:
            what = f"its span holds {n_messages} messages of its thread, not {node.messages}"
            yield "P3", node.id, what
    opened = {window.thread: window for window in state.open_windows()}
    for thread, indices in threads.items():
        begin = _next(indices, reached[thread])
        window = opened.pop(thread, None)
        where = "an open window"
        if begin is None:
            if window is not None:
                yield "P3", where, "it is open behind the end of its thread"
            continue
        n_open = len(indices) - bisect_left(indices, begin.index)
        if window is None:
            yield "P3", f"message {begin.index}", "no window, sealed or open, holds it"
        elif window.begin != begin or window.messages != n_open:
            yield "P3", where, f"it does not hold the {n_open} messages from {begin.index} on"
    if opened:
        yield "P3", "an open window", "it is of a thread that has no messages"


def _next(indices: Sequence[int], end: Position) -> Position | None:
    """Return where the next window of a thread begins after one that ends at ``end``."""
    position = bisect_left(indices, end.index)
    if position == len(indices):
        return None
    return end if indices[position] == end.index else Position(indices[position])


def _between(indices: Sequence[int], start: int, stop: int) -> int:
    return bisect_left(indices, stop) - bisect_left(indices, start)


def of_level(level: int, nodes: Sequence[Node], below: Mapping[str, Node], count: int) -> Faults:
    """Check the nodes of a level, by ordinal, over those ``below``; ``count`` were sealed.

    A group that joined another one is gone, so numbers may be missing above level 1. Sizes are
    only compared where they limit a summary's length: verbatim and small nodes may be as large as
    their inputs.
    """
    ordinals = [node.ordinal for node in nodes]
    rising = all(0 <= first < second for first, second in pairwise((*ordinals, count)))
    if not rising or (level == 1 and len(ordinals) != count):
        yield "P3", f"level {level}", f"it does not hold the nodes 0 to {count - 1}"
    for node in nodes:
        if node.id != node_id(level, node.ordinal) or node.level != level:
            yield "P3", node.id, "it is not what its id says"
        if level == 1:
            if node.windows != (node.ordinal, node.ordinal + 1) or node.children:
                yield "P3", node.id, "it is not one window"
        else:
            yield from _of_children(node, below)
        larger = node.allotted_tokens > node.input_tokens
        equal = node.allotted_tokens == node.input_tokens > _SMALL
        if larger or (equal and not node.verbatim):
            yield "P8", node.id, "it is allotted no less than its inputs"


def _of_children(node: Node, below: Mapping[str, Node]) -> Faults:
    children = [below[child] for child in node.children if child in below]
    if len(children) < max(2, len(node.children)):
        yield "P3", node.id, "children of it are missing"
        return
    at = node.windows[0]
    for child in children:
        if child.level >= node.level or child.windows[0] != at or child.windows[1] <= at:
            yield "P3", node.id, f"{child.id} does not continue what the child before it covers"
        if child.parent != node.id:
            yield "P3", child.id, f"it is a child of {node.id} and does not know it"
        at = child.windows[1]
    if at != node.windows[1]:
        yield "P3", node.id, "its children do not cover its windows"
    if sum(child.messages for child in children) != node.messages:
        yield "P3", node.id, "its children do not hold the messages that it counts"


def of_roots(nodes: Mapping[str, Node], state: SessionState) -> Faults:
    """Check that nodes without a parent are in the open groups, and cover all windows once."""
    roots = state.roots()
    if {root.id for root in roots} != {node.id for node in nodes.values() if node.parent is None}:
        yield "P3", "open groups", "they are not the nodes without a parent"
        return
    at = 0
    for root in roots:
        if root.windows[0] != at:
            yield "P3", root.id, "the roots before it do not reach it"
        at = root.windows[1]
        node = nodes[root.id]
        stored = (node.windows, node.span, node.messages, node.allotted, node.allotted_tokens)
        if stored != (root.windows, root.span, root.messages, root.allotted, root.allotted_tokens):
            yield "P3", root.id, "its open group remembers it otherwise"
    if at != state.next_ordinal(1):
        yield "P3", "open groups", "they do not cover all sealed windows"


def of_revision(node: Node, revision: Revision | None) -> Faults:
    """Check that the serving text exists, and that the node is marked as its text is."""
    if revision is None:
        if node.revision:
            yield "P7", node.id, f"its revision {node.revision} is missing"
        elif node.status == "active":
            yield "P7", node.id, "it is active and says nothing"
        return
    if revision.degraded != node.degraded:
        yield "P7", node.id, "it is not marked as its text is: degraded"


def of_text(revision: Revision, *, count: Count | None, gone: Callable[[int], bool]) -> Faults:
    """Check a node's text by itself; ``gone`` tells what was erased or quarantined."""
    where = revision.node_id
    if count is not None and revision.tokens != count(revision.text):
        yield "P7", where, "its text has another number of tokens than is on record"
    expected = output_hash(
        text=revision.text, anchors=revision.anchors, tags=revision.tags, entities=revision.entities
    )
    if revision.output_hash != expected:
        yield "P7", where, "its text is not the one that its hash names"
    try:
        text_units = units.unpack(revision.provenance, revision.text)
    except StoreCorruptError:
        yield "P7", where, "its provenance does not belong to its text"
        return
    if any(unit.index is not None and gone(unit.index) for unit in text_units):
        yield "P11", where, "it quotes a message that was erased or quarantined"


def of_inputs(node: Node, revision: Revision, read: Sequence[Inputs], *, gone: bool) -> Faults:
    """Check what a text was made from against what its inputs say now.

    ``read`` are the inputs as they may be read now; ``gone`` says that a message among them was
    erased or quarantined. A node that is marked says openly that it is out of date, and is left
    alone.
    """
    if node.dirty or node.forced or node.status != "active":
        return
    same = [
        inputs
        for inputs in read
        if revision.input_hash == made_hash(node.level, revision.strategy, inputs)
    ]
    if not same:
        what = "its inputs are not what it was made from, and it is not marked"
        yield "P11" if gone else "dirt", node.id, what
        return
    inputs = same[0]
    if inputs.sources and not revision.text.strip():
        yield "P7", node.id, "it is empty and its inputs are not"
    if revision.tokens > inputs.tokens or revision.tokens == inputs.tokens > _SMALL:
        yield "P8", node.id, f"its {revision.tokens} tokens are made from {inputs.tokens}"
