"""Conversation memory without end: an embeddable library of hierarchical summaries.

A name's module is loaded when the name is first asked for, so that importing the package costs next
to nothing and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem._version import __version__

if TYPE_CHECKING:
    from hiermem.config import ContextPolicy, HierarchyConfig, LevelConfig, UpdatePolicy
    from hiermem.convert import from_anthropic, from_openai, to_anthropic, to_openai
    from hiermem.core.plan import UpdatePlan, UpdateProgress, UpdateReport
    from hiermem.core.prompt import PromptTemplate
    from hiermem.core.selection import ContextBudget, ContextSelection, ShownSummary
    from hiermem.core.state import OpenWindow
    from hiermem.core.trigger import CompressionTrigger
    from hiermem.core.turns import Arrival, Slice
    from hiermem.engine.context import ContextWindowManager
    from hiermem.engine.tree import SessionStatus, Tree
    from hiermem.errors import (
        BudgetTooSmallError,
        ConfigError,
        ConvergenceError,
        CounterMismatchError,
        HiermemError,
        InvalidMessageError,
        InvalidTextError,
        MemoryClosedError,
        MessageConflictError,
        ModelError,
        NotFoundError,
        PermanentModelError,
        SessionClosedError,
        SpendLimitError,
        StoreBusyError,
        StoreCorruptError,
        StoreError,
        StoreNewerError,
        TransientModelError,
        UsageError,
    )
    from hiermem.memory import AsyncMemory, AsyncSession
    from hiermem.protocols import (
        LLM,
        LLMRequest,
        LLMResponse,
        RunRecord,
        Store,
        TenantStore,
        TokenCounter,
        Usage,
    )
    from hiermem.sync import Memory, Session
    from hiermem.tokens import ApproximateCounter, TiktokenCounter
    from hiermem.types import (
        FilePart,
        ImagePart,
        JsonPart,
        Message,
        Node,
        Revision,
        SessionRecord,
        Span,
        StoredMessage,
        Summary,
        TextPart,
        ToolCall,
    )

_HOMES = {
    "hiermem.config": (
        "ContextPolicy",
        "HierarchyConfig",
        "LevelConfig",
        "UpdatePolicy",
    ),
    "hiermem.convert": (
        "from_anthropic",
        "from_openai",
        "to_anthropic",
        "to_openai",
    ),
    "hiermem.core.plan": (
        "UpdatePlan",
        "UpdateProgress",
        "UpdateReport",
    ),
    "hiermem.core.prompt": ("PromptTemplate",),
    "hiermem.core.selection": (
        "ContextBudget",
        "ContextSelection",
        "ShownSummary",
    ),
    "hiermem.core.state": ("OpenWindow",),
    "hiermem.core.trigger": ("CompressionTrigger",),
    "hiermem.core.turns": (
        "Arrival",
        "Slice",
    ),
    "hiermem.engine.context": ("ContextWindowManager",),
    "hiermem.engine.tree": (
        "SessionStatus",
        "Tree",
    ),
    "hiermem.errors": (
        "BudgetTooSmallError",
        "ConfigError",
        "ConvergenceError",
        "CounterMismatchError",
        "HiermemError",
        "InvalidMessageError",
        "InvalidTextError",
        "MemoryClosedError",
        "MessageConflictError",
        "ModelError",
        "NotFoundError",
        "PermanentModelError",
        "SessionClosedError",
        "SpendLimitError",
        "StoreBusyError",
        "StoreCorruptError",
        "StoreError",
        "StoreNewerError",
        "TransientModelError",
        "UsageError",
    ),
    "hiermem.memory": (
        "AsyncMemory",
        "AsyncSession",
    ),
    "hiermem.protocols": (
        "LLM",
        "LLMRequest",
        "LLMResponse",
        "RunRecord",
        "Store",
        "TenantStore",
        "TokenCounter",
        "Usage",
    ),
    "hiermem.sync": (
        "Memory",
        "Session",
    ),
    "hiermem.tokens": (
        "ApproximateCounter",
        "TiktokenCounter",
    ),
    "hiermem.types": (
        "FilePart",
        "ImagePart",
        "JsonPart",
        "Message",
        "Node",
        "Revision",
        "SessionRecord",
        "Span",
        "StoredMessage",
        "Summary",
        "TextPart",
        "ToolCall",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LLM",
    "ApproximateCounter",
    "Arrival",
    "AsyncMemory",
    "AsyncSession",
    "BudgetTooSmallError",
    "CompressionTrigger",
    "ConfigError",
    "ContextBudget",
    "ContextPolicy",
    "ContextSelection",
    "ContextWindowManager",
    "ConvergenceError",
    "CounterMismatchError",
    "FilePart",
    "HierarchyConfig",
    "HiermemError",
    "ImagePart",
    "InvalidMessageError",
    "InvalidTextError",
    "JsonPart",
    "LLMRequest",
    "LLMResponse",
    "LevelConfig",
    "Memory",
    "MemoryClosedError",
    "Message",
    "MessageConflictError",
    "ModelError",
    "Node",
    "NotFoundError",
    "OpenWindow",
    "PermanentModelError",
    "PromptTemplate",
    "Revision",
    "RunRecord",
    "Session",
    "SessionClosedError",
    "SessionRecord",
    "SessionStatus",
    "ShownSummary",
    "Slice",
    "Span",
    "SpendLimitError",
    "Store",
    "StoreBusyError",
    "StoreCorruptError",
    "StoreError",
    "StoreNewerError",
    "StoredMessage",
    "Summary",
    "TenantStore",
    "TextPart",
    "TiktokenCounter",
    "TokenCounter",
    "ToolCall",
    "TransientModelError",
    "Tree",
    "UpdatePlan",
    "UpdatePolicy",
    "UpdateProgress",
    "UpdateReport",
    "Usage",
    "UsageError",
    "__version__",
    "from_anthropic",
    "from_openai",
    "to_anthropic",
    "to_openai",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        """Load the module that defines ``name`` (PEP 562)."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Name what can be imported, loaded or not."""
    return sorted(globals().keys() | set(__all__))
