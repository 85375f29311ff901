"""Conversation memory without end: an embeddable library of hierarchical summaries.

A name's module is loaded when the name is first used, so that importing the package costs next to
nothing and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem._version import __version__ as __version__

if TYPE_CHECKING:  # ``X as X`` is how a type checker is told that X is public
    from hiermem import published as published
    from hiermem.api.extractor import SemanticGraphExtractor as SemanticGraphExtractor
    from hiermem.api.fleet import update_one as update_one
    from hiermem.api.memory import AsyncMemory as AsyncMemory
    from hiermem.api.session import AsyncSession as AsyncSession
    from hiermem.api.space import AsyncSpace as AsyncSpace
    from hiermem.api.sync import Graph as Graph
    from hiermem.api.sync import Manager as Manager
    from hiermem.api.sync import Memory as Memory
    from hiermem.api.sync import Session as Session
    from hiermem.api.sync import Space as Space
    from hiermem.api.sync import Worker as Worker
    from hiermem.config import BankPolicy as BankPolicy
    from hiermem.config import ContextPolicy as ContextPolicy
    from hiermem.config import ExtractionOptions as ExtractionOptions
    from hiermem.config import HierarchyConfig as HierarchyConfig
    from hiermem.config import LevelConfig as LevelConfig
    from hiermem.config import SearchPolicy as SearchPolicy
    from hiermem.config import UpdatePolicy as UpdatePolicy
    from hiermem.convert import from_anthropic as from_anthropic
    from hiermem.convert import from_openai as from_openai
    from hiermem.convert import from_responses as from_responses
    from hiermem.convert import to_anthropic as to_anthropic
    from hiermem.convert import to_openai as to_openai
    from hiermem.convert import to_responses as to_responses
    from hiermem.core.calls.run_report import RunItem as RunItem
    from hiermem.core.calls.run_report import RunReport as RunReport
    from hiermem.core.check import CheckReport as CheckReport
    from hiermem.core.check import Finding as Finding
    from hiermem.core.context.pins import Pin as Pin
    from hiermem.core.context.profile import ContextProfile as ContextProfile
    from hiermem.core.context.selection import ContextBudget as ContextBudget
    from hiermem.core.context.selection import ContextSelection as ContextSelection
    from hiermem.core.context.selection import ShownSummary as ShownSummary
    from hiermem.core.extraction.diagram import to_mermaid as to_mermaid
    from hiermem.core.extraction.graph import GraphEntity as GraphEntity
    from hiermem.core.extraction.graph import Mention as Mention
    from hiermem.core.extraction.graph import Neighbour as Neighbour
    from hiermem.core.extraction.plan import ChunkReport as ChunkReport
    from hiermem.core.extraction.plan import ExtractionProgress as ExtractionProgress
    from hiermem.core.extraction.plan import ExtractionReport as ExtractionReport
    from hiermem.core.extraction.plan import Failure as Failure
    from hiermem.core.log.alignment import SyncReport as SyncReport
    from hiermem.core.log.branches import ImportReport as ImportReport
    from hiermem.core.log.receipts import EditReport as EditReport
    from hiermem.core.log.receipts import Receipt as Receipt
    from hiermem.core.log.receipts import StoreCopy as StoreCopy
    from hiermem.core.metrics import Feedback as Feedback
    from hiermem.core.metrics import LevelMetrics as LevelMetrics
    from hiermem.core.metrics import Metrics as Metrics
    from hiermem.core.metrics import Served as Served
    from hiermem.core.search.embedding_state import EmbeddingReport as EmbeddingReport
    from hiermem.core.search.embedding_state import IndexReport as IndexReport
    from hiermem.core.search.filters import RecallFilters as RecallFilters
    from hiermem.core.search.filters import SearchFilters as SearchFilters
    from hiermem.core.search.filters import TenantFilters as TenantFilters
    from hiermem.core.search.hits import Evidence as Evidence
    from hiermem.core.search.hits import Hit as Hit
    from hiermem.core.search.query import matched as matched
    from hiermem.core.summaries.plan import UpdatePlan as UpdatePlan
    from hiermem.core.summaries.plan import UpdateProgress as UpdateProgress
    from hiermem.core.summaries.plan import UpdateReport as UpdateReport
    from hiermem.core.summaries.prompt import PromptTemplate as PromptTemplate
    from hiermem.core.summaries.reports import BatchProgress as BatchProgress
    from hiermem.core.summaries.reports import BatchReport as BatchReport
    from hiermem.core.summaries.reports import WorkerStatus as WorkerStatus
    from hiermem.core.transfer import CopyReport as CopyReport
    from hiermem.core.tree.state import OpenWindow as OpenWindow
    from hiermem.core.tree.trigger import CompressionTrigger as CompressionTrigger
    from hiermem.core.tree.turns import Arrival as Arrival
    from hiermem.core.tree.turns import Slice as Slice
    from hiermem.embedders.openai import OpenAIEmbedder as OpenAIEmbedder
    from hiermem.embedders.sentence_transformers import (
        SentenceTransformerEmbedder as SentenceTransformerEmbedder,
    )
    from hiermem.engine.context.manager import ContextWindowManager as ContextWindowManager
    from hiermem.engine.extraction.graph import AsyncGraph as AsyncGraph
    from hiermem.engine.log.read import SessionStatus as SessionStatus
    from hiermem.engine.log.read import Tree as Tree
    from hiermem.engine.worker.worker import AsyncWorker as AsyncWorker
    from hiermem.errors import BudgetTooSmallError as BudgetTooSmallError
    from hiermem.errors import ClockMovedError as ClockMovedError
    from hiermem.errors import ConfigError as ConfigError
    from hiermem.errors import ConvergenceError as ConvergenceError
    from hiermem.errors import CounterMismatchError as CounterMismatchError
    from hiermem.errors import EmbedderMismatchError as EmbedderMismatchError
    from hiermem.errors import FolderError as FolderError
    from hiermem.errors import ForkedProcessError as ForkedProcessError
    from hiermem.errors import HiermemError as HiermemError
    from hiermem.errors import HistoryRewrittenError as HistoryRewrittenError
    from hiermem.errors import InvalidAnswerError as InvalidAnswerError
    from hiermem.errors import InvalidMessageError as InvalidMessageError
    from hiermem.errors import InvalidTextError as InvalidTextError
    from hiermem.errors import InvalidVectorError as InvalidVectorError
    from hiermem.errors import MemoryClosedError as MemoryClosedError
    from hiermem.errors import MessageConflictError as MessageConflictError
    from hiermem.errors import MessageWithdrawnError as MessageWithdrawnError
    from hiermem.errors import ModelError as ModelError
    from hiermem.errors import ModelTimeoutError as ModelTimeoutError
    from hiermem.errors import NotFoundError as NotFoundError
    from hiermem.errors import PermanentModelError as PermanentModelError
    from hiermem.errors import ReadOnlyError as ReadOnlyError
    from hiermem.errors import RulesConflictError as RulesConflictError
    from hiermem.errors import SecretMismatchError as SecretMismatchError
    from hiermem.errors import SessionClosedError as SessionClosedError
    from hiermem.errors import SessionDiffersError as SessionDiffersError
    from hiermem.errors import SessionExistsError as SessionExistsError
    from hiermem.errors import SpaceBusyError as SpaceBusyError
    from hiermem.errors import SpendLimitError as SpendLimitError
    from hiermem.errors import StoreBusyError as StoreBusyError
    from hiermem.errors import StoreCorruptError as StoreCorruptError
    from hiermem.errors import StoreError as StoreError
    from hiermem.errors import StoreNewerError as StoreNewerError
    from hiermem.errors import TransientModelError as TransientModelError
    from hiermem.errors import UnreadableFileError as UnreadableFileError
    from hiermem.errors import UsageError as UsageError
    from hiermem.models.anthropic import AnthropicChat as AnthropicChat
    from hiermem.models.litellm import LiteLLMChat as LiteLLMChat
    from hiermem.models.named import model_by_name as model_by_name
    from hiermem.models.openai import OpenAIChat as OpenAIChat
    from hiermem.protocols import LLM as LLM
    from hiermem.protocols import Embedder as Embedder
    from hiermem.protocols import LLMRequest as LLMRequest
    from hiermem.protocols import LLMResponse as LLMResponse
    from hiermem.protocols import Store as Store
    from hiermem.protocols import TenantStore as TenantStore
    from hiermem.protocols import TokenCounter as TokenCounter
    from hiermem.protocols import TreeStore as TreeStore
    from hiermem.protocols import Usage as Usage
    from hiermem.tokens import ApproximateCounter as ApproximateCounter
    from hiermem.tokens import TiktokenCounter as TiktokenCounter
    from hiermem.types import FilePart as FilePart
    from hiermem.types import ImagePart as ImagePart
    from hiermem.types import JsonPart as JsonPart
    from hiermem.types import Message as Message
    from hiermem.types import Node as Node
    from hiermem.types import Revision as Revision
    from hiermem.types import SessionRecord as SessionRecord
    from hiermem.types import Span as Span
    from hiermem.types import StoredMessage as StoredMessage
    from hiermem.types import Summary as Summary
    from hiermem.types import TextPart as TextPart
    from hiermem.types import ToolCall as ToolCall
    from hiermem.types.bank import BankRevision as BankRevision
    from hiermem.types.bank import BankText as BankText
    from hiermem.types.bank import BlockedNote as BlockedNote
    from hiermem.types.bank import ConsolidationResult as ConsolidationResult
    from hiermem.types.bank import DroppedNote as DroppedNote
    from hiermem.types.bank import ExportReport as ExportReport
    from hiermem.types.bank import FileChange as FileChange
    from hiermem.types.bank import LoadReport as LoadReport
    from hiermem.types.bank import Note as Note
    from hiermem.types.bank import SpaceMeta as SpaceMeta
    from hiermem.types.prices import Prices as Prices
    from hiermem.types.transaction import DueSession as DueSession
    from hiermem.types.transaction import LogEvent as LogEvent
    from hiermem.types.transaction import Record as Record
    from hiermem.types.transaction import RecordWrite as RecordWrite
    from hiermem.types.transaction import RunRecord as RunRecord
    from hiermem.types.transaction import Scrubbed as Scrubbed
    from hiermem.types.transaction import Spent as Spent
    from hiermem.types.trivector import Delta as Delta
    from hiermem.types.trivector import Entity as Entity
    from hiermem.types.trivector import Provenance as Provenance
    from hiermem.types.trivector import Relation as Relation
    from hiermem.types.trivector import Strategy as Strategy
    from hiermem.types.trivector import TriVector as TriVector

else:  # at run time, the same names by module
    _NAMES = {
        "hiermem": "published",  # a module
        "hiermem.api.extractor": "SemanticGraphExtractor",
        "hiermem.api.fleet": "update_one",
        "hiermem.api.memory": "AsyncMemory",
        "hiermem.api.session": "AsyncSession",
        "hiermem.api.space": "AsyncSpace",
        "hiermem.api.sync": "Graph Manager Memory Session Space Worker",
        "hiermem.config": (
            "BankPolicy ContextPolicy ExtractionOptions HierarchyConfig LevelConfig SearchPolicy "
            "UpdatePolicy"
        ),
        "hiermem.convert": (
            "from_anthropic from_openai from_responses to_anthropic to_openai to_responses"
        ),
        "hiermem.core.calls.run_report": "RunItem RunReport",
        "hiermem.core.check": "CheckReport Finding",
        "hiermem.core.context.profile": "ContextProfile",
        "hiermem.core.context.selection": ("ContextBudget ContextSelection ShownSummary"),
        "hiermem.core.extraction.diagram": "to_mermaid",
        "hiermem.core.extraction.graph": "GraphEntity Mention Neighbour",
        "hiermem.core.extraction.plan": "ChunkReport ExtractionProgress ExtractionReport Failure",
        "hiermem.core.log.alignment": "SyncReport",
        "hiermem.core.log.branches": "ImportReport",
        "hiermem.core.log.receipts": "EditReport Receipt StoreCopy",
        "hiermem.core.metrics": "Feedback LevelMetrics Metrics Served",
        "hiermem.core.search.embedding_state": "EmbeddingReport IndexReport",
        "hiermem.core.search.filters": "RecallFilters SearchFilters TenantFilters",
        "hiermem.core.search.hits": "Evidence Hit",
        "hiermem.core.search.query": "matched",
        "hiermem.core.summaries.plan": "UpdatePlan UpdateProgress UpdateReport",
        "hiermem.core.summaries.prompt": "PromptTemplate",
        "hiermem.core.summaries.reports": "BatchProgress BatchReport WorkerStatus",
        "hiermem.core.context.pins": "Pin",
        "hiermem.core.transfer": "CopyReport",
        "hiermem.core.tree.state": "OpenWindow",
        "hiermem.core.tree.trigger": "CompressionTrigger",
        "hiermem.core.tree.turns": "Arrival Slice",
        "hiermem.embedders.openai": "OpenAIEmbedder",
        "hiermem.embedders.sentence_transformers": "SentenceTransformerEmbedder",
        "hiermem.engine.context.manager": "ContextWindowManager",
        "hiermem.engine.extraction.graph": "AsyncGraph",
        "hiermem.engine.log.read": "SessionStatus Tree",
        "hiermem.engine.worker.worker": "AsyncWorker",
        "hiermem.errors": (
            "BudgetTooSmallError ClockMovedError ConfigError "
            "ConvergenceError CounterMismatchError EmbedderMismatchError FolderError "
            "ForkedProcessError HiermemError HistoryRewrittenError InvalidAnswerError "
            "InvalidMessageError InvalidTextError InvalidVectorError MemoryClosedError "
            "MessageConflictError MessageWithdrawnError ModelError ModelTimeoutError "
            "NotFoundError PermanentModelError ReadOnlyError RulesConflictError "
            "SecretMismatchError SessionClosedError SessionDiffersError SessionExistsError "
            "SpaceBusyError SpendLimitError StoreBusyError "
            "StoreCorruptError StoreError StoreNewerError TransientModelError UnreadableFileError "
            "UsageError"
        ),
        "hiermem.models.anthropic": "AnthropicChat",
        "hiermem.models.litellm": "LiteLLMChat",
        "hiermem.models.named": "model_by_name",
        "hiermem.models.openai": "OpenAIChat",
        "hiermem.protocols": (
            "Embedder LLM LLMRequest LLMResponse Store TenantStore TokenCounter TreeStore Usage"
        ),
        "hiermem.tokens": "ApproximateCounter TiktokenCounter",
        "hiermem.types": (
            "FilePart ImagePart JsonPart Message Node Revision SessionRecord Span StoredMessage "
            "Summary TextPart ToolCall"
        ),
        "hiermem.types.bank": (
            "BankRevision BankText BlockedNote ConsolidationResult DroppedNote ExportReport "
            "FileChange LoadReport Note SpaceMeta"
        ),
        "hiermem.types.prices": "Prices",
        "hiermem.types.transaction": (
            "DueSession LogEvent Record RecordWrite RunRecord Scrubbed Spent"
        ),
        "hiermem.types.trivector": "Delta Entity Provenance Relation Strategy TriVector",
    }
    _HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = [*sorted(_HOME), "__version__"]  # noqa: PLE0604 - names, all of them

    def __getattr__(name: str) -> Any:
        """Load the module that defines ``name`` (PEP 562)."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if module == __name__:
            return import_module(f"{module}.{name}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Name what can be imported, loaded or not."""
        return sorted(globals().keys() | set(__all__))
