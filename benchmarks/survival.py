"""What the offline summariser keeps of a conversation's facts, level by level, and how fast it is.

Reads LoCoMo and BEAM development chats from the folder named by HIERMEM_DATA; run it as
``HIERMEM_DATA=... python benchmarks/survival.py``. Windows, groups and lengths are those of the
tokens preset, made by the library's own fold.

Survival: of the content stems that a question's gold answer shares with its evidence messages, the
share that still stands in the text of the nodes that cover the evidence; mean over questions.

For a long chat each level is measured beside its floor: the share of the same stems in other nodes
of the level at as many tokens. What is no better than those says nothing of its own stretch.

The second table shows why a context shows its summary share as one pooled view: the share of the
same stems that stand anywhere in the summaries shown, at the same number of tokens, where whole
nodes are shown and expanded newest first or coarsest first, and where the units of one level are
pooled and trimmed once. A mark such as 1.4x says that the whole nodes cannot be shown in less.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from conversations import ADVERSARIAL, Chat, Question, beam, folder, locomo, woven

from hiermem.config import HierarchyConfig
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import LLMRequest, SourceText
from hiermem.summaries.salience import select
from hiermem.text import measure
from hiermem.text.facts import find
from hiermem.text.policy import words
from hiermem.text.terms import stem
from hiermem.text.units import split
from hiermem.tokens import default_counter
from hiermem.tree.fold import SessionState, arrive, close
from hiermem.tree.turns import Arrival
from hiermem.types import Message, Node, Unit

#: The least that each figure may be, at levels 1, 2 and 3.
WANTED = {"LoCoMo": (0.85, 0.56, 0.28), "BEAM": (0.97, 0.95, 0.58)}
#: Other nodes from which the floor is taken, at most twice as many.
STARTS = 40
#: How far a level of a long chat must be above other nodes of the level.
WANTED_ABOVE = {4: 0.24, 5: 0.15}
WANTED_SPEED = 1.0
SHARES = {"LoCoMo": (800, 1600, 3200), "BEAM": (1600, 3200, 6400)}
WORD = re.compile(r"\w+")
#: What a unit that needs another one looks like.
HEADING = re.compile(r"(?!-? ?.*[.!?…]$)(?:\d{1,2}[.)] )?\w[^\n]{0,60}")
ITEM = re.compile(r"(?:\d{1,2}[.)]|[-*•]) ")
PRONOUN = re.compile(r"(?:It|They|Them|He|She|This|That|These|Those)(?:['’]\w+)? ")  # noqa: RUF001
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
STOP = words(
    """
    a an the and or of to in on at for with by from is are was were be been being am do does did
    has have had i you he she it we they me him her them my your his its our their this that these
    those what which who whom whose when where why how as if so than then there here can could would
    should will shall may might about into over after before between during up down out off again
    more most some any each own same too very s t just now ve re ll m d not no
    """
)


@dataclass(frozen=True)
class Entry:
    """A node of the tree with what the extractive method keeps for it."""

    node: Node
    units: tuple[Unit, ...]
    text: str
    tokens: int


def stems(text: str) -> frozenset[str]:
    found = WORD.findall(text.lower())
    return frozenset(stem(w) for w in found if w not in STOP and (len(w) > 1 or w.isdigit()))


def tree(chat: Chat, config: HierarchyConfig) -> list[Node]:
    """Fold a whole chat, closed at its end, into the nodes of its tree."""
    counter = default_counter()
    arrivals = [
        Arrival(
            index=index,
            thread=message.thread,
            role=message.role,
            size=(tokens := measure.message_tokens(message, counter)),
            tokens=tokens,
            at=message.created_at or datetime.now(UTC),
            slices=(),
        )
        for index, message in enumerate(chat.messages)
    ]
    grown = arrive(SessionState(), arrivals, config)
    ended = close(grown.state, config)
    return sorted((*grown.nodes, *ended.nodes), key=lambda node: (node.level, node.ordinal))


def units_of(messages: Sequence[Message], first: int) -> list[Unit]:
    return [
        unit
        for index, message in enumerate(messages, first)
        for unit in split(
            measure.body(message),
            index=index,
            role=message.role,
            speaker=measure.speaker(message),
            date=measure.day(message.created_at or datetime.now(UTC)),
        )
    ]


def summarise(chat: Chat, nodes: Sequence[Node]) -> tuple[dict[str, Entry], float]:
    """Make every node's text, and give the processor seconds that level 1 took."""
    entries: dict[str, Entry] = {}
    seconds = 0.0
    for node in nodes:
        began = time.process_time()
        if node.level == 1:
            units = units_of(chat.messages[node.span.start : node.span.stop], node.span.start)
            budget = node.allotted_tokens
        else:
            units = [unit for child in node.children for unit in entries[child].units]
            below = sum(entries[child].tokens for child in node.children)
            budget = below if node.verbatim else min(node.allotted_tokens, below)
        asked = LLMRequest(
            task="summarise",
            messages=(),
            inputs=(SourceText(None, "user", "", "", "", units=tuple(units)),),
            target_tokens=budget,
            max_tokens=budget,
            counter=default_counter(),
            level=node.level,
        )
        kept = ExtractiveLLM().summarise(asked)
        if node.level == 1:
            seconds += time.process_time() - began
        entries[node.id] = Entry(node, kept.units, kept.text, kept.tokens)
    return entries, seconds


