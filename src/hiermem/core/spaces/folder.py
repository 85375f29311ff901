"""Decides what an export writes into a folder, and what a load takes from it.

A folder and a bank are two copies of the same files, and either may have changed since they last
agreed. What they agreed on is known by hash: the folder's manifest holds the hashes of what was
exported, and the bank holds for each file the hash of what was loaded. A side whose text has such a
hash has not changed since.

A text that only one side has is never lost silently. If both changed, neither is overwritten and
the file is reported, unless ``overwrite`` is given. A file is removed only if the manifest lists it
and its name belongs to the bank, because anybody may have written a manifest.

Beside the files lie two that are only ever exported: the synthesis, and the bank's figures. They
are kept, written and removed by the same rules, and never loaded. ``objects`` decides the same for
a bank in object storage, by the functions here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from hiermem.core.spaces.clean import MAX_FILE
from hiermem.core.spaces.record import BankState
from hiermem.core.text.policy import check, check_json
from hiermem.errors import InvalidTextError, UsageError
from hiermem.types.bank import ExportReport, LoadReport

#: The name of the manifest, the only file that an export writes and no reader needs.
MANIFEST: Final = ".hiermem-bank.json"
FORMAT: Final = 1
SYNTHESIS: Final = "_synthesis.md"
META: Final = "_meta.json"
#: The files beside the bank's. A bank may have a file of such a name, which then comes first.
COMPANIONS: Final = frozenset({SYNTHESIS, META})
#: The most bytes that a file which is read may have.
MAX_BYTES: Final = 4 * MAX_FILE
#: A line with which version control marks one side of a merge that is not finished.
_MARKER: Final = re.compile(r"^(?:<{7,}|>{7,})(?: .*)?$", re.MULTILINE)


#: What a folder has under a name: a text, the error that loading it raises for content that no bank
#: file can have (no UTF-8, or too long), None for nothing, or False for an entry that is no plain
#: file (a link, a folder, a pipe), which is always left alone.
FolderEntry: TypeAlias = str | UsageError | Literal[False] | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a place: whose bank it holds, and the hashes of the files written there.

    During an export a file has two hashes, of before and after, so that what a killed export wrote
    is still recognised as the bank's.

    The rest is for object storage, where ``files`` are the copies. ``owner`` tells the space from
    others of its name, in other stores or erased. ``objects`` maps each file of the revision to
    ``GENERATION/SHA256``.
    """

    space: str = ""
    revision: int = 0
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    owner: str = ""
    generation: int = 0
    objects: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ExchangedBank:
    """A bank as it is exchanged with a folder or with object storage.

    ``names`` are all names that a file of the bank may have or have had; no other file is touched.
    ``texts`` are those of the files that it has now, ``loaded`` the hashes of what was last loaded
    into them. ``owner`` tells the space from others of its name. With ``overwrite``, what was
    changed on the other side is overwritten.
    """

    space: str
    names: Collection[str]
    texts: Mapping[str, str]
    loaded: Mapping[str, str] = field(default_factory=dict[str, str])
    overwrite: bool = False
    revision: int = 0
    owner: str = ""


