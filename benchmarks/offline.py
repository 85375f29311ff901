"""How right the offline models are on labelled statements.

The statements and the rule for labelling them are in ``tests/models/offline/labels``: ``known``
ones, which the rules were written with, and ``held_out`` ones, which were labelled afterwards.
Of what a model finds, the share that is labelled is its precision; of what is labelled, the share
that it finds is its recall. An entity is right if its name is; "their kinds" says how many of the
right ones have the right kind. With ``-v`` each error is printed.

    python benchmarks/offline.py [-v]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hiermem.bank.rules import read_rules
from hiermem.models.offline.graph import extract
from hiermem.models.offline.notes import place, places_of
from hiermem.protocols import SourceText
from hiermem.tokens import default_counter
from hiermem.types.bank import BankText, Note
from hiermem.types.trivector import Answer, EntityType

LABELS = Path(__file__).parents[1] / "tests" / "models" / "offline" / "labels"
COUNT = default_counter().count
KINDS: dict[str, EntityType] = {
    "p": "person", "o": "organisation", "l": "place", "t": "technology", "f": "file", "k": "class",
    "u": "function", "i": "identifier", "w": "url", "d": "date", "e": "event", "c": "concept",
}  # fmt: skip
MARKED = re.compile(r"\{([^{}]+):([a-z])\}")
SAID = re.compile(r"(\w+): (.*)")
DAY = re.compile(r"\[(\d{4}-\d\d-\d\d)\]")


@dataclass
class Score:
    """What was found and what is labelled: right, wrong, missed, and the labelled items."""

    items: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Return the share of what was found that is right."""
        return self.right / max(1, self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        """Return the share of what is labelled that was found."""
        return self.right / max(1, self.right + len(self.missed))

    def add(self, found: set[str], wanted: set[str]) -> None:
        """Count what was found against what is labelled."""
        self.right += len(found & wanted)
        self.wrong += sorted(found - wanted)
        self.missed += sorted(wanted - found)


def blocks(folder: Path, name: str) -> Iterator[list[str]]:
    """Yield the groups of lines of a file, between its blank lines."""
    for block in (folder / name).read_text("utf-8").split("\n\n"):
        if lines := [line for line in block.splitlines() if line.strip()]:
            yield lines


def read(lines: list[str]) -> Answer:
    """Extract from lines such as ``Ana: Hello.``, with the days that stand between them."""
    day = "2025-03-01"
    sources: list[SourceText] = []
    for line in lines:
        if date := DAY.fullmatch(line):
            day = date[1]
        elif one := SAID.match(line):
            role = "assistant" if one[1] == "Assistant" else "user"
            sources.append(SourceText(len(sources), role, one[1], day, one[2]))
        else:
            last = sources.pop()
            sources.append(
                SourceText(last.index, last.role, last.speaker, day, f"{last.text}\n{line}")
            )
    return extract(sources, max_tokens=16_000, count=COUNT)


def statements(folder: Path) -> tuple[Score, Score]:
    """Measure the names of entities, and their kinds."""
    entities, kinds = Score(), Score()
    for lines in blocks(folder, "statements.txt"):
        named: dict[str, str] = {}
        said: list[str] = []
        for line in lines:
            marked = MARKED.findall(line)
            named |= {name.lower(): KINDS[kind] for name, kind in marked if kind in KINDS}
            said.append(MARKED.sub(r"\1", line))
            entities.items += len(marked)
        speakers = {one[1] for one in map(SAID.match, said) if one} - {"User", "Assistant"}
        speakers |= set(re.findall(r"\bI'm ([A-Z][a-z]+)\b", " ".join(said)))
        named |= {name.lower(): "person" for name in speakers}
        answer = read(said)
        found = {each.name.lower(): each.type for each in answer.entities}
        entities.add(set(found), set(named))
        both = found.keys() & named.keys()
        kinds.items += len(both)
        kinds.add({f"{found[n]} {n}" for n in both}, {f"{named[n]} {n}" for n in both})
    return entities, kinds


def direction(folder: Path) -> tuple[Score, Score]:
    """Measure open items and strategy."""
    opened, strategy = Score(), Score()
    for lines in blocks(folder, "direction.txt"):
        answer = read([line for line in lines if line[:2] not in ("? ", "! ")])
        for score, sign, found in (
            (opened, "? ", [(each.kind, each.text) for each in answer.deltas]),
            (strategy, "! ", [(each.kind, each.text) for each in answer.strategy]),
        ):
            wanted = [line[2:].partition(" ")[::2] for line in lines if line.startswith(sign)]
            score.items += max(1, len(wanted))
            met = {
                (kind, words)
                for kind, words in wanted
                if any(kind == k and words.lower() in text.lower() for k, text in found)
            }
            score.right += len(met)
            score.missed += [
                f"{kind} {words}" for kind, words in wanted if (kind, words) not in met
            ]
            score.wrong += [
                f"{k} {text}"
                for k, text in found
                if not any(kind == k and words.lower() in text.lower() for kind, words in wanted)
            ]
    return opened, strategy


def note(text: str, *, category: str = "") -> Note:
    at = datetime(2026, 1, 1, 9, tzinfo=UTC)
    return Note(key="k", text=text, timestamp=at, category=category)


def notes(folder: Path) -> Score:
    """Measure where notes go."""
    placed = Score()
    for path in sorted(folder.glob("notes_*.txt")):
        lines = path.read_text("utf-8").splitlines()
        rules = "".join(f"- {line[2:]}\n" for line in lines if line.startswith("# "))
        places = places_of(_bank(rules), read_rules(rules))
        for line in lines:
            text, _, label = line.partition(" => ")
            if " | " in text:
                category, _, said = text.partition(" | ")
                found = place(note(said, category=category.strip()), places)
                heading = found.heading.lstrip("# ")
                where = found.file if heading.lower() + ".md" == found.file else heading
                right = where if where in label.split(" or ") else label
                placed.items += 1
                placed.add({f"{where} < {text}"}, {f"{right} < {text}"})
    return placed


def _bank(rules: str) -> BankText:
    missing = tuple(read_rules(rules).files.items())
    return BankText(rules, "", (), missing, ())


def measure(folder: Path) -> dict[str, Score]:
    """Return the scores by what was measured."""
    names = ("entities", "their kinds", "open items", "strategy", "places of notes")
    scores = (*statements(folder), *direction(folder), notes(folder))
    return dict(zip(names, scores, strict=True))


def main() -> None:
    for part in ("known", "held_out"):
        print(f"{part:18}{'labelled':>9}{'found':>7}{'right':>7}{'precision':>11}{'recall':>8}")
        for name, score in measure(LABELS / part).items():
            found = score.right + len(score.wrong)
            print(
                f"{name:18}{score.items:9}{found:7}{score.right:7}"
                f"{score.precision:11.2f}{score.recall:8.2f}"
            )
            if "-v" in sys.argv:
                print(*(f"    wrong   {each}" for each in score.wrong), sep="\n")
                print(*(f"    missed  {each}" for each in score.missed), sep="\n")
        print()


if __name__ == "__main__":
    main()