def wanted_stems(chat: Chat, question: Question) -> frozenset[str]:
    if question.kind == ADVERSARIAL:  # what is asked was never said
        return frozenset()
    evidence = " ".join(measure.body(chat.messages[index]) for index in question.evidence)
    return stems(question.answer) & stems(evidence)


def survival(chat: Chat, entries: dict[str, Entry], level: int) -> list[float]:
    """Return, for each question, the share of its stems in the nodes that cover its evidence."""
    shares = []
    layer = [entry for entry in entries.values() if entry.node.level == level]
    for question in chat.questions:
        wanted = wanted_stems(chat, question)
        texts = [
            entry.text
            for entry in layer
            if any(entry.node.span.start <= at < entry.node.span.stop for at in question.evidence)
        ]
        if wanted and texts:
            shares.append(len(wanted & stems(" ".join(texts))) / len(wanted))
    return shares


def debris(entries: dict[str, Entry], level: int) -> tuple[float, float, float]:
    """Give the shares of kept units that cannot be understood where they stand.

    A heading without what stood under it, an item of a list with nothing of its message before it,
    and a sentence led by a pronoun without the sentence before it. Told by form alone, and only of
    what an assistant wrote in the first case, since people end lines without a mark.
    """
    found = [0, 0, 0]
    total = 0
    for entry in entries.values():
        if entry.node.level != level:
            continue
        total += len(entry.units)
        for at, unit in enumerate(entry.units):
            before = entry.units[at - 1] if at else None
            after = entry.units[at + 1] if at + 1 < len(entry.units) else None
            follows = before is not None and before.index == unit.index
            bare = unit.role == "assistant" and not unit.code and HEADING.fullmatch(unit.text)
            if bare and not (after and after.index == unit.index):
                found[0] += 1
            if ITEM.match(unit.text) and not follows:
                found[1] += 1
            led = unit.ordinal > 0 and PRONOUN.match(unit.text)
            if led and not (follows and before and before.ordinal == unit.ordinal - 1):
                found[2] += 1
    headings, items, pronouns = (count / max(1, total) for count in found)
    return headings, items, pronouns


def stated(chat: Chat) -> Chat:
    """Ask of each message of the user that it is remembered: its sentence of most anchors is gold.

    For a chat that comes without questions.
    """
    questions = []
    for index, message in enumerate(chat.messages):
        if message.role == "user":
            prose = "".join(measure.body(message).split("```")[::2])
            said = [(len(find(text)), text) for text in SENTENCE.split(prose)]
            most, text = max(said, key=lambda pair: pair[0], default=(0, ""))
            if most > 1:
                questions.append(Question("", "stated", text, frozenset({index})))
    return replace(chat, questions=questions)


