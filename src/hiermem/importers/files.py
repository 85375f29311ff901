"""Opens what is imported: a file, a folder or a zip archive, within bounds.

Nothing is unpacked to disk. A line, and a value of a JSON file, is read up to ``MAX_ITEM``
characters, so that memory is bounded by one conversation. What is broken is counted, and the rest
is read: a byte is mended, a line is left out, and of a damaged JSON file each object is read that
is whole, and of one that is not the members before the damage.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, TypeAlias

from hiermem.errors import FileError
from hiermem.importers.draft import Notes
from hiermem.importers.values import Opened

Test: TypeAlias = Callable[[dict[str, Any]], bool]
Kind: TypeAlias = Literal["lines", "document", "text"]

#: The characters of one line, or of one value of a JSON file.
MAX_ITEM = 32 * 1024 * 1024
#: The files of a folder or an archive.
MAX_FILES = 100_000
#: All that is read of an archive may be this many times as long as its compressed form, and this
#: long anyway.
_MAX_RATIO, _FREE = 200, 16 * 1024 * 1024
_CHUNK = 1 << 16
#: The exceptions of zipfile for archives that are damaged, cut off, encrypted or packed otherwise.
_DAMAGED = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, OSError, ValueError,
            struct.error, zlib.error, EOFError, RuntimeError)  # fmt: skip
#: The lines by which a file is recognised, and the values and characters of a JSON file.
_HEAD_LINES, _HEAD_VALUES, _HEAD_TEXT = 40, 8, 1 << 20
_JSON = (".json", ".jsonl", ".ndjson")
#: Attempts to parse from within a broken value that may end at one place; then it is passed over.
_TRIES = 32
#: How files begin that are packed as no zip archive is, each with what unpacks it.
_PACKED = (
    (b"\x1f\x8b", "gunzip"), (b"\x1f\x9d", "uncompress"), (b"BZh", "bunzip2"),
    (b"\xfd7zXZ\0", "unxz"), (b"\x28\xb5\x2f\xfd", "unzstd"), (b"\x04\x22\x4d\x18", "unlz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z x"), (b"Rar!\x1a\x07", "unrar x"),
)  # fmt: skip
_BROKEN = re.compile("[\udc80-\udcff]+")
#: The bytes of a character of UTF-8 that is cut off. Other bytes that are not UTF-8 are CP1252.
_CUT = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
#: How JSON begins that holds messages; a transcript may begin with a time in brackets.
_BEGINNING = re.compile(r"\[?\s*\{\s*(?:[\"}]|\Z)|\[\s*(?:\]\s*)?\Z")
#: The name of a member of an object, behind another one or the brace.
_MEMBER = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
#: What stands between values, and fills a file that a crash left.
_VOID = " \t\r\n\0"
_NOT_BLANK = re.compile(f"[^{_VOID}]")


@dataclass(frozen=True, slots=True)
class File:
    """One file of an export; ``name`` is its path inside the export, with slashes."""

    name: str
    open: Callable[[], IO[bytes]]
    notes: Notes = field(default_factory=Notes)

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the folders of the name and the file's own name."""
        return PurePosixPath(self.name).parts


@dataclass(frozen=True, slots=True)
class Export:
    """The files that are read together.

    ``stem`` names a conversation that has no other name; a folder has none.
    """

    stem: str
    files: tuple[File, ...]

    @property
    def first(self) -> File:
        """Return the first file, which is the only one of most formats."""
        return self.files[0]


