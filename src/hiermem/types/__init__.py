"""Values: what goes in, what is stored, what comes out. All are frozen.

A value holds data, checks its own shape and can be compared; everything else is derived from it.
An application imports from here what calls return. The library takes messages and the tree's values
from here, the others from their own modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem.types.message import ROLES as ROLES
from hiermem.types.message import Content as Content
from hiermem.types.message import FilePart as FilePart
from hiermem.types.message import ImagePart as ImagePart
from hiermem.types.message import JsonPart as JsonPart
from hiermem.types.message import Message as Message
from hiermem.types.message import Part as Part
from hiermem.types.message import Role as Role
from hiermem.types.message import TextPart as TextPart
from hiermem.types.message import ToolCall as ToolCall
from hiermem.types.tree import MessageState as MessageState
from hiermem.types.tree import Node as Node
from hiermem.types.tree import Position as Position
from hiermem.types.tree import Revision as Revision
from hiermem.types.tree import SessionRecord as SessionRecord
from hiermem.types.tree import SizeUnit as SizeUnit
from hiermem.types.tree import Span as Span
from hiermem.types.tree import Status as Status
from hiermem.types.tree import StoredMessage as StoredMessage
from hiermem.types.tree import Summary as Summary
from hiermem.types.tree import Trust as Trust
from hiermem.types.tree import Unit as Unit

if TYPE_CHECKING:
    from hiermem.api.results import *  # noqa: F403 - each name is public there
else:
    _TYPING = {"Any", "TYPE_CHECKING"}

    def __getattr__(name: str) -> Any:
        """Return a value of a higher folder, which is loaded then (PEP 562)."""
        if name == "__all__":
            here = {**vars(import_module("hiermem.api.results")), **globals()}
            return sorted(each for each in here if each[:1].isupper() and each not in _TYPING)
        results = import_module("hiermem.api.results") if name[:1].isupper() else None
        if not hasattr(results, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(results, name)
        return value
