"""Decides which parts of a message the offline extraction reads as speech, as code, or not at all.

Everything is read in one pass and in bounded pieces: sentences of at most ``units.UNIT_CAP`` code
points, lines of code of at most ``_LINE``. Headings, tables, the labels of lists and tool calls are
layout, not sentences; instructions of the system role are nobody's statement. ``entity_names``
finds the names in the result.

An item is one clause that somebody said, verbatim except for what is cut off at its ends, so it can
be checked against its messages. Two clauses have the same subject by the stems of their significant
words, or by a number that both use ("open point 5", "#12"). ``open_items`` and ``strategy`` decide
which sentences give an item.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from hiermem.data import word_lists
from hiermem.protocols import SourceText
from hiermem.text import units
from hiermem.text.entity_names import FILE, FUNCTION_WORDS, GENERIC
from hiermem.text.policy import either
from hiermem.text.terms import stem
from hiermem.types import Role
from hiermem.types.trivector import EntityType

#: The longest item, in code points, and the shortest piece that a boundary leaves.
CAP: Final = 240
_LEAST: Final = 24
_WORDS: Final = word_lists("offline_words")
_WORD: Final = re.compile(r"\w[\w./-]*\w|\w")
#: Where a statement ends and another one begins.
_BOUNDARY: Final = re.compile(
    r"; |,? (?:and|but|so|because|since|although|(?:[-–—] )?(?:even )?though)"  # noqa: RUF001
    r" (?=(?:I|i|we|it|he|she|they|you|my)\b)|, (?:considering|given|especially since)(?: that)? "
    r"(?=(?:I|we|my)\b)|, (?=(?:can|could|how|what|would|do|please|I|we|any)\b)"
)
#: A request for help, which the next answer serves and which is no part of a statement.
ASIDE: Final = re.compile(
    r"[,;]?\s*(?:\b(?:and|but|so|or)\s+)?(?:\b(?:can|could|would|will) (?:you|anyone|someone"
    r"|I get)\b|\bplease\b|\bhere(?:['\u2019]s| is| are) (?:my|the|what|an?|some)\b"
    r"|\bany (?:tips|ideas|advice|thoughts|suggestions)\b|\b(?:do|did) you (?:think|know|have)\b"
    r"|\bwhat do you think\b|\b(?:how|what else) (?:can|do|could|should) I\b).*$",
    re.IGNORECASE | re.DOTALL,
)


def phrases(name: str) -> str:
    """Return a pattern for any member of a list of the offline models."""
    return either(_WORDS[name])


def signs(*patterns: str) -> re.Pattern[str]:
    """Return the pattern of which one of ``patterns`` is found, in any case."""
    return re.compile("|".join(patterns), re.IGNORECASE)


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's meaningful words."""
    words = _WORD.findall(text.lower())
    return frozenset(stem(word) for word in words if len(word) > 2 and word not in FUNCTION_WORDS)


def telling(words: frozenset[str]) -> frozenset[str]:
    """Return the stems that distinguish one subject from another."""
    return words - _GENERIC


def clause(text: str, at: int = 0) -> str:
    """Return the statement around character ``at``, without what stands before and after it.

    >>> clause("I like it, but we decided to keep SQLite, can you help me?", 15)
    'We decided to keep SQLite'
    """
    aside = ASIDE.search(text, max(at + 8, 0))
    end = aside.start() if aside and aside.start() - at >= _LEAST else len(text)
    bounds = list(_BOUNDARY.finditer(text, 0, end))
    start = max((one.end() for one in bounds if one.end() <= at), default=0)
    end = min((one.start() for one in bounds if one.start() >= at + _LEAST), default=end)
    if end - start > CAP:
        end = start + max(text[start : start + CAP].rfind(" "), CAP // 2)
    cut = text[start:end].strip(" ,;:-")
    # The name of a file or a function stays as it is written.
    plain = cut.partition(" ")[0].rstrip(",;:.!?\u2019'").isalpha()
    return cut[:1].upper() + cut[1:] if plain else cut


_GENERIC: Final = stems(" ".join(GENERIC | _WORDS["glue"]))


_LINE: Final = 400
#: The most lines of one message that are read as code or as the output of a program.
_LINES: Final = 2_000
_FENCE: Final = "```"
#: Full-width letters and digits, and their normal forms.
_NARROW: Final = {
    code: code - 0xFEE0
    for first, last in ((0xFF10, 0xFF19), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A))
    for code in range(first, last + 1)
}
#: The names of speakers who have no name of their own.
ROLE_LABELS: Final = frozenset({"User", "Assistant", "System", "Tool", "Summary"})