def exports_of(path: Path, notes: Notes) -> Iterator[Export]:
    """Yield a file, a zip archive, or a folder and each archive in it.

    Raises FileError, OSError.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        files = _folder(path, notes)
        zipped = [file for file in files if file.name.lower().endswith(".zip")]
        yield Export("", tuple(file for file in files if file not in zipped))
        for file in zipped:
            try:
                yield from _archive(path / file.name, notes)
            except FileError as error:
                notes.miss("files that cannot be read", str(error))
    elif not stat.S_ISREG(mode):
        raise FileError(f"{path.name} is neither a file nor a folder")
    elif zipfile.is_zipfile(path):
        yield from _archive(path, notes)
    else:
        yield Export(path.stem, (File(path.name, partial(_opened, path), notes),))


def _opened(path: Path) -> IO[bytes]:
    return path.open("rb")


def _folder(path: Path, notes: Notes) -> tuple[File, ...]:
    """Return the regular files below a folder, in the order of their names; no link is followed."""
    files: list[File] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not stat.S_ISREG(file.lstat().st_mode):
                continue
            files.append(File(file.relative_to(path).as_posix(), partial(_opened, file), notes))
            if len(files) > MAX_FILES:
                raise FileError(f"{path.name} holds more than {MAX_FILES:,} files")
    return tuple(files)


def _archive(path: Path, notes: Notes) -> Iterator[Export]:
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise FileError(f"{path.name} is no sound zip archive ({type(error).__name__})") from None
    with archive:
        entries = [each for each in archive.infolist() if each.filename and not each.is_dir()]
        if len(entries) > MAX_FILES:
            raise FileError(f"{path.name} holds more than {MAX_FILES:,} files")
        read: dict[str, zipfile.ZipInfo] = {}
        files: dict[str, File] = {}
        for entry in entries:
            name = PurePosixPath(entry.filename)
            if name.is_absolute() or ".." in name.parts or "\\" in entry.filename:
                raise FileError(f"{path.name} names a file outside itself")
            opening = partial(_member, archive, entry, path.name, read)
            files[entry.filename] = File(entry.filename, opening, notes)
        yield Export(path.stem, tuple(files[each] for each in sorted(files)))


def _member(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, read: dict[str, zipfile.ZipInfo]
) -> IO[bytes]:
    """Open a file of an archive; ``read`` are those opened before, which share one allowance."""
    # ZipFile returns no more than the size that the entry states.
    total = {**read, entry.filename: entry}.values()
    packed = sum(each.compress_size for each in total)
    if sum(each.file_size for each in total) > max(_FREE, packed * _MAX_RATIO):
        raise FileError(
            f"{name} has files over {_MAX_RATIO} times their compressed size; unpack it "
            "yourself if expected"
        )
    if entry.flag_bits & 1:
        raise FileError(f"{name} is encrypted; unpack it first")
    read[entry.filename] = entry
    try:
        return archive.open(entry)
    except _DAMAGED as error:
        raise FileError(f"{name} is damaged ({type(error).__name__})") from None


class _Text:
    """A file read as text: broken bytes are mended and counted, and damage ends it."""

    def __init__(self, file: File, raw: IO[bytes], encoding: str) -> None:
        self._file, self._wide, self._ended = file, encoding.startswith("utf-16"), False
        errors = "replace" if self._wide else "surrogateescape"
        self._text = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="\n")
        self.seen = 0

    def read(self, size: int, *, line: bool = False) -> str:
        r"""Return at most so many characters, "" at the end; with ``line``, up to a ``\n``."""
        if self._ended:
            return ""
        try:
            text = (self._text.readline if line else self._text.read)(size)
        except _DAMAGED as error:
            self._ended = True
            what = f"{self._file.name}: damaged ({type(error).__name__})"
            self._file.notes.miss("files that end too early", what)
            return ""
        self.seen += len(text)
        if text.isascii() or self._wide:
            return text
        return _BROKEN.sub(self._mended, text)

    def _mended(self, match: re.Match[str]) -> str:
        raw, notes = match.group().encode("utf-8", "surrogateescape"), self._file.notes
        text = "\ufffd" if _CUT.fullmatch(raw) else raw.decode("cp1252", "replace")
        if "\ufffd" in text:
            where = f"{self._file.name}: bytes that are no text"
            notes.miss("characters that are damaged, replaced by U+FFFD", where)
        else:
            notes.note("characters that are not UTF-8, read as CP1252", len(text))
        return text


@contextmanager
def text_stream(file: File) -> Generator[_Text]:
    r"""Open a file as text: UTF-8, CP1252 or UTF-16. Lines end at ``\n`` alone."""
    try:
        with file.open() as start:
            head = start.read(512)
    except FileError:
        raise
    except _DAMAGED as error:
        raise FileError(f"{file.name} cannot be opened ({type(error).__name__})") from None
    way = next((how for start, how in _PACKED if head.startswith(start)), "")
    if way or head[257:262] == b"ustar":
        way = way or "tar -xf"
        raise FileError(f"{file.name} is compressed; unpack it first: {way} FILE")
    with file.open() as raw:
        yield _Text(file, raw, _encoding(head))


def _encoding(head: bytes) -> str:
    """Return the encoding of a file that begins with these bytes."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") and not _is_narrow(head[2:]):
        return "utf-16"
    first, second = head[0::2].count(0), head[1::2].count(0)
    if min(first, second) * 8 < max(first, second) > len(head) // 4:
        return "utf-16-le" if second > first else "utf-16-be"
    return "utf-8-sig"


def _is_narrow(head: bytes) -> bool:
    """Return whether bytes are text of one byte a letter, so that a mark before it is damage."""
    plain = sum(32 <= byte < 127 or byte in b"\r\n\t" for byte in head)
    return b"\0" not in head and plain * 8 > len(head) * 7


