"""Decides what an export of a bank writes and where, and what a load takes into the bank.

An export goes one way. It writes the bank's files and, last, the pointer ``_meta.json``, which has
the revision, and each of its files with its hash. A folder has the files under their plain names;
object storage has each under a key of its own, by name, revision and hash, so that a reader of the
pointer reads one whole revision. A pointer only ever replaces that of an earlier revision.

A person's changes in a folder are loaded back as a new revision. Nothing is merged here; version
control does that. But neither side silently overwrites a text that it never knew: an export is
refused over a file that is not the last export's, and a load over a file that a consolidation
changed since the export.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from hiermem.bank.records import BankState, RevisionTexts
from hiermem.bank.sections import MAX_FILE
from hiermem.errors import InvalidMessageError, UsageError
from hiermem.text.policy import check, check_json
from hiermem.types.bank import ExportReport, LoadReport

#: The pointer, and the synthesis; neither is ever loaded. A bank's own file of such a name, which
#: only the synthesis can have, comes first.
META: Final = "_meta.json"
SYNTHESIS: Final = "_synthesis.md"
#: The most bytes that a file which is read may have.
MAX_BYTES: Final = 4 * MAX_FILE
#: A line with which version control marks one side of a merge that is not finished.
_MARKER: Final = re.compile(r"^(?:<{7,}|>{7,})(?: .*)?$", re.MULTILINE)
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")
_OVERWRITE: Final = "or overwrite=True to replace it"
#: The content under a name: a text, the error for content that no bank file can have, or None.
Entry: TypeAlias = str | UsageError | None
#: The schemes of URLs that name object storage; ``memory`` is the process's own, for trials.
SCHEMES: Final = ("s3", "gs", "az", "memory")
_MOST_URL: Final = 512
#: A scheme, a bucket and a prefix, of which no part is only dots or begins or ends with a space.
_URL: Final = re.compile(
    rf"({'|'.join(SCHEMES)})://([A-Za-z0-9][A-Za-z0-9._-]*)"
    r"((?:/(?!\.+(?:/|\Z)| )[\w .,()+&=!'-]+(?<! ))*)/*\Z"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The revision of a space at a place, and the hashes of its files by name.

    ``owner`` tells the space from others of its name, in other stores or erased.
    """

    space: str
    owner: str
    revision: int
    files: Mapping[str, str] = field(default_factory=dict[str, str])

    def key(self, name: str) -> str:
        """Return the key of a file in object storage.

        The revision is part of it, so that whoever replaces a pointer may delete the files that
        it named: no later revision names them.
        """
        return f"{name}/{self.revision}-{self.files[name]}"


@dataclass(frozen=True, slots=True)
class ExchangedBank:
    """A bank as an export writes it, or a load changes it.

    ``names`` are all names that a file of the bank may have. ``texts`` are those of the files that
    it has now; in an export the synthesis is one of them. ``figures`` stand in the pointer for
    people to read.
    """

    pointer: Pointer
    names: Collection[str]
    texts: Mapping[str, str]
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    overwrite: bool = False

    @property
    def touched(self) -> set[str]:
        """Return the names of the files that an export may write or remove."""
        return {*self.names, SYNTHESIS}


def exchanged(state: BankState, owner: str, *, overwrite: bool, export: bool) -> ExchangedBank:
    """Return a bank for an export or a load.

    A synthesis longer than a file may be is omitted.
    """
    names, texts = {*state.rules.names, *state.texts}, dict(state.texts)
    if export and state.synthesis and len(state.synthesis) < MAX_FILE:
        texts.setdefault(SYNTHESIS, _ended(state.synthesis))
    last = state.meta.last_consolidation
    return ExchangedBank(
        Pointer(
            state.space,
            owner,
            state.meta.revision,
            {name: text_hash(text) for name, text in sorted(texts.items())},
        ),
        names,
        texts,
        {
            "last_consolidation": last.isoformat() if last else None,
            "consolidations": state.meta.consolidations,
            "notes_processed": state.meta.notes_processed,
        },
        overwrite,
    )


@dataclass(frozen=True, slots=True)
class BankUrl:
    """A place in object storage: a bucket (or container) and a prefix, which may be empty."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def key(self, name: str) -> str:
        """Return the key of this name below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name


