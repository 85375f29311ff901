"""Exports a bank to object storage and loads it from there.

``core.spaces.objects`` decides what is written and which export counts; ``remote.object_storage``
sends it. This module defines the order: first the objects, then the manifest in one conditional
write, then the copies for people, then the removal of objects that no manifest names. If an export
ends before its manifest was written, the earlier revision is still complete, and the next export
removes the objects that were written.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeVar

from hiermem.core.calls.backoff import back_off
from hiermem.core.spaces import folder as folder_plan
from hiermem.core.spaces import objects
from hiermem.core.spaces.folder import Manifest
from hiermem.core.spaces.objects import NO_COPY, BankUrl, Copy
from hiermem.errors import ConditionalWriteError, FolderError
from hiermem.types.bank import ExportReport, LoadReport

T = TypeVar("T")

_LOG: Final = logging.getLogger("hiermem.bank")
#: How often one request is made, and its first and longest pause in seconds.
_TRIES: Final = 7
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
#: How often an export or a load begins again because another export came between.
_ROUNDS: Final = 24
_MOST_PAUSE: Final = 2.0
#: How often a storage is tried that refuses a write whose condition holds. The client's connection
#: may send a request twice, and the second time its condition no longer holds.
_PROBES: Final = 3
#: How often a copy is looked at again that changes while it is written.
_LOOKS: Final = 4
_TEXT: Final = {".md": "text/markdown; charset=utf-8", ".json": "application/json"}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the storage; ``data`` is None where it is longer than was asked for."""

    data: bytes | None
    version: Mapping[str, str]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


