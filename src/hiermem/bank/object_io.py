"""Exports a bank to object storage and loads it from there.

``bank.exchange`` decides what is written; ``remote.object_storage`` sends it. This module
defines the order: first the files, each under a key of its own, then the pointer, then the removal
of what the replaced pointer named. If an export ends before its pointer was written, the earlier
revision is still complete.

The pointer is written on the condition that it is still the one that was read, and read again where
it is not. A storage that has no such conditions, or ignores them, is written without: there, of two
exports at the same moment the later write stays.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from hiermem.bank import exchange
from hiermem.bank.exchange import BankUrl, Entry, ExchangedBank, Pointer
from hiermem.calls.budget import backing_off
from hiermem.calls.run_report import Pauses
from hiermem.errors import FolderError
from hiermem.types.bank import ExportReport

T = TypeVar("T")

_LOG: Final = logging.getLogger("hiermem.bank")
#: How often one request is made, and its first and longest pause in seconds.
_TRIES: Final = 7
_PAUSES: Final[Pauses] = (0.1, 5.0)
#: How often an export or a load begins again because another export came between.
_ROUNDS: Final = 24
_BETWEEN: Final[Pauses] = (0.05, 2.0)
_TEXT: Final = {".md": "text/markdown; charset=utf-8", ".json": "application/json"}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the storage; ``data`` is None where it is longer than was asked for."""

    data: bytes | None
    version: Mapping[str, str]


#: The condition of a write: nothing is stored under its key.
NOTHING: Final[Mapping[str, str]] = {}


class ObjectStorage(Protocol):
    """One bucket.

    Each call makes one request and raises FolderError where it fails, ``retryable`` where another
    try may succeed. No error holds what the server or the options said.
    """

    async def get(self, key: str, *, most: int) -> StoredObject | None:
        """Return what is stored under ``key``; None where nothing is."""
        ...

    async def put(
        self, key: str, data: bytes, *, over: Mapping[str, str] | None, content_type: str
    ) -> bool:
        """Write, and return whether it was written.

        ``over`` is a condition: the stored version is this one, or is NOTHING. None is none, and a
        storage without conditions writes in any case.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete what is stored under ``key``, if anything is."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A place in object storage, and the storage."""

    url: BankUrl
    storage: ObjectStorage

    def __str__(self) -> str:
        return str(self.url)


class _MovedError(FolderError):
    """Another export came between."""


async def export_to(place: ObjectPlace, bank: ExchangedBank) -> ExportReport:
    """Make the storage hold the bank's revision, unless it holds a later one of the same space.

    Returns what changed there, or the number of a later revision that is there. Raises FolderError,
    and UsageError where another bank is there.
    """
    ours = bank.pointer
    replaced: Pointer | None = None
    report: ExportReport | None = None

    async def once() -> ExportReport:
        nonlocal replaced, report
        held, version = await _pointer(place)
        if held == ours and (report is not None or not bank.overwrite):
            # Maybe it is this export's own, whose answer was lost.
            return report or exchange.plan(bank, ours.files).report
        if (later := exchange.superseding(bank, held, place=str(place))) is not None:
            if report is not None:
                await _delete(place, ours, bank.touched)
            return ExportReport("", ours.revision, superseded_by=later)
        report = exchange.plan(bank, held.files if held is not None else {}).report
        for name, text in bank.texts.items():
            await _put(place, ours.key(name), text, None, kind=".md")
        replaced = held
        text = exchange.write_pointer(bank)
        if not await _put(place, exchange.META, text, version, kind=".json"):
            raise _moved(place)
        return report

    done = await backing_off(once, tries=_ROUNDS, pauses=_BETWEEN, passing=_is_moved)
    if done.superseded_by is None and replaced is not None:
        # A replaced revision of the same number may have the same file under the same key.
        await _delete(place, replaced, bank.touched, kept=ours)
    return done


async def read_from(place: ObjectPlace, names: Collection[str]) -> tuple[Pointer, dict[str, Entry]]:
    """Return the pointer and the files of those names, of one whole revision.

    Raises FolderError where no bank is there, or a file that the pointer names is missing.
    """

    async def once() -> tuple[Pointer, dict[str, Entry]]:
        held, version = await _pointer(place)
        if held is None:
            raise FolderError(f"{place} holds no bank")
        found: dict[str, Entry] = {}
        for name in sorted(held.files.keys() & set(names)):
            stored = await _get(place, held.key(name))
            if stored is None and await _pointer(place) != (held, version):
                raise _moved(place)
            entry = exchange.read_entry(name, stored.data, place=str(place)) if stored else None
            if not isinstance(entry, str) or exchange.text_hash(entry) != held.files[name]:
                raise FolderError(
                    f"{place} is damaged: {name} is not what its pointer names; export again with "
                    "overwrite=True"
                )
            found[name] = entry
        return held, found

    return await backing_off(once, tries=_ROUNDS, pauses=_BETWEEN, passing=_is_moved)


# ---------------------------------------------------------------------------------------------
# Requests


async def _pointer(place: ObjectPlace) -> tuple[Pointer | None, Mapping[str, str]]:
    """Return the pointer and its version. Raises FolderError where it cannot be read."""
    stored = await _get(place, exchange.META)
    if stored is None:
        return None, NOTHING
    pointer = exchange.read_pointer((stored.data or b"").decode("utf-8", "replace"))
    if pointer is None:
        raise FolderError(
            f"{exchange.META} in {place} is damaged, or no bank's; remove it and export again"
        )
    return pointer, stored.version


async def _delete(
    place: ObjectPlace, pointer: Pointer, names: Collection[str], *, kept: Pointer | None = None
) -> None:
    """Delete the files of those names that a replaced pointer named; what fails is left there.

    The files that ``kept`` names are not deleted.
    """
    spared = {kept.key(name) for name in kept.files} if kept is not None else set[str]()
    named = {pointer.key(name) for name in pointer.files.keys() & set(names)}
    try:
        for name in sorted(named - spared):
            key = place.url.key(name)
            await _retried(lambda key=key: place.storage.delete(key))  # type: ignore[misc]
    except FolderError as error:
        _LOG.warning("the files of an earlier revision were not all deleted: %s", error)


async def _get(place: ObjectPlace, name: str) -> StoredObject | None:
    key = place.url.key(name)
    return await _retried(lambda: place.storage.get(key, most=exchange.MAX_BYTES))


async def _put(
    place: ObjectPlace, name: str, text: str, over: Mapping[str, str] | None, *, kind: str
) -> bool:
    key = place.url.key(name)
    return await _retried(
        lambda: place.storage.put(key, text.encode(), over=over, content_type=_TEXT[kind])
    )


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """Make a request, and again while it fails in a way that may pass."""
    return await backing_off(call, tries=_TRIES, pauses=_PAUSES, passing=_is_passing)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, FolderError) and error.retryable and not _is_moved(error)


def _is_moved(error: BaseException) -> bool:
    return isinstance(error, _MovedError)


def _moved(place: ObjectPlace) -> FolderError:
    error = _MovedError(f"{place}: other exports came between {_ROUNDS} times; call again")
    error.retryable = True
    return error
