"""The fences in a text, taken apart as a client would that knows how they are written."""

import json
import re
from typing import NamedTuple

from hiermem.text.fence import NOTICE, find, unescape

_OPENING = re.compile(r'\[\[hiermem ("(?:[^"\\]|\\.)*"|\S+?)(?: [^\n]*)?\]\]\r?\n')


class Fence(NamedTuple):
    """A verified fence: its range in the text, its name, and its original body."""

    start: int
    end: int
    name: str
    body: str


def read(text, *, key):
    """Return the verified fences in ``text``, in order."""
    found = []
    for start, end in find(text, key=key):
        whole = text[start:end].removeprefix(NOTICE).lstrip("\r\n")
        opening = _OPENING.match(whole)
        name = json.loads(opening[1]) if opening[1][0] == '"' else opening[1]
        body = whole[opening.end() : whole.rindex("[[/hiermem")]
        body = body.removesuffix("\r\n" if opening[0].endswith("\r\n") else "\n")
        found.append(Fence(start, end, name, unescape(body)))
    return found
