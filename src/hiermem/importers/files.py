"""Opens what is imported: a file, a folder or a zip archive, within bounds.

Nothing is unpacked to disk. A line, and a value of a JSON file, is read up to ``MAX_ITEM``
characters, so that memory is bounded by one conversation. A file that exceeds a bound or is
malformed raises UnreadableFileError.
"""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from hiermem.errors import UnreadableFileError
from hiermem.types.reading import as_mapping

#: The characters of one line, or of one value of a JSON file.
MAX_ITEM = 32 * 1024 * 1024
#: The files of a folder or an archive.
MAX_FILES = 100_000
#: A file in an archive may be this many times as long as its compressed form, and this long anyway.
_MAX_RATIO, _FREE = 200, 16 * 1024 * 1024
_CHUNK = 1 << 16
#: The exceptions of zipfile for damaged archives and unsupported methods.
_DAMAGED = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, OSError, ValueError,
            struct.error)  # fmt: skip
#: The lines by which a file is recognised.
_HEAD_LINES = 40
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class File:
    """One file of an export; ``name`` is its path inside the export, with slashes."""

    name: str
    open: Callable[[], IO[bytes]]

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


@contextmanager
def opened(path: Path) -> Generator[Export]:
    """Open a file, a folder or a zip archive. Raises UnreadableFileError, OSError."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        yield Export("", _folder(path))
    elif not stat.S_ISREG(mode):
        raise UnreadableFileError(f"{path.name} is neither a file nor a folder")
    elif zipfile.is_zipfile(path):
        with _archive(path) as archive:
            yield Export(path.stem, _members(archive, path.name))
    else:
        yield Export(path.stem, (File(path.name, partial(_file, path)),))


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise _unsound(path.name, error) from None


def _unsound(name: str, error: Exception) -> UnreadableFileError:
    return UnreadableFileError(f"{name} is no sound zip archive ({type(error).__name__})")


def _file(path: Path) -> IO[bytes]:
    return path.open("rb")


def _folder(path: Path) -> tuple[File, ...]:
    """Return the regular files below a folder, in the order of their names; no link is followed."""
    found: list[File] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not stat.S_ISREG(file.lstat().st_mode):
                continue
            found.append(File(file.relative_to(path).as_posix(), partial(_file, file)))
            if len(found) > MAX_FILES:
                raise UnreadableFileError(f"{path.name} holds more than {MAX_FILES:,} files")
    return tuple(found)


def _members(archive: zipfile.ZipFile, name: str) -> tuple[File, ...]:
    entries = [each for each in archive.infolist() if each.filename and not each.is_dir()]
    if len(entries) > MAX_FILES:
        raise UnreadableFileError(f"{name} holds more than {MAX_FILES:,} files")
    found: dict[str, File] = {}
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
            raise UnreadableFileError(f"{name} names a file outside itself; it was not read")
        found[entry.filename] = File(entry.filename, partial(_member, archive, entry, name))
    return tuple(found[each] for each in sorted(found))


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> IO[bytes]:
    # ZipFile returns no more than the size that the entry states.
    if entry.file_size > max(_FREE, entry.compress_size * _MAX_RATIO):
        raise UnreadableFileError(
            f"{name} holds a file that is over {_MAX_RATIO} times as long as its compressed form; "
            "unpack it yourself if that is right"
        )
    if entry.flag_bits & 1:
        raise UnreadableFileError(f"{name} is encrypted; unpack it first")
    try:
        return archive.open(entry)
    except _DAMAGED as error:
        raise _unsound(name, error) from None


@contextmanager
def text_stream(file: File) -> Generator[IO[str]]:
    r"""Open a file as text: UTF-8, or UTF-16 with a byte order mark. Lines end at ``\n`` alone."""
    with file.open() as start:
        mark = start.read(2)
    wide = mark in (b"\xff\xfe", b"\xfe\xff")
    with file.open() as raw:
        text = io.TextIOWrapper(raw, encoding="utf-16" if wide else "utf-8-sig", newline="\n")
        try:
            yield text
        except UnicodeDecodeError:
            what = "UTF-16" if wide else "UTF-8"
            raise UnreadableFileError(f"{file.name} is not {what} text") from None


def lines_of(file: File) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers from 1, without their ends."""
    with text_stream(file) as text:
        number = 0
        while line := text.readline(MAX_ITEM + 1):
            number += 1
            if len(line) > MAX_ITEM:
                raise UnreadableFileError(
                    f"{file.name}, line {number}: longer than {MAX_ITEM:,} characters"
                )
            yield number, line.rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Head:
    """The data that a file is recognised by: its kind, and its first values or lines."""

    kind: Literal["list", "lines", "object", "text"]
    values: tuple[Any, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def first(self) -> dict[str, Any]:
        """Return the first value if it is an object; an empty one otherwise."""
        value = self.values[0] if self.values else None
        return value if isinstance(value, dict) else {}


def head_of(file: File) -> Head:
    """Read the beginning of a file. Raises UnreadableFileError where that is not text or JSON."""
    kind = kind_of(file)
    if kind == "text":
        lines: list[str] = []
        for _, line in lines_of(file):
            if "\0" in line:
                raise UnreadableFileError(f"{file.name} is not a text file")
            if line.strip():
                lines.append(line)
            if len(lines) == _HEAD_LINES:
                break
        return Head(kind, lines=tuple(lines))
    values: list[Any] = []
    for _, value in values_of(file, kind):
        values.append(value)
        if kind != "lines" or len(values) == _HEAD_LINES:
            break
    return Head(kind, tuple(values))


def kind_of(file: File) -> Literal["list", "lines", "object", "text"]:
    """Return whether a file is a JSON list, JSON values line by line, a JSON object or text."""
    with text_stream(file) as text:
        start = text.read(_CHUNK).lstrip()
    if start.startswith("["):
        # A transcript may begin with a time in brackets; a list of conversations holds objects.
        return "list" if start[1:].lstrip()[:1] in ("{", "]", "") else "text"
    if not start.startswith("{"):
        return "text"
    first = next((line for _, line in lines_of(file) if line.strip()), "")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return "object" if first.strip() == "{" or not first.rstrip().endswith("}") else "lines"
    return "lines"


def values_of(file: File, kind: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON file, each with its place as errors name it.

    The values are the items of a list, the value of each line, or the one object.
    """
    kind = kind or kind_of(file)
    if kind == "text":
        raise UnreadableFileError(f"{file.name} is not JSON")
    if kind == "list":
        yield from _items(file)
    elif kind == "lines":
        for number, line in lines_of(file):
            if line.strip():
                place = f"{file.name}, line {number}"
                yield place, _parsed(line, place)
    else:
        with text_stream(file) as text:
            whole = text.read(MAX_ITEM + 1)
        if len(whole) > MAX_ITEM:
            raise UnreadableFileError(f"{file.name}: longer than {MAX_ITEM:,} characters")
        yield file.name, _parsed(whole, file.name)


def objects_of(*files: File) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the values of JSON files, which must be objects, each with its place."""
    for file in files:
        for place, value in values_of(file):
            yield place, as_mapping(value, where=place)


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else (
            f"column {error.colno}"
        )  # fmt: skip
        raise UnreadableFileError(f"{place}: not JSON ({error.msg}: {at})") from None
    except RecursionError:
        raise UnreadableFileError(f"{place}: nested too deeply") from None
    except ValueError:
        raise UnreadableFileError(f"{place}: holds a number of too many digits") from None


def _items(file: File) -> Iterator[tuple[str, Any]]:
    with text_stream(file) as text:
        window = _Window(text, file.name)
        window.expect("[")
        if window.next() == "]":
            window.expect("]")
        else:
            number = 0
            while True:
                number += 1
                place = f"{file.name}, item {number}"
                yield place, window.value(place)
                if window.next() != ",":
                    break
                window.expect(",")
            window.expect("]")
        if window.next():
            raise UnreadableFileError(f"{file.name}: more text follows the end of the list")


class _Window:
    """The part of a JSON text that is being parsed; it grows to hold one value and moves on."""

    def __init__(self, text: IO[str], name: str) -> None:
        self._text, self._name = text, name
        self._decoder = json.JSONDecoder()
        self._held, self._at, self._ended = "", 0, False

    def _grow(self) -> bool:
        """Read as much again as is held, and return whether there was more."""
        more = self._text.read(max(_CHUNK, len(self._held) - self._at))
        self._held, self._at = self._held[self._at :] + more, 0
        self._ended = not more
        return bool(more)

    def next(self) -> str:
        """Return the next character that is not blank, or "" at the end."""
        while True:
            while self._at < len(self._held):
                if self._held[self._at] not in _BLANK:
                    return self._held[self._at]
                self._at += 1
            if not self._grow():
                return ""

    def expect(self, character: str) -> None:
        """Move past a character."""
        found = self.next()
        if found != character:
            what = "ends too early" if not found else f"has no {character!r} where one must be"
            raise UnreadableFileError(f"{self._name}: not JSON; it {what}")
        self._at += 1

    def value(self, place: str) -> Any:
        """Parse the next value, reading on until it is complete."""
        self.next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._held) - 16
                if not cut or self._ended:
                    raise UnreadableFileError(f"{place}: not JSON ({error.msg})") from None
            except RecursionError:
                raise UnreadableFileError(f"{place}: nested too deeply") from None
            except ValueError:
                raise UnreadableFileError(f"{place}: holds a number of too many digits") from None
            else:
                if end < len(self._held) or self._ended:
                    self._at = end
                    return value
            if len(self._held) - self._at > MAX_ITEM:
                raise UnreadableFileError(f"{place}: longer than {MAX_ITEM:,} characters")
            self._grow()
