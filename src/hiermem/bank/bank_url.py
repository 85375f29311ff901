"""Reads where in object storage a bank lies: the URL, and the options of its storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hiermem.errors import UsageError

#: The schemes of URLs that name object storage; ``memory`` is the process's own, for trials.
SCHEMES: Final = ("s3", "gs", "az", "memory")
_MOST_URL: Final = 512
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
#: What a path makes of a URL: one slash of two.
_URL_AS_PATH: Final = re.compile(rf"(?:{'|'.join(SCHEMES)}):[/\\]")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_PART: Final = re.compile(r"[\w .,()+&=!'-]+\Z")
_OPTION: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


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
