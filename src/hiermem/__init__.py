"""Conversation memory without end: an embeddable library of hierarchical summaries."""

from hiermem._version import __version__
from hiermem.config import ContextPolicy, HierarchyConfig, LevelConfig, UpdatePolicy
from hiermem.convert import from_anthropic, from_openai, to_anthropic, to_openai
from hiermem.core.plan import UpdatePlan
from hiermem.core.prompt import PromptTemplate
from hiermem.core.selection import ContextBudget, ContextSelection, ShownSummary
from hiermem.core.trigger import CompressionTrigger
from hiermem.engine.context import ContextWindowManager
from hiermem.engine.tree import SessionStatus, Tree
from hiermem.engine.update import Progress, UpdateReport
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
    Span,
    StoredMessage,
    Summary,
    TextPart,
    ToolCall,
)

__all__ = [
    "LLM",
    "ApproximateCounter",
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
    "NotFoundError",
    "PermanentModelError",
    "Progress",
    "PromptTemplate",
    "Session",
    "SessionClosedError",
    "SessionStatus",
    "ShownSummary",
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
    "UpdateReport",
    "Usage",
    "UsageError",
    "__version__",
    "from_anthropic",
    "from_openai",
    "to_anthropic",
    "to_openai",
]
