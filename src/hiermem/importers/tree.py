"""Takes a tree of messages apart: the path that is current, then what branches off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from hiermem.importers.draft import Draft, Options
from hiermem.log.alignment import branch_id, lost_id
from hiermem.types.message import Conversation


def branches_of(
    draft: Draft,
    parents: Mapping[str, str | None],
    add: Callable[[str], list[str]],
    *,
    current: str | None,
    about: Conversation,
    created: datetime | None,
    options: Options,
) -> Iterator[Conversation]:
    """Yield a tree of messages as conversations: its current path, then its other branches.

    ``add`` adds the messages of a node to the draft and returns their keys. ``about`` gives id,
    title and format; without an id, one is made of the first message. ``created`` is the time of
    messages where none has one.
    """
    parents, cut = without_circles(parents)
    if cut:
        draft.notes.miss("messages that follow themselves, read as beginnings", draft.where, cut)
    base = about.id.replace("~", "-")  # the mark of a branch
    last: dict[str | None, str | None] = {}
    parent: str | None = None
    for path in paths_of(parents, current):
        after = last.get(parents[path[0]])
        first, key = None, after
        for name in path:
            keys = add(name)
            first = first or next(iter(keys), None)
            key = keys[-1] if keys else key
            last[name] = key
        messages = draft.take(created)
        if not base and messages:
            base = lost_id(about.format, messages[0])
        if first is None or (parent is not None and options.branches == "skip"):
            continue
        yield replace(
            about,
            id=base if parent is None else branch_id(base, first),
            messages=messages,
            parent=parent,
            after=None if parent is None else after,
            branching=True,
        )
        parent = base


def newest_leaf(parents: Mapping[str, str | None], times: Mapping[str, float]) -> str | None:
    """Return the node without children that is newest; of those without a time, the last."""
    above = set(parents.values())
    leaves = [(times.get(name, 0.0), place, name) for place, name in enumerate(parents)
              if name not in above]  # fmt: skip
    return max(leaves)[2] if leaves else None


def without_circles(parents: Mapping[str, str | None]) -> tuple[dict[str, str | None], int]:
    """Return the parents with each circle cut open, and how many were.

    >>> without_circles({"a": "b", "b": "a", "c": "b"})
    ({'a': None, 'b': 'a', 'c': 'b'}, 1)
    """
    whole, cut = dict(parents), 0
    sound: set[str] = set()
    for start in whole:
        path: dict[str, None] = {}
        node: str | None = start
        while node is not None and node in whole and node not in sound:
            if node in path:
                whole[node] = None
                cut += 1
                break
            path[node] = None
            node = whole[node]
        sound.update(path)
    return whole, cut


def paths_of(parents: Mapping[str, str | None], current: str | None) -> Iterator[list[str]]:
    """Yield each node once: first the path to ``current``, then every branch, parents first.

    ``parents`` gives each node's parent; a parent that is not in the tree counts as none. No node
    is its own ancestor. Where ``current`` is not a node, the path to the last node is the first. A
    branch continues with the newest child.

    >>> list(paths_of({"a": None, "b": "a", "c": "a", "d": "c"}, "b"))
    [['a', 'b'], ['c', 'd']]
    """
    if not parents:
        return
    children: dict[str, list[str]] = {node: [] for node in parents}
    roots: list[str] = []
    for node, parent in parents.items():
        if parent is None or parent not in parents:
            roots.append(node)
        else:
            children[parent].append(node)
    path: list[str] = []
    node_at: str | None = current if current in parents else list(parents)[-1]
    while node_at is not None and node_at in parents:
        path.append(node_at)
        node_at = parents[node_at]
    path.reverse()
    yield path
    on_path = set(path)
    pending = [root for root in reversed(roots) if root not in on_path]
    for node in reversed(path):
        pending.extend(child for child in reversed(children[node]) if child not in on_path)
    while pending:
        branch = [pending.pop()]
        while below := children[branch[-1]]:
            branch.append(below[-1])
            pending.extend(reversed(below[:-1]))
        yield branch
