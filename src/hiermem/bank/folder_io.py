"""Reads and writes the files of a bank in a plain folder, such as one under version control.

Only the names that the caller passes are ever touched, each as an entry of the one opened folder,
and no link is followed. A file is written under a temporary name and moved into place whole.
``bank.exchange`` decides which files are written; ``bank.rules`` has checked the names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final

from hiermem import process
from hiermem.bank import exchange
from hiermem.bank.exchange import Entry, ExchangedBank
from hiermem.errors import FileError, UsageError

#: On systems without these flags, or without names relative to an open folder, whole paths are
#: used, with a check before each step.
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0) | _BINARY
_HAS_DIR_FD: Final = {os.open, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
_NEW_FILE: Final = 0o666


def folder_path(folder: Any) -> str:
    """Return a folder's path as text. Raises UsageError for anything else."""
    if not isinstance(folder, (str, PathLike)):
        raise UsageError(f"folder is {type(folder).__name__}; it must be text or a path")
    path = os.fspath(folder)
    if not isinstance(path, str) or not path or "\0" in path:
        raise UsageError("folder is no valid path; pass the path of a folder")
    # A slash at the end would follow a link to a folder.
    return path.rstrip("/" if os.sep == "/" else "/\\") or os.sep


def absolute_path(path: str) -> str:
    """Return the absolute path of a folder."""
    return os.path.abspath(path)


def read_from(
    path: str, names: Collection[str], *, create: bool = False
) -> tuple[dict[str, Entry], Entry]:
    """Read the files of those names, as far as they exist, and the pointer's text.

    Raises FileError if the folder cannot be read, is missing and must not be created, or has
    anything but a plain file under one of the names.
    """
    with _folder_errors(path):
        if create:
            os.makedirs(path, exist_ok=True)
        with _open_folder(path) as folder:
            entries = {name: folder.read(name) for name in sorted(names)}
            return entries, folder.read(exchange.META)


def write_to(
    path: str, bank: ExchangedBank, write: Iterable[str], remove: Iterable[str], *, point: bool
) -> None:
    """Write and remove files of these names, then write the pointer if asked. Raises FileError.

    Each file is whole, wherever this stops.
    """
    with _folder_errors(path), _open_folder(path) as folder:
        for name in write:
            folder.write(name, bank.texts[name])
        for name in remove:
            folder.remove(name)
        if point:
            folder.write(exchange.META, exchange.write_pointer(bank))


@contextmanager
def _folder_errors(path: str) -> Iterator[None]:
    """Raise FileError for the system's errors."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or type(error).__name__}") from None


@contextmanager
def _open_folder(path: str) -> Iterator[_Folder]:
    """Open the folder itself; do not follow a link."""
    no_folder = FileError(f"{path} is no folder, or a link to one; pass the folder itself")
    if not _HAS_DIR_FD:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise no_folder
        yield _Folder(path, None)
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise no_folder from None
        raise
    try:
        yield _Folder(path, handle)
    finally:
        os.close(handle)


class _Folder:
    """One open folder; its entries are named, never reached by a path with parts."""

    def __init__(self, path: str, handle: int | None) -> None:
        self._path, self._handle = path, handle

    def write(self, name: str, text: str) -> None:
        """Write a file under a temporary name and move it into place; it keeps its permissions."""
        temporary = f".hiermem-{uuid.uuid4().hex}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
        handle = self._open(temporary, flags, _NEW_FILE)
        try:
            with open(handle, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                before = self._stat(name)
                if before is not None and stat.S_ISREG(before.st_mode) and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                process.sync(file.fileno())
            os.replace(
                self._path_of(temporary), self._path_of(name),
                src_dir_fd=self._handle, dst_dir_fd=self._handle,
            )  # fmt: skip
            if self._handle is not None:
                process.sync(self._handle)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove an entry; a link itself, not its target."""
        os.unlink(self._path_of(name), dir_fd=self._handle)

    def read(self, name: str) -> Entry:
        """Read one file; None if there is none. Raises FileError if it is no plain file."""
        if (before := self._stat(name)) is None:
            return None
        # Checked before opening, because opening a pipe would wait for its writer.
        if not stat.S_ISREG(before.st_mode):
            raise self._no_plain_file(name)
        try:
            handle = self._open(name, os.O_RDONLY | _NO_LINK | _NO_WAIT)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._no_plain_file(name) from None
            raise
        with open(handle, "rb") as file:
            # Checked again: the entry may have changed since the first check.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise self._no_plain_file(name)
            data = file.read(exchange.MAX_BYTES + 1)
        return exchange.read_entry(name, data, place=self._path)

    def _no_plain_file(self, name: str) -> FileError:
        return FileError(f"{name} in {self._path} is no plain file; remove it")

    def _open(self, name: str, flags: int, mode: int = 0o777) -> int:
        return os.open(self._path_of(name), flags, mode, dir_fd=self._handle)

    def _stat(self, name: str) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._path_of(name), dir_fd=self._handle, follow_symlinks=False)
        return None

    def _path_of(self, name: str) -> str:
        """Return the path of an entry, relative to the open folder if there is one."""
        return name if self._handle is not None else os.path.join(self._path, name)
