"""Counts the tokens that the requests of a plan take, by rendering them as they will be sent.

The words around a record are counted once for each level. Records are rendered and counted one by
one up to a bound; of the rest only a sample is, so that a plan of a long session stays cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hiermem.core.calls.request_limits import FRAME
from hiermem.core.summaries.inputs import SUMMARY, Inputs
from hiermem.core.summaries.prompt import Length
from hiermem.core.text.measure import day
from hiermem.engine.calls.token_count import tokens_of
from hiermem.engine.summaries.run import UpdateRun
from hiermem.protocols import SourceText
from hiermem.types import Node

#: Up to so many characters every record is counted; then one record of so many.
_COUNTED: Final = 1_000_000
_SAMPLED: Final = 64
#: A text in place of one that is not made yet; it ends as texts end.
_TEXT: Final = "It is so."


class RequestSizes:
    """The tokens of the requests that one plan foresees."""

    def __init__(self, run: UpdateRun) -> None:
        self._run = run
        self._frames: dict[int, int] = {}
        self._labels: dict[tuple[int, int, int], int] = {}
        self._systems: dict[str, int] = {}
        self._characters = 0
        #: By level: the tokens of the counted records as rendered, and of their inputs.
        self._seen: dict[int, tuple[int, int]] = {}

    async def of_inputs(
        self, node: Node, inputs: Inputs, length: Length, requests: int, *, of: int
    ) -> int:
        """Return the tokens of ``requests`` requests, ``of`` which all together hold ``inputs``."""
        frame = await self._frame(node, length)
        record = await self._record(node, inputs, length, frame)
        return requests * frame + record * requests // of

    async def of_children(self, node: Node, tokens: int, length: Length, requests: int) -> int:
        """Return the tokens of requests for children whose texts will have ``tokens`` together."""
        frame = await self._frame(node, length)
        days = (node.last_at.date() - node.first_at.date()).days
        key = node.level, len(node.children), min(days, len(node.children))
        if key not in self._labels:
            sources = _stand_ins(node)
            texts = await tokens_of(self._run.counter.count, [each.text for each in sources])
            whole = await self._whole(node, sources, length)
            self._labels[key] = max(0, whole - frame - texts)
        return requests * frame + self._labels[key] + tokens

    def is_rendered(self, node: Node) -> bool:
        """Return whether the record of a node's request is rendered, or its size estimated."""
        _, counted = self._seen.get(node.level, (0, 0))
        return self._characters <= _COUNTED or not counted or not node.ordinal % _SAMPLED

    async def _record(self, node: Node, inputs: Inputs, length: Length, frame: int) -> int:
        """Return the tokens of a record as rendered, or an estimate after those counted so far."""
        rendered, counted = self._seen.get(node.level, (0, 0))
        if not self.is_rendered(node):
            return round(inputs.tokens * rendered / counted)
        self._characters += sum(len(source.text) for source in inputs.sources)
        whole = await self._whole(node, inputs.sources, length, overlap=inputs.overlap)
        record = max(0, whole - frame)
        self._seen[node.level] = rendered + record, counted + inputs.tokens
        return record

    async def _frame(self, node: Node, length: Length) -> int:
        """Return the tokens of a request of this level without its record."""
        if node.level not in self._frames:
            self._frames[node.level] = await self._whole(node, (), length)
        return self._frames[node.level]

    async def _whole(
        self, node: Node, sources: Sequence[SourceText], length: Length, *, overlap: str = ""
    ) -> int:
        """Return the tokens of a whole request; what no request varies is counted once."""
        count = self._run.counter.count
        messages = self._run.prompt(
            node,
            sources,
            length,
            summaries=0 if node.level == 1 else len(node.children),
            overlap=overlap,
        )
        *before, last = [message.content for message in messages]
        for text in before:
            if text not in self._systems:
                self._systems[text] = count(text)
        constant = sum(self._systems[text] for text in before)
        return constant + await tokens_of(count, [last]) + FRAME * len(messages)


def _stand_ins(node: Node) -> list[SourceText]:
    """Return a source for each child of ``node``, dated as if they were spread evenly."""
    whole, number = node.last_at - node.first_at, len(node.children)
    return [
        SourceText(
            index=None,
            role="user",
            speaker=SUMMARY,
            date=day(node.first_at + whole * place / number),
            text=_TEXT,
        )
        for place in range(number)
    ]
