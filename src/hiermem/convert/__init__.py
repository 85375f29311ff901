"""Messages in the shapes of OpenAI's chat and Responses interfaces and Anthropic's, both ways.

A message that was read can be written back unchanged. Data that a shape has and Message lacks (null
content, a refusal, cache marks, the order of blocks) is kept in ``metadata`` under the shape's name
and is put back when the message is written in that shape. Data that Message has and a shape lacks
(key, thread, created_at, other metadata) is not written. Nothing is validated beyond what reading
needs: the provider decides which requests it accepts.

A context is written without such kept data (``extras=False``, ``context_to_anthropic``): it would
be neither counted nor needed. Items of the Responses interface keep it, except ids
(``context_to_responses``): they have fields that are needed and cost nothing.
"""

from __future__ import annotations

from hiermem.convert.anthropic import context_to_anthropic, from_anthropic, to_anthropic
from hiermem.convert.responses import context_to_responses, from_responses, to_responses
from hiermem.convert.shapes import from_any, from_openai, shape_of, to_openai

__all__ = [
    "context_to_anthropic",
    "context_to_responses",
    "from_anthropic",
    "from_any",
    "from_openai",
    "from_responses",
    "shape_of",
    "to_anthropic",
    "to_openai",
    "to_responses",
]