def elsewhere(chat: Chat, entries: dict[str, Entry], level: int) -> tuple[list[float], list[float]]:
    """Give, for each question, the share in the nodes that cover its evidence, and the floor.

    The floor is the mean share in other nodes of the level at as many tokens: from one of them on,
    taken round, as many as it needs, the last one cut; at most ``STARTS`` of them, evenly spread. A
    question whose evidence all nodes of the level cover has no floor and is left out.
    """
    shares, floors = [], []
    layer = [entry for entry in entries.values() if entry.node.level == level]
    said = {entry.node.id: stems(entry.text) for entry in layer}
    for question in chat.questions:
        wanted = wanted_stems(chat, question)
        over = [
            entry
            for entry in layer
            if any(entry.node.span.start <= at < entry.node.span.stop for at in question.evidence)
        ]
        others = [entry for entry in layer if entry not in over]
        if not wanted or not over or not others:
            continue
        held = frozenset[str]().union(*(said[entry.node.id] for entry in over))
        shares.append(len(wanted & held) / len(wanted))
        room = sum(entry.tokens for entry in over)
        found = []
        for at in range(0, len(others), max(1, len(others) // STARTS)):
            left, beside = room, set[str]()
            for entry in others[at:] + others[:at]:
                if entry.tokens > left:
                    beside |= stems(entry.text[: len(entry.text) * left // entry.tokens])
                    break
                beside |= said[entry.node.id]
                left -= entry.tokens
            found.append(len(wanted & beside) / len(wanted))
        floors.append(mean(found))
    return shares, floors


def roots(entries: dict[str, Entry]) -> list[Entry]:
    """Return the exact cover by the largest nodes of level 3 and below."""
    tops = [
        entry
        for entry in entries.values()
        if entry.node.level <= 3 and (entry.node.level == 3 or is_top(entry, entries))
    ]
    return sorted(tops, key=lambda entry: entry.node.windows)


def is_top(entry: Entry, entries: dict[str, Entry]) -> bool:
    begin, end = entry.node.windows
    return not any(
        other.node.level in range(entry.node.level + 1, 4)
        and other.node.windows[0] <= begin
        and end <= other.node.windows[1]
        for other in entries.values()
    )


def expanded(entries: dict[str, Entry], share: int, *, newest: bool) -> str:
    """Show whole nodes: expand one after the other for as long as the share holds them all."""
    shown = roots(entries)
    while True:
        spent = sum(entry.tokens for entry in shown)
        order = sorted(
            (entry for entry in shown if entry.node.level > 1),
            key=lambda e: e.node.windows if newest else (e.node.level, e.node.windows),
            reverse=True,
        )
        for entry in order:
            below = [entries[child] for child in entry.node.children]
            if spent - entry.tokens + sum(child.tokens for child in below) <= share:
                at = shown.index(entry)
                shown[at : at + 1] = below
                break
        else:
            return "\n".join(entry.text for entry in shown)


def pooled(entries: dict[str, Entry], share: int, *, all_windows: bool) -> str:
    """Show one view: the level that first fills the share, pooled and trimmed once."""
    shown = roots(entries)
    level = 3
    while level > 1 and (all_windows or sum(entry.tokens for entry in shown) < share):
        shown = [
            below
            for entry in shown
            for below in (
                [entries[child] for child in entry.node.children]
                if entry.node.level == level
                else [entry]
            )
        ]
        level -= 1
    units = [unit for entry in shown for unit in entry.units]
    return select(units, share, default_counter().count).text


WAYS = {
    "whole nodes, newest first": lambda entries, share: expanded(entries, share, newest=True),
    "whole nodes, coarsest first": lambda entries, share: expanded(entries, share, newest=False),
    "pooled view (next level, one trim)": lambda entries, share: pooled(
        entries, share, all_windows=False
    ),
    "pooled from all L1": lambda entries, share: pooled(entries, share, all_windows=True),
}


def recall(chats: Sequence[tuple[Chat, dict[str, Entry]]], way: str, share: int) -> str:
    """Return the mean share of stems shown, marked where the nodes alone are over the share."""
    shares: list[float] = []
    tokens = 0
    for chat, entries in chats:
        text = WAYS[way](entries, share)
        tokens += default_counter().count(text)
        shown = stems(text)
        sought = (wanted_stems(chat, question) for question in chat.questions)
        shares += [len(wanted & shown) / len(wanted) for wanted in sought if wanted]
    over = tokens / len(chats) / share
    return f"{mean(shares):.3f}" + (f" ({over:.1f}x)" if over > 1.02 else "       ")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def main() -> int:
    data = folder()
    default_counter().count("warm up")
    config = HierarchyConfig.by_tokens()
    missed = False
    for name, read in (("LoCoMo", locomo), ("BEAM", beam)):
        chats, seconds, raw, text = [], 0.0, 0, 0
        sizes: dict[int, int] = {}
        for chat in read(data):
            entries, took = summarise(chat, tree(chat, config))
            chats.append((chat, entries))
            seconds += took
            text += sum(len(measure.body(message)) for message in chat.messages)
            raw += sum(
                measure.message_tokens(message, default_counter()) for message in chat.messages
            )
            for entry in entries.values():
                sizes[entry.node.level] = sizes.get(entry.node.level, 0) + entry.tokens
        speed = text / seconds / 1e6
        print(f"{name}: {len(chats)} chats, {raw} tokens, level 1 at {speed:.2f} MB/s")
        for level, wanted in enumerate(WANTED[name], start=1):
            shares = [share for chat, entries in chats for share in survival(chat, entries, level)]
            kept, size = mean(shares), sizes.get(level, 0) / raw
            missed |= kept < wanted
            print(
                f"  L{level}  survival {kept:.3f}  (wanted {wanted:.2f})"
                f"  size {size:.3f} of raw  {len(shares)} questions"
            )
            lost = [debris(entries, level) for _, entries in chats]
            headings, items, pronouns = (mean(column) for column in zip(*lost, strict=True))
            print(
                f"      of its units are headings alone {headings:.3f}, items alone {items:.3f},"
                f" led by a pronoun alone {pronouns:.3f}"
            )
        missed |= speed < WANTED_SPEED
        print("  summary share, tokens".ljust(38) + "".join(f"{s:<14}" for s in SHARES[name]))
        for way in WAYS:
            cells = "".join(f"{recall(chats, way, share):<14}" for share in SHARES[name])
            print(f"  {way:<36}{cells}")
    return 1 if missed | depth(data, config) else 0


def depth(data: Path, config: HierarchyConfig) -> bool:
    """Print what stands at each level of a long chat; say whether a high level says too little."""
    missed = False
    for chat in (
        *(stated(chat) for chat in beam(data, size="1m")),
        woven(list(beam(data)), block=10),
    ):
        entries, _ = summarise(chat, tree(chat, config))
        print(f"{chat.name}: {len(chat.messages)} messages, beside as many tokens of other nodes")
        for level in range(1, max(entry.node.level for entry in entries.values()) + 1):
            sizes = [entry.tokens for entry in entries.values() if entry.node.level == level]
            shares, floors = elsewhere(chat, entries, level)
            if not shares:
                continue
            above = mean(shares) - mean(floors)
            # The bar is set for the chat that is long by itself.
            least = WANTED_ABOVE.get(level, 0.0) if chat.name.startswith("beam_1m") else 0.0
            missed |= above < least
            print(
                f"  L{level}  survival {mean(shares):.3f}  elsewhere {mean(floors):.3f}"
                f"  above {above:+.3f}  (wanted {least:.2f})"
                f"  {len(sizes)} nodes of {mean(sizes):.0f} tokens, {len(shares)} questions"
            )
    return missed


if __name__ == "__main__":
    sys.exit(main())
