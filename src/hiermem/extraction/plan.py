"""Decides the steps of an extraction: what to ask for, what to store, its outcome and report.

``extract`` reads, calls and writes; each choice that it makes on the way is a function here, of
values that were read before. Only the result itself holds text of the conversation; ``detail`` is
what of a report is journalled.

The life cycle of a chunk, by the status in its report:

========  ======================================================  =================================
status    how a chunk gets there                                  what follows
========  ======================================================  =================================
pending   it was planned, and the run has not asked for it yet    made, reused or failed; a run that
                                                                  ends early reports it as pending
made      the model answered and the answer was stored            a later run reuses it
reused    an answer with the same input hash was stored before,   no call is made
          by an earlier run or by another one meanwhile
failed    it is oversized and may not be sliced, or its answer    a later run asks for it again
          could not be used after all attempts
========  ======================================================  =================================

While another run extracts the session, this one waits for it, at most until its deadline.

An answer is stored under the hash of its input, until the session's next whole result does not use
it. It lists the messages that it was made from, so an erasure of one of them deletes this answer
and leaves the others. A record that does not read back as it was written is treated as absent: the
answer is requested again.

A session's result is stored twice: whole, and as one small document for each name in it (names
compare after NFKC and case folding). A query about a name reads that name's documents, one for each
session, and joins them here by the laws of ``reduce``. The tenant's graph therefore needs no second
copy that could fall behind, and erasing a session's documents removes the session from the graph.
Entities of different types stay apart; an alias is told and finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import ValidationError

from hiermem.calls.failures import Cause
from hiermem.config import ExtractionOptions
from hiermem.extraction.chunks import Chunk
from hiermem.extraction.reduce import entity_key, merged, normalise, relation_key
from hiermem.prompts.template import PromptTemplate
from hiermem.text import measure
from hiermem.types import Span
from hiermem.types.brief import Brief
from hiermem.types.transaction import Cost
from hiermem.types.trivector import (
    MOST_MENTIONS,
    Answer,
    Entity,
    EntityKey,
    EntityType,
    Relation,
    TriVector,
    answer_schema,
)

#: The kinds of record that hold a session's result, and what it says about each name.
TRIVECTOR: Final = "trivector"
ENTITY: Final = "entity"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A model's answer, checked.

    ``answer`` is an Answer's JSON, or the text of a summary made of several; ``dropped`` counts
    items of the model's text that could not be used.
    ``spans`` are the half-open ranges of messages that a chunk's answer was made from, () if that
    is not known, as for a summary made of several.
    """

    answer: str
    strategy: str
    model: str
    dropped: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    def value(self) -> Answer | None:
        """Read the answer; None if the record is damaged."""
        try:
            return Answer.model_validate_json(self.answer)
        except ValidationError:
            return None


def made_from(body: str, indices: Collection[int]) -> bool:
    """Return whether a record's answer may have been made from one of the messages.

    A record that does not say what it was made from, such as a damaged one, may have been.
    """
    answer = read_answer(body)
    if answer is None or not answer.spans:
        return True
    return any(start <= index < stop for start, stop in answer.spans for index in indices)


def write_answer(answer: StoredAnswer) -> str:
    """Write an answer as a record's body."""
    return json.dumps(asdict(answer), ensure_ascii=False, separators=(",", ":"))


