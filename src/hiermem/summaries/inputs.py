"""Decides what a summary is made from, under which hashes, and which labels it takes from that.

Messages that are erased, quarantined, empty or hiermem's own rendering sent back are covered and
never read; everything else of the stretch is read exactly once. The overlap is shown with the
inputs and is no part of them.

A summariser may repeat the overlap that it was shown, so an erasure must reach that text too. Which
messages were shown depends on the configuration, the slices and the lengths of messages at the
time, and all of these may change later. The record is therefore written with the text, copied into
forks with it, and never worked out again.

Labels are the entities that messages name, and a few tags. They are read from the messages by form
and count, never invented and never requested from a model, so the same messages have the same
labels whoever summarises them. A summary of summaries takes the labels of its children, the first
of each first, so that a search can be filtered at every level. ``entity_names`` decides what a name
is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from hiermem.log.trees import OVERLAP_EVER, OVERLAP_FROM, OVERLAP_REACH, OVERLAP_SIZE, shown_index
from hiermem.protocols import SourceText
from hiermem.summaries import salience
from hiermem.text import units
from hiermem.text.measure import VERBATIM, day, heard, part_name, speaker
from hiermem.text.policy import is_back_channel, lowest, trust_of
from hiermem.text.slices import excerpt
from hiermem.text.units import of_source
from hiermem.types import Node, Position, Revision, Span, StoredMessage, Trust, Unit

#: Tokens that the frame around one text costs, in messages and in prompts alike.
_FRAME: Final = 4
#: The speaker of a child's text.
SUMMARY: Final = "Summary"
#: Counts the tokens of a text.
Count: TypeAlias = Callable[[str], int]
#: The tags and the entities of a summary, the most significant first.
Labels: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
#: The most labels of a window's summary; above, ``_ABOVE`` times as many.
_ENTITIES: Final = 24
_TAGS: Final = 12
_ABOVE: Final = 2
#: Kinds of names that are no entities.
_NO_ENTITY: Final = frozenset({"date", "url"})
#: A name with an ambiguous form is an entity only if it occurs again.
_SURE: Final = 0.6
#: A word is a tag if at least this many messages of a window use it, and it has this many letters.
_SAID_BY: Final = 3
_LETTERS: Final = 4
_LONGEST: Final = 64


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs that one node is made from.

    ``outputs`` are the inputs' output hashes, also of inputs that are skipped as empty.
    ``serving`` are the (node id, revision) pairs that must still serve at the commit. ``tokens``
    is the weight of all inputs, which a summary must stay under. ``anchors`` are the facts on
    record for them, weightiest first; None where they must be searched, as in messages. ``tags``
    and ``entities`` are their labels, likewise. ``overlap_from`` is the first message that
    ``overlap`` shows, or would show if it were not empty; None without an overlap. ``unread``: a
    dry run has the hashes and sizes of the inputs alone, and no ``sources``.
    """

    sources: tuple[SourceText, ...]
    outputs: tuple[str, ...]
    serving: tuple[tuple[str, int], ...]
    tokens: int
    trust: Trust
    overlap: str = ""
    anchors: tuple[str, ...] | None = None
    overlap_from: int | None = None
    tags: tuple[str, ...] | None = None
    entities: tuple[str, ...] | None = None
    unread: bool = False

    @property
    def empty(self) -> bool:
        """Return whether no input has a text."""
        return not self.sources and not self.unread


