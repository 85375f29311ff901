"""Takes a tree of messages apart: the path that is current, then what branches off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from hiermem.core.log.branches import branch_id
from hiermem.importers.draft import Draft, Options
from hiermem.types.conversation import Conversation


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
    title and format, and ``created`` the time of messages where none has one.
    """
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
        if first is None or (parent is not None and options.branches == "skip"):
            continue
        notes, draft.notes = draft.notes, Counter()
        yield replace(
            about,
            id=base if parent is None else branch_id(base, first),
            messages=messages,
            parent=parent,
            after=None if parent is None else after,
            branching=True,
            notes=notes,
        )
        parent = base


def paths_of(parents: Mapping[str, str | None], current: str | None) -> Iterator[list[str]]:
    """Yield each node once: first the path to ``current``, then every branch, parents first.

    ``parents`` gives each node's parent; a parent that is not in the tree counts as none. Where
    ``current`` is not a node, the path to the last node is the first. A branch continues with the
    newest child. A node that is its own ancestor is left out.

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
    path = _up(parents, current if current in parents else list(parents)[-1])
    pending: list[str] = []
    on_path = set(path)
    if path:
        yield path
    pending.extend(root for root in reversed(roots) if root not in on_path)
    for node in reversed(path):
        pending.extend(child for child in reversed(children[node]) if child not in on_path)
    while pending:
        branch = [pending.pop()]
        while below := children[branch[-1]]:
            branch.append(below[-1])
            pending.extend(reversed(below[:-1]))
        yield branch


def _up(parents: Mapping[str, str | None], node: str | None) -> list[str]:
    """Return the path from a root down to ``node``; none where it leads round in a circle."""
    path: list[str] = []
    seen: set[str] = set()
    while node is not None and node in parents:
        if node in seen:
            return []
        seen.add(node)
        path.append(node)
        node = parents[node]
    return path[::-1]
