"""Conversation memory without end: an embeddable library of hierarchical summaries.

A name's module is loaded when the name is first asked for, so that importing the package costs next
to nothing and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem._version import __version__

if TYPE_CHECKING:
    from hiermem.bank import (
        BankRevision,
        BankText,
        BlockedNote,
        ConsolidationResult,
        ExportReport,
        FileChange,
        LoadReport,
        Note,
        SpaceMeta,
    )
    from hiermem.config import (
        BankPolicy,
        ContextPolicy,
        ExtractionOptions,
        HierarchyConfig,
        LevelConfig,
        SearchPolicy,
        UpdatePolicy,
    )
    from hiermem.convert import from_anthropic, from_openai, to_anthropic, to_openai
    from hiermem.core.change.receipts import EditReport, Receipt
    from hiermem.core.checking import CheckReport, Finding
    from hiermem.core.context.profile import ContextProfile
    from hiermem.core.context.selection import (
        AsyncContextSelection,
        ContextBudget,
        ContextSelection,
        ShownSummary,
    )
    from hiermem.core.extraction.diagram import to_graphml, to_mermaid
    from hiermem.core.extraction.graph import GraphEntity, Mention, Neighbour
    from hiermem.core.extraction.plan import (
        ChunkReport,
        ExtractionProgress,
        ExtractionReport,
        Failure,
    )
    from hiermem.core.generation.batch import BatchProgress, BatchReport, WorkerStatus
    from hiermem.core.generation.journal import RunItem, RunReport
    from hiermem.core.generation.plan import UpdatePlan, UpdateProgress, UpdateReport
    from hiermem.core.generation.prompt import PromptTemplate
    from hiermem.core.metrics import Feedback, LevelMetrics, Metrics, Served
    from hiermem.core.search.embedded import EmbeddingReport, IndexReport
    from hiermem.core.search.filters import RecallFilters, SearchFilters
    from hiermem.core.search.hits import Evidence, Hit
    from hiermem.core.search.marking import matched
    from hiermem.core.tree.state import OpenWindow
    from hiermem.core.tree.trigger import CompressionTrigger
    from hiermem.core.tree.turns import Arrival, Slice
    from hiermem.effects import LogEvent, Scrubbed, Spent
    from hiermem.embedders.openai import OpenAIEmbedder
    from hiermem.embedders.sentence_transformers import SentenceTransformerEmbedder
    from hiermem.engine.context import ContextWindowManager
    from hiermem.engine.graph import AsyncGraph
    from hiermem.engine.tree import SessionStatus, Tree
    from hiermem.engine.worker import AsyncWorker
    from hiermem.errors import (
        BudgetTooSmallError,
        ConfigError,
        ConvergenceError,
        CounterMismatchError,
        EmbedderMismatchError,
        FolderError,
        HiermemError,
        InvalidAnswerError,
        InvalidMessageError,
        InvalidTextError,
        InvalidVectorError,
        MemoryClosedError,
        MessageConflictError,
        MessageWithdrawnError,
        ModelError,
        ModelTimeoutError,
        NotFoundError,
        PermanentModelError,
        RulesConflictError,
        SessionClosedError,
        SessionExistsError,
        SpaceBusyError,
        SpendLimitError,
        StoreBusyError,
        StoreCorruptError,
        StoreError,
        StoreNewerError,
        TransientModelError,
        UsageError,
    )
    from hiermem.extractor import SemanticGraphExtractor
    from hiermem.memory import AsyncMemory
    from hiermem.models.anthropic import AnthropicChat
    from hiermem.models.litellm import LiteLLMChat
    from hiermem.models.openai import OpenAIChat
    from hiermem.prices import Prices
    from hiermem.protocols import (
        LLM,
        Embedder,
        LLMRequest,
        LLMResponse,
        Record,
        RecordWrite,
        RunRecord,
        Store,
        TenantStore,
        TokenCounter,
        Usage,
    )
    from hiermem.session import AsyncSession
    from hiermem.space import AsyncSpace
    from hiermem.sync import Graph, Memory, Worker
    from hiermem.sync_session import Session
    from hiermem.sync_space import Space
    from hiermem.tokens import ApproximateCounter, CalibratedCounter, TiktokenCounter
    from hiermem.trivector import Delta, Entity, Provenance, Relation, Strategy, TriVector
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

#: Where each public name lives.
_HOMES = {
    "hiermem.bank": (
        "BankRevision",
        "BankText",
        "BlockedNote",
        "ConsolidationResult",
        "ExportReport",
        "FileChange",
        "LoadReport",
        "Note",
        "SpaceMeta",
    ),
    "hiermem.config": (
        "BankPolicy",
        "ContextPolicy",
        "ExtractionOptions",
        "HierarchyConfig",
        "LevelConfig",
        "SearchPolicy",
        "UpdatePolicy",
    ),
    "hiermem.convert": ("from_anthropic", "from_openai", "to_anthropic", "to_openai"),
    "hiermem.core.generation.batch": ("BatchProgress", "BatchReport", "WorkerStatus"),
    "hiermem.core.checking": ("CheckReport", "Finding"),
    "hiermem.core.extraction.diagram": ("to_graphml", "to_mermaid"),
    "hiermem.core.search.embedded": (
        "EmbeddingReport",
        "IndexReport",
    ),
    "hiermem.core.extraction.plan": (
        "ChunkReport",
        "ExtractionProgress",
        "ExtractionReport",
        "Failure",
    ),
    "hiermem.core.extraction.graph": ("GraphEntity", "Mention", "Neighbour"),
    "hiermem.core.search.filters": ("RecallFilters", "SearchFilters"),
    "hiermem.core.search.hits": (
        "Evidence",
        "Hit",
    ),
    "hiermem.core.generation.journal": ("RunItem", "RunReport"),
    "hiermem.core.search.marking": ("matched",),
    "hiermem.core.metrics": ("Feedback", "LevelMetrics", "Metrics", "Served"),
    "hiermem.core.generation.plan": ("UpdatePlan", "UpdateProgress", "UpdateReport"),
    "hiermem.core.context.profile": ("ContextProfile",),
    "hiermem.core.generation.prompt": ("PromptTemplate",),
    "hiermem.core.change.receipts": ("EditReport", "Receipt"),
    "hiermem.core.context.selection": (
        "AsyncContextSelection",
        "ContextBudget",
        "ContextSelection",
        "ShownSummary",
    ),
    "hiermem.core.tree.state": ("OpenWindow",),
    "hiermem.core.tree.trigger": ("CompressionTrigger",),
    "hiermem.core.tree.turns": ("Arrival", "Slice"),
    "hiermem.effects": ("LogEvent", "Scrubbed", "Spent"),
    "hiermem.engine.context": ("ContextWindowManager",),
    "hiermem.engine.graph": ("AsyncGraph",),
    "hiermem.engine.tree": ("SessionStatus", "Tree"),
    "hiermem.engine.worker": ("AsyncWorker",),
    "hiermem.errors": (
        "BudgetTooSmallError",
        "ConfigError",
        "ConvergenceError",
        "CounterMismatchError",
        "EmbedderMismatchError",
        "FolderError",
        "HiermemError",
        "InvalidAnswerError",
        "InvalidMessageError",
        "InvalidTextError",
        "InvalidVectorError",
        "MemoryClosedError",
        "MessageConflictError",
        "MessageWithdrawnError",
        "ModelError",
        "ModelTimeoutError",
        "NotFoundError",
        "PermanentModelError",
        "RulesConflictError",
        "SessionClosedError",
        "SessionExistsError",
        "SpaceBusyError",
        "SpendLimitError",
        "StoreBusyError",
        "StoreCorruptError",
        "StoreError",
        "StoreNewerError",
        "TransientModelError",
        "UsageError",
    ),
    "hiermem.extractor": ("SemanticGraphExtractor",),
    "hiermem.embedders.openai": ("OpenAIEmbedder",),
    "hiermem.embedders.sentence_transformers": ("SentenceTransformerEmbedder",),
    "hiermem.memory": ("AsyncMemory",),
    "hiermem.models.anthropic": ("AnthropicChat",),
    "hiermem.models.litellm": ("LiteLLMChat",),
    "hiermem.models.openai": ("OpenAIChat",),
    "hiermem.prices": ("Prices",),
    "hiermem.protocols": (
        "LLM",
        "Embedder",
        "LLMRequest",
        "LLMResponse",
        "Record",
        "RecordWrite",
        "RunRecord",
        "Store",
        "TenantStore",
        "TokenCounter",
        "Usage",
    ),
    "hiermem.session": ("AsyncSession",),
    "hiermem.space": ("AsyncSpace",),
    "hiermem.sync": ("Graph", "Memory", "Worker"),
    "hiermem.sync_session": ("Session",),
    "hiermem.sync_space": ("Space",),
    "hiermem.tokens": ("ApproximateCounter", "CalibratedCounter", "TiktokenCounter"),
    "hiermem.trivector": ("Delta", "Entity", "Provenance", "Relation", "Strategy", "TriVector"),
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
    "AnthropicChat",
    "ApproximateCounter",
    "Arrival",
    "AsyncContextSelection",
    "AsyncGraph",
    "AsyncMemory",
    "AsyncSession",
    "AsyncSpace",
    "AsyncWorker",
    "BankPolicy",
    "BankRevision",
    "BankText",
    "BatchProgress",
    "BatchReport",
    "BlockedNote",
    "BudgetTooSmallError",
    "CalibratedCounter",
    "CheckReport",
    "ChunkReport",
    "CompressionTrigger",
    "ConfigError",
    "ConsolidationResult",
    "ContextBudget",
    "ContextPolicy",
    "ContextProfile",
    "ContextSelection",
    "ContextWindowManager",
    "ConvergenceError",
    "CounterMismatchError",
    "Delta",
    "EditReport",
    "Embedder",
    "EmbedderMismatchError",
    "EmbeddingReport",
    "Entity",
    "Evidence",
    "ExportReport",
    "ExtractionOptions",
    "ExtractionProgress",
    "ExtractionReport",
    "Failure",
    "Feedback",
    "FileChange",
    "FilePart",
    "Finding",
    "FolderError",
    "Graph",
    "GraphEntity",
    "HierarchyConfig",
    "HiermemError",
    "Hit",
    "ImagePart",
    "IndexReport",
    "InvalidAnswerError",
    "InvalidMessageError",
    "InvalidTextError",
    "InvalidVectorError",
    "JsonPart",
    "LLMRequest",
    "LLMResponse",
    "LevelConfig",
    "LevelMetrics",
    "LiteLLMChat",
    "LoadReport",
    "LogEvent",
    "Memory",
    "MemoryClosedError",
    "Mention",
    "Message",
    "MessageConflictError",
    "MessageWithdrawnError",
    "Metrics",
    "ModelError",
    "ModelTimeoutError",
    "Neighbour",
    "Node",
    "NotFoundError",
    "Note",
    "OpenAIChat",
    "OpenAIEmbedder",
    "OpenWindow",
    "PermanentModelError",
    "Prices",
    "PromptTemplate",
    "Provenance",
    "RecallFilters",
    "Receipt",
    "Record",
    "RecordWrite",
    "Relation",
    "Revision",
    "RulesConflictError",
    "RunItem",
    "RunRecord",
    "RunReport",
    "Scrubbed",
    "SearchFilters",
    "SearchPolicy",
    "SemanticGraphExtractor",
    "SentenceTransformerEmbedder",
    "Served",
    "Session",
    "SessionClosedError",
    "SessionExistsError",
    "SessionRecord",
    "SessionStatus",
    "ShownSummary",
    "Slice",
    "Space",
    "SpaceBusyError",
    "SpaceMeta",
    "Span",
    "SpendLimitError",
    "Spent",
    "Store",
    "StoreBusyError",
    "StoreCorruptError",
    "StoreError",
    "StoreNewerError",
    "StoredMessage",
    "Strategy",
    "Summary",
    "TenantStore",
    "TextPart",
    "TiktokenCounter",
    "TokenCounter",
    "ToolCall",
    "TransientModelError",
    "Tree",
    "TriVector",
    "UpdatePlan",
    "UpdatePolicy",
    "UpdateProgress",
    "UpdateReport",
    "Usage",
    "UsageError",
    "Worker",
    "WorkerStatus",
    "__version__",
    "from_anthropic",
    "from_openai",
    "matched",
    "to_anthropic",
    "to_graphml",
    "to_mermaid",
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