def from_messages(
    span: Span,
    messages: Iterable[StoredMessage],
    *,
    count: Count,
    tool_tokens: int | None = None,
    overlap: tuple[str, int | None] = ("", None),
    unread: bool = False,
) -> Inputs:
    """Return the inputs of the messages of ``span``, in order; ``overlap`` is ``overlap_before``.

    A level-1 node is made from those of its span. A tool's result is cut to an excerpt of
    ``tool_tokens``; None keeps all of it. With ``unread``, the inputs have no sources, which takes
    a third of the time.
    """
    sources: list[SourceText] = []
    outputs: list[str] = []
    tokens, has_text = 0, False
    for stored in messages:
        if stored.state != "live":
            continue
        begin, end = within(span, stored.index)
        text = heard(stored, begin, end)
        whole = begin == 0 and end is None and not stored.echoes
        output = stored.hash if whole else part_name(stored, begin, end)
        if tool_tokens is not None and stored.role == "tool":
            # A result whose stored count is small enough need not be counted again.
            short = whole and stored.tokens <= tool_tokens
            shown = text if short else excerpt(text, tool_tokens, count)
            if shown != text:
                text, whole, output = shown, False, f"{output}~{tool_tokens}"
        outputs.append(output)
        if not text.strip():
            continue
        has_text = True
        tokens += stored.tokens if whole else count(text) + _FRAME
        if unread:
            continue
        sources.append(
            SourceText(
                index=stored.index,
                role=stored.role,
                speaker=speaker(stored.message),
                date=day(stored.created_at),
                text=text,
                trust=trust_of(stored),
            )
        )
    return Inputs(
        tuple(sources),
        tuple(outputs),
        (),
        tokens,
        lowest(source.trust for source in sources),
        overlap=overlap[0],
        overlap_from=overlap[1],
        unread=unread and has_text,
    )


def from_children(children: Sequence[tuple[Node, Revision]], *, verbatim: bool = False) -> Inputs:
    """Return the inputs of a node of level 2 or more from its children and their texts.

    For a ``verbatim`` node the recorded units stay whole; otherwise they are split into sentences.
    """
    sources = tuple(
        SourceText(
            index=None,
            role="user",
            speaker=SUMMARY,
            date=" to ".join(dict.fromkeys(map(day, (child.first_at, child.last_at)))),
            text=revision.text,
            trust=revision.trust,
            units=kept,
        )
        for child, revision in children
        if revision.text
        for kept in [kept_units(revision, whole=verbatim)]
    )
    return Inputs(
        sources=sources,
        outputs=tuple(revision.output_hash for _, revision in children),
        serving=tuple((child.id, revision.number) for child, revision in children),
        tokens=sum(revision.tokens for _, revision in children),
        trust=lowest(source.trust for source in sources),
        anchors=in_turn([revision.anchors for _, revision in children]),
        tags=in_turn([revision.tags for _, revision in children]),
        entities=in_turn([revision.entities for _, revision in children]),
    )


def kept_units(revision: Revision, *, whole: bool = False) -> tuple[Unit, ...]:
    """Return the units a text was made of, () if they are not on record; unchanged if ``whole``.

    A whole message that was kept word for word is one unit on record; here it is split into
    sentences, as the message itself is. So a selection can take a part of it, and knows which of
    its sentences it already has. Farewells and cheers are left out, unless there is nothing else.
    """
    recorded = units.unpack(revision.provenance, revision.text)
    if whole:
        return recorded
    sentences: list[Unit] = []
    is_copy = revision.strategy == VERBATIM
    for unit in recorded:
        long = len(unit.text) > units.UNIT_CAP or "\n" in unit.text
        is_split = not unit.code and (long or (is_copy and unit.ordinal == 0))
        who: dict[str, Any] = {"index": unit.index, "role": unit.role, "date": unit.date}
        sentences += units.split(unit.text, speaker=unit.speaker, **who) if is_split else [unit]
    names = salience.own_names(sentences)
    said = [u for u in sentences if not (is_copy and is_back_channel(u.text, names, wide=True))]
    return tuple(said or sentences)


