"""Messages in the shapes of OpenAI's chat and Responses interfaces and Anthropic's, both ways.

A message that was read can be written back unchanged. Data that a shape has and Message lacks (null
content, a refusal, cache marks, the order of blocks) is kept in ``metadata`` under the shape's name
and is put back when the message is written in that shape. Data that Message has and a shape lacks
(key, thread, created_at, other metadata) is not written. A ``created_at`` that a message has is
read. Nothing is validated beyond what reading needs: the provider decides which requests it
accepts.

A context is written by ``request`` instead, which makes it one that the provider accepts.
"""

from __future__ import annotations

from hiermem.convert.anthropic import from_anthropic, to_anthropic
from hiermem.convert.responses import (
    from_any,
    from_openai,
    from_responses,
    shape_of,
    to_openai,
    to_responses,
)

__all__ = [
    "from_anthropic",
    "from_any",
    "from_openai",
    "from_responses",
    "shape_of",
    "to_anthropic",
    "to_openai",
    "to_responses",
]
