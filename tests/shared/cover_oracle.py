"""An independent account of what a context covers."""

from collections import defaultdict

from hiermem.context.view import View
from hiermem.text.measure import body


def intervals_of(span, thread, messages):
    """Give (index, begin, end) for each message of ``thread`` inside ``span``."""
    for stored in messages[span.start : span.stop]:
        if thread is not None and stored.thread != thread:
            continue
        length = len(body(stored.message))
        begin = span.start_char if stored.index == span.start else 0
        end = length
        if span.stop_char is not None and stored.index == span.stop - 1:
            end = span.stop_char
        yield stored.index, begin, end


def check_cover(selection, *, view: View, windows, opened, messages):
    """Assert that every character of every message is represented exactly once.

    ``windows`` are all level-1 nodes, ``opened`` the open windows. Nothing of the selection's own
    bookkeeping is believed except which windows and messages it names.
    """
    seen = defaultdict(list)
    at = 0
    for piece in view.pieces:
        assert piece.windows[0] == at, "the summary zone has a hole or an overlap"
        at = piece.windows[1]
        inner = piece.windows[0]
        for item in piece.covers:
            assert item.windows[0] == inner, "a view's nodes leave a hole or overlap"
            inner = item.windows[1]
        assert inner == piece.windows[1]
        for window in windows[piece.windows[0] : piece.windows[1]]:
            for index, begin, end in intervals_of(window.span, window.thread, messages):
                seen[index].append((begin, end))
    assert at == view.boundary or (not view.pieces and view.boundary == 0)
    begins = {}
    for window in windows[view.boundary :]:
        begins.setdefault(window.thread, window.span.begin)
    for window in opened:
        begins.setdefault(window.thread, window.begin)
    raw = {stored.index for stored in selection.recent_messages}
    for stored in messages:
        begin = begins.get(stored.thread)
        if begin is None or stored.index < begin.index:
            continue
        first = begin.char if stored.index == begin.index else 0
        in_view = view.holds(stored.index)
        assert not (in_view and stored.index in raw), f"message {stored.index} is shown twice"
        silent = stored.state != "live" or not (stored.content or stored.tool_calls)
        if in_view or stored.index in raw or silent:
            seen[stored.index].append((first, len(body(stored.message))))
    for stored in messages:
        length = len(body(stored.message))
        parts = sorted(seen[stored.index])
        assert parts, f"message {stored.index} is represented nowhere"
        if not length:
            continue
        reached = 0
        for begin, end in parts:
            assert begin == reached, f"message {stored.index} is not covered exactly once: {parts}"
            reached = end
        assert reached == length, f"message {stored.index} is covered up to {reached} of {length}"


def check_native_groups(rendered):
    """Assert that a provider would accept the order of calls and results."""
    waiting: set[str] = set()
    for message in rendered:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "an orphan tool message"
            waiting.discard(message["tool_call_id"])
            continue
        assert not waiting, "a call without all its results"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    assert not waiting, "a call without all its results"
