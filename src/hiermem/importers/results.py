"""Puts the results of parallel tool calls beside their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hiermem.types import Message

Keyed = tuple[Message, str | None]


def beside_their_calls(messages: Sequence[Keyed]) -> Iterator[Keyed]:
    """Yield messages, each call followed by its result.

    A log of parallel calls has all calls first and then all results, each a line of its own. Sent
    to a provider as they are, the first calls would lack their results. Only results within such a
    run of calls and results are moved.
    """
    start = 0
    while start < len(messages):
        stop = start
        while stop < len(messages) and _in_run(messages[stop][0]):
            stop += 1
        yield from _sorted(messages[start:stop])
        if stop < len(messages):
            yield messages[stop]
        start = stop + 1


def _in_run(message: Message) -> bool:
    return bool(message.tool_calls) or message.tool_call_id is not None


def _sorted(run: Sequence[Keyed]) -> Iterator[Keyed]:
    called = {call.id for message, _ in run for call in message.tool_calls}
    results: dict[str, list[Keyed]] = {}
    for each in run:
        if (call_id := each[0].tool_call_id) in called and call_id is not None:
            results.setdefault(call_id, []).append(each)
    for each in run:
        message = each[0]
        if message.tool_call_id not in called:
            yield each
        for call in message.tool_calls:
            yield from results.pop(call.id, ())