def lines_of(file: File, *, ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a text file with their numbers from 1, without their ends.

    With ``ends`` a line is yielded with its end. A line that is too long is left out.
    """
    with text_stream(file) as text:
        number = 0
        while line := text.read(MAX_ITEM + 1, line=True):
            number += 1
            if len(line) > MAX_ITEM:
                where = f"{file.name}, line {number}: longer than {MAX_ITEM:,} characters"
                file.notes.miss("lines that are too long", where)
                while line and not line.endswith("\n"):
                    line = text.read(MAX_ITEM, line=True)
                continue
            yield number, line if ends else line.rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Head:
    """The data that a file is recognised by: its kind, first values or lines, a fault."""

    kind: Kind
    values: tuple[Any, ...] = ()
    lines: tuple[str, ...] = ()
    broken: str = ""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Return the first values that are objects."""
        return [value for value in self.values if isinstance(value, dict)]


def head_of(file: File) -> Head:
    """Read the beginning of a file. Raises FileError where it cannot be opened."""
    file = replace(file, notes=Notes())
    kind = kind_of(file)
    if kind == "text":
        lines = (line for _, line in lines_of(file) if line.strip(" \t\0"))
        head = tuple(islice(lines, _HEAD_LINES))
        return Head(kind, (), head, next(iter(file.notes.reasons()), ""))
    values: list[Any] = []
    with text_stream(file) as text:
        most = _HEAD_LINES if kind == "lines" else _HEAD_VALUES
        for _, value, inside in _values(file, kind, text):
            torn = inside or isinstance(value, list)
            values += nested_objects(value) if torn else [value]
            most -= not torn
            if not most or text.seen > _HEAD_TEXT:
                break
    return Head(kind, tuple(values), (), next(iter(file.notes.reasons()), ""))


def kind_of(file: File) -> Kind:
    """Return whether a file is text, a JSON document, or JSON with a value in each line."""
    file = replace(file, notes=Notes())
    with text_stream(file) as text:
        start = text.read(_CHUNK).lstrip(_VOID)
    if not file.name.lower().endswith(_JSON) and not _BEGINNING.match(start):
        return "text"
    if start.startswith("["):
        return "document"
    lines = list(islice((line for _, line in lines_of(file) if line.strip(_VOID)), 5))
    objects = 0
    for line in lines:
        with suppress(ValueError, RecursionError):
            objects += isinstance(json.loads(line), dict)
    return "lines" if 2 * objects >= max(len(lines), 1) else "document"


def values_of(file: File) -> Iterator[tuple[str, Any, bool]]:
    """Yield the values of a JSON file, each with its place and whether it was torn out of another.

    The values are the items of a list, the value of each line, or the one object. In the place of
    a value that is broken come the objects inside it that are whole.
    """
    kind = kind_of(file)
    if kind == "text":
        raise FileError(f"{file.name} is not JSON")
    with text_stream(file) as text:
        yield from _values(file, kind, text)


def objects_of(
    *files: File, part: Test, whole: Test = lambda _: False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects among the values of JSON files, each with its place.

    Of the objects inside a broken value, those are yielded which ``whole`` or ``part`` tells.
    """
    for file in files:
        for place, value, inside in values_of(file):
            if inside:
                yield from ((place, each) for each in torn_from(value, part, whole))
            elif isinstance(value, dict):
                yield place, value
            else:
                file.notes.miss("values that are no objects", f"{place}: {type(value).__name__}")
                yield from ((place, each) for each in torn_from(value, part, whole))


def nested_objects(
    value: Any, part: Test = lambda _: True, whole: Test = lambda _: False
) -> Iterator[dict[str, Any]]:
    """Yield the objects in a value that are told, itself first; none inside a whole one."""
    pending: list[Any] = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending.extend(reversed(each))
        elif isinstance(each, dict):
            is_whole = whole(each)
            if is_whole or part(each):
                yield each
            if not is_whole:
                pending.extend(reversed(each.values()))


def torn_from(value: Any, part: Test, whole: Test = lambda _: False) -> Iterator[dict[str, Any]]:
    """Yield the objects in a value that are told, also parts that lost braces put in others."""
    return nested_objects(value, lambda each: not isinstance(each, Opened) and part(each), whole)


def _values(file: File, kind: Kind, text: _Text) -> Iterator[tuple[str, Any, bool]]:
    if kind == "document":
        yield from _Window(text, file.name, file.notes).values()
        return
    for number, line in lines_of(file):
        if not line.strip(_VOID):
            if "\0" in line:
                file.notes.miss("lines that are not JSON", f"{file.name}, line {number}: NULs")
            continue
        place = f"{file.name}, line {number}"
        yield from _Window(io.StringIO(line), file.name, file.notes, place=place).values()


class _Window:
    """The part of a JSON text that is being parsed; it grows to hold one value and moves on."""

    def __init__(
        self, text: _Text | io.StringIO, name: str, notes: Notes, *, place: str = ""
    ) -> None:
        self._text, self._name, self._notes, self._place = text, name, notes, place
        self._decoder = json.JSONDecoder()
        self._held, self._at, self._ended = "", 0, False
        self._failed, self._tries = -1, 0

    def _grow(self) -> bool:
        """Read as much again as is held, and return whether there was more."""
        more = self._text.read(max(_CHUNK, len(self._held) - self._at))
        self._failed -= self._at
        self._held, self._at = self._held[self._at :] + more, 0
        self._ended = not more
        return bool(more)

    def _next(self, wanted: re.Pattern[str] = _NOT_BLANK) -> str:
        """Move to the next character that is wanted, and return it, or "" at the end."""
        while True:
            match = wanted.search(self._held, self._at)
            if match is not None:
                self._at = match.start()
                return match.group()
            self._at = len(self._held)
            if not self._grow():
                return ""

    def values(self) -> Iterator[tuple[str, Any, bool]]:
        """Yield each value with its place; those of a list one by one."""
        listed = self._next() == "[" and not self._place
        self._at += listed
        number, comma = 0, listed
        while first := self._next():
            if listed and first in ",]":
                self._at += 1
                listed, comma = first == ",", first == ","
                continue
            number += 1
            place = self._place or f"{self._name}, item {number}"
            why = "more text follows" if number > 1 else "neither a list nor an object"
            if comma or (not listed and number == 1 and (first in "[{" or self._place)):
                try:
                    value = self._value()
                except ValueError as error:
                    why = str(error)
                else:
                    comma = False
                    yield place, value, False
                    continue
            what = "lines that are not JSON" if self._place else "parts that are not JSON"
            self._notes.miss(what, f"{place}: {why}")
            yield from self._salvaged(place)
            return
        if listed:
            self._notes.miss("parts that are not JSON", f"{self._name}: the list does not end")

    def _salvaged(self, place: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield the objects in the rest of a text that is broken: whole ones, and opened ones."""
        brace = re.compile(r"\{")
        while self._next(brace):
            try:
                value = self._value()
            except ValueError:
                value = self._opened()
            yield place, value, True

    def _opened(self) -> Opened:
        """Return the beginning of the object at the present place, and move behind it."""
        members = Opened()
        self._at += 1
        while (name := _MEMBER.match(self._held, self._at)) is not None:
            try:
                value, end = self._decoder.raw_decode(self._held, name.end())
            except (ValueError, RecursionError):
                self._at = name.end()
                if (mark := self._held[self._at : self._at + 1]) in ("[", "{"):
                    members[name[1]] = [] if mark == "[" else {}
                break
            if isinstance(value, str) and "{" in value and _MEMBER.match(self._held, end) is None:
                self._at = name.end()  # a text that does not end where it should may hold others
                break
            members[name[1]], self._at = value, end
        return members

    def _value(self) -> Any:
        """Parse the next value, reading on until it is complete. Raises ValueError."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._held) - 16
                if not cut or self._ended:
                    self._tried(error.pos)
                    raise ValueError(f"not JSON ({error.msg})") from None
            except RecursionError:
                # Whatever is inside is nested nearly as deeply, and each attempt costs as much.
                self._at, self._ended, self._text = len(self._held), True, io.StringIO()
                raise ValueError("nested too deeply") from None
            except ValueError:
                self._tried(-1)
                raise ValueError("a number of too many digits") from None
            else:
                if end < len(self._held) or self._ended:
                    after = _NOT_BLANK.search(self._held, end)
                    if isinstance(value, str) and after and after.group() not in ",]":
                        raise ValueError("not JSON (a text where none ends)")
                    self._at = end
                    return value
            if len(self._held) - self._at > MAX_ITEM:
                self._tried(0)
                raise ValueError(f"longer than {MAX_ITEM:,} characters")
            self._grow()

    def _tried(self, failed: int) -> None:
        """Count the attempts that fail at one place; after many, go on behind it."""
        self._tries = self._tries + 1 if failed == self._failed else 0
        self._failed = failed
        if self._tries >= _TRIES:
            self._at, self._tries = max(self._at, failed - 1), 0