def read_url(folder: object) -> BankUrl | None:
    """Return the place that a URL names; None for anything but a URL, such as a path.

    Raises UsageError for an unusable URL, which no error repeats: it may hold credentials.

    >>> str(read_url("s3://bank/team/x/"))
    's3://bank/team/x'
    >>> read_url("a/folder") is None
    True
    """
    if not isinstance(folder, str):
        if str(folder).replace("\\", "/").startswith(tuple(f"{scheme}:/" for scheme in SCHEMES)):
            raise UsageError("the URL is a path object, which loses a slash; pass text")
        return None
    if "://" not in folder:
        return None
    match = _URL.match(folder)
    if match is None or len(folder) > _MOST_URL:
        raise UsageError(
            f"invalid URL; use SCHEME://BUCKET/PREFIX without credentials, {', '.join(SCHEMES)}, "
            "or a folder"
        )
    return BankUrl(match[1], match[2], match[3][1:])


def read_options(options: object) -> dict[str, str]:
    """Return the options of a storage as texts. Raises UsageError; no value is ever repeated.

    >>> read_options({"region": "eu-1", "allow_http": True})
    {'region': 'eu-1', 'allow_http': 'true'}
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(
        isinstance(name, str) and name.isidentifier() and isinstance(value, (str, int))
        for name, value in options.items()
    ):
        raise UsageError("options must map names, such as endpoint, to text, numbers or bools")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def write_pointer(bank: ExchangedBank) -> str:
    """Write the pointer as text: stable, one file a line, as suits version control."""
    pointer = bank.pointer
    value = {
        "space": pointer.space,
        "owner": pointer.owner,
        "revision": pointer.revision,
        **bank.figures,
        "files": dict(pointer.files),
    }
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def read_pointer(text: Entry) -> Pointer | None:
    """Read a pointer, which anybody may have written; None if it is invalid or missing."""
    if not isinstance(text, str):
        return None
    try:
        value, _ = check_json(json.loads(text), what="the pointer")
        if not isinstance(value, dict):
            return None
        space, owner, revision, files = (
            value[name] for name in ("space", "owner", "revision", "files")
        )
    except (ValueError, RecursionError, KeyError):
        return None
    fit = isinstance(space, str) and isinstance(owner, str) and type(revision) is int
    if not fit or revision < 0 or not isinstance(files, dict):
        return None
    if not all(isinstance(digest, str) and _HASH.match(digest) for digest in files.values()):
        return None
    return Pointer(space, owner, revision, files)


def superseding(bank: ExchangedBank, pointer: Pointer | None, *, place: str) -> int | None:
    """Return the later revision of the same space at a place; None if there is none.

    Raises UsageError if the place has another space, or another line of this one, unless the bank's
    ``overwrite`` is set.
    """
    ours = bank.pointer
    if pointer is None:
        return None
    if pointer.owner == ours.owner and pointer.revision > ours.revision:
        return pointer.revision
    if bank.overwrite:
        return None
    check_space(bank, pointer, place=place)
    if pointer.owner != ours.owner:
        raise UsageError(
            f"{place} has the bank of another space of this name; choose another place, "
            f"{_OVERWRITE}"
        )
    if pointer.revision == ours.revision and pointer.files != ours.files:
        raise UsageError(
            f"{place} has a different revision {ours.revision} of this bank; load it, choose "
            f"another place, {_OVERWRITE}"
        )
    return None


def check_space(bank: ExchangedBank, pointer: Pointer | None, *, place: str) -> None:
    """Raise UsageError if a place holds the bank of a space of another name."""
    if pointer is not None and pointer.space != bank.pointer.space and not bank.overwrite:
        raise UsageError(
            f"{place} has space {pointer.space!r}, not {bank.pointer.space!r}; choose another "
            "place, or overwrite=True"
        )


def plan(
    bank: ExchangedBank, stored: Mapping[str, str]
) -> tuple[list[str], list[str], ExportReport]:
    """Return what an export writes and removes at a place with files of these hashes.

    The synthesis is among these files; the report, which comes last, names only the bank's.
    """
    ours = bank.pointer.files
    write = [name for name, digest in ours.items() if stored.get(name) != digest]
    remove = sorted((stored.keys() - ours.keys()) & bank.touched)
    reported = [name for name in ours if name in bank.names]
    report = ExportReport(
        "",
        bank.pointer.revision,
        written=tuple(name for name in reported if name in write),
        unchanged=tuple(name for name in reported if name not in write),
        removed=tuple(name for name in remove if name in bank.names),
    )
    return write, remove, report


def hashes_of(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the hashes of the existing files; "" stands for an unfit one."""
    return {
        name: text_hash(entry) if isinstance(entry, str) else ""
        for name, entry in entries.items()
        if entry is not None
    }