def same_lines(text: str) -> str:
    r"""Return ``text`` with plain line ends, so that a checkout may change them.

    >>> same_lines("a\r\nb\r")
    'a\nb\n'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_hash(text: str) -> str:
    """Return the hash by which two copies of a file are compared."""
    return hashlib.sha256(same_lines(text).encode("utf-8")).hexdigest()


def exported_texts(state: BankState) -> dict[str, str]:
    """Return what an export of a bank holds: its files, its synthesis and its figures.

    A bank without a revision has no figures yet, and a synthesis that is longer than a file may be
    is left out. All of it is the same for every export of one revision.
    """
    meta = state.meta
    last = meta.last_consolidation
    figures = {
        "space": state.space,
        "revision": meta.revision,
        "last_consolidation": last.isoformat() if last else None,
        "consolidations": meta.consolidations,
        "notes_processed": meta.notes_processed,
        "files": sorted(state.texts),
    }
    beside: dict[str, str] = {}
    if meta.revision:
        beside[META] = json.dumps(figures, indent=1, ensure_ascii=True) + "\n"
    if (said := state.synthesis) and len(said) < MAX_FILE:
        beside[SYNTHESIS] = said if said.endswith("\n") else f"{said}\n"
    return {**beside, **state.texts}


def without_companions(report: ExportReport, bank: Collection[str]) -> ExportReport:
    """Return a report as the caller sees it: of the files beside the bank only those left alone."""
    beside = COMPANIONS - set(bank)

    def files(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in beside)

    return replace(
        report,
        written=files(report.written),
        unchanged=files(report.unchanged),
        removed=files(report.removed),
    )


def read_entry(name: str, data: bytes, *, place: str = "the folder") -> str | UsageError:
    """Return the content of a file as text, or what is wrong with it."""
    if len(data) > MAX_BYTES:
        return too_long(name, place)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return UsageError(f"{name} in {place} is not UTF-8 text")
    try:
        return check(text, what=f"{name} in {place}", cap=MAX_FILE)
    except InvalidTextError as error:
        return UsageError(str(error))


def too_long(name: str, place: str) -> UsageError:
    """Return the entry for a file that is too long to be read."""
    return UsageError(f"{name} in {place} has more than {MAX_BYTES:,} bytes")


def export(
    bank: ExchangedBank, folder: Mapping[str, FolderEntry], manifest: Manifest
) -> ExportReport:
    """Decide for each file of the bank, and each that the manifest lists, what the export does.

    ``folder`` is what was found there under those names; the report names no folder yet. With
    ``bank.overwrite``, a file that was changed there, or that is unfit, is overwritten; anything
    that is no plain file stays in any case.
    """
    write: list[str] = []
    unchanged: list[str] = []
    kept: list[str] = []
    for name, ours in sorted(bank.texts.items()):
        theirs = folder.get(name)
        if theirs is None:
            write.append(name)
        elif theirs is False:
            kept.append(name)
        elif isinstance(theirs, UsageError):
            (write if bank.overwrite else kept).append(name)
        elif (other := text_hash(theirs)) == text_hash(ours):
            unchanged.append(name)
        elif bank.overwrite or other in (*manifest.files.get(name, ()), bank.loaded.get(name)):
            # The bank knows the folder's text, so overwriting it loses nothing.
            write.append(name)
        else:
            kept.append(name)
    gone = sorted(manifest.files.keys() - bank.texts.keys())
    remove = [
        name
        for name in gone
        if isinstance(text := folder.get(name), str) and text_hash(text) in manifest.files[name]
    ]
    kept += [name for name in gone if name not in remove and folder.get(name) is not None]
    return ExportReport(
        "", bank.revision, tuple(write), tuple(unchanged), tuple(remove), tuple(kept)
    )


def under_way(plan: ExportReport, bank: ExchangedBank, manifest: Manifest) -> Manifest:
    """Return the manifest of an export that has begun: of each file the old and the new hashes.

    So whatever it writes stays known as the bank's, wherever it ends.
    """
    mine = _hashes(plan, bank)
    both = {
        name: tuple(dict.fromkeys((*manifest.files.get(name, ()), *mine.get(name, ()))))
        for name in {*manifest.files, *mine}
    }
    return replace(manifest, files=both)


def exported(plan: ExportReport, bank: ExchangedBank, manifest: Manifest) -> Manifest:
    """Return the manifest of an export that is done.

    A file that was left alone keeps its old hashes: it may become the bank's again.
    """
    left = {name: manifest.files[name] for name in plan.kept if name in manifest.files}
    return replace(manifest, revision=bank.revision, files=_hashes(plan, bank) | left)


def _hashes(plan: ExportReport, bank: ExchangedBank) -> dict[str, tuple[str, ...]]:
    return {name: (text_hash(bank.texts[name]),) for name in (*plan.written, *plan.unchanged)}


def load(
    bank: ExchangedBank, folder: Mapping[str, FolderEntry], manifest: Manifest
) -> tuple[LoadReport, dict[str, str]]:
    """Decide which files of a folder are loaded into the bank; return also their texts.

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
        if isinstance(theirs, UsageError):
            raise theirs
        ours = bank.texts.get(name)
        if theirs is False:
            skipped.append(name)
        elif ours is None:
            created.append(name)
        else:
            known = {*manifest.files.get(name, ()), bank.loaded.get(name)}
            mine, other = text_hash(ours), text_hash(theirs)
            if mine == other:
                unchanged.append(name)
            elif bank.overwrite or mine in known:
                updated.append(name)
            elif other in known:
                # Only the bank changed; the next export updates the folder.
                unchanged.append(name)
            else:
                conflicts.append(name)
    taken = {
        name: same_lines(text)
        for name in (*created, *updated)
        if isinstance(text := folder[name], str)
    }
    for name, text in taken.items():
        if line := conflict_marker(text):
            raise UsageError(
                f"{name} there has conflict markers of a merge, the first in line {line}; "
                "finish the merge, then load again"
            )
    report = LoadReport(
        "", None, tuple(created), tuple(updated), tuple(unchanged), tuple(conflicts), tuple(skipped)
    )
    return report, taken


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


def write_manifest(manifest: Manifest, more: Mapping[str, Any] | None = None) -> str:
    """Write a manifest as the text of its file: stable, one file a line.

    That suits version control. ``more`` is what else the place needs to have said.
    """
    value = {
        "format": FORMAT,
        "space": manifest.space,
        "revision": manifest.revision,
        "files": {name: list(hashes) for name, hashes in sorted(manifest.files.items())},
        **(more or {}),
    }
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def read_manifest(
    text: str, *, space: str, known: Collection[str], place: str = "the folder"
) -> Manifest:
    """Read a manifest. A damaged one lists nothing, so every file counts as somebody else's.

    A manifest is data: anybody may have written it. A name that the bank does not know, by its
    rules or as one of its files, is ignored, so that nothing else in a folder can be removed.
    Raises UsageError if the place holds the bank of another space.
    """
    try:
        value, _ = check_json(json.loads(text), what="the manifest")
    except (ValueError, RecursionError):
        return Manifest(space)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        return Manifest(space)
    owner, revision = value.get("space"), value.get("revision")
    if isinstance(owner, str) and owner != space:
        raise UsageError(
            f"{place} holds the bank of space {owner!r}, not that of {space!r}; give another one, "
            f"or remove {MANIFEST} from it first"
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
