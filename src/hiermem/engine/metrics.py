"""Reads what a session's metrics are computed from. ``core.metrics`` defines what they mean.

The store adds up. Only the roots are read here and, below them, only what is not made yet.
"""

from __future__ import annotations

from hiermem.core import arguments
from hiermem.core.context.view import SEEN, Seen
from hiermem.core.metrics import Metrics, Served, measure
from hiermem.core.tree.state import SessionState
from hiermem.engine.handle import Handle, state_from
from hiermem.engine.log import feedback
from hiermem.types.prices import Prices
from hiermem.types.transaction import NeedViews


async def metrics(handle: Handle, session_id: str, prices: Prices | None) -> Metrics:
    """Measure the session as it is now. ``prices`` adds what was saved and spent in money."""
    if prices is not None:
        arguments.optional(prices, "prices", Prices, lambda: Prices(0, 0))
    record = await handle.record_or_new(session_id)
    state = state_from(record.state)
    return measure(
        session_id,
        messages=record.messages,
        open_tokens=sum(window.tokens for window in state.open_windows()),
        cover_tokens=await _cover_tokens(handle, session_id, state),
        tallies=await handle.store.tree(session_id).tally(),
        spent=await handle.store.spent(session_id),
        feedback=await feedback.total(handle, session_id),
        served=await _served(handle, session_id),
        prices=prices,
    )


async def _cover_tokens(handle: Handle, session_id: str, state: SessionState) -> int:
    """Add up the highest existing texts, and the input of windows that no text covers."""
    found, tree = 0, handle.store.tree(session_id)
    wanted = [root.id for root in state.roots()]
    while wanted:
        nodes = await tree.nodes(wanted)
        texts = await tree.revisions([(node.id, node.revision) for node in nodes if node.revision])
        made = {revision.node_id: revision.tokens for revision in texts}
        wanted = []
        for node in nodes:
            if node.id in made or not node.children:
                found += made.get(node.id, node.input_tokens)
            else:
                wanted += node.children
    return found


async def _served(handle: Handle, session_id: str) -> Served:
    """Add up what the session's sticky views have rendered since they were begun."""
    (views,) = await handle.store.read([(session_id, NeedViews())])
    decoded = [Seen.from_json(view.state) for view in views if view.name.endswith(SEEN)]
    states = [each for each in decoded if each is not None]
    return Served(
        selections=sum(each.selections for each in states),
        tokens=sum(each.rendered for each in states),
        shared=sum(each.shared for each in states),
    )
