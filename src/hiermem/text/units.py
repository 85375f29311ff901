"""Decides which units of a text a summary may keep, and how kept units are written.

A rendered summary can be split into its units again exactly, so a summary of summaries is made from
the original sentences with their speakers and dates, never from re-read prose. Units are weighed
against each other in ``salience``, not here. Every scan is a single pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final
from weakref import WeakKeyDictionary

from hiermem.errors import StoreCorruptError
from hiermem.protocols import SourceText
from hiermem.text.policy import is_back_channel, strip_fillers, terms_of, words
from hiermem.types import Role, Unit

#: The longest unit, in code points; a sentence above 480 is cut at clause marks to 320 or fewer.
UNIT_CAP: Final = 480
_CUT: Final = 320
#: The longest speaker's label that is rendered, in code points: it is repeated line after line.
LABEL_CAP: Final = 48
_DIGEST_CAP: Final = 200
#: How much of a code block without signatures and file names is quoted, in code points.
_BEGINNING: Final = 60
#: How much of a code block is read for its digest.
_CODE_READ: Final = 20_000

_FENCE: Final = "```"
#: Between two sentences; group 1 holds the quotes and brackets that close the first one.
_SENTENCE_END: Final = re.compile(
    # A search skips quickly to a character, not to what must stand before a place.
    r"[.!?…。！？；](?:(?<=[.!?…])([\"'”’)\]]*)\s+(?=[^a-z\s])|(?<=[。！？；])[」』”’]*)"  # noqa: RUF001
)
#: A dot after these does not end a sentence; after those of the second list, not before a figure.
_ABBREVIATIONS: Final = words(
    "mr mrs ms dr prof rev gen sen gov capt lt hon st mt vs cf approx e.g i.e ca bzw z.b d.h u.a"
)
_BEFORE_FIGURES: Final = words(
    "no nr nos fig eq sec ch vol p pp art abs jan feb mar apr jun jul aug sep sept oct nov dec"
)
_CLAUSE_MARKS: Final = (";", ",", "，", "、", ":")  # noqa: RUF001
_CLAUSE_ENDS: Final = "".join(_CLAUSE_MARKS)
_BLANKS: Final = re.compile(r"\s+")
#: A list's mark before an item. Kept numbers would show gaps, because few items are kept.
_ITEM_MARK: Final = re.compile(r"(?:[-*•–]|\(?\d{1,2}[.)])\s+")  # noqa: RUF001
#: Text in bold, by the rules of Markdown: "2**40", "f(**kw)" and "src/**/*.py" hold none.
_BOLD: Final = re.compile(
    r"(?<![A-Za-z0-9_*/)\]])\*\*(?![\s*/])((?:(?!\*\*).)+?)(?<!\s)\*\*(?![A-Za-z0-9_*/])"
)
_BOLD_LINE: Final = re.compile(r"(?:\d{1,2}[.)] +)?\*\*[^*]{1,80}\*\*:?")
_ANY_WORD: Final = re.compile(r"\w")
_SIGNATURE: Final = re.compile(
    r"^\s*(?:"
    r"(?:(?:async|export|public|private|protected|static|abstract|default|pub)\s+)*"
    r"(?:def|class|function|func|fn|impl|struct|interface|enum|trait)\b.*"
    r"|(?:CREATE|ALTER)\s+TABLE\b.*"
    r"|@?(?:app|router|bp)\.\w+\(.*"
    r"|(?:#|//|<!--)\s*[\w./-]+\.\w{1,5}\b.*"
    r")$",
    re.IGNORECASE,
)
#: What the first character of such a line is, if it is no blank.
_SIGNS: Final = frozenset("#/<@" + "abcdefiprst" + "abcdefiprst".upper())
_EXTENSION: Final = (
    r"\.(?:py|js|tsx?|jsx|html|css|json|ya?ml|toml|md|sql|sh|txt|cfg|ini|java|go|rs"
    r"|c|cpp|h|rb|php|ipynb|csv)\b"
)
_FILE_NAME: Final = re.compile(r"\b[\w./-]{1,80}" + _EXTENSION)
_FILE_END: Final = re.compile(_EXTENSION)

#: The units of the inputs in use; an entry is dropped with its input.
_SPLIT: Final[WeakKeyDictionary[SourceText, list[Unit]]] = WeakKeyDictionary()


def split(text: str, *, index: int | None, role: Role, speaker: str, date: str) -> list[Unit]:
    """Split a message's text into units, in order.

    Fenced code becomes one digest of its signatures and file names; the rest is split into lines,
    sentences and, above ``UNIT_CAP``, clauses. Back-channel pieces are dropped, unless the text
    has no other: a text that is not blank always has at least one unit.
    """
    speaker = _label(speaker)
    pieces = list(_pieces(text))
    if not pieces and (head := " ".join(text.strip()[: 4 * _CUT].split())[:_CUT].strip()):
        pieces.append((head, False))
    return [
        Unit(index, ordinal, role, speaker, date, piece, code)
        for ordinal, (piece, code) in enumerate(pieces)
    ]


def of_source(source: SourceText) -> list[Unit]:
    """Return the units of one input: the units on record, or without any its text split.

    A text is split once while the input object lives, for all users of its units: the summariser,
    the check of its answer, and the labels.
    """
    if source.units:
        return list(source.units)
    found = _SPLIT.get(source)
    if found is None:
        found = split(
            source.text,
            index=source.index,
            role=source.role,
            speaker=source.speaker,
            date=source.date,
        )
        _SPLIT[source] = found
    return list(found)


def prose(text: str) -> str:
    """Return ``text`` with each fenced code block replaced by its digest."""
    if _FENCE not in text:
        return text
    parts = text.split(_FENCE)
    return "".join(
        _digest(part) if number % 2 and part.strip() else part for number, part in enumerate(parts)
    )


def _label(speaker: str) -> str:
    """Return ``speaker`` as one short line, so that a name cannot imitate other text."""
    label = " ".join(speaker[: 4 * LABEL_CAP].split())
    return label if len(label) <= LABEL_CAP else label[: LABEL_CAP - 1] + "…"


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of ``text`` with whether each is the digest of a code block."""
    for number, part in enumerate(text.split(_FENCE)):
        if number % 2:
            if part.strip():
                yield _digest(part), True
            continue
        for line in part.splitlines():
            for piece in _line_pieces(line.strip()):
                if not is_back_channel(piece) and (kept := strip_fillers(piece)):
                    yield kept, False