class ObjectStorage(Protocol):
    """One bucket.

    Each call makes one request and raises FolderError where it fails, ``retryable`` where another
    try may succeed. No error holds what the server or the options said.
    """

    async def get(self, key: str, *, most: int) -> StoredObject | None:
        """Return what is stored under ``key``; None where nothing is."""
        ...

    async def put(
        self,
        key: str,
        data: bytes,
        *,
        replacing: Mapping[str, str] | None,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> Mapping[str, str] | None:
        """Write where ``replacing`` is the stored version, or None and nothing is stored.

        Returns the new version; None where something else is stored, and nothing was written.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete what is stored under ``key``, if anything is."""
        ...

    def list(self, prefix: str) -> AsyncIterator[list[tuple[str, datetime]]]:
        """Yield the keys below ``prefix``, a folder, in portions; each with its last change."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A place in object storage, and the storage."""

    url: BankUrl
    storage: ObjectStorage

    def __str__(self) -> str:
        return str(self.url)


async def export_to(place: ObjectPlace, bank: folder_plan.ExchangedBank) -> ExportReport:
    """Make the storage hold the bank's revision, unless it holds a later one of the same space.

    Returns what was done with the copies, or the number of a later revision that is there. Raises
    FolderError, ConditionalWriteError where the storage cannot be exported to safely, UsageError
    where another bank is there.
    """
    await _try_conditions(place)
    for turn in range(_ROUNDS):
        held, version = await _manifest(place, bank)
        there = 0 if held is None or held.owner != bank.owner else held.revision
        if there > bank.revision:
            return ExportReport("", bank.revision, superseded_by=there)
        # All names are read, because a killed export may have left a copy of a removed file.
        copies = {name: await _copy(place, name) for name in sorted({*bank.texts, *bank.names})}
        plan, manifest = objects.export(bank, copies, held, place=str(place))
        if manifest is not held:
            for name, key in objects.new_objects(manifest).items():
                # Where it is there already, it is the same: its name is its hash.
                await _put(place, objects.OBJECTS + key, bank.texts[name].encode(), None)
            text = objects.write_manifest(manifest).encode()
            if await _put(place, folder_plan.MANIFEST, text, version, kind=".json") is None:
                # Another export came first, or an answer was lost: the next read of the manifest
                # tells which.
                await _pause(turn)
                continue
        report = await _write_copies(place, bank, copies, plan, manifest)
        await _clean(place, manifest)
        return report
    raise _busy(place)


async def read_from(
    place: ObjectPlace, bank: folder_plan.ExchangedBank
) -> tuple[LoadReport, dict[str, str]]:
    """Read one whole revision, and what people made of its copies; return report and texts.

    Nothing is written. Raises FolderError where nothing is there or it cannot be read, UsageError
    where it is another space's bank, damaged, or no text.
    """
    for turn in range(_ROUNDS):
        held, version = await _manifest(place, bank)
        copies = {name: await _copy(place, name) for name in sorted(bank.names)}
        if held is None and all(copy.entry is None for copy in copies.values()):
            raise FolderError(f"{place} holds no bank, and no file of this one")
        texts = await _objects(place, copies, held)
        if texts is None:
            if await _manifest(place, bank) == (held, version):
                raise FolderError(
                    f"{place} is damaged: an object that its manifest names is gone; export "
                    "again with overwrite=True"
                )
            await _pause(turn)
            continue
        return objects.load(bank, copies, texts, held)
    raise _busy(place)


# ---------------------------------------------------------------------------------------------
# Steps


async def _try_conditions(place: ObjectPlace) -> None:
    """Try the storage's conditional writes. Raises ConditionalWriteError where it has none.

    Some servers answer such a write as done although the condition does not hold. Two exports
    would then write over each other, and nobody would notice.
    """
    keys: list[str] = []

    async def tried() -> bool | None:
        # A new key each time: an answer that was lost must not look like a condition.
        keys.append(place.url.key(objects.PROBE + uuid.uuid4().hex))
        put = place.storage.put
        if not (first := await put(keys[-1], b"1", replacing=None)):
            return None
        if await put(keys[-1], b"2", replacing=None) is not None:
            return False
        if await put(keys[-1], b"3", replacing=first) is None:
            return None
        return await put(keys[-1], b"4", replacing=first) is None

    right: bool | None = None
    for _ in range(_PROBES):
        if (right := await _retried(tried)) is not None:
            break
    for key in keys:
        await _delete(place, key)
    if right is None:
        raise ConditionalWriteError(
            f"{place}: the storage refuses a conditional write whose condition holds; a bank "
            "cannot be exported there safely, and nothing of it was written"
        )
    if not right:
        raise ConditionalWriteError(
            f"{place}: the storage ignores the conditions of a write (If-Match, "
            "If-None-Match); exports would write over each other, so nothing of the bank was "
            "written; use a storage that has conditional writes"
        )


async def _manifest(
    place: ObjectPlace, bank: folder_plan.ExchangedBank
) -> tuple[Manifest | None, Mapping[str, str] | None]:
    """Return the manifest and its version, or None twice where there is none."""
    found = await _get(place, folder_plan.MANIFEST)
    if found is None:
        return None, None
    text = (found.data or b"").decode("utf-8", "replace")
    manifest = objects.read_manifest(text, space=bank.space, known=bank.names, place=str(place))
    return manifest, found.version


async def _copy(place: ObjectPlace, name: str) -> Copy:
    """Return a copy as it is there now."""
    found = await _get(place, name)
    if found is None:
        return NO_COPY
    return objects.read_copy(name, found.data, found.version, found.metadata, place=str(place))


async def _objects(
    place: ObjectPlace, copies: Mapping[str, Copy], held: Manifest | None
) -> dict[str, folder_plan.FolderEntry] | None:
    """Return the texts of the revision that are not in the copies; None where one is gone."""
    texts: dict[str, folder_plan.FolderEntry] = {}
    for name, copy in copies.items():
        if (wanted := objects.wanted_object(name, copy, held)) is None:
            continue
        found = await _get(place, objects.OBJECTS + wanted)
        if found is None:
            return None
        texts[name] = objects.read_object(name, found.data, wanted, place=str(place))
    return texts


async def _write_copies(
    place: ObjectPlace,
    bank: folder_plan.ExchangedBank,
    copies: Mapping[str, Copy],
    plan: ExportReport,
    manifest: Manifest,
) -> ExportReport:
    """Write and remove the copies for people; report also what was left alone after all.

    The revision is stored already, so what fails here is made good by the next export.
    """
    left = set[str]()
    for name in plan.written:
        data, version = bank.texts[name].encode(), copies[name].version
        if not await _write_copy(place, name, data, version, manifest):
            left.add(name)
    for name in plan.removed:
        copy = await _copy(place, name)
        if copy.version == copies[name].version and copy.entry is not None:
            await _delete(place, place.url.key(name))
    written = tuple(name for name in plan.written if name not in left)
    return replace(plan, written=written, kept=tuple(sorted({*plan.kept, *left})))


async def _write_copy(
    place: ObjectPlace,
    name: str,
    data: bytes,
    version: Mapping[str, str] | None,
    manifest: Manifest,
) -> bool:
    """Write one copy, unless a person or a later export wrote it since; return False for a person.

    An earlier export may still be writing its own, and is written over.
    """
    digest, generation = objects.content_hash(data), manifest.generation
    metadata = objects.stamps(digest, generation)
    for _ in range(_LOOKS):
        kind = name[name.rindex(".") :]
        if await _put(place, name, data, version, kind=kind, metadata=metadata) is not None:
            return True
        found = await _copy(place, name)
        if not objects.may_replace(found, digest, generation=generation):
            return found.own
        version = found.version
    return True


async def _clean(place: ObjectPlace, manifest: Manifest) -> None:
    """Delete the objects that no manifest names any more.

    Where that fails the export is done all the same, and the next one deletes them.
    """
    now, root = datetime.now(UTC), place.url.key("")
    try:
        async for keys in place.storage.list(place.url.key(objects.OBJECTS)):
            for key, modified in keys:
                age = max(timedelta(0), now - modified)
                if objects.is_garbage(key.removeprefix(root), manifest, age=age):
                    await _delete(place, key)
    except FolderError as error:
        _LOG.warning("objects of earlier revisions were not all deleted: %s", error)


# ---------------------------------------------------------------------------------------------
# Requests


async def _get(place: ObjectPlace, name: str) -> StoredObject | None:
    """Return what has this name below the prefix."""
    key = place.url.key(name)
    return await _retried(lambda: place.storage.get(key, most=folder_plan.MAX_BYTES))


async def _delete(place: ObjectPlace, key: str) -> None:
    await _retried(lambda: place.storage.delete(key))


async def _put(
    place: ObjectPlace,
    name: str,
    data: bytes,
    version: Mapping[str, str] | None,
    *,
    kind: str = ".md",
    metadata: Mapping[str, str] | None = None,
) -> Mapping[str, str] | None:
    """Write with a condition; None where it does not hold, as after a try whose answer was lost."""
    key = place.url.key(name)
    return await _retried(
        lambda: place.storage.put(
            key, data, replacing=version, metadata=metadata, content_type=_TEXT[kind]
        )
    )


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """Make a request, and again while it fails in a way that may pass."""
    for tried in range(1, _TRIES + 1):
        try:
            return await call()
        except FolderError as error:
            if tried == _TRIES or not error.retryable:
                raise
            await asyncio.sleep(back_off(tried, (_FIRST_PAUSE, _LONGEST_PAUSE)))
    raise AssertionError("the last try returns or raises")


async def _pause(turn: int) -> None:
    """Wait before an export or a load begins again, each for another time."""
    most = back_off(turn + 1, (_FIRST_PAUSE, _MOST_PAUSE))
    await asyncio.sleep(most * random.random())  # noqa: S311


def _busy(place: ObjectPlace) -> FolderError:
    error = FolderError(f"{place}: other exports came between {_ROUNDS} times; call again")
    error.retryable = True
    return error
