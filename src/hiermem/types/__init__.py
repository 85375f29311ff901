"""Values: what goes in, what is stored, what comes out. All are frozen.

A value holds data, checks its own shape and can be compared; everything else is derived from it.
Messages and the tree's values can be imported from here; those of banks, graphs, prices and
transactions come from their own modules.
"""

from __future__ import annotations

from hiermem.types.message import (
    ROLES,
    Content,
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCall,
)
from hiermem.types.tree import (
    MessageState,
    Node,
    Position,
    Revision,
    SessionRecord,
    SizeUnit,
    Span,
    Status,
    StoredMessage,
    Summary,
    Trust,
    Unit,
)

__all__ = [
    "ROLES",
    "Content",
    "FilePart",
    "ImagePart",
    "JsonPart",
    "Message",
    "MessageState",
    "Node",
    "Part",
    "Position",
    "Revision",
    "Role",
    "SessionRecord",
    "SizeUnit",
    "Span",
    "Status",
    "StoredMessage",
    "Summary",
    "TextPart",
    "ToolCall",
    "Trust",
    "Unit",
]