def overlap_before(
    node: Node, before: Sequence[StoredMessage], size: int
) -> tuple[str, int | None]:
    """Return the last ``size`` characters before a window in its thread, and the first message.

    ``before`` are the thread's messages up to and including the one in which the window begins, in
    order. A summariser reads them to understand the beginning; nothing covers them twice. The first
    message is the first one that the characters show, or would show if they were not empty; None
    if no overlap is requested.
    """
    text: str = ""
    first: int | None = None
    if size <= 0:
        return text, first
    for stored in reversed(before):
        if len(text) >= size:
            break
        if stored.state != "live" or Position(stored.index) >= node.span.begin:
            continue
        end = node.span.start_char if stored.index == node.span.start else None
        spoken = heard(stored, 0, end)
        if spoken.strip():
            text = f"{speaker(stored.message)}: {spoken}" + (f"\n{text}" if text else "")
            first = stored.index
    # If there was room for more, an empty message counts as shown too.
    if len(text) < size:
        first = max(0, node.span.start - OVERLAP_REACH)
    return text[-size:], first


def note_overlap(
    revision: Revision, inputs: Inputs, *, size: int, verbatim: bool, before: Revision | None
) -> Revision:
    """Return a new revision with the record of the overlap that it was shown.

    ``size`` is the overlap of the configuration; a ``verbatim`` text was shown nothing. ``before``
    is the node's current revision. It and the earlier ones are kept, so the first message that any
    of them was shown is kept too.
    """
    extras: dict[str, Any] = {
        name: value
        for name, value in revision.extras.items()
        if name not in (OVERLAP_SIZE, OVERLAP_FROM, OVERLAP_EVER)
    }
    first = None if verbatim else inputs.overlap_from
    if first is not None:
        extras[OVERLAP_SIZE], extras[OVERLAP_FROM] = size, first
    earlier = None if before is None else shown_index(before.extras, OVERLAP_EVER)
    ever = [index for index in (first, earlier) if index is not None]
    if ever:
        extras[OVERLAP_EVER] = min(ever)
    return replace(revision, extras=extras)