def _line_pieces(line: str) -> Iterator[str]:
    """Yield the sentences of one line; nothing for rules and the bars of tables."""
    if not line or (len(line) < 40 and line.isascii() and not _ANY_WORD.search(line)):
        return
    if line.startswith("#") or _BOLD_LINE.fullmatch(line):
        heading = _BOLD.sub(r"\1", _ITEM_MARK.sub("", line.lstrip("# "))).strip("*: ")
        if heading := heading[:_CUT].strip():
            yield heading if heading[-1] in ".!?…" else f"{heading}:"
        return
    item = _ITEM_MARK.match(line)
    bullet = "- " if item else ""
    line = line[item.end() if item else 0 :]
    if "**" in line:
        line = _BOLD.sub(r"\1", line)
    for sentence in _sentences(line):
        for part in _clauses(sentence.strip()):
            yield bullet + part
            bullet = ""


def _sentences(line: str) -> Iterator[str]:
    """Yield the sentences of ``line`` with their closing quotes."""
    start = 0
    for match in _SENTENCE_END.finditer(line):
        end = match.end() if match.group(1) is None else match.end(1)
        if not _is_unfinished(line, start=start, end=end):
            yield line[start:end]
            start = match.end()
    yield line[start:]


def _is_unfinished(line: str, *, start: int, end: int) -> bool:
    """Return whether the dot before ``end`` ends no sentence.

    It may belong to a list number, a lone "No.", a title, an abbreviation or an initial.
    """
    if line[end - 1] != ".":
        return False
    *before, word = line[max(start, end - 24) : end - 1].rsplit(None, 2)[-2:] or [""]
    last = word.lstrip("(").lower()
    if end - start <= 5 and (last.isdigit() or len(last) == 1 or last == "no"):
        return True
    if word.isupper() and all(len(part) == 1 for part in last.split(".")):
        if "." in last:  # "J.K. Rowling", "U.S. Navy"; but a sentence may end in "the U.S.".
            return bool(terms_of(line[end:].lstrip().partition(" ")[0]))
        return word != "I" and bool(before) and before[0][0].isupper()
    if last in _BEFORE_FIGURES:
        return line[end:].lstrip()[:1].isdigit()
    return last in _ABBREVIATIONS


