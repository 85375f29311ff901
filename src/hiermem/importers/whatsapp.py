"""Reads a chat that WhatsApp exported as text, on either system and in any of several locales.

A line with a time begins a message; other lines continue it, and so does a line between those whose
time stands in another form: it is quoted. The order of day and month is seen from the file:
from numbers over 12, else from which order lets time run forwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias
from unicodedata import normalize

from hiermem.data import word_lists
from hiermem.importers.dates import UNSEEN, sensible
from hiermem.importers.draft import DateOrder, Draft, Options, id_of, role_of, zone_note
from hiermem.importers.files import Export, File, Head, lines_of
from hiermem.importers.values import name_of
from hiermem.types import Message
from hiermem.types.message import Conversation

#: Marks of direction, which stand before lines and inside dates; they are not part of a text.
_UNSEEN = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
_PLAIN = str.maketrans("\u00a0\u202f\u2009", "   ", _UNSEEN)
#: The characters of a line that may belong to its time and name.
_FRONT = 200


def _plain(text: str) -> str:
    """Return a text without marks, with one kind of blanks, in one form of its letters."""
    return text if text.isascii() else normalize("NFC", text.translate(_PLAIN))


def _folded(text: str) -> str:
    """Return a text as the word lists hold it."""
    return _plain(text).casefold().strip()


_WORDS = {name: tuple(map(str.casefold, words))
          for name, words in word_lists("whatsapp_words").items()}  # fmt: skip
_AM, _PM, _NIGHT = _WORDS["am"], _WORDS["pm"], _WORDS["night"]
_HALF = "|".join(re.escape(half) for half in sorted((*_AM, *_PM, *_NIGHT), key=len, reverse=True))
_DATE = r"(?P<date>\d{1,4}(?:[./-]|\. |年|년 )\d{1,2}(?:[./-]|\. |月|월 )\d{1,4}(?:日|일|\.)?)"
_TIME = (
    rf"(?:(?P<before>{_HALF})\s*)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d\d)"
    rf"(?:[:.](?P<second>\d\d))?(?:\s*(?P<after>{_HALF}))?"
)
#: Words between date and time, such as "at" and "klo"; a half of the day is none of them.
_BETWEEN = rf"(?:\s*(?!(?:{_HALF})\s*\d)[^\W\d]{{1,8}}\.?(?=[,\s])){{0,2}}(?:[,،]?\s+|,)"
_HEADER = re.compile(
    rf"(?P<open>[\[(])?{_DATE}(?:[,،](?=\s))?{_BETWEEN}{_TIME}"
    rf"(?P<end>(?(open)[\])]:?\s|(?:\s[-\u2013]|\s?[,:])\s))",
    re.IGNORECASE,
)
#: A time in ISO 8601 without a comma is that of a plain transcript.
_OF_TRANSCRIPT = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d[:.\d]*(?:Z|[+-][\d:]+)?\]\s")
_NAME = re.compile(r"(?P<name>[^:\n]{1,120}?) ?:(?: |$)")
_Order: TypeAlias = DateOrder | Literal["ydm"]
_Date: TypeAlias = tuple[int, int, int]
#: Quotation marks; a line of the program that quotes may hold a colon by chance.
_QUOTES = re.compile('["\u201c\u201d\u201e\u00ab\u00bb]')
#: A mark that the message was edited.
_EDITED = re.compile(  # from the first blank of a run only, so that a long one is read once
    "(?<=\\S)\\s*+(?:\u200e<[^<>:\uff1a\n]{3,80}>|<This message was edited>)\\s*$"
)
_FIGURE = re.compile(r"\d")


def _stems(name: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, _WORDS[name])), re.IGNORECASE)


_OMITTED = _stems("omitted")
_FILES = ("image", "video", "audio", "sticker", "GIF", "document", "contact")
_KINDS = {kind: _stems(kind) for kind in _FILES}
#: The name of a file that the export holds.
_NAMED = re.compile(
    r"<[^<>:\uff1a\n]{2,40}[:\uff1a]\s*(?P<inside>[^<>\n]{1,200}\.\w{1,5})>"
    r"|(?P<before>[^\n<>:\"/\\|?*]{1,200}\.\w{1,5}) \((?P<how>[^()\n]{4,40})\)"
)
#: The beginning of a name that the program gives to a file.
_GIVEN = re.compile(r"[A-Z]{3}-\d{8}-WA\d+")
#: What the program was writing where a file was cut off.
_BEGUN = re.compile(r"(?:^|\s|\u200e)<(?:[^\W\d][^<>\n]{0,80})?$|^\u200e[^\n]{0,60}$")


class _Line(NamedTuple):
    """The front of a line that begins a message; ``form`` tells how its time stands."""

    date: _Date
    separator: str
    clock: tuple[int, int, int]
    half: str
    form: str
    name: str | None
    text: str
    marked: bool
    number: int


def recognise(head: Head) -> bool:
    """Return whether the first line of a text bears a time as WhatsApp writes it."""
    if head.kind != "text" or not head.lines or _OF_TRANSCRIPT.match(head.lines[0]):
        return False
    fronts = [front for line in head.lines if (front := _front(line))]
    return any(map(_front, head.lines[:3])) and any(front.name is not None for front in fronts)


def _front(line: str, number: int = 0) -> _Line | None:
    """Return the time, the name and the text of a line that begins a message."""
    head = _plain(line[:_FRONT])
    match = _HEADER.match(head)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match["date"])
    if len(numbers) != 3:
        return None
    named = _NAME.match(head, match.end())
    end = named.end() if named else match.end()
    start = next(n for n in range(end, len(line) + 1) if _plain(line[:n]) == head[:end])
    return _Line(
        date=(int(numbers[0]), int(numbers[1]), int(numbers[2])),
        separator=re.sub(r"[\d\s]", "", match["date"])[:1],
        clock=(int(match["hour"]), int(match["minute"]), int(match["second"] or 0)),
        half=(match["before"] or match["after"] or "").casefold(),
        form=match["end"].strip(),
        name=(named["name"].strip() or None) if named else None,
        text=line[start:],
        marked=": \u200e" in line[:_FRONT],
        number=number,
    )


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name, file.notes)
    entries = _said(file, draft)
    order, sure = _order([front for front, _ in entries], options.dates)
    if not sure:
        draft.note(f"conversations whose dates can be read in two ways, read as {order}")
    speaks = _speakers(entries)
    for front, texts in entries:
        if not speaks(front):
            draft.note("system lines left out")
            continue
        shown, text = _parted(texts, on_ios="]" in front.form)
        if _folded(text[:_FRONT]).rstrip(".") in _WORDS["deleted"]:
            draft.note("messages that were deleted left out")
            continue
        draft.where = f"{file.name}, line {front.number}"
        at = _moment(front, order)
        if at is None:
            draft.miss("times not understood")
        name = (front.name or "").removeprefix("~").strip()
        message = Message(
            role_of(name, options),
            "\n".join(filter(None, (shown, text))),
            name=name_of(name),
            created_at=None if at is None else at.replace(tzinfo=options.zone),
        )
        if message.content:
            year, *rest = _day(front.date, order)
            # Day and month, whichever is which, and a file in whatever words: a later export may
            # show how the dates are to be read, be in another language, or hold the files.
            when = f"{year} {sorted(rest)} {at.hour}:{at.minute}" if at else str(front[:4])
            draft.add(message, when=when, text=f"[] {text}" if shown else text)
    session = id_of(None, "whatsapp", export.stem)
    for conversation in draft.finished("whatsapp", session, name_of(export.stem.lstrip("_"))):
        zone_note(draft, options)
        yield conversation


def _said(file: File, draft: Draft) -> list[tuple[_Line, list[str]]]:
    """Return the messages and system lines of a file, each with its lines.

    Where messages end in CR LF and the lines inside them in LF, a line with a time that follows
    another line is quoted inside a message.
    """
    lines = [(n, line, _front(line.rstrip("\r\n"), n)) for n, line in lines_of(file, ends=True)]
    forms = Counter(front.form for *_, front in lines if front).most_common(1)
    main = [n for n, *_, front in lines if front and front.form == forms[0][0]]
    fronts = [
        None if front and front.form != forms[0][0] and main[0] < n < main[-1] else front
        for n, _, front in lines
    ]
    ended = [line.endswith("\r\n") for _, line, _ in lines]
    pairs = list(zip(ended, fronts[1:], strict=False))
    after = [front is not None for end, front in pairs if end]
    quoted = sum(front is not None for end, front in pairs if not end)
    strict = all(after) and (len(after) >= max(quoted, 1) or (len(after) > 1 and ended[-1]))
    entries: list[tuple[_Line, list[str]]] = []
    inside = False
    for (number, line, _), end, front in zip(lines, ended, fronts, strict=True):
        text = line.rstrip("\r\n")
        if not inside and front is not None:
            entries.append((front, []))
            text = front.text
        inside = strict and not end
        if text.endswith((">", "> ")):
            text = _EDITED.sub("", text)
        if not line.endswith("\n"):
            if front is None and _is_header(text, [line for _, line, front in lines if front]):
                draft.notes.miss("lines that are cut off", f"{file.name}, line {number}")
                break
            text = _uncut(text)
        if entries:
            entries[-1][1].append(text)
        elif text.strip():
            draft.notes.miss("lines before the first message", f"{file.name}, line {number}")
    return entries


def _is_header(text: str, headers: Sequence[str]) -> bool:
    """Return whether a text is the beginning of a line with a time, whatever its figures."""
    text = _FIGURE.sub("0", text)
    return len(text) > 2 and any(_FIGURE.sub("0", line[: len(text)]) == text for line in headers)


def _uncut(text: str) -> str:
    """Return the last text of a file without what the program was writing when it was cut off."""
    if _attachment(text, on_ios=True) is not None:
        return text
    begun = _folded(text)
    if len(begun) > 7 and any(text.startswith(begun) for text in _WORDS["deleted"]):
        return ""
    return _BEGUN.sub("", text)


def _parted(texts: Sequence[str], *, on_ios: bool) -> tuple[str, str]:
    """Return what stands for a file in a message, "" if none does, and the rest of its text."""
    for number in sorted({0, len(texts) - 1}):
        before, mark, after = texts[number].rpartition("\u200e")
        for front, line in ((before, after if mark else ""), ("", texts[number])):
            shown = _attachment(line, on_ios=on_ios)
            if shown is None:
                continue
            title, dot, _ = UNSEEN.sub("", front).partition(" \u2022 ")
            if dot:
                shown = f"{shown[:-1]}: {title.strip()}]"
            more = (*texts[:number], "" if dot else front, *texts[number + 1 :])
            return shown, _text(more)
    return "", _text(texts)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip().strip(_UNSEEN)


def _attachment(line: str, *, on_ios: bool) -> str | None:
    """Return a line that stands for a file as it is stored; None for any other line."""
    line = _plain(line).strip() if len(line) < 2 * _FRONT else ""
    if line[-1:] in (">", ")") and (named := _NAMED.fullmatch(line)) is not None:
        inside, file = named["inside"], named["inside"] or named["before"]
        attached = inside or _GIVEN.match(file) or _folded(named["how"]) in _WORDS["attached"]
        return f"[file: {file}]" if attached else None
    marked = line[:1] == "<" and line[-1:] == ">"
    title, dot, phrase = line.rpartition(" \u2022 ")
    short = marked or (on_ios and (dot or phrase.count(" ") < 3) and phrase[-1:] not in ("?", "!"))
    if not short or len(phrase) > 60 or not _OMITTED.search(phrase):
        return None
    kind = next((kind for kind, stems in _KINDS.items() if stems.search(phrase)), None)
    if kind is None and not marked:
        return None
    name = title.split(" \u2022 ")[0].strip()
    return f"[{kind or 'media'}: {name}]" if name else f"[{kind or 'media'}]"


def _speakers(entries: Sequence[tuple[_Line, list[str]]]) -> Callable[[_Line], bool]:
    """Return what tells a person's message from a line of the program.

    A name that holds a quotation mark is one if its marks are in pairs, or it speaks again and does
    not begin with the name of another speaker. On iOS, the program's lines stand under the name of
    the group, which never speaks itself, or of a member; they bear a mark if it was not lost.
    """
    counts = Counter(front.name for front, _ in entries if front.name is not None)
    plain = {name for name in counts if not _QUOTES.search(name)}
    sure = plain | {name for name, count in counts.items() if count > 1}
    names = {name for name in plain if not _tells(name, _heads(sure) | _OWNERS)} | {
        name
        for name, count in counts.items()
        if name not in plain
        and ((_is_paired(name) and count > 1)
             or ((_is_paired(name) or count > 1)
                 and not any(name.startswith(f"{other} ") for other in sure - {name})))
    }  # fmt: skip
    # A group's name stands before notices alone.
    sent = {front.name for front, _ in entries if not front.marked or _is_file(front)}
    first = entries[0][0] if entries else None
    group = first.name if first and first.marked and first.name not in sent else None
    people = _heads(names - {group})
    spoke: set[str | None] = set()
    for front, _ in entries:
        if front.name not in spoke and not _tells(front.text, people):
            spoke.add(front.name)

    def speaks(front: _Line) -> bool:
        if front.name not in names or front.name == group:
            return False
        if front.marked and not _is_file(front):
            if front is first:
                return False
            text = f" {_folded(front.text[:_FRONT]).lstrip('~ ')} "
            is_notice = any(word in text for word in (*people, *_WORDS["groups"]))
            return not text.startswith(_OWN) and (not is_notice or "://" in text)
        if "]" not in front.form or front.marked:
            return not _tells(front.text, ())
        return not _tells(front.text, _heads({front.name}) if front.name in spoke else people)

    return speaks


def _is_file(front: _Line) -> bool:
    return _attachment(front.text.rpartition("\u200e")[2], on_ios=True) is not None


def _heads(names: Iterable[str | None]) -> set[str]:
    return {f" {_folded((name or '').removeprefix('~'))}" for name in names}


#: How lines about the phone's owner begin.
_OWN = tuple(f" {word}" for kind in ("own", "openings") for word in _WORDS[kind])
_OPENINGS = tuple(f" {word}" for word in _WORDS["openings"])
_OWNERS = {word[:-1] for word in _OWN if word.count(" ") == 2}


def _tells(text: str, heads: Collection[str]) -> bool:
    """Return whether a text tells of an event: of somebody in ``heads``, or as the program does."""
    text = f" {_folded(text[:_FRONT]).lstrip('~ ')}"
    if text.startswith(_OPENINGS):
        return True
    for head in heads:
        rest = text.removeprefix(head)
        if rest != text and (rest[:1] in (" ", "'", "\u2019") or not rest[:1].isascii()):
            rest = re.sub("^['\u2019]s ", "", rest).lstrip() + " "
            if any(
                rest.startswith(word)
                if word[-1] == " " or not word.isascii()
                else rest.rstrip(". ") == word
                for word in _WORDS["events"]
            ):
                return True
    return False


def _is_paired(name: str) -> bool:
    low, high = name.count("\u00ab"), name.count("\u00bb")
    return not (name.count('"') % 2 or low != high or len(re.findall("[\u201c-\u201e]", name)) % 2)


def _order(lines: Sequence[_Line], given: DateOrder | None) -> tuple[_Order, bool]:
    """Return in which order a chat's dates stand, and whether nothing else is possible."""
    dates = {line.date: line for line in lines}
    order: _Order | None = given or _evident(dates.values())
    if order is not None:
        return order, True
    dmy, mdy = (_backwards(dates, order) for order in ("dmy", "mdy"))
    if dmy != mdy:
        return ("dmy" if dmy < mdy else "mdy"), True
    same = all(first == second for first, second, _ in dates)
    american = any(line.half in ("am", "pm") and line.date[2] < 100 for line in dates.values())
    return ("mdy" if american else "dmy"), same


