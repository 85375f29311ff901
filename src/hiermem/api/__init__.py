"""The public classes: memory, session, space, extractor. Decides which arguments are accepted.

``memory`` starts; ``sync`` derives the blocking classes from the asynchronous ones.
Imports every feature, and adapters only through ``defaults``. Its names are those of ``hiermem``.
"""

from hiermem.api.extractor import SemanticGraphExtractor as SemanticGraphExtractor
from hiermem.api.manager import ContextWindowManager as ContextWindowManager
from hiermem.api.memory import AsyncMemory as AsyncMemory
from hiermem.api.session import AsyncSession as AsyncSession
from hiermem.api.space import AsyncSpace as AsyncSpace
from hiermem.api.sync import Memory as Memory
from hiermem.api.sync import Session as Session
from hiermem.api.sync import Space as Space
from hiermem.calls.limits import Prices as Prices
from hiermem.config import BankPolicy as BankPolicy
from hiermem.config import ContextPolicy as ContextPolicy
from hiermem.config import ExtractionOptions as ExtractionOptions
from hiermem.config import HierarchyConfig as HierarchyConfig
from hiermem.config import LevelConfig as LevelConfig
from hiermem.config import Limits as Limits
from hiermem.config import SearchPolicy as SearchPolicy
from hiermem.config import UpdatePolicy as UpdatePolicy
from hiermem.context.profile import ContextProfile as ContextProfile
from hiermem.context.selection import ContextBudget as ContextBudget
from hiermem.context.selection import ContextSelection as ContextSelection
from hiermem.errors import BudgetTooSmallError as BudgetTooSmallError
from hiermem.errors import BusyError as BusyError
from hiermem.errors import ClosedError as ClosedError
from hiermem.errors import ConfigError as ConfigError
from hiermem.errors import ConflictError as ConflictError
from hiermem.errors import FileError as FileError
from hiermem.errors import ForkedProcessError as ForkedProcessError
from hiermem.errors import HiermemError as HiermemError
from hiermem.errors import InvalidMessageError as InvalidMessageError
from hiermem.errors import ModelError as ModelError
from hiermem.errors import NotFoundError as NotFoundError
from hiermem.errors import ReadOnlyError as ReadOnlyError
from hiermem.errors import SpendLimitError as SpendLimitError
from hiermem.errors import StoreCorruptError as StoreCorruptError
from hiermem.errors import StoreError as StoreError
from hiermem.errors import UsageError as UsageError
from hiermem.protocols import LLM as LLM
from hiermem.protocols import Embedder as Embedder
from hiermem.protocols import LLMRequest as LLMRequest
from hiermem.protocols import LLMResponse as LLMResponse
from hiermem.protocols import TokenCounter as TokenCounter
from hiermem.protocols import Usage as Usage
from hiermem.records.store import Store as Store
from hiermem.search.results import Hit as Hit
from hiermem.text.fence import escape as escape
from hiermem.tree.trigger import CompressionTrigger as CompressionTrigger
from hiermem.types import FilePart as FilePart
from hiermem.types import ImagePart as ImagePart
from hiermem.types import JsonPart as JsonPart
from hiermem.types import Message as Message
from hiermem.types import TextPart as TextPart
from hiermem.types import ToolCall as ToolCall
from hiermem.types.tree import ALL as ALL
