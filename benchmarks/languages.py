"""Whether a fact is found by a question that has its words in other forms, by language.

A file of ``languages`` is one conversation of two people. Under a message stand the questions that
it answers, worded in other cases, numbers, tenses or compounds, and partly without accents. A
question counts if the message is among the first three hits of ``session.search``; "at once" counts
it only if it is the first. Questions with "?" were looked at while the terms were chosen, those
with "!" were written with them and asked afterwards. Beside it stands SQLite's FTS5 over the same
messages (Porter stems, diacritics removed, the words of the question joined by OR).

    python benchmarks/languages.py [-v] [--development] [languages, such as de ru]

``-v`` prints what is missed; ``--development`` leaves out the questions that are held out.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hiermem import Memory, Message

FOLDER = Path(__file__).parent / "languages"
NAMES = {
    "de": "German", "fr": "French", "es": "Spanish", "ru": "Russian", "zh": "Chinese",
    "ja": "Japanese", "ar": "Arabic", "hi": "Hindi", "pl": "Polish", "tr": "Turkish",
}  # fmt: skip
FIRST = 3
START = datetime(2024, 1, 8, 18, tzinfo=UTC)


@dataclass(frozen=True)
class Question:
    """A question, the place of the message that answers it, and whether it is held out."""

    text: str
    place: int
    held_out: bool


@dataclass(frozen=True)
class Row:
    """A question with the places that FTS5 and a search find first."""

    question: Question
    plain: list[int]
    hits: list[int]


def read(language: str) -> tuple[list[Message], list[Question]]:
    """Read the conversation of a language, a minute from message to message."""
    messages: list[Message] = []
    questions: list[Question] = []
    for line in (FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        mark, _, rest = line.partition(" ")
        if mark in ("?", "!"):
            questions.append(Question(rest, len(messages) - 1, mark == "!"))
        else:
            name, _, text = line.partition(": ")
            at = START + timedelta(minutes=len(messages))
            messages.append(Message.user(text, name=name, created_at=at))
    return messages, questions


def fts(messages: list[Message], asked: list[str]) -> list[list[int]]:
    """Return the first places that FTS5 finds for each question."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(
            "CREATE VIRTUAL TABLE said USING fts5"
            "(text, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        rows = ((place, f"{m.name} {m.content}") for place, m in enumerate(messages))
        base.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", rows)
        found = []
        for question in asked:
            match = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
            rows = base.execute(
                "SELECT rowid FROM said WHERE said MATCH ? ORDER BY bm25(said) LIMIT ?",
                (match, FIRST),
            )
            found.append([row[0] for row in rows])
        return found


def hiermem(messages: list[Message], asked: list[str]) -> list[list[int]]:
    """Return the first places that a search finds for each question."""
    with Memory.open(":memory:") as memory:
        session = memory.session("talk")
        session.append(messages)
        return [[hit.index for hit in session.search(each, limit=FIRST)] for each in asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is missed")
    parser.add_argument("--development", action="store_true", help="leave out what is held out")
    parser.add_argument("languages", nargs="*", default=list(NAMES))
    options = parser.parse_args()
    columns = ("messages", "questions", "FTS5", "hiermem", "looked at", "held out", "at once")
    print(f"{'':<12}" + "".join(f"{column:>11}" for column in columns))
    everything: list[Row] = []
    size = 0
    for language in options.languages:
        messages, questions = read(language)
        questions = [q for q in questions if not (options.development and q.held_out)]
        asked = [question.text for question in questions]
        rows = [
            Row(question, plain, found)
            for question, plain, found in zip(
                questions, fts(messages, asked), hiermem(messages, asked), strict=True
            )
        ]
        show(NAMES[language], len(messages), rows)
        if options.verbose:
            for row in rows:
                if row.question.place not in row.hits:
                    fact = messages[row.question.place].content
                    print(f"    {row.question.text}\n        {fact}")
        everything += rows
        size += len(messages)
    show("all", size, everything)


def show(name: str, messages: int, rows: list[Row]) -> None:
    """Print a row of the table; a share of no questions is a dash."""
    shares = (
        [row.question.place in row.plain for row in rows],
        [row.question.place in row.hits for row in rows],
        [row.question.place in row.hits for row in rows if not row.question.held_out],
        [row.question.place in row.hits for row in rows if row.question.held_out],
        [row.question.place in row.hits[:1] for row in rows],
    )
    cells = [f"{sum(found) / len(found):.2f}" if found else "-" for found in shares]
    print(f"{name:<12}" + "".join(f"{cell:>11}" for cell in [messages, len(rows), *cells]))


if __name__ == "__main__":
    main()