_HEADING: Final = re.compile(
    r"[ \t]*(?:#{1,6}[ \t].*|\*\*[^*]{1,120}\*\*:?[ \t]*|\|.*|[-=*_ \t]{3,})$"
)
_QUOTED: Final = re.compile(r"^[ \t]*(?:>[ \t]?)+")
_EMPHASIS: Final = re.compile(r"(?<![\w*])\*([^*\s][^*\n]{0,80})\*(?![\w*])")
_MARKER: Final = re.compile(r"^[ \t]*(?:[-*•+]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_LABEL: Final = re.compile(r"^[ \t]*\*\*([^*\n]{1,80}?):?\*\*[ \t]*:?[ \t]*")
_TOOL_CALL: Final = re.compile(r"\w{1,60}\(\{.*\}\)[ \t]*$")
_PROMPT: Final = re.compile(r"\((?:Open file|Current directory): [^)]*\)|bash-\$|->-> ?[\d,]+")
_NUMBERED: Final = re.compile(r"^[ \t]*\d{1,6}:")
_DEFINES: Final = re.compile(
    r"^[ \t]*(?:(?:export|public|private|protected|static|abstract|default|async|pub) ){0,4}"
    r"(?P<word>def|class|function|func|fn|interface|struct|trait|enum) (?P<name>[A-Za-z_]\w{1,80})"
)
_TABLE: Final = re.compile(
    r"^[ \t]*CREATE TABLE (?:IF NOT EXISTS )?[\"'`]?(?P<name>\w{2,80})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: who said it in which message.

    ``last`` marks the last sentence of its message. ``agent`` marks an assistant that works with
    tools: it reports what it does, where other assistants give advice.
    """

    index: int
    role: Role
    speaker: str
    date: str
    text: str
    last: bool
    agent: bool = False

    @property
    def own(self) -> bool:
        """Return whether it counts as said: by a user, by somebody with a name, or by an agent."""
        return self.role == "user" or self.agent or (self.role == "assistant" and self.named)

    @property
    def asks(self) -> bool:
        """Return whether it is a question."""
        return self.text.rstrip("\"'”’)] *").endswith(("?", "？"))  # noqa: RUF001

    @property
    def named(self) -> bool:
        """Return whether the speaker has a name of their own."""
        return self.speaker not in ROLE_LABELS


def composed(source: SourceText) -> SourceText:
    """Return a source with normalised letters: accents composed, full-width letters narrow.

    The patterns that find names match letters one by one. Marks and signs stay as they are.
    """
    text, speaker = source.text, source.speaker
    if text.isascii() and speaker.isascii():
        return source
    return replace(
        source,
        text=unicodedata.normalize("NFC", text).translate(_NARROW),
        speaker=unicodedata.normalize("NFC", speaker).translate(_NARROW),
    )


def numbered(sources: Sequence[SourceText]) -> Iterator[tuple[int, SourceText]]:
    """Yield each source with its index; one without an index has its position."""
    for position, source in enumerate(sources):
        yield position if source.index is None else source.index, source


def sentences(sources: Sequence[SourceText]) -> Iterator[Sentence]:
    """Yield the sentences of all sources, in order, except those of the system and of tools."""
    tools = any(source.role == "tool" for source in sources)
    for index, source in numbered(sources):
        if source.role in ("system", "tool"):
            continue
        agent = tools and source.role == "assistant"
        spoken = [
            unit
            for unit in units.split(
                _speech(source.text),
                index=index,
                role=source.role,
                speaker=source.speaker,
                date=source.date,
            )
            if not unit.code
        ]
        for unit in spoken:
            last = unit is spoken[-1]
            yield Sentence(index, source.role, source.speaker, source.date, unit.text, last, agent)


def _speech(text: str) -> str:
    """Return a message without code, headings, tables, labels of lists and tool calls."""
    parts = text.split(_FENCE)
    lines: list[str] = []
    for part in parts[::2]:
        for line in part.splitlines():
            if _HEADING.match(line[:_LINE]) or _TOOL_CALL.match(line):
                continue
            plain = _MARKER.sub("", _QUOTED.sub("", line, count=1), count=1)
            plain = _LABEL.sub(r"\1: ", _PROMPT.sub(" ", plain), count=1).replace("**", "")
            lines.append(_EMPHASIS.sub(r"\1", plain))
    return "\n".join(lines)


def paths(source: SourceText) -> Iterator[str]:
    """Yield the files that code, calls and the output of programs name."""
    for part in _code_of(source):
        for line in part.splitlines()[:_LINES]:
            yield from FILE.findall(line[:_LINE])
    if source.role == "assistant":
        for line in source.text.splitlines()[:_LINES]:
            if _TOOL_CALL.match(line):
                yield from FILE.findall(line[:_LINE])


def definitions(source: SourceText) -> Iterator[tuple[EntityType, str]]:
    """Yield the kinds and names of the functions, classes and tables that code defines."""
    lines = (line for block in _code_of(source) for line in block.splitlines())
    for whole in islice(lines, _LINES):
        line = _NUMBERED.sub("", whole[:_LINE])
        if match := _DEFINES.match(line):
            is_function = match["word"] in ("def", "function", "func", "fn")
            if not match["name"].startswith("__"):
                yield "function" if is_function else "class", match["name"]
        elif match := _TABLE.match(line):
            yield "identifier", match["name"]


def _code_of(source: SourceText) -> list[str]:
    """Return the blocks of code of a message; of a tool's, all of it."""
    return [source.text] if source.role == "tool" else source.text.split(_FENCE)[1::2]