def _clauses(sentence: str) -> Iterator[str]:
    """Yield ``sentence``; an over-long one cut at clause marks, or without any at spaces.

    A piece that is cut ends in "…". A shorter sentence is never cut: its half would be read alone.
    """
    cuts = [0]
    while len(sentence) - cuts[-1] > UNIT_CAP:
        low, high = cuts[-1] + _CUT // 2, cuts[-1] + _CUT
        at = max(sentence.rfind(mark, low, high) for mark in _CLAUSE_MARKS) + 1
        cuts.append(at or max(sentence.rfind(" ", low, high), 0) or high)
    for start, end in pairwise((*cuts, len(sentence))):
        if piece := sentence[start:end].strip():
            yield piece if end == len(sentence) else f"{piece.rstrip(_CLAUSE_ENDS)}…"


def _digest(block: str) -> str:
    """Describe a code block in one line by its signatures and file names.

    Unchanged code bodies measure at most .01 better in fact survival, and read badly.
    """
    language, _, body = block[:_CODE_READ].partition("\n")
    if not body.strip():
        language, body = "", language
    named = [
        _BLANKS.sub(" ", line.strip().rstrip("{:"))[:80]
        for line in body.splitlines()
        if len(line) < 400 and line.lstrip()[:1] in _SIGNS and _SIGNATURE.match(line)
    ][:8]
    files = dict.fromkeys(_FILE_NAME.findall(body) if _FILE_END.search(body) else ())
    named += [name for name in files if not any(name in line for line in named)][:6]
    what = "; ".join(dict.fromkeys(named))
    if not what:
        # The first words, with a mark where the block goes on.
        what = " ".join(body[:_DIGEST_CAP].split())
        what = what if len(what) <= _BEGINNING else f"{what[:_BEGINNING].rstrip()}…"
    label = " ".join(language.split())[:20] or "code"
    return f"[{label}: {what if len(what) <= _DIGEST_CAP else what[: _DIGEST_CAP - 1] + '…'}]"


def _lead(unit: Unit, *, before: Unit | None, shown: str, gap: str = "") -> str:
    """Return the text that is written before ``unit``.

    It is a line end, the date where ``shown`` is another date, and the speaker; or a space, where
    the unit continues the message of ``before``. ``gap`` stands where something was left out: at
    the end of the line before, or, where the beginning of the unit's own message is left out, after
    the speaker. A piece that ends in an ellipsis already says that text follows.
    """
    parted = before is not None and gap != "" and _parted(before, unit)
    new_date = bool(unit.date) and unit.date != shown
    after = gap if parted and before and not before.text.endswith("…") else ""
    if (
        before
        and not new_date
        and (continues(before, unit) or (gap and _in_later_slice(before, unit)))
    ):
        return f"{after} "
    begun = gap != "" and unit.index is not None and unit.ordinal > 0
    lead = "" if before is None else "\n" if begun else f"{after}\n"
    if new_date:
        lead += f"[{unit.date}]\n"
    if unit.speaker:
        lead += f"{unit.speaker}: "
    return f"{lead}{gap.lstrip()} " if begun else lead