def strange(bank: ExchangedBank, stored: Mapping[str, str], pointer: Pointer | None) -> set[str]:
    """Return the files of a folder that are neither the last export's nor as the bank has them."""
    exported = pointer.files if pointer is not None else {}
    return {
        name
        for name, digest in stored.items()
        if digest not in (bank.pointer.files.get(name), exported.get(name))
    }


def recognised(
    names: Collection[str], stored: Mapping[str, str], revisions: Iterable[RevisionTexts]
) -> set[str]:
    """Return the names whose stored files are as one of these revisions wrote them.

    They are so after a load, and after an export that was killed before it wrote the pointer.
    """
    matching: set[str] = set()
    for changed, synthesis in revisions:
        texts = {SYNTHESIS: _ended(synthesis), **changed}
        for name in names:
            text = texts.get(name)
            if text is not None and text_hash(text) == stored[name]:
                matching.add(name)
    return matching


def refuse(names: Collection[str], *, place: str) -> None:
    """Raise UsageError if there are files that an export must not overwrite."""
    if names:
        raise UsageError(
            f"{', '.join(sorted(names))} in {place} changed since the last export; load it, "
            f"choose another folder, {_OVERWRITE}"
        )


def read_entry(name: str, data: bytes | None, *, place: str) -> str | UsageError:
    """Return a file's content as text, or the error for it; ``data`` None is too long."""
    if data is None or len(data) > MAX_BYTES:
        return UsageError(f"{name} in {place} has more than {MAX_BYTES:,} bytes; shorten it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return UsageError(f"{name} in {place} is not UTF-8; save it as UTF-8 text")
    try:
        return check(text, what=f"{name} in {place}", cap=MAX_FILE)
    except InvalidMessageError as error:
        return UsageError(str(error))


def load(
    bank: ExchangedBank,
    entries: Mapping[str, Entry],
    pointer: Pointer | None,
    newer: Collection[str],
    *,
    place: str,
) -> tuple[LoadReport, dict[str, str]]:
    """Decide which files are loaded into the bank; return also their texts.

    ``newer`` are the files that the bank changed since that export. They are skipped if the place
    did not change them, and refused if it did. A missing file stays in the bank: a partial
    checkout, or the wrong folder, must not empty it. Raises UsageError if a file is unfit, holds
    the conflict markers of a merge, or is refused, because half a load would leave a bank that
    nobody wrote.
    """
    exported = pointer.files if pointer is not None else {}
    texts: dict[str, str] = {}
    unchanged: list[str] = []
    refused: list[str] = []
    for name, theirs in sorted(entries.items()):
        if theirs is None:
            continue
        if isinstance(theirs, UsageError):
            raise theirs
        ours, digest = bank.texts.get(name), text_hash(theirs)
        if ours is not None and text_hash(ours) == digest:
            unchanged.append(name)
        elif ours is None or bank.overwrite or name not in newer:
            texts[name] = same_lines(theirs)
        else:
            (unchanged if exported.get(name) == digest else refused).append(name)
    if refused:
        raise UsageError(
            f"{', '.join(refused)} changed both in {place} and in the bank; merge an export to "
            "another place, or overwrite=True to load"
        )
    for name, text in texts.items():
        if line := conflict_marker(text):
            raise UsageError(
                f"{name} has a conflict marker in line {line}; finish the merge, then load again"
            )
    created = tuple(name for name in texts if name not in bank.texts)
    updated = tuple(name for name in texts if name in bank.texts)
    return LoadReport("", None, created, updated, tuple(unchanged)), texts


def conflict_marker(text: str) -> int | None:
    r"""Return the number of the line with a merge's first marker; None if there is none.

    A line of equals signs alone may underline a heading, so it is no marker.

    >>> conflict_marker("# A\n<<<<<<< HEAD\n- x\n=======\n- y\n>>>>>>> other\n")
    2
    >>> conflict_marker("A\n=======\n\n> quoted")
    """
    text = text.replace("\r\n", "\n")
    marker = _MARKER.search(text)
    return text.count("\n", 0, marker.start()) + 1 if marker else None


def same_lines(text: str) -> str:
    r"""Return ``text`` with plain line ends, so that a checkout may change them.

    >>> same_lines("a\r\nb\r")
    'a\nb\n'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_hash(text: str) -> str:
    """Return the hash by which two copies of a file are compared."""
    return hashlib.sha256(same_lines(text).encode("utf-8")).hexdigest()


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
