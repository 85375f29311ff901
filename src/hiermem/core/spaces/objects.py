"""Decides how a bank lies in object storage, and which export of several counts.

| key below the prefix | what it is |
|---|---|
| ``.hiermem-bank.json`` | the manifest: the revision, and the object of each of its files |
| ``objects/GENERATION/SHA256`` | a file's content under its hash; never changed |
| ``NAME.md``, ``_synthesis.md``, ``_meta.json`` | copies for people, written after the manifest |
| ``objects/probe-…`` | what an export tries the storage's conditional writes on |

The manifest alone is ever switched, by a write that counts only where nobody switched it since it
was read. So a reader finds one whole revision, or the next one.

The generation of a manifest is one more than that of the manifest it replaced, and new objects are
put under the generation of the manifest that is to name them. So whatever comes after a manifest
names objects that this one names, or objects of a later generation. An object of this or an earlier
generation that it does not name is therefore named by nothing to come, and can be deleted without
asking who else is exporting.

A copy holds in its metadata the hash of what an export wrote. Where hash and content agree, the
copy is the library's, however old; where they do not, a person changed it, and the rules of
``folder`` hold for it as for a file in a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from hiermem.core.spaces import folder as folder_plan
from hiermem.core.spaces.folder import Manifest
from hiermem.errors import UsageError
from hiermem.types.bank import ExportReport, LoadReport

#: The schemes of URLs that name object storage; ``memory`` is the process's own, for trials.
SCHEMES: Final = ("s3", "gs", "az", "memory")
#: Below the prefix: where the objects are, and what the names of trial objects begin with.
OBJECTS: Final = "objects/"
PROBE: Final = "objects/probe-"
#: In a copy's metadata: the hash of what was written, and the generation it belongs to. Letters
#: alone, because that is all that every storage and proxy lets through.
STAMP_HASH: Final = "hiermemsha256"
STAMP_GENERATION: Final = "hiermemgeneration"
_PROBE_AGE: Final = timedelta(days=1)
_MOST_URL: Final = 512
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
#: What a path makes of a URL: one slash of two.
_URL_AS_PATH: Final = re.compile(rf"(?:{'|'.join(SCHEMES)}):[/\\]")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_PART: Final = re.compile(r"[\w .,()+&=!'-]+\Z")
_OBJECT: Final = re.compile(r"([1-9][0-9]{0,14})/[0-9a-f]{64}\Z")
_OPTION: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


# ---------------------------------------------------------------------------------------------
# Places


@dataclass(frozen=True, slots=True)
class BankUrl:
    """A place in object storage: a bucket (or container) and a prefix, which may be empty."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def key(self, name: str) -> str:
        """Return the key of what has this name below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name


def read_url(folder: object) -> BankUrl | None:
    """Return the place that a URL names; None for what is no URL, such as a path.

    Raises UsageError for a URL of no use. The error repeats nothing but the scheme, because a URL
    may hold credentials.

    >>> str(read_url("s3://bank/team/x/"))
    's3://bank/team/x'
    >>> read_url("a/folder") is None
    True
    """
    found = _URL.match(folder) if isinstance(folder, str) else None
    if not isinstance(folder, str) and _URL_AS_PATH.match(str(folder)):
        raise UsageError("a URL of object storage is a text; a path makes one slash of its two")
    if found is None:
        return None
    scheme, rest = found[1].lower(), found[2]
    if scheme not in SCHEMES:
        raise UsageError(
            f"there is no object storage {scheme}://; it may be "
            f"{', '.join(f'{each}://' for each in SCHEMES)}, or the path of a folder"
        )
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if "@" in bucket or ":" in bucket:
        raise UsageError(
            f"a URL {scheme}:// holds no credentials and no port; give them in options, or in the "
            "environment"
        )
    parts = prefix.split("/") if prefix else []
    if (
        len(rest) > _MOST_URL - len(scheme) - 3
        or not _BUCKET.match(bucket)
        or not all(_PART.match(part) and part.strip(".") and part == part.strip() for part in parts)
    ):
        raise UsageError(
            f"a URL of object storage is {scheme}://BUCKET/PREFIX, of at most {_MOST_URL} "
            "characters; a prefix holds letters, digits, spaces, the marks _.,()+&=!'- and single "
            "slashes"
        )
    return BankUrl(scheme, bucket, prefix)


def read_options(options: object) -> dict[str, str]:
    """Return the options of a storage as texts. Raises UsageError; no value is ever repeated.

    >>> read_options({"region": "eu-1", "allow_http": True})
    {'region': 'eu-1', 'allow_http': 'true'}
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UsageError("options must be a mapping of names to values, such as {'endpoint': URL}")
    read: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(name, str) or not _OPTION.match(name):
            raise UsageError(
                "options: a name is no option of object storage; names are lower-case letters, "
                "digits and _, such as endpoint"
            )
        if isinstance(value, bool):
            read[name] = "true" if value else "false"
        elif isinstance(value, (str, int)):
            read[name] = str(value)
        else:
            raise UsageError(
                f"options: {name} is {type(value).__name__}; it must be a text, a whole number or "
                "a truth value"
            )
    return read


