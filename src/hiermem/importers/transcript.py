"""Reads plain transcripts: lines of ``Name: text``, with or without a time in brackets before.

Whether a line begins a message is decided by that line and the first one, never by what comes
later: a longer copy of a transcript begins with the same messages. A name is a word or a few words
that are all capitalised; words that commonly stand before a colon (``Note:``) are none. Where the
caller names the speakers, these and no others are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, cast

from hiermem.data import word_lists
from hiermem.errors import UnreadableFileError
from hiermem.importers.draft import Draft, Options, id_of, moment, name_of, role_of, zone_note
from hiermem.importers.files import Export, Head, lines_of
from hiermem.types import Message
from hiermem.types.conversation import Conversation

_WORD = r"[\w.'\u2019-]+"
_SPOKEN = re.compile(
    r"(?:\[(?P<at>[^\]\n]{4,40})\]\s*)?"
    rf"(?P<name>[^\W\d_][\w.'\u2019-]*(?: {_WORD}){{0,3}}):(?:\s+|$)"
)
_ROLES: dict[str, Literal["user", "assistant", "system", "tool"]] = {
    "user": "user", "human": "user", "system": "system", "tool": "tool", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "chatgpt": "assistant", "claude": "assistant",
}  # fmt: skip
_WORDS = word_lists("transcript_words")
#: Words inside a name that are not capitalised.
_PARTICLES = _WORDS["particles"]
#: Words before a colon that are not a speaker.
_LABELS = _WORDS["labels"]


def recognise(head: Head) -> bool:
    """Return whether a text's first line is a speaker's."""
    found = _SPOKEN.match(head.lines[0]) if head.kind == "text" and head.lines else None
    return found is not None and _is_name(found["name"], timed=bool(found["at"]), lower=True)


def _is_name(name: str, *, timed: bool, lower: bool) -> bool:
    """Return whether words before a colon are a name.

    ``timed`` says that a time stands before them, ``lower`` that a name may begin with a small
    letter.
    """
    folded = name.casefold()
    if folded in _ROLES or timed:
        return True
    if folded.rstrip(".") in _LABELS:
        return False
    first, *others = name.split(" ")
    if first[0].islower() and not (lower and not others):
        return False
    return not any(word[0].islower() and word not in _PARTICLES for word in others)


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name)
    lower = True
    turn: re.Match[str] | None = None
    texts: list[str] = []
    for number, line in lines_of(file):
        found = _SPOKEN.match(line)
        if found is not None and _speaks(found, options, lower=lower):
            if turn is None:  # the first speaker shows whether names begin with small letters
                lower = found["name"][0].islower() and found["name"].casefold() not in _ROLES
            else:
                _add(draft, turn, texts, options)
            turn, texts = found, [line[found.end() :]]
        elif turn is not None:
            texts.append(line)
        elif line.strip():
            raise UnreadableFileError(
                f"{file.name}, line {number}: no speaker; a transcript begins with a speaker's "
                "name and a colon"
            )
    if turn is not None:
        _add(draft, turn, texts, options)
    yield from draft.finished("text", id_of(export.stem, "transcript"))


def _speaks(found: re.Match[str], options: Options, *, lower: bool) -> bool:
    folded = found["name"].casefold()
    if folded in options.assistants or folded in options.speakers:
        return True
    if options.speakers:
        return folded in _ROLES
    return _is_name(found["name"], timed=bool(found["at"]), lower=lower)


def _add(draft: Draft, turn: re.Match[str], texts: list[str], options: Options) -> None:
    name, when = turn["name"], turn["at"] or ""
    known = _ROLES.get(name.casefold())
    at = moment(when, options.zone) if when else None
    if when and at is None:
        draft.note("times without a date or not understood")
    elif when:
        zone_note(draft, options, when)
    role = role_of(name, options) if known is None else known
    draft.add(
        Message(
            cast("Any", role),
            "\n".join(texts).strip(),
            name=name_of(name) if known is None else None,
            created_at=at,
        ),
        when=when,
    )
