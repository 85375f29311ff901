"""The offline default model: summaries, graphs and banks made of what was said, word for word.

The same request gives the same answer, in any process, without a network. This module only
dispatches the request's inputs: to ``summaries.salience``, ``extraction`` or
``consolidation``. It reads the inputs and never the rendered prompt, so no instruction inside a
message can reach it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hiermem.errors import UsageError
from hiermem.protocols import LLMRequest, LLMResponse, Usage
from hiermem.summaries.salience import Selection, Weights, select
from hiermem.text.units import of_source
from hiermem.tokens import RunCounter

__all__ = ["ExtractiveLLM"]

#: From this level on the digest of a piece of code says little, because nothing is left of the talk
#: about it, and a long sentence says more of its own stretch than two short ones.
_HIGH = 4
_CODE_HIGH = 0.4
_COST_HIGH = 5 / 6
#: The level at which what was said twice is what the stretch is about. At the others a second
#: mention counts next to nothing: what level 1 leaves out is lost to every level above, and from
#: level 3 on a node is hardly longer than each of its children.
_GIST = 2
_REPEAT = 1 / 15
#: Inputs of so many characters are read in some three milliseconds.
_SHORT = 16_000


class ExtractiveLLM:
    """A summariser, extractor and bank writer: deterministic, offline, free.

    ``weights`` change what it prefers; they are part of its name, so summaries made with other
    weights count as made by another model. A call reads any length of input, in linear time, costs
    no money and needs no claim.
    """

    context_window: int | None = None
    remote = False

    def __init__(self, weights: Weights = Weights()) -> None:
        self._weights = weights
        usual = Weights()
        changed = [
            f"{field}={value!r}"
            for field in Weights.__slots__
            if (value := getattr(weights, field)) != getattr(usual, field)
        ]
        self.name = "extractive-2" + (f"({','.join(changed)})" if changed else "")

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer a ``summarise`` request with at most ``target_tokens`` tokens, or another task.

        The answer to ``extract`` is the JSON of ``hiermem.types.trivector.Answer``, the answer to
        ``consolidate`` the JSON of ``hiermem.bank.prompt``, each in at most ``max_tokens``
        tokens. The work is done on a thread, so that a long input does not block the event loop;
        a summary of a short one is made in place, which takes a few milliseconds.
        """
        if request.task != "summarise":
            work = self.extract if request.task == "extract" else self.consolidate
            return LLMResponse(
                text=await asyncio.to_thread(work, request),
                usage=Usage(input_tokens=0, output_tokens=0),
                model=self.name,
            )
        if sum(len(source.text) for source in request.inputs) <= _SHORT:
            selection = self.summarise(request)
        else:
            selection = await asyncio.to_thread(self.summarise, request)
        return LLMResponse(
            text=selection.text,
            usage=Usage(input_tokens=0, output_tokens=0),
            model=self.name,
            units=selection.units,
        )

    def summarise(self, request: LLMRequest) -> Selection:
        """Select the units of ``request.inputs`` that are worth most in its target length."""
        units = [unit for source in request.inputs for unit in of_source(source)]
        budget = min(request.target_tokens, request.max_tokens)
        weights = self._weights
        if request.level != _GIST:
            weights = replace(weights, repeat=weights.repeat * _REPEAT)
        if request.level >= _HIGH:
            weights = replace(
                weights,
                code=weights.code * _CODE_HIGH,
                cost_power=weights.cost_power * _COST_HIGH,
            )
        # A level chooses from the units that the level below has kept: they are read once.
        notes = request.counter.notes if isinstance(request.counter, RunCounter) else None
        return select(units, budget, request.counter.count, weights=weights, notes=notes)

    def extract(self, request: LLMRequest) -> str:
        """Write the extraction of ``request.inputs`` as the requested JSON."""
        # A process that extracts nothing does not pay for this import.
        from hiermem.models.offline import graph

        return graph.extract(
            request.inputs, max_tokens=request.max_tokens, count=request.counter.count
        ).model_dump_json()

    def consolidate(self, request: LLMRequest) -> str:
        """Write the changes of the bank of ``request`` as the requested JSON.

        Raises UsageError for a request without a bank.
        """
        if request.bank is None:
            raise UsageError("the consolidation request has no bank; pass one")
        # A process that consolidates nothing does not pay for this import.
        from hiermem.models.offline import notes as bank

        return bank.consolidate(
            request.bank, max_tokens=request.max_tokens, count=request.counter.count
        ).model_dump_json()