# ---------------------------------------------------------------------------------------------
# The manifest


def content_hash(data: bytes) -> str:
    """Return the hash under which content is stored: of its very bytes, unlike ``text_hash``."""
    return hashlib.sha256(data).hexdigest()


def write_manifest(manifest: Manifest) -> str:
    """Write a manifest as text; no two of one place are the same, since their generations differ.

    So it can be told from an earlier one even where a storage's version is the content's hash.
    """
    more = {
        "owner": manifest.owner,
        "generation": manifest.generation,
        "objects": dict(sorted(manifest.objects.items())),
    }
    return folder_plan.write_manifest(manifest, more)


def read_manifest(text: str, *, space: str, known: Collection[str], place: str) -> Manifest:
    """Read a manifest; ``known`` are the names that a file of the bank may have.

    Raises UsageError where it is of another space, or cannot be read: it holds the generation,
    without which nothing may be written over it.
    """
    manifest = folder_plan.read_manifest(text, space=space, known=known, place=place)
    try:
        value = json.loads(text)
        owner, generation, named = value["owner"], value["generation"], value["objects"]
        if (
            value["format"] == folder_plan.FORMAT
            and isinstance(owner, str)
            and type(generation) is int
            and generation > 0
            and all(isinstance(key, str) and _OBJECT.match(key) for key in named.values())
        ):
            return replace(manifest, owner=owner, generation=generation, objects=named)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    raise UsageError(
        f"{folder_plan.MANIFEST} in {place} cannot be read: it is damaged, or of a newer version; "
        "update hiermem, or remove it and export again"
    )