def fitted(inputs: Inputs, room: int, *, count: Count) -> Inputs:
    """Return inputs of at most about ``room`` tokens, the longest texts as excerpts.

    They are the ``inputs`` themselves if those fit. Otherwise ``tokens`` is that of the excerpts,
    and the recorded anchors are dropped, because they are those of the whole inputs.
    """
    frames = [_FRAME + count(source.speaker) for source in inputs.sources]
    sizes = [count(source.text) for source in inputs.sources]
    remaining = room - sum(frames)
    if sum(sizes) <= remaining:
        return inputs
    # Texts under the fair share stay whole, and leave the rest of their share to the others.
    share, waiting = 1, len(sizes)
    for size in sorted(sizes):
        share = max(1, remaining // waiting)
        if size > share:
            break
        remaining, waiting = remaining - size, waiting - 1
    sources = tuple(
        source
        if size <= share
        else replace(source, text=excerpt(source.text, share, count), units=())
        for source, size in zip(inputs.sources, sizes, strict=True)
    )
    tokens = sum(frames) + sum(count(source.text) for source in sources)
    return replace(inputs, sources=sources, tokens=tokens, anchors=None)


def word_for_word(inputs: Inputs, *, count: Count) -> salience.Selection:
    """Write the inputs as the summary itself, in no more tokens than the inputs have.

    Dates and then speakers are omitted if they would make the text too long. As a last resort the
    text is trimmed, by at most the cost of a line end.
    """
    room = inputs.tokens
    whole = _whole_units(inputs.sources)
    for shown in (
        whole,
        [replace(unit, date="") for unit in whole],
        [replace(unit, date="", speaker="") for unit in whole],
    ):
        text = units.render(shown)
        if shown and (tokens := count(text)) <= room:
            return salience.Selection(tuple(shown), text, tokens)
    for joint in ("\n", " ", ""):
        text = joint.join(source.text for source in inputs.sources)
        if (tokens := count(text)) <= room:
            return salience.Selection((), text, tokens)
    return salience.select(
        [unit for source in inputs.sources for unit in units.of_source(source)], room, count
    )


def rebase(provenance: str, text: str, *, shift: int, among: Span) -> str:
    """Move provenance to another place of the same conversation, for a text that is reused there.

    Returns "" if an index would fall outside ``among``, since none is better than a wrong one.
    """
    if not provenance or not shift:
        return provenance
    moved = [
        unit if unit.index is None else replace(unit, index=unit.index + shift)
        for unit in units.unpack(provenance, text)
    ]
    if any(unit.index is not None and not among.start <= unit.index < among.stop for unit in moved):
        return ""
    return units.pack(moved)


def within(span: Span, index: int) -> tuple[int, int | None]:
    """Return the characters of message ``index`` that ``span`` holds."""
    begin = span.start_char if index == span.start else 0
    return begin, span.stop_char if index == span.stop - 1 else None


def in_turn(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Merge lists that are sorted by weight: one item from each in turn, without repeats."""
    turns = zip_longest(*lists)
    return tuple(dict.fromkeys(item for turn in turns for item in turn if item is not None))


def _whole_units(sources: Sequence[SourceText]) -> list[Unit]:
    """Return one unit for each message, or the recorded units of each summary.

    Returns [] if a summary has no units on record, because its text has a layout of its own.
    """
    whole: list[Unit] = []
    for source in sources:
        if source.index is None and not source.units:
            return []
        if source.units:
            whole += source.units
            continue
        label = " ".join(source.speaker.split())[: units.LABEL_CAP]
        whole.append(Unit(source.index, 0, source.role, label, source.date, source.text))
    return whole


def of_inputs(inputs: Inputs) -> Labels:
    """Return the labels for these inputs: read from messages, or taken over from summaries."""
    if inputs.tags is None or inputs.entities is None:
        return of_messages(inputs.sources)
    return inputs.tags[: _ABOVE * _TAGS], inputs.entities[: _ABOVE * _ENTITIES]


def of_messages(sources: Iterable[SourceText]) -> Labels:
    """Return the labels of a window: entities and tags, the most frequent first.

    Tags also name content other than prose: "code", "tool".
    """
    from hiermem.text import entity_names

    named, used = Counter[str](), Counter[str]()
    written: dict[str, str] = {}
    forms = defaultdict[str, Counter[str]](Counter)
    kinds: dict[str, None] = {}
    for source in sources:
        if source.role == "tool":
            kinds["tool"] = None
        if "```" in source.text:
            kinds["code"] = None
        for unit in of_source(source):
            if unit.code:
                continue
            for mention in entity_names.find(unit.text, prose=source.role != "tool"):
                if mention.type in _NO_ENTITY or len(mention.name) > _LONGEST:
                    continue
                key = mention.name.casefold()
                named[key] += 2 if mention.sure >= _SURE else 1
                written.setdefault(key, mention.name)
        if source.role != "tool":
            used.update(_topics(source.text, forms))
    entities = [written[key] for key, count in named.most_common() if count > 1]
    topics = [
        min(forms[root], key=lambda form: (-forms[root][form], form))
        for root, count in used.most_common()
        if count >= _SAID_BY
    ]
    return tuple([*kinds, *topics][:_TAGS]), tuple(entities[:_ENTITIES])


def _topics(text: str, forms: Mapping[str, Counter[str]]) -> list[str]:
    """Return the stems of a message's longer words, each once; count their forms in ``forms``."""
    from hiermem.text.terms import written

    topics: dict[str, None] = {}
    for word in written(text):
        if root := _root(word):
            topics[root] = None
            forms[root][word] += 1
    return [*topics]


@lru_cache(maxsize=32_768)
def _root(word: str) -> str:
    """Return the stem of a word that may be a tag, "" for any other."""
    from hiermem.text.entity_names import GENERIC
    from hiermem.text.terms import STOP_WORDS, fold, stem

    if len(word) < _LETTERS or word in STOP_WORDS or word in GENERIC or not word.isalpha():
        return ""
    return stem(fold(word))