def read_answer(body: str) -> StoredAnswer | None:
    """Read a record's body; None if it is no answer."""
    try:
        fields = json.loads(body)
        return StoredAnswer(
            str(fields["answer"]),
            str(fields["strategy"]),
            str(fields["model"]),
            int(fields["dropped"]),
            tuple((int(start), int(stop)) for start, stop in fields["spans"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


T = TypeVar("T")


#: What one session says under one name: its id, the entities of the name, and the relations of
#: which one of them is an end.
Named: TypeAlias = tuple[str, tuple[Entity, ...], tuple[Relation, ...]]


@dataclass(frozen=True, slots=True)
class GraphEntity(Brief):
    """An entity of the tenant's graph: what all sessions say of it, and which of them do."""

    entity: Entity
    sessions: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the entity's name."""
        return self.entity.name

    @property
    def type(self) -> EntityType:
        """Return the entity's type."""
        return self.entity.type

    @property
    def description(self) -> str:
        """Return the entity's longest description."""
        return self.entity.description


@dataclass(frozen=True, slots=True)
class Neighbour(Brief):
    """A relation as seen from one of its ends: the entity at the other end, and the direction."""

    entity: EntityKey
    relation: Relation
    outgoing: bool
    sessions: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the other entity's name."""
        return self.entity.name

    @property
    def weight(self) -> float:
        """Return the relation's weight."""
        return self.relation.weight


@dataclass(frozen=True, slots=True)
class Mention(Brief):
    """A place where an entity is mentioned: messages ``start`` up to before ``stop``."""

    session_id: str
    chunk: str
    start: int
    stop: int
    entity: EntityKey


def basis_of(
    *, messages: int, input_hash: str, tokens: int, whole: bool, degraded: bool
) -> dict[str, Any]:
    """Return what a session's result was made from, which decides whether another may replace it.

    ``messages`` is how many the session had and ``input_hash`` that of their content; ``tokens``
    counts what was read of it, and ``whole`` says that this was everything. ``degraded``: the
    summary was put together without the model. The greater ``worth`` is the better of the same
    input. Slicing changes the token count of a message, so the count compares partial results only.
    """
    worth = [whole, not degraded, 0 if whole else tokens]
    return {"messages": messages, "input": input_hash, "worth": worth}


def write_result(vector: TriVector, basis: Mapping[str, Any]) -> str:
    """Write a session's whole result, with its basis."""
    return json.dumps({"of": basis, "vector": vector.model_dump_json()})


def read_result(body: str) -> TriVector | None:
    """Read what ``write_result`` wrote; None if the record is damaged."""
    try:
        return TriVector.model_validate_json(json.loads(body)["vector"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def replaces(basis: Mapping[str, Any], standing: str) -> bool:
    """Return whether a result with this basis may replace the ``standing`` one.

    It may not if the standing result covers more messages, or the same messages better. A damaged
    result is always replaced.
    """
    try:
        before = json.loads(standing)["of"]
        if before["input"] == basis["input"]:
            stays = bool(before["worth"] > basis["worth"])
        else:
            stays = bool(before["messages"] > basis["messages"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return True
    return not stays or read_result(standing) is None


def graph_records(vector: TriVector) -> dict[str, str]:
    """Return one document for each name of the result, by the name's normal form."""
    entities: dict[str, list[Entity]] = {}
    for entity in vector.entities:
        entities.setdefault(normalise(entity.name), []).append(entity)
    relations: dict[str, list[Relation]] = {}
    for relation in vector.relations:
        for end in {normalise(relation.source.name), normalise(relation.target.name)}:
            relations.setdefault(end, []).append(relation)
    documents: dict[str, str] = {}
    for name in sorted(entities):
        value = {
            "entities": [each.model_dump(mode="json") for each in entities[name]],
            "relations": [each.model_dump(mode="json") for each in relations.get(name, ())],
        }
        documents[name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return documents


def read_name_record(session_id: str, body: str) -> Named:
    """Read a name's document; an empty one if the record is damaged."""
    try:
        fields = json.loads(body)
        return (
            session_id,
            tuple(Entity.model_validate(each) for each in fields["entities"]),
            tuple(Relation.model_validate(each) for each in fields["relations"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return session_id, (), ()


def _grouped(
    items: Iterable[tuple[str, T]], key: Callable[[T], tuple[str, ...]]
) -> list[tuple[list[T], tuple[str, ...]]]:
    """Return the items of each key, with the sessions of which they are, in order."""
    groups: dict[tuple[str, ...], list[tuple[str, T]]] = {}
    for session_id, item in items:
        groups.setdefault(key(item), []).append((session_id, item))
    return [
        ([item for _, item in group], tuple(dict.fromkeys(name for name, _ in group)))
        for group in groups.values()
    ]


def _entities(named: Iterable[Named], type_: EntityType | None) -> Iterator[tuple[str, Entity]]:
    """Yield the entities of a type, or of all, each with its session."""
    for session_id, entities, _ in named:
        for entity in entities:
            if type_ in (None, entity.type):
                yield session_id, entity


def entities_named(named: Iterable[Named], type_: EntityType | None) -> tuple[GraphEntity, ...]:
    """Join what sessions say into one entity for each type and name, most mentioned first."""
    groups = _grouped(_entities(named, type_), entity_key)
    entities = [GraphEntity(merged(group), sessions) for group, sessions in groups]
    return tuple(sorted(entities, key=lambda e: (-_mentions(e.entity), e.type, e.name)))


def _mentions(entity: Entity) -> int:
    """Count the messages that mention an entity.

    A place wider than the list of messages that an answer can give is a whole chunk, whose messages
    are unknown.
    """
    wide = (place.stop - place.start for place in entity.provenance)
    return sum(1 if each > MOST_MENTIONS else each for each in wide)


def neighbours_of(named: Sequence[Named], type_: EntityType | None) -> tuple[Neighbour, ...]:
    """Join the relations of the entities in ``named``, as seen from them; heaviest first."""
    mine = {entity_key(entity) for _, entity in _entities(named, type_)}
    relations = ((session_id, relation) for session_id, _, of in named for relation in of)
    neighbours: list[Neighbour] = []
    for group, sessions in _grouped(relations, relation_key):
        # The text of the heaviest one, the places of all.
        places = dict.fromkeys(place for each in group for place in each.provenance)
        heaviest = max(group, key=lambda each: each.weight)
        relation = heaviest.model_copy(update={"provenance": tuple(places)})
        for end, other, outgoing in (
            (relation.source, relation.target, True),
            (relation.target, relation.source, False),
        ):
            if entity_key(end) in mine:
                neighbours.append(Neighbour(other, relation, outgoing, sessions))
    neighbours.sort(key=lambda n: (-n.weight, n.relation.relation, n.name, not n.outgoing))
    return tuple(neighbours)


def mentions_of(named: Iterable[Named], type_: EntityType | None) -> tuple[Mention, ...]:
    """List where the entities are mentioned, by session, then place."""
    mentions = {
        Mention(session_id, place.chunk, place.start, place.stop, entity.key)
        for session_id, entity in _entities(named, type_)
        for place in entity.provenance
    }
    return tuple(sorted(mentions, key=lambda m: (m.session_id, m.start, m.stop, m.entity.type)))


ChunkStatus: TypeAlias = Literal["made", "reused", "failed", "pending"]
PhaseState: TypeAlias = Literal["ok", "partial", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Failure(Brief):
    """One chunk, or the reduction of the summaries, without a usable answer.

    ``id`` is the chunk's, or ``<session_id>:reduce``; ``attempts`` counts the calls
    made for it; ``detail`` says more and holds no text.
    """

    id: str
    phase: Literal["map", "reduce"]
    reason: Cause
    attempts: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ChunkReport(Brief):
    """The outcome of one chunk.

    ``made`` chunks were asked for in this run, ``reused`` ones in an earlier run; ``pending`` ones
    were not tried, because the run ended before. ``span`` is the hull of the chunk's messages and
    ``spans`` the messages themselves; the two differ where threads interleave. ``tokens`` are those
    of its record, ``request_tokens`` those of the whole request, prompt and schema included; both
    as the memory's counter counts. ``tokens_in`` and ``tokens_out`` are the usage that the provider
    reported in this run.
    """

    id: str
    span: Span
    status: ChunkStatus
    turns: int
    messages: int
    tokens: int
    request_tokens: int
    oversized: bool
    input_hash: str
    reason: Cause | None = None
    detail: str = ""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PhaseReport(Cost):
    """The cost of one phase."""

    state: PhaseState = "skipped"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExtractionProgress(Brief):
    """The progress of an extraction; ``failed`` of the ``done`` items have no usable answer."""

    phase: Literal["map", "reduce"]
    done: int
    total: int
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtractionReport(Cost):
    """What an extraction did.

    ``tri_vector`` is None if the outcome is "error". ``chunked`` says whether the session was
    split, ``chunking`` why or why not. ``estimate`` is what a single request would take, prompt and
    output reserve included, and ``threshold`` the most that one may take (None: no limit is known).
    ``chunked_tokens`` are those of all requests for the chunks and the reduction, reused ones
    included: the cost of chunking to compare with ``single_pass_tokens``. ``model`` made the
    answers; ``live`` is False if it is no remote model, so that its figures say nothing about one.
    ``cost`` is the price of the calls if the model has prices. ``unknown`` counts calls that were
    cut off, of which nobody knows whether they were charged. ``stopped`` names the cap that ended
    the run, or is "model_down" if the provider kept failing: it may be asked again in
    ``retry_after`` seconds, and ``last_error`` says why its last call failed. ``degraded``: the
    summary was put together without the model. ``kept``: the result was stored as the session's
    own; a better result of the same messages is not replaced. ``seconds`` are those of the whole
    run.
    """

    session_id: str
    run_id: str
    outcome: Literal["ok", "partial", "error"]
    tri_vector: TriVector | None
    chunks: tuple[ChunkReport, ...]
    failures: tuple[Failure, ...]
    map: PhaseReport
    reduce: PhaseReport
    chunked: bool
    chunking: Literal["under_threshold", "over_threshold", "unknown_window"]
    estimate: int
    threshold: int | None
    model: str
    live: bool
    single_pass_tokens: int = 0
    chunked_tokens: int = 0
    seconds: float = 0.0
    unknown: int = 0
    stopped: str | None = None
    degraded: bool = False
    kept: bool = False
    messages: int = 0
    retry_after: float | None = None
    last_error: str | None = None

    @property
    def reused(self) -> int:
        """Return how many chunks needed no call, because an earlier run had made them."""
        return sum(chunk.status == "reused" for chunk in self.chunks)


def strategy_of(
    template: PromptTemplate,
    options: ExtractionOptions,
    *,
    answer: int,
    model: str,
    counter: str,
) -> str:
    """Hash everything that decides an answer besides the messages; the spans imply the limit."""
    schema = json.dumps(answer_schema(), sort_keys=True)
    return measure.strategy_hash(
        template=template.identity,
        style="extract",
        lengths=[answer, schema],
        temperature=options.temperature,
        model=model,
        counter=counter,
    )


def join_key(texts: Sequence[str], *, strategy: str, template: PromptTemplate, target: int) -> str:
    """Name the reduction of the summaries by its inputs."""
    source = f"{strategy}/{template.identity}/{target}"
    return measure.input_hash(level=1, strategy=source, outputs=texts)


def chunk_agenda(
    chunks: Sequence[Chunk],
    answers: Mapping[str, StoredAnswer],
    options: ExtractionOptions,
    *,
    room: int | None = None,
    answer: int = 0,
) -> tuple[tuple[Chunk, ...], dict[str, StoredAnswer], tuple[Failure, ...]]:
    """Decide what a run does with its chunks, given the stored answers by input hash.

    Returns the chunks to make, in order, the answers to reuse by the chunks' ids, and the failures.
    ``room`` is the tokens that a record may have, ``answer`` those reserved for the answer.

    A turn that alone exceeds the limit fails without a call, unless the caller had it sliced. If
    one failure ends the run, nothing is requested that could not be used.
    """
    failures = tuple(
        Failure(chunk.id, "map", "oversized", 0, _too_large(chunk, room=room, answer=answer))
        for chunk in chunks
        if chunk.oversized and options.oversized == "fail"
    )
    failed = {failure.id for failure in failures}
    reuse = {
        chunk.id: answers[chunk.input_hash]
        for chunk in chunks
        if chunk.input_hash in answers and chunk.id not in failed
    }
    make = tuple(chunk for chunk in chunks if chunk.id not in failed and chunk.id not in reuse)
    if failures and options.on_chunk_failure == "abort":
        make = ()
    return make, reuse, failures


def _too_large(chunk: Chunk, *, room: int | None, answer: int) -> str:
    """Say by how much a turn is too large, and what can be done about it."""
    beside = "" if room is None else f" of {room:,} that the limit leaves for a record"
    return (
        f"one turn has {chunk.tokens:,} tokens, over the room{beside}; use oversized='slice', a "
        f"larger safe_processing_tokens, or fewer output_tokens than the {answer:,} that are kept "
        "for the answer"
    )


def outcome_of(
    *, chunks: int, done: Collection[str], failures: Sequence[Failure], options: ExtractionOptions
) -> Literal["ok", "partial", "error"]:
    """Return the outcome of an extraction of so many ``chunks``, of which ``done`` have answers.

    With "abort" it is all or nothing; with "partial" whatever there is, unless that is nothing.
    """
    if not failures and len(done) == chunks:
        return "ok"
    return "partial" if options.on_chunk_failure == "partial" and done else "error"


#: What the journal has of a report under the report's own names.
_JOURNALLED: Final = (
    "model", "live", "chunked", "chunking", "estimate", "threshold", "single_pass_tokens",
    "chunked_tokens", "calls", "tokens_in", "tokens_out", "cost", "unknown", "stopped", "kept",
)  # fmt: skip


def detail(report: ExtractionReport) -> dict[str, Any]:
    """Return the detail of the run's record: ids, counts and reasons.

    It holds no text of the conversation, of the model or of an error, so it can go into any log.
    """
    return {
        **{name: getattr(report, name) for name in _JOURNALLED},
        "chunks": [
            {
                "id": chunk.id,
                "span": [chunk.span.start, chunk.span.stop],
                "status": chunk.status,
                **_costs(chunk),
                **({"reason": chunk.reason, "detail": chunk.detail} if chunk.reason else {}),
            }
            for chunk in report.chunks
        ],
        "failures": [asdict(failure) for failure in report.failures],
        "map": {"state": report.map.state, **_costs(report.map)},
        "reduce": {
            "state": report.reduce.state,
            **_costs(report.reduce),
            "degraded": report.degraded,
        },
    }


def _costs(part: ChunkReport | PhaseReport) -> dict[str, int]:
    return {
        "calls": part.calls,
        "tokens_in": part.tokens_in,
        "tokens_out": part.tokens_out,
        "ms": round(part.seconds * 1000),
    }
