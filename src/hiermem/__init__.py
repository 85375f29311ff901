"""Conversation memory without end: an embeddable library of hierarchical summaries.

A name's module is loaded when the name is first asked for, so that importing the package costs next
to nothing and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem._version import __version__

if TYPE_CHECKING:
    from hiermem.api.extractor import SemanticGraphExtractor
    from hiermem.api.memory import AsyncMemory
    from hiermem.api.session import AsyncSession
    from hiermem.api.space import AsyncSpace
    from hiermem.api.sync import Graph, Memory, Worker
    from hiermem.api.sync_session import Session
    from hiermem.api.sync_space import Space
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
    from hiermem.core.calls.run_report import RunItem, RunReport
    from hiermem.core.check import CheckReport, Finding
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
    from hiermem.core.log.receipts import EditReport, Receipt
    from hiermem.core.metrics import Feedback, LevelMetrics, Metrics, Served
    from hiermem.core.search.embedding_state import EmbeddingReport, IndexReport
    from hiermem.core.search.filters import RecallFilters, SearchFilters
    from hiermem.core.search.highlight import matched
    from hiermem.core.search.hits import Evidence, Hit
    from hiermem.core.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
    from hiermem.core.summaries.prompt import PromptTemplate
    from hiermem.core.summaries.reports import BatchProgress, BatchReport, WorkerStatus
    from hiermem.core.tree.state import OpenWindow
    from hiermem.core.tree.trigger import CompressionTrigger
    from hiermem.core.tree.turns import Arrival, Slice
    from hiermem.embedders.openai import OpenAIEmbedder
    from hiermem.embedders.sentence_transformers import SentenceTransformerEmbedder
    from hiermem.engine.context.manager import ContextWindowManager
    from hiermem.engine.extraction.graph import AsyncGraph
    from hiermem.engine.log.read import SessionStatus, Tree
    from hiermem.engine.worker.worker import AsyncWorker
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
    from hiermem.models.anthropic import AnthropicChat
    from hiermem.models.litellm import LiteLLMChat
    from hiermem.models.openai import OpenAIChat
    from hiermem.protocols import (
        LLM,
        Embedder,
        LLMRequest,
        LLMResponse,
        Store,
        TenantStore,
        TokenCounter,
        Usage,
    )
    from hiermem.tokens import ApproximateCounter, CalibratedCounter, TiktokenCounter
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
    from hiermem.types.bank import (
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
    from hiermem.types.prices import Prices
    from hiermem.types.transaction import LogEvent, Record, RecordWrite, RunRecord, Scrubbed, Spent
    from hiermem.types.trivector import Delta, Entity, Provenance, Relation, Strategy, TriVector

#: Where each public name lives.
_HOMES = {
    "hiermem.types.bank": (
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
    "hiermem.core.summaries.reports": ("BatchProgress", "BatchReport", "WorkerStatus"),
    "hiermem.core.check": ("CheckReport", "Finding"),
    "hiermem.core.extraction.diagram": ("to_graphml", "to_mermaid"),
    "hiermem.core.search.embedding_state": (
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
    "hiermem.core.calls.run_report": ("RunItem", "RunReport"),
    "hiermem.core.search.highlight": ("matched",),
    "hiermem.core.metrics": ("Feedback", "LevelMetrics", "Metrics", "Served"),
    "hiermem.core.summaries.plan": ("UpdatePlan", "UpdateProgress", "UpdateReport"),
    "hiermem.core.context.profile": ("ContextProfile",),
    "hiermem.core.summaries.prompt": ("PromptTemplate",),
    "hiermem.core.log.receipts": ("EditReport", "Receipt"),
    "hiermem.core.context.selection": (
        "AsyncContextSelection",
        "ContextBudget",
        "ContextSelection",
        "ShownSummary",
    ),
    "hiermem.core.tree.state": ("OpenWindow",),
    "hiermem.core.tree.trigger": ("CompressionTrigger",),
    "hiermem.core.tree.turns": ("Arrival", "Slice"),
    "hiermem.types.transaction": ("LogEvent", "Scrubbed", "Spent"),
    "hiermem.engine.context.manager": ("ContextWindowManager",),
    "hiermem.engine.extraction.graph": ("AsyncGraph",),
    "hiermem.engine.log.read": ("SessionStatus", "Tree"),
    "hiermem.engine.worker.worker": ("AsyncWorker",),
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
    "hiermem.api.extractor": ("SemanticGraphExtractor",),
    "hiermem.embedders.openai": ("OpenAIEmbedder",),
    "hiermem.embedders.sentence_transformers": ("SentenceTransformerEmbedder",),
    "hiermem.api.memory": ("AsyncMemory",),
    "hiermem.models.anthropic": ("AnthropicChat",),
    "hiermem.models.litellm": ("LiteLLMChat",),
    "hiermem.models.openai": ("OpenAIChat",),
    "hiermem.types.prices": ("Prices",),
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
    "hiermem.api.session": ("AsyncSession",),
    "hiermem.api.space": ("AsyncSpace",),
    "hiermem.api.sync": ("Graph", "Memory", "Worker"),
    "hiermem.api.sync_session": ("Session",),
    "hiermem.api.sync_space": ("Space",),
    "hiermem.tokens": ("ApproximateCounter", "CalibratedCounter", "TiktokenCounter"),
    "hiermem.types.trivector": (
        "Delta",
        "Entity",
        "Provenance",
        "Relation",
        "Strategy",
        "TriVector",
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
