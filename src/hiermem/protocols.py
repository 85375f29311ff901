"""The contracts of adapters: models, token counters and embedders; a store's is ``records.store``.

An adapter stores, calls, counts or embeds; it makes no decisions. Each method is documented as the
conditions that an implementation must meet. ``hiermem.testing`` checks them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from typing_extensions import TypeIs, get_protocol_members

from hiermem import types
from hiermem.errors import UsageError
from hiermem.types import Role, Trust, Unit

if TYPE_CHECKING:
    from hiermem.records.run import RecordStore as Store
    from hiermem.records.run import Tenant as TenantStore
    from hiermem.records.run import Tree as TreeStore
else:
    # For annotations alone: what the records offer is used below them, and never made there.
    Store = TenantStore = TreeStore = object

__all__ = [
    "LLM",
    "ChatMessage",
    "Embedder",
    "Finish",
    "LLMRequest",
    "LLMResponse",
    "SourceText",
    "Store",
    "TenantStore",
    "TokenCounter",
    "TreeStore",
    "Usage",
]

T = TypeVar("T")


def offers(value: object, protocol: type[T]) -> TypeIs[T]:
    """Return whether an object has all members of a Protocol, as its own or by ``__getattr__``.

    From Python 3.12 on, ``isinstance`` does not see what a wrapper hands through.
    """
    return not _missing(value, protocol)


def _missing(value: object, protocol: type) -> list[str]:
    """Return the members of a Protocol that an object has not, in the Protocol's order."""
    order = {name: at for at, name in enumerate(vars(protocol))}
    missing = [name for name in get_protocol_members(protocol) if not hasattr(value, name)]
    return sorted(missing, key=lambda name: (order.get(name, len(order)), name))


def refused(value: object, protocol: type, what: str, right: str) -> UsageError:
    """Return the error for an object that is not of a Protocol: what it lacks, and what is right.

    An object with none of its members, or a name alone, is not said to lack the others.
    """
    if isinstance(value, type):
        return UsageError(f"{what} is the class {value.__name__}; pass an object of it")
    missing = _missing(value, protocol)
    others = get_protocol_members(protocol) - {"name", *missing}
    lacks = f" and lacks {', '.join(missing)}" if missing and others else ""
    return UsageError(f"{what} is {type(value).__name__}{lacks}; it must {right}")


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens, exactly or too many; the same text always has the same count."""

    @property
    def name(self) -> str:
        """Return the identity that is stored with a session; another name means other counts."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of ``text``, never interpreting a part of it as a special token."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; texts of similar meaning get similar directions.

    The same text and kind always give the same vector. If another model, or another version of it,
    gives other vectors, its ``name`` must differ: vectors of two names are never compared. An
    embedder may have a ``weight``, the weight of its cosines beside the words (1.0 by default), and
    a ``disconnect()``, as an LLM may.
    """

    @property
    def name(self) -> str:
        """Return the identity that is stored with the vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Return the number of components of a vector."""
        ...

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"]
    ) -> Sequence[Sequence[float]]:
        """Return one vector per text, in order: a sequence of sequences, or a 2-d array.

        ``kind`` says whether the texts are queries or searched passages, for models that treat them
        differently. Every number is finite, and no vector is all zeros. Vectors need no unit
        length.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a rendered model request."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SourceText:
    """One input of a request, as data: a message (or slice of one), or a summary below.

    ``index`` is the message's, None for a summary. ``units`` are the selected units if the text is
    an extract, and () if it must be split again. ``date`` is the rendered day or "".
    """

    index: int | None
    role: Role
    speaker: str
    date: str
    text: str
    trust: Trust = "conversation"
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """A request to a model.

    ``messages`` is the rendered prompt. ``inputs`` is the data it was rendered from, for models
    that work on the data itself; with the task ``consolidate`` these are the notes, and ``bank``
    holds them with the rules and the files. ``target_tokens`` is the requested length and
    ``max_tokens`` the hard limit of the answer, both as ``counter`` counts. ``schema`` is a JSON
    schema or None. ``patience`` is how many times longer than usual the call may take: it is above
    1 where the model did not answer in time before.
    """

    task: Literal["summarise", "consolidate", "extract"]
    messages: tuple[ChatMessage, ...]
    inputs: tuple[SourceText, ...]
    target_tokens: int
    max_tokens: int
    counter: TokenCounter
    level: int = 1
    style: str = ""
    temperature: float = 0.3
    schema: Mapping[str, Any] | None = None
    bank: types.BankText | None = None
    patience: float = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a provider reports; None if it reports none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


Finish: TypeAlias = Literal["stop", "length", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """A model's answer. ``units`` are the selected units if the text is an extract."""

    text: str
    usage: Usage = Usage()
    finish_reason: Finish = "stop"
    model: str = ""
    units: tuple[Unit, ...] = ()


@runtime_checkable
class LLM(Protocol):
    """A language model, or anything that answers like one.

    A model may have ``prices``, a ``hiermem.Prices`` or None; with prices, each journalled call has
    a cost. It may have ``overhead_tokens``: the tokens that a call may use besides prompt and
    answer, such as reasoning tokens; they are reserved for every call. ``local_server`` may be True
    for a server on this machine: where the policy sets neither, it gets one call at a time, and 600
    seconds for each. It may have an asynchronous ``connect()``: a run calls it before it begins,
    and it raises ConfigError where the model cannot be asked, without a key for example. It may
    have an asynchronous ``disconnect()``: closing a memory calls it to close the connections of its
    event loop. The model must stay usable afterwards, because others may share it.
    """

    @property
    def name(self) -> str:
        """Return the identity of the model; it is part of every summary's strategy hash."""
        ...

    @property
    def context_window(self) -> int | None:
        """Return the model's window in tokens; None if it is unknown or unlimited."""
        ...

    @property
    def remote(self) -> bool:
        """Return whether a call may cost money or time elsewhere.

        Such calls are made under a claim, journalled beforehand and rate-limited.
        """
        ...

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer ``request``.

        Raises ModelError of kind "transient" if the same call may succeed later, and of another
        kind if it will not. Must be safe to cancel and to call concurrently.
        """
        ...


#: A model, its name such as "openai:gpt-5-mini", or a function that answers a request with text.
ModelLike: TypeAlias = (
    LLM | str | Callable[[LLMRequest], str | LLMResponse | Awaitable[str | LLMResponse]]
)