# ---------------------------------------------------------------------------------------------
# Copies


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy as it was found; ``own`` says that its content is what an export wrote there.

    ``version`` tells it from others under its name, None where there is none.
    """

    entry: folder_plan.FolderEntry = None
    version: Mapping[str, str] | None = None
    digest: str = ""
    own: bool = False
    generation: int = 0


NO_COPY: Final = Copy()


def read_copy(
    name: str,
    data: bytes | None,
    version: Mapping[str, str],
    stamps: Mapping[str, str],
    *,
    place: str,
) -> Copy:
    """Return a copy by its content, None where that is too long, its version and its metadata."""
    if data is None:
        return Copy(folder_plan.too_long(name, place), version)
    digest, written = content_hash(data), stamps.get(STAMP_GENERATION, "")
    own = stamps.get(STAMP_HASH) == digest and written.isdecimal() and written.isascii()
    entry = folder_plan.read_entry(name, data, place=place)
    return Copy(entry, version, digest, own, int(written[:15]) if own else 0)


def _agreed(name: str, copy: Copy, manifest: Manifest) -> bool:
    """Return whether a copy is known to hold nothing of a person."""
    if copy.own:
        return True
    entry = copy.entry
    known = manifest.files.get(name, ())
    return isinstance(entry, str) and folder_plan.text_hash(entry) in known


def may_replace(found: Copy, ours: str, *, generation: int) -> bool:
    """Return whether a copy that changed since it was read is written over all the same.

    Only where an earlier export wrote it: a later one has the newer text, a person the only one.
    """
    return found.entry is None or (
        found.own and found.generation < generation and found.digest != ours
    )


# ---------------------------------------------------------------------------------------------
# Export


def export(
    bank: folder_plan.ExchangedBank,
    copies: Mapping[str, Copy],
    held: Manifest | None,
    *,
    place: str,
) -> tuple[ExportReport, Manifest]:
    """Decide an export of a revision that is not older than what the storage holds.

    Returns what is done with the copies, and the manifest to switch to: ``held`` where that says it
    all. The objects of its own generation have to be put first (``new_objects``). It names every
    file of the revision, also one whose copy a person changed and which is therefore kept.

    Raises UsageError where the revision that is there is of another store, unless
    ``bank.overwrite`` is set.
    """
    hashes = {name: content_hash(text.encode()) for name, text in bank.texts.items()}
    before = held or Manifest(bank.space)
    if held is not None and not bank.overwrite:
        _check_owner(bank, hashes, held, place=place)
    known = {name: before.files.get(name, ()) for name in {*before.files, *copies}}
    for name, copy in copies.items():
        if copy.own and isinstance(copy.entry, str):
            known[name] = (*known[name], folder_plan.text_hash(copy.entry))
    agreed = replace(before, files={name: each for name, each in known.items() if each})
    found: dict[str, folder_plan.FolderEntry] = {name: copy.entry for name, copy in copies.items()}
    plan = folder_plan.export(bank, found, agreed)
    # With ``overwrite`` nothing is taken as being there, which mends what somebody damaged.
    reused = {
        name: key
        for name, key in before.objects.items()
        if _digest(key) == hashes.get(name) and not bank.overwrite
    }
    generation = before.generation + 1
    new = {name: f"{generation}/{hashes[name]}" for name in bank.texts.keys() - reused.keys()}
    after = replace(
        folder_plan.exported(plan, bank, before),
        owner=bank.owner,
        generation=generation,
        objects=reused | new,
    )
    if held is not None and replace(after, generation=held.generation) == held:
        return plan, held
    return plan, after


def new_objects(manifest: Manifest) -> dict[str, str]:
    """Return the files whose objects are put under the manifest's own generation, and the objects.

    Those of earlier generations are there already.
    """
    own = f"{manifest.generation}/"
    return {name: key for name, key in sorted(manifest.objects.items()) if key.startswith(own)}


def _digest(key: str) -> str:
    return key.partition("/")[2]


def _check_owner(
    bank: folder_plan.ExchangedBank, hashes: Mapping[str, str], held: Manifest, *, place: str
) -> None:
    """Raise UsageError where the revision that is there has not become this one."""
    if held.owner != bank.owner:
        raise UsageError(
            f"{place} holds the bank of a space of the same name in another store, or of one that "
            "was erased; give another prefix, or overwrite=True to replace it"
        )
    # The files beside the bank's do not count: both sides have the same of them.
    beside = dict.fromkeys(folder_plan.COMPANIONS, "")
    theirs = {name: _digest(key) for name, key in held.objects.items()}
    if held.revision == bank.revision and theirs | beside != {**hashes, **beside}:
        raise UsageError(
            f"{place} holds another revision {bank.revision} of this bank, as after the store was "
            "restored from a backup; load it, give another prefix, or overwrite=True to replace it"
        )


def is_garbage(name: str, manifest: Manifest, *, age: timedelta) -> bool:
    """Return whether an object, by its name below the prefix, is named by nothing now or later.

    That needs no age: see above. Probe objects that a killed export left are deleted after a day.

    >>> is_garbage("objects/1/x", Manifest(), age=timedelta(0))
    False
    """
    if name.startswith(PROBE):
        return age > _PROBE_AGE
    key = name.removeprefix(OBJECTS)
    if key == name or not (found := _OBJECT.match(key)):
        return False
    return int(found[1]) <= manifest.generation and key not in manifest.objects.values()


# ---------------------------------------------------------------------------------------------
# Load


def wanted_object(name: str, copy: Copy, held: Manifest | None) -> str | None:
    """Return the object that a load needs for a file; None where the copy, or nothing, is taken."""
    if held is None or (key := held.objects.get(name)) is None:
        return None
    if copy.entry is not None and not _agreed(name, copy, held):
        return None
    return None if copy.digest == _digest(key) else key


def load(
    bank: folder_plan.ExchangedBank,
    copies: Mapping[str, Copy],
    objects: Mapping[str, folder_plan.FolderEntry],
    held: Manifest | None,
) -> tuple[LoadReport, dict[str, str]]:
    """Decide which files are loaded: of each what a person made of the copy, else the revision's.

    ``objects`` are the files that ``wanted_object`` asked for. Returns the report and the texts.
    """
    manifest = held or Manifest(bank.space)
    found: dict[str, folder_plan.FolderEntry] = {}
    known = dict(manifest.files)
    for name, copy in copies.items():
        if name in objects:
            found[name] = objects[name]
        elif name in manifest.objects or not _agreed(name, copy, manifest):
            found[name] = copy.entry
        # What the manifest names, the bank of its owner had.
        entry = found.get(name)
        if isinstance(entry, str) and (name in objects or _agreed(name, copy, manifest)):
            known[name] = (*known.get(name, ()), folder_plan.text_hash(entry))
    agreed = replace(manifest, files=known)
    return folder_plan.load(bank, found, agreed)


def read_object(name: str, data: bytes | None, key: str, *, place: str) -> folder_plan.FolderEntry:
    """Return an object's text. Raises UsageError where its content is not what its name says."""
    if data is None or content_hash(data) != _digest(key):
        raise UsageError(
            f"{place} is damaged: the object of {name} does not hold what its hash says; export "
            "again with overwrite=True"
        )
    return folder_plan.read_entry(name, data, place=place)


def stamps(digest: str, generation: int) -> dict[str, str]:
    """Return the metadata of a copy."""
    return {STAMP_HASH: digest, STAMP_GENERATION: str(generation)}
