"""Checks that a session's tree is what its messages make of it, however they were changed."""

from itertools import pairwise

from hiermem.handle import state_from
from hiermem.tree.fold import config_from
from hiermem.tree.levels import allot, hull
from hiermem.tree.windows import Weigher, converted


async def tree_of(store, session_id, *, tree=None):
    """Give all nodes of a session's tree, by id."""
    of = store.tree(session_id, tree)
    nodes = [n for level in await of.levels() for n in await of.level(level, 0)]
    return {node.id: node for node in nodes}


async def check_tree(store, session_id, counter):
    """Assert that sizes, spans, parents and roots follow from the messages, and slices from bounds.

    For sessions that were never reconfigured: all sizes are in one unit.
    """
    record = await store.session(session_id)
    config, state = config_from(record.config), state_from(record.state)
    weigher = Weigher(counter)
    messages = await store.messages(session_id, 0, record.messages)
    nodes = await tree_of(store, session_id)
    sizes = dict.fromkeys(nodes, 0)
    tokens = dict.fromkeys(nodes, 0)
    open_sizes = {}
    for stored in messages:
        weights = weigher.weigh(stored, config, stored.slices)
        windows = await store.tree(session_id).covering(stored.thread, stored.index)
        assert len(weights) - len(windows) in (0, 1), f"slices of message {stored.index}"
        for window, weight in zip(windows, weights, strict=False):
            sizes[window.id] += weight.size(config.unit)
            tokens[window.id] += weight.tokens
        for number, window in enumerate(windows[1:], start=1):
            assert window.span.start_char == stored.slices[number - 1]
        for number, window in enumerate(windows[: len(stored.slices)]):
            assert window.span.stop_char == stored.slices[number]
        if len(windows) < len(weights):
            before = open_sizes.get(stored.thread, (0, 0))
            weight = weights[-1]
            open_sizes[stored.thread] = (
                before[0] + weight.size(config.unit),
                before[1] + weight.tokens,
            )
    for window in state.open_windows():
        assert (window.size, window.tokens) == open_sizes.pop(window.thread)
    assert not open_sizes
    for node in sorted(nodes.values(), key=lambda node: node.level):
        children = [nodes[child] for child in node.children]
        if children:
            sizes[node.id] = sum(
                converted(c.allotted, c.allotted_tokens, c.unit, node.unit) for c in children
            )
            tokens[node.id] = sum(child.allotted_tokens for child in children)
            assert all(child.parent == node.id for child in children)
            assert node.windows == (children[0].windows[0], children[-1].windows[1])
            assert all(a.windows[1] == b.windows[0] for a, b in pairwise(children))
            assert node.span == hull(child.span for child in children)
            assert node.messages == sum(child.messages for child in children)
        assert (node.input_size, node.input_tokens) == (sizes[node.id], tokens[node.id]), node.id
        assert (node.allotted, node.allotted_tokens, node.verbatim) == allot(
            node.level, node.input_size, node.input_tokens, config, unit=node.unit
        )
    roots = state.roots()
    assert [root.id for root in roots] == [
        node.id
        for node in sorted(nodes.values(), key=lambda node: node.windows)
        if node.parent is None
    ]
    for root in roots:
        node = nodes[root.id]
        assert (root.allotted, root.allotted_tokens, root.span, root.windows) == (
            node.allotted, node.allotted_tokens, node.span, node.windows,
        )  # fmt: skip
    at = 0
    for root in roots:
        assert root.windows[0] == at
        at = root.windows[1]
    assert at == state.next_ordinal(1)