def _parted(before: Unit, unit: Unit) -> bool:
    """Return whether something was left out between two units.

    Two units alone show it: another message lies between their messages, the second unit is not the
    first piece of its message, or pieces between the two are missing. Slices of a message number
    their pieces anew, so between two slices a gap is assumed. Units of a text that no message backs
    have no gaps.
    """
    if before.index is None or unit.index is None:
        return False
    if before.index == unit.index:
        return unit.ordinal != before.ordinal + 1
    return unit.index != before.index + 1 or unit.ordinal > 0


def _in_later_slice(before: Unit, unit: Unit) -> bool:
    """Return whether ``unit`` is of the same message as ``before``, but not of the same slice."""
    same = before.index is not None and before.index == unit.index
    return same and (before.role, before.speaker) == (unit.role, unit.speaker)


def continues(before: Unit, unit: Unit) -> bool:
    """Return whether ``unit`` continues the message (or text without one) of ``before``."""
    return (
        before.index == unit.index
        and before.speaker == unit.speaker
        and before.role == unit.role
        and before.date == unit.date
        and before.ordinal < unit.ordinal
    )


def render(units: Sequence[Unit], *, gap: str = "") -> str:
    """Write ``units`` as text: ``[date]`` where it changes, ``Speaker: ...`` for each message.

    No unit holds a line end, so every line begins with a genuine date or speaker. ``gap`` stands
    wherever something was left out between two units.
    """
    out: list[str] = []
    before, shown = None, ""
    for unit in units:
        out += (_lead(unit, before=before, shown=shown, gap=gap), unit.text)
        before, shown = unit, unit.date or shown
    return "".join(out)


def pack(units: Sequence[Unit]) -> str:
    """Write the provenance of each unit as compact JSON, to be read with the rendered text.

    The JSON holds lengths instead of copies: the text itself is stored once. The form is
    ``[who, dates, rows]`` with a row ``[index, who, date, ordinal, length, ordinal, length, ...]``
    for each message; the length of a code digest is negative.
    """
    who: dict[tuple[str, str], int] = {}
    dates: dict[str, int] = {}
    rows: list[list[int | None]] = []
    before = None
    for unit in units:
        if before is None or not continues(before, unit):
            speaker = who.setdefault((unit.role, unit.speaker), len(who))
            rows.append([unit.index, speaker, dates.setdefault(unit.date, len(dates))])
        rows[-1] += [unit.ordinal, -len(unit.text) if unit.code else len(unit.text)]
        before = unit
    return json.dumps([list(who), list(dates), rows], separators=(",", ":"), ensure_ascii=False)


def unpack(packed: str, text: str, *, gap: str = "") -> tuple[Unit, ...]:
    """Return the units of a ``text`` by ``render`` and a ``packed`` value by ``pack``.

    Raises StoreCorruptError where the two do not belong together.
    """
    if not packed:
        return ()
    try:
        units = tuple(_read_rows(json.loads(packed), text, gap))
    except (ValueError, TypeError, LookupError, RecursionError):
        units = ()
    if render(units, gap=gap) != text:
        raise StoreCorruptError("a summary's provenance does not belong to its text")
    return units


def _read_rows(data: Any, text: str, gap: str) -> Iterator[Unit]:
    """Yield the units of a packed value, and find each text by following the layout."""
    who, dates, rows = data
    at = 0
    before, shown = None, ""
    for index, speaker, day, *marks in rows:
        role, name = who[speaker]
        first = True
        for ordinal, length in zip(marks[::2], marks[1::2], strict=True):
            if first or gap:
                bare = Unit(index, ordinal, role, name, dates[day], "", length < 0)
                at += len(_lead(bare, before=before, shown=shown, gap=gap))
                shown, first = dates[day] or shown, False
            else:
                at += 1  # a space, because the unit continues the message of the one before
            end = at + abs(length)
            before = Unit(index, ordinal, role, name, dates[day], text[at:end], length < 0)
            at = end
            yield before
