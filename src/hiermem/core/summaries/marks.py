"""Writes the marks around data in a prompt, and finds what a prompt says around its record."""

from __future__ import annotations

import hashlib
import json
from typing import Final

_PIECE: Final = 2_000


def before_record(content: str) -> str:
    """Return what a rendered prompt says before its record."""
    return content.partition("<<record ")[0]


def after_record(content: str) -> str:
    """Return what a rendered prompt says after its record; "" where there is none."""
    _, mark, rest = content.rpartition("<<end of record ")
    return rest.partition(">>")[2] if mark else ""


def marked(kind: str, text: str, *, name: str = "") -> str:
    """Put ``text`` between marks that it cannot hold itself.

    A ``name`` stands in quotes behind the hash, so that neither is taken for a part of the other.
    """
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256()
    # hashlib releases the interpreter's lock for longer pieces, and reacquiring it from busy
    # threads takes longer than the hashing.
    for at in range(0, len(data), _PIECE):
        digest.update(data[at : at + _PIECE])
    mark = digest.hexdigest()[:12]
    named = f" name={json.dumps(name, ensure_ascii=False)}" if name else ""
    return f"<<{kind} {mark}{named}>>\n{text}\n<<end of {kind} {mark}>>"
