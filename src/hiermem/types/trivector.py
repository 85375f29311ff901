"""The results of an extraction: a graph of entities, open items, and the direction of the work.

There are two families of values. A model returns an ``Answer`` with its parts for one chunk: a
closed schema with a bound on every length and count, so that no answer is larger than
``calls.answers`` allows. A user gets a ``TriVector`` with its parts: the same items after
the reduce, each with the chunks and messages that it comes from.

A value checks its own shape and decides nothing; ``extraction.reduce`` merges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

from hiermem.types.brief import Brief

#: The types of entities. The set is closed, so that two chunks can agree on the type of one.
EntityType: TypeAlias = Literal[
    "person",
    "organisation",
    "place",
    "technology",
    "file",
    "function",
    "class",
    "identifier",
    "url",
    "number",
    "date",
    "event",
    "concept",
]
ENTITY_TYPES: Final[tuple[EntityType, ...]] = get_args(EntityType)
#: question: asked and not answered. task: to be done. promise: somebody said they will.
#: unresolved: a failure or a doubt that nobody has settled.
DeltaKind: TypeAlias = Literal["question", "task", "promise", "unresolved"]
#: decision: what was settled. impact: what it changes. milestone: what is reached or due when.
#: constraint: what must or must not be. preference: what somebody wants to be so from now on.
StrategyKind: TypeAlias = Literal["decision", "impact", "milestone", "constraint", "preference"]

Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]


class _AnswerModel(BaseModel):
    """A part of an answer: no unknown field, no coercion, no figure that is not finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


#: The most characters of a name; of a tag or the word of a relation; of a line that says one thing;
#: of the summary.
MOST_IN_NAME: Final = 200
MOST_IN_TAG: Final = 60
MOST_IN_LINE: Final = 480
MOST_IN_SUMMARY: Final = 8000
#: The most of each in one answer, and in one of its items.
MOST_FEATURES: Final = 32
MOST_ENTITIES: Final = 200
MOST_RELATIONS: Final = 300
MOST_DELTAS: Final = 100
MOST_STRATEGY: Final = 100
MOST_ALIASES: Final = 8
MOST_TAGS: Final = 8
MOST_MESSAGES: Final = 16
#: Entities are ranked by how many messages name them, so they may list more messages.
MOST_MENTIONS: Final = 64
#: The confidence of an entity for which a model stated none.
UNSTATED: Final = 0.5

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_IN_NAME)]
_Tag: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_IN_TAG)]
_ItemLine: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_IN_LINE)]
_MessageIndex: TypeAlias = Annotated[int, Field(ge=0, lt=2**53)]
#: The numbers of the messages that an item rests on, as the record shows them.
_MessageIndices: TypeAlias = Annotated[
    tuple[_MessageIndex, ...], Field(max_length=MOST_MESSAGES, strict=False)
]
_MentionIndices: TypeAlias = Annotated[
    tuple[_MessageIndex, ...], Field(max_length=MOST_MENTIONS, strict=False)
]


class AnswerEnd(_AnswerModel):
    """The type and name by which a relation refers to an entity of the same answer."""

    type: EntityType
    name: _Name


class AnswerEntity(_AnswerModel):
    """One object or concept that the record mentions."""

    type: EntityType
    name: _Name
    aliases: Annotated[tuple[_Name, ...], Field(max_length=MOST_ALIASES, strict=False)] = ()
    description: Annotated[str, Field(max_length=MOST_IN_LINE)] = ""
    tags: Annotated[tuple[_Tag, ...], Field(max_length=MOST_TAGS, strict=False)] = ()
    confidence: Share = UNSTATED
    messages: _MentionIndices = ()


class AnswerRelation(_AnswerModel):
    """The relation of one entity of the answer to another, with its justification."""

    source: AnswerEnd
    relation: _Tag
    target: AnswerEnd
    weight: Share
    justification: _ItemLine
    messages: _MessageIndices = ()


class AnswerDelta(_AnswerModel):
    """Something unfinished; ``open`` is False if the record itself settles it."""

    kind: DeltaKind
    text: _ItemLine
    open: bool = True
    messages: _MessageIndices = ()


class AnswerStrategy(_AnswerModel):
    """A statement about the direction of the work."""

    kind: StrategyKind
    text: _ItemLine
    messages: _MessageIndices = ()