def _evident(lines: Collection[_Line]) -> _Order | None:
    """Return the order that a number over 12 or the separator shows."""
    first, second = (max((line.date[n] for line in lines), default=0) for n in (0, 1))
    if first > 31:
        return "ydm" if second > 12 else "ymd"
    if first > 12 or second > 12:
        return "dmy" if first > 12 else "mdy"
    return "dmy" if any(line.separator in ".-" for line in lines) else None


def _backwards(dates: Iterable[_Date], order: _Order) -> int:
    days = (_day(date, order) for date in dates)
    return sum(later < earlier for earlier, later in pairwise(days))


def _day(date: _Date, order: _Order) -> _Date:
    """Return year, month and day."""
    year, month, day = (date[order.index(field)] for field in "ymd")
    if year < 100:
        year += 2000
    elif 2500 < year < 2700:  # the Buddhist calendar
        year -= 543
    return year, month, day


def _moment(line: _Line, order: _Order) -> datetime | None:
    hour, minute, second = line.clock
    night = line.half in _NIGHT
    if (line.half in _PM or (night and hour > 4)) and hour < 12:
        hour += 12
    elif (line.half in _AM or night) and hour == 12:
        hour = 0
    try:
        # The caller adds the zone.
        return sensible(datetime(*_day(line.date, order), hour, minute, second))  # noqa: DTZ001
    except ValueError:
        return None
