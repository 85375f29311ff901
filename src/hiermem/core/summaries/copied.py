"""Decides which lines of an answer were copied from the prompt, such as those of its example.

Small models copy them, word for word or as variations. Such a line is nobody's statement, so it
never becomes memory. What the record says too is no copy. In JSON, each text counts as one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from hiermem.core.summaries.prompt import after_record
from hiermem.core.summaries.terms import plain_text, stands_in, terms
from hiermem.protocols import ChatMessage, LLMRequest

#: A line of this many words, in the order of the prompt, is copied.
_FEWEST_WORDS: Final = 5
#: So is a line of this many terms in any order, of which at least this share is the prompt's, and
#: at most that share the record's.
_FEWEST_TERMS: Final = 4
_OF_PROMPT: Final = 0.8
_OF_RECORD: Final = 1 / 3
#: The terms of a prompt that are compared; more than any shipped prompt has.
_MOST_TERMS: Final = 4_000
_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_HEADING: Final = re.compile(r"\s*#{1,6} ")
_WORD: Final = re.compile(r"[^\W_]+")


def own_lines(text: str, *, request: LLMRequest) -> str:
    """Return an answer without the lines that were copied from the words of the prompt.

    An answer that is mostly copied is returned as it is: what is left of it was written beside the
    subject.
    """
    copied = _copied(text, request=request)
    if not copied or _is_mostly(copied, text):
        return text
    return "\n".join(line for line in text.splitlines() if line not in copied).strip()


def is_mostly_copied(text: str, *, request: LLMRequest) -> bool:
    """Return whether more lines of an answer were copied from the prompt than not."""
    return _is_mostly(_copied(text, request=request), text)


def is_copied(text: str, *, request: LLMRequest) -> bool:
    """Return whether a text of one statement was copied from the prompt."""
    return bool(_copied(" ".join(text.split()), request=request))


def is_copied_example(name: str, *, request: LLMRequest) -> bool:
    """Return whether a short name is an example that the prompt gives in quotes."""
    asked = (each.content for each in request.messages if each.role == "system")
    if not any(f'"{name}"' in each for each in asked):
        return False
    stated = plain_text("\n".join(each.text for each in request.inputs))
    return not any(part in stated for part in _WORD.findall(plain_text(name)))


def quotes(text: str, *, prompt: str, said: Sequence[str]) -> bool:
    """Return whether a line of ``text`` stands in ``prompt`` and in nothing that was ``said``."""
    asked = f" {_words_of(prompt)} "
    copied = [each for each in text.splitlines() if _is_in_order(each, asked)]
    known = [f" {_words_of(each)} " for each in said] if copied else []
    return any(not any(f" {_words_of(line)} " in each for each in known) for line in copied)


def _is_mostly(copied: Sequence[str], text: str) -> bool:
    said = sum(
        bool(line.strip()) and not _HEADING.match(line)
        for line in text.splitlines()
        if line not in copied
    )
    return said < len(copied)


def _copied(text: str, *, request: LLMRequest) -> tuple[str, ...]:
    prompt, known = _prompt_words(request.messages)
    lines = text.splitlines()
    quoted = [line for line in lines if _is_in_order(line, prompt)]
    varied = [line for line in lines if line not in quoted and _is_made_of(line, known)]
    if quoted:
        said = [f" {_words_of(each.text)} " for each in request.inputs]
        quoted = [line for line in quoted if not any(f" {_words_of(line)} " in s for s in said)]
    if varied:
        stated = plain_text("\n".join(f"{each.speaker} {each.text}" for each in request.inputs))
        varied = [line for line in varied if not _tells_of(line, stated)]
    return (*quoted, *varied)


def _is_in_order(line: str, prompt: str) -> bool:
    claimed = _words_of(line)
    return claimed.count(" ") + 1 >= _FEWEST_WORDS and f" {claimed} " in prompt


def _is_made_of(line: str, known: frozenset[str]) -> bool:
    found = _terms_of(line)
    return len(found) >= _FEWEST_TERMS and len(found & known) >= _OF_PROMPT * len(found)


def _tells_of(line: str, stated: str) -> bool:
    found = _terms_of(line)
    return sum(stands_in(term, stated) for term in found) > _OF_RECORD * len(found)


@lru_cache(maxsize=1_024)
def _terms_of(line: str) -> frozenset[str]:
    """Return the terms of a line without its dates, which any record and any example have.

    An answer is looked at as it came and as it was repaired, so its lines are read twice.
    """
    return frozenset(terms(_DATE.sub(" ", line)))


@lru_cache(maxsize=16)
def _prompt_words(messages: tuple[ChatMessage, ...]) -> tuple[str, frozenset[str]]:
    """Return the words and the terms of a prompt, without its record and what it says of it."""
    said = [m.content if m.role == "system" else after_record(m.content) for m in messages]
    asked = "\n".join(said)
    return f" {_words_of(asked)} ", frozenset(terms(asked, most=_MOST_TERMS))


def _words_of(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