class Answer(_AnswerModel):
    """What a model returns for one chunk."""

    summary: Annotated[str, Field(max_length=MOST_IN_SUMMARY)]
    features: Annotated[tuple[_Tag, ...], Field(max_length=MOST_FEATURES, strict=False)] = ()
    entities: Annotated[
        tuple[AnswerEntity, ...], Field(max_length=MOST_ENTITIES, strict=False)
    ] = ()
    relations: Annotated[
        tuple[AnswerRelation, ...], Field(max_length=MOST_RELATIONS, strict=False)
    ] = ()
    deltas: Annotated[tuple[AnswerDelta, ...], Field(max_length=MOST_DELTAS, strict=False)] = ()
    strategy: Annotated[
        tuple[AnswerStrategy, ...], Field(max_length=MOST_STRATEGY, strict=False)
    ] = ()


def answer_schema() -> dict[str, Any]:
    """Return the JSON schema of ``Answer``: every field is required and no other is allowed."""
    schema: dict[str, Any] = json.loads(_schema())
    return schema


@cache
def _schema() -> str:
    """Return the schema as JSON. It is made once, since making it takes milliseconds."""
    return closed_schema(Answer)


class _ResultModel(BaseModel):
    """A part of a result."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Provenance(_ResultModel):
    """The origin of an item: a chunk, and a half-open range of message indices in it."""

    chunk: str
    start: int
    stop: int


class EntityKey(_ResultModel):
    """The type and name that identify an entity; names compare after NFKC and case folding."""

    type: EntityType
    name: str


class Entity(_ResultModel):
    """One node of the graph; ``aliases`` are its other spellings and names."""

    type: EntityType
    name: str
    aliases: tuple[str, ...] = ()
    description: str = ""
    tags: tuple[str, ...] = ()
    confidence: Share
    provenance: tuple[Provenance, ...]

    @property
    def key(self) -> EntityKey:
        """Return the type and name by which relations point here."""
        return EntityKey(type=self.type, name=self.name)


class Relation(_ResultModel):
    """One edge of the graph; both ends are entities of the same result, by their exact names."""

    source: EntityKey
    relation: str
    target: EntityKey
    weight: Share
    justification: str
    provenance: tuple[Provenance, ...]


class Delta(_ResultModel):
    """Something unfinished. ``closed_by`` says where it was settled; None while it is open."""

    kind: DeltaKind
    text: str
    open: bool = True
    closed_by: Provenance | None = None
    provenance: tuple[Provenance, ...]


class Strategy(_ResultModel):
    """A statement about the direction of the work, with the messages that make it."""

    kind: StrategyKind
    text: str
    provenance: tuple[Provenance, ...]


class Stats(_ResultModel):
    """What the reduce did.

    ``merged`` counts entities that occurred again in another chunk. ``dropped`` counts items of
    answers that could not be used, because they named nothing or an answer held too many of them;
    ``dangling`` relations dropped because an end was defined nowhere, ``loops`` those whose ends
    turned out to be one entity, ``capped`` items of any kind left out to keep the result within its
    limits, and ``idle`` statements left out because they settle something that was never open.
    """

    chunks: int = 0
    merged: int = 0
    dropped: int = 0
    dangling: int = 0
    loops: int = 0
    capped: int = 0
    idle: int = 0


class TriVector(Brief, _ResultModel):
    """A session as a graph, its open items and its direction, under a summary.

    ``namespace`` lists the features that the session touches, most often named first. Entities come
    most mentioned first, relations heaviest first, deltas and strategy in the order in which they
    came up; ``missing`` names the chunks that a partial result lacks.
    """

    _brief: ClassVar[str] = "summary entities relations deltas strategy"

    summary: str
    namespace: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    deltas: tuple[Delta, ...] = ()
    strategy: tuple[Strategy, ...] = ()
    missing: tuple[str, ...] = ()
    stats: Stats = Field(default_factory=Stats)


def closed_schema(model: type[BaseModel]) -> str:
    """Return the schema of ``model`` as JSON: every field is required, and no other is allowed.

    Titles and descriptions are left out. They are paid for with each request, and the prompt says
    what each field is.
    """
    schema: dict[str, Any] = _bare(model.model_json_schema())
    for part in (schema, *schema.get("$defs", {}).values()):
        # Providers that hold a model to a schema want each field listed, defaults or not.
        part["required"] = list(part["properties"])
        for field in part["properties"].values():
            field.pop("default", None)
    return json.dumps(schema)


def _bare(value: Any, *, names: bool = False) -> Any:
    """Leave out titles and descriptions; ``names``: the keys are names, not keywords."""
    if isinstance(value, Mapping):
        return {
            key: _bare(held, names=key in ("properties", "$defs") and not names)
            for key, held in value.items()
            if names or key not in ("title", "description")
        }
    return [_bare(held) for held in value] if isinstance(value, list) else value
