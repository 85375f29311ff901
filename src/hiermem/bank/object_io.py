"""Writes a bank to object storage and reads it from there.

``bank.exchange`` decides what is written; ``remote.object_storage`` sends it. This module defines
the order: first the files, each under a key of its own, then the pointer, then the removal of the
files that the replaced pointer named. If an export ends before its pointer was written, the earlier
revision is still complete.

The pointer is written on the condition that it is unchanged since it was read; otherwise it is read
again. A storage without such conditions, or one that ignores them, is written without: of two
exports at the same moment the later write stays.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

from hiermem.bank import exchange
from hiermem.bank.exchange import BankUrl, Entry, ExchangedBank, Pointer
from hiermem.calls.failures import Pauses
from hiermem.calls.retry import backing_off
from hiermem.errors import FileError
from hiermem.types.bank import ExportReport

T = TypeVar("T")

_LOG: Final = logging.getLogger("hiermem.bank")
#: How often one request is made, and its first and longest pause in seconds.
_TRIES: Final = 7
_PAUSES: Final[Pauses] = (0.1, 5.0)
#: How often an export or a load begins again because another export came in between.
_ROUNDS: Final = 24
_BETWEEN: Final[Pauses] = (0.05, 2.0)
_TEXT: Final = {".md": "text/markdown; charset=utf-8", ".json": "application/json"}


#: The data of an object, None if it is longer than asked for, and its version.
StoredObject: TypeAlias = tuple[bytes | None, Mapping[str, str]]
#: The condition of a write: nothing is stored under its key.
NOTHING: Final[Mapping[str, str]] = {}


class ObjectStorage(Protocol):
    """One bucket, and the place in it that a bank has.

    Each call makes one request and raises FileError if it fails, ``retryable`` if another try may
    succeed. No error repeats text of the server or the options.
    """

    url: BankUrl

    async def get(self, key: str, *, most: int) -> StoredObject | None:
        """Return the object under ``key``; None if there is none."""
        ...

    async def put(
        self, key: str, data: bytes, *, over: Mapping[str, str] | None, content_type: str
    ) -> bool:
        """Write, and return whether it was written.

        ``over`` is a condition: the stored version is this one, or is NOTHING. None is no
        condition, and a storage without conditions always writes.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete the object under ``key``, if there is one."""
        ...


class _MovedError(FileError):
    """Another export came in between."""


async def export_to(place: ObjectStorage, bank: ExchangedBank) -> ExportReport:
    """Write the bank's revision, unless the storage has a later one of the same space.

    Returns the changes, or the number of the later revision. Raises FileError, and UsageError if
    another bank is there.
    """
    ours = bank.pointer
    replaced: Pointer | None = None
    report: ExportReport | None = None

    async def once() -> ExportReport:
        nonlocal replaced, report
        pointer, version = await _pointer(place)
        if pointer == ours and (report is not None or not bank.overwrite):
            # It may be this export's own, whose answer was lost.
            return report or exchange.plan(bank, ours.files)[-1]
        if (later := exchange.superseding(bank, pointer, place=str(place.url))) is not None:
            if report is not None:
                await _delete(place, ours, bank.touched)
            return ExportReport("", ours.revision, superseded_by=later)
        *_, report = exchange.plan(bank, pointer.files if pointer is not None else {})
        for name, text in bank.texts.items():
            await _put(place, ours.key(name), text, None, kind=".md")
        replaced = pointer
        text = exchange.write_pointer(bank)
        if not await _put(place, exchange.META, text, version, kind=".json"):
            raise _moved(place)
        return report

    done = await backing_off(once, tries=_ROUNDS, pauses=_BETWEEN, passing=_is_moved)
    if done.superseded_by is None and replaced is not None:
        # A replaced revision of the same number may have the same file under the same key.
        await _delete(place, replaced, bank.touched, spared=ours)
    return done


async def read_from(
    place: ObjectStorage, names: Collection[str]
) -> tuple[Pointer, dict[str, Entry]]:
    """Return the pointer and the files of those names, of one whole revision.

    Raises FileError if there is no bank, or if a file that the pointer names is missing.
    """

    async def once() -> tuple[Pointer, dict[str, Entry]]:
        pointer, version = await _pointer(place)
        if pointer is None:
            raise FileError(f"{place.url} has no bank; export one first")
        entries: dict[str, Entry] = {}
        for name in sorted(pointer.files.keys() & set(names)):
            stored = await _get(place, pointer.key(name))
            if stored is None and await _pointer(place) != (pointer, version):
                raise _moved(place)
            entry = exchange.read_entry(name, stored[0], place=str(place.url)) if stored else None
            if not isinstance(entry, str) or exchange.text_hash(entry) != pointer.files[name]:
                raise FileError(
                    f"{place.url}: {name} differs from its pointer; export again with "
                    "overwrite=True"
                )
            entries[name] = entry
        return pointer, entries

    return await backing_off(once, tries=_ROUNDS, pauses=_BETWEEN, passing=_is_moved)


async def _pointer(place: ObjectStorage) -> tuple[Pointer | None, Mapping[str, str]]:
    """Return the pointer and its version. Raises FileError if it cannot be read."""
    stored = await _get(place, exchange.META)
    if stored is None:
        return None, NOTHING
    data, version = stored
    pointer = exchange.read_pointer((data or b"").decode("utf-8", "replace"))
    if pointer is None:
        raise FileError(
            f"{exchange.META} in {place.url} is damaged or foreign; remove it and export again"
        )
    return pointer, version


async def _delete(
    place: ObjectStorage, pointer: Pointer, names: Collection[str], *, spared: Pointer | None = None
) -> None:
    """Delete the named files of a replaced pointer, as far as the storage allows.

    The files that ``spared`` names are not deleted.
    """
    spared_keys = {spared.key(name) for name in spared.files} if spared is not None else set[str]()
    named = {pointer.key(name) for name in pointer.files.keys() & set(names)}
    try:
        for name in sorted(named - spared_keys):
            key = place.url.key(name)
            await _retried(lambda key=key: place.delete(key))  # type: ignore[misc]
    except FileError as error:
        _LOG.warning("the files of an earlier revision were not all deleted: %s", error)


async def _get(place: ObjectStorage, name: str) -> StoredObject | None:
    key = place.url.key(name)
    return await _retried(lambda: place.get(key, most=exchange.MAX_BYTES))


async def _put(
    place: ObjectStorage, name: str, text: str, over: Mapping[str, str] | None, *, kind: str
) -> bool:
    key = place.url.key(name)
    return await _retried(
        lambda: place.put(key, text.encode(), over=over, content_type=_TEXT[kind])
    )


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """Make a request, and retry transient failures."""
    return await backing_off(call, tries=_TRIES, pauses=_PAUSES, passing=_is_passing)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, FileError) and error.retryable and not _is_moved(error)


def _is_moved(error: BaseException) -> bool:
    return isinstance(error, _MovedError)


def _moved(place: ObjectStorage) -> FileError:
    error = _MovedError(f"{place.url}: too many concurrent exports; retry")
    error.retryable = True
    return error
