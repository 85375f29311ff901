"""Conversation memory without end: an embeddable library of hierarchical summaries.

A name's module is loaded when the name is first used, so that importing the package costs next to
nothing and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem import atfork as _atfork  # noqa: F401 - it watches the imports of all others
from hiermem._version import __version__ as __version__

if TYPE_CHECKING:  # ``X as X`` is how a type checker is told that X is public
    from hiermem import published as published
    from hiermem.api.extractor import SemanticGraphExtractor as SemanticGraphExtractor
    from hiermem.api.manager import ContextWindowManager as ContextWindowManager
    from hiermem.api.memory import AsyncMemory as AsyncMemory
    from hiermem.api.session import AsyncSession as AsyncSession
    from hiermem.api.space import AsyncSpace as AsyncSpace
    from hiermem.api.sync import Graph as Graph
    from hiermem.api.sync import Manager as Manager
    from hiermem.api.sync import Memory as Memory
    from hiermem.api.sync import Session as Session
    from hiermem.api.sync import Space as Space
    from hiermem.api.sync import Worker as Worker
    from hiermem.calls.limits import Prices as Prices
    from hiermem.calls.report import RunItem as RunItem
    from hiermem.calls.report import RunReport as RunReport
    from hiermem.changes.receipts import EditReport as EditReport
    from hiermem.changes.receipts import Receipt as Receipt
    from hiermem.changes.receipts import StoreCopy as StoreCopy
    from hiermem.config import BankPolicy as BankPolicy
    from hiermem.config import ContextPolicy as ContextPolicy
    from hiermem.config import ExtractionOptions as ExtractionOptions
    from hiermem.config import HierarchyConfig as HierarchyConfig
    from hiermem.config import LevelConfig as LevelConfig
    from hiermem.config import SearchPolicy as SearchPolicy
    from hiermem.config import UpdatePolicy as UpdatePolicy
    from hiermem.context.profile import ContextProfile as ContextProfile
    from hiermem.context.read import SessionStatus as SessionStatus
    from hiermem.context.read import Tree as Tree
    from hiermem.context.selection import ContextBudget as ContextBudget
    from hiermem.context.selection import ContextSelection as ContextSelection
    from hiermem.context.selection import ShownSummary as ShownSummary
    from hiermem.context.zone import Pin as Pin
    from hiermem.convert import from_anthropic as from_anthropic
    from hiermem.convert import from_openai as from_openai
    from hiermem.convert import from_responses as from_responses
    from hiermem.convert import to_anthropic as to_anthropic
    from hiermem.convert import to_openai as to_openai
    from hiermem.convert import to_responses as to_responses
    from hiermem.embedders.openai import OpenAIEmbedder as OpenAIEmbedder
    from hiermem.embedders.sentence_transformers import (
        SentenceTransformerEmbedder as SentenceTransformerEmbedder,
    )
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
    from hiermem.extraction.diagram import to_mermaid as to_mermaid
    from hiermem.extraction.plan import ChunkReport as ChunkReport
    from hiermem.extraction.plan import ExtractionProgress as ExtractionProgress
    from hiermem.extraction.plan import ExtractionReport as ExtractionReport
    from hiermem.extraction.plan import Failure as Failure
    from hiermem.extraction.plan import GraphEntity as GraphEntity
    from hiermem.extraction.plan import Mention as Mention
    from hiermem.extraction.plan import Neighbour as Neighbour
    from hiermem.extraction.tenant_graph import AsyncGraph as AsyncGraph
    from hiermem.fleet import update_one as update_one
    from hiermem.log.alignment import ImportReport as ImportReport
    from hiermem.log.alignment import SyncReport as SyncReport
    from hiermem.models import model_by_name as model_by_name
    from hiermem.models.anthropic import AnthropicChat as AnthropicChat
    from hiermem.models.litellm import LiteLLMChat as LiteLLMChat
    from hiermem.models.openai import OpenAIChat as OpenAIChat
    from hiermem.prompts.template import PromptTemplate as PromptTemplate
    from hiermem.protocols import LLM as LLM
    from hiermem.protocols import Embedder as Embedder
    from hiermem.protocols import LLMRequest as LLMRequest
    from hiermem.protocols import LLMResponse as LLMResponse
    from hiermem.protocols import Store as Store
    from hiermem.protocols import TenantStore as TenantStore
    from hiermem.protocols import TokenCounter as TokenCounter
    from hiermem.protocols import TreeStore as TreeStore
    from hiermem.protocols import Usage as Usage
    from hiermem.search.query import matched as matched
    from hiermem.search.results import EmbeddingReport as EmbeddingReport
    from hiermem.search.results import Evidence as Evidence
    from hiermem.search.results import Hit as Hit
    from hiermem.search.results import IndexReport as IndexReport
    from hiermem.search.results import RecallFilters as RecallFilters
    from hiermem.search.results import SearchFilters as SearchFilters
    from hiermem.search.results import TenantFilters as TenantFilters
    from hiermem.summaries.metrics import Feedback as Feedback
    from hiermem.summaries.metrics import LevelMetrics as LevelMetrics
    from hiermem.summaries.metrics import Metrics as Metrics
    from hiermem.summaries.metrics import Served as Served
    from hiermem.summaries.plan import UpdatePlan as UpdatePlan
    from hiermem.summaries.plan import UpdateProgress as UpdateProgress
    from hiermem.summaries.plan import UpdateReport as UpdateReport
    from hiermem.summaries.reports import BatchProgress as BatchProgress
    from hiermem.summaries.reports import BatchReport as BatchReport
    from hiermem.summaries.reports import WorkerStatus as WorkerStatus
    from hiermem.text.fence import escape as escape
    from hiermem.tokens import ApproximateCounter as ApproximateCounter
    from hiermem.tokens import TiktokenCounter as TiktokenCounter
    from hiermem.tree.fold import OpenWindow as OpenWindow
    from hiermem.tree.trigger import CompressionTrigger as CompressionTrigger
    from hiermem.tree.turns import Arrival as Arrival
    from hiermem.tree.turns import Slice as Slice
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
    from hiermem.types.bank import ForgetReport as ForgetReport
    from hiermem.types.bank import KnownLine as KnownLine
    from hiermem.types.bank import LoadReport as LoadReport
    from hiermem.types.bank import Note as Note
    from hiermem.types.bank import SpaceMeta as SpaceMeta
    from hiermem.types.transaction import DueSession as DueSession
    from hiermem.types.transaction import LogEvent as LogEvent
    from hiermem.types.transaction import Record as Record
    from hiermem.types.transaction import RecordWrite as RecordWrite
    from hiermem.types.transaction import RunRecord as RunRecord
    from hiermem.types.transaction import Scrubbed as Scrubbed
    from hiermem.types.transaction import Spent as Spent
    from hiermem.types.tree import ALL as ALL
    from hiermem.types.tree import Finding as Finding
    from hiermem.types.trivector import Delta as Delta
    from hiermem.types.trivector import Entity as Entity
    from hiermem.types.trivector import Provenance as Provenance
    from hiermem.types.trivector import Relation as Relation
    from hiermem.types.trivector import Strategy as Strategy
    from hiermem.types.trivector import TriVector as TriVector
    from hiermem.upkeep.check import CheckReport as CheckReport
    from hiermem.upkeep.copy_plan import CopyReport as CopyReport
    from hiermem.work.worker import AsyncWorker as AsyncWorker

else:  # at run time, the same names by module
    _NAMES = {
        "hiermem": "published",  # a module
        "hiermem.api.extractor": "SemanticGraphExtractor",
        "hiermem.fleet": "update_one",
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
        "hiermem.upkeep.check": "CheckReport",
        "hiermem.context.profile": "ContextProfile",
        "hiermem.context.selection": ("ContextBudget ContextSelection ShownSummary"),
        "hiermem.extraction.diagram": "to_mermaid",
        "hiermem.extraction.plan": (
            "GraphEntity Mention Neighbour ChunkReport ExtractionProgress ExtractionReport Failure "
        ),
        "hiermem.log.alignment": "SyncReport ImportReport",
        "hiermem.summaries.metrics": "Feedback LevelMetrics Metrics Served",
        "hiermem.search.results": (
            "EmbeddingReport Evidence Hit IndexReport RecallFilters SearchFilters TenantFilters"
        ),
        "hiermem.search.query": "matched",
        "hiermem.text.fence": "escape",
        "hiermem.summaries.plan": "UpdatePlan UpdateProgress UpdateReport",
        "hiermem.prompts.template": "PromptTemplate",
        "hiermem.summaries.reports": "BatchProgress BatchReport WorkerStatus",
        "hiermem.context.zone": "Pin",
        "hiermem.upkeep.copy_plan": "CopyReport",
        "hiermem.tree.fold": "OpenWindow",
        "hiermem.tree.trigger": "CompressionTrigger",
        "hiermem.tree.turns": "Arrival Slice",
        "hiermem.embedders.openai": "OpenAIEmbedder",
        "hiermem.embedders.sentence_transformers": "SentenceTransformerEmbedder",
        "hiermem.api.manager": "ContextWindowManager",
        "hiermem.extraction.tenant_graph": "AsyncGraph",
        "hiermem.context.read": "SessionStatus Tree",
        "hiermem.work.worker": "AsyncWorker",
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
        "hiermem.models": "model_by_name",
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
            "FileChange ForgetReport KnownLine LoadReport Note SpaceMeta"
        ),
        "hiermem.types.transaction": (
            "DueSession LogEvent Record RecordWrite RunRecord Scrubbed Spent"
        ),
        "hiermem.types.tree": "Finding ALL",
        "hiermem.types.trivector": "Delta Entity Provenance Relation Strategy TriVector",
        "hiermem.calls.limits": "Prices",
        "hiermem.calls.report": "RunItem RunReport",
        "hiermem.changes.receipts": "EditReport Receipt StoreCopy",
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
