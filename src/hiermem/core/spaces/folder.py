"""Decides what an export writes into a folder, and what a load takes from it.

A folder and a bank are two copies of the same files, and either may have changed since they last
agreed. What they agreed on is known by hash: the folder's manifest holds the hashes of what was
exported, and the bank holds for each file the hash of what was loaded. A side whose text has such a
hash has not changed since.

A text that only one side has is never lost silently. If both changed, neither is overwritten and
the file is reported, unless ``overwrite`` is given. A file is removed only if the manifest lists it
and its name belongs to the bank, because anybody may have written a manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from hiermem.core.text.policy import check_json
from hiermem.errors import UsageError

#: The name of the manifest, the only file in a folder that is not a bank file.
MANIFEST: Final = ".hiermem-bank.json"
_FORMAT: Final = 1
#: A line with which version control marks one side of a merge that is not finished.
_MARKER: Final = re.compile(r"^(?:<{7,}|>{7,})(?: .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UnfitFile:
    """A plain file whose content no bank file can have; ``wrong`` says why.

    It is not UTF-8, or it is too long.
    """

    wrong: str


#: What a folder has under a name: a text, unfit content, None for nothing, or False for an entry
#: that is no plain file (a link, a folder, a pipe), which is always left alone.
FolderEntry: TypeAlias = str | UnfitFile | Literal[False] | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A folder's manifest: whose bank it holds, and the hashes of the files written there.

    During an export a file has two hashes, of before and after, so that what a killed export wrote
    is still recognised as the bank's.
    """

    space: str = ""
    revision: int = 0
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class BankFile:
    """One file of the bank: its text, and the hash of what was last loaded into it, or ""."""

    text: str
    loaded: str = ""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export does: the files it writes, removes and leaves alone."""

    write: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load takes: new files, changed files, and the files it leaves alone."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def same_lines(text: str) -> str:
    r"""Return ``text`` with plain line ends, so that a checkout may change them.

    >>> same_lines("a\r\nb\r")
    'a\nb\n'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_hash(text: str) -> str:
    """Return the hash by which two copies of a file are compared."""
    return hashlib.sha256(same_lines(text).encode("utf-8")).hexdigest()


def export(
    bank: Mapping[str, BankFile],
    folder: Mapping[str, FolderEntry],
    manifest: Manifest,
    *,
    overwrite: bool = False,
) -> ExportPlan:
    """Decide for each file of the bank, and each that the manifest lists, what the export does.

    ``folder`` is what was found there under those names. With ``overwrite``, a file that was
    changed there, or that is unfit, is overwritten; anything that is no plain file stays in any
    case.
    """
    write: list[str] = []
    unchanged: list[str] = []
    kept: list[str] = []
    for name, ours in sorted(bank.items()):
        theirs = folder.get(name)
        if theirs is None:
            write.append(name)
        elif theirs is False:
            kept.append(name)
        elif isinstance(theirs, UnfitFile):
            (write if overwrite else kept).append(name)
        elif text_hash(theirs) == text_hash(ours.text):
            unchanged.append(name)
        elif overwrite or _known(theirs, ours, manifest.files.get(name, ())):
            write.append(name)
        else:
            kept.append(name)
    gone = sorted(manifest.files.keys() - bank.keys())
    remove = [
        name
        for name in gone
        if isinstance(text := folder.get(name), str) and text_hash(text) in manifest.files[name]
    ]
    kept += [name for name in gone if name not in remove and folder.get(name) is not None]
    return ExportPlan(tuple(write), tuple(unchanged), tuple(remove), tuple(kept))


def load(
    bank: Mapping[str, BankFile],
    folder: Mapping[str, FolderEntry],
    manifest: Manifest,
    *,
    overwrite: bool = False,
) -> LoadPlan:
    """Decide which files of a folder are loaded into the bank.

    A file that is missing from the folder stays in the bank: a partial checkout, or the wrong
    folder, must not empty it. Raises UsageError if a file is unfit or holds the conflict markers of
    a merge, because half a load would leave a bank that nobody wrote.
    """
    created: list[str] = []
    updated: list[str] = []
    unchanged: list[str] = []
    conflicts: list[str] = []
    skipped: list[str] = []
    for name, theirs in sorted(folder.items()):
        if theirs is None:
            continue
        if isinstance(theirs, UnfitFile):
            raise UsageError(theirs.wrong)
        ours = bank.get(name)
        if theirs is False:
            skipped.append(name)
        elif ours is None:
            created.append(name)
        else:
            known = {*manifest.files.get(name, ()), ours.loaded}
            mine, other = text_hash(ours.text), text_hash(theirs)
            if mine == other:
                unchanged.append(name)
            elif overwrite or mine in known:
                updated.append(name)
            elif other in known:
                # Only the bank changed; the next export updates the folder.
                unchanged.append(name)
            else:
                conflicts.append(name)
    for name in (*created, *updated):
        if isinstance(text := folder[name], str) and (line := conflict_marker(text)):
            raise UsageError(
                f"{name} in the folder has conflict markers of a merge, the first in line {line}; "
                "finish the merge, then load again"
            )
    return LoadPlan(*map(tuple, (created, updated, unchanged, conflicts, skipped)))


def conflict_marker(text: str) -> int | None:
    r"""Return the number of the line where a merge left its first marker; None if there is none.

    A line of equals signs alone may underline a heading, and is none.

    >>> conflict_marker("# A\n<<<<<<< HEAD\n- x\n=======\n- y\n>>>>>>> other\n")
    2
    >>> conflict_marker("A\n=======\n\n> quoted")
    """
    text = text.replace("\r\n", "\n")
    found = _MARKER.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def write_manifest(manifest: Manifest) -> str:
    """Write a manifest as the text of its file: stable, one file a line.

    That suits version control.
    """
    value = {
        "format": _FORMAT,
        "space": manifest.space,
        "revision": manifest.revision,
        "files": {name: list(hashes) for name, hashes in sorted(manifest.files.items())},
    }
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def read_manifest(text: str, *, space: str, known: Collection[str]) -> Manifest:
    """Read a manifest. A damaged one lists nothing, so every file counts as somebody else's.

    A manifest is data: anybody may have written it. A name that the bank does not know, by its
    rules or as one of its files, is ignored, so that nothing else in a folder can be removed.
    Raises UsageError if the folder holds the bank of another space.
    """
    try:
        value, _ = check_json(json.loads(text), what="the manifest")
    except (ValueError, RecursionError):
        return Manifest(space)
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        return Manifest(space)
    owner, revision = value.get("space"), value.get("revision")
    if isinstance(owner, str) and owner != space:
        raise UsageError(
            f"the folder holds the bank of space {owner!r}, not that of {space!r}; give another "
            f"folder, or remove {MANIFEST} from it first"
        )
    files: dict[str, Any] = value["files"] if isinstance(value.get("files"), dict) else {}
    return Manifest(
        space,
        revision if isinstance(revision, int) and not isinstance(revision, bool) else 0,
        {
            name: tuple(each for each in hashes if isinstance(each, str))
            for name, hashes in files.items()
            if isinstance(hashes, list) and name in known
        },
    )


def _known(theirs: str, ours: BankFile, exported: Collection[str]) -> bool:
    """Return whether the bank knows a folder's text, so that overwriting it loses nothing."""
    other = text_hash(theirs)
    return other in exported or (bool(ours.loaded) and other == ours.loaded)
