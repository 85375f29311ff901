"""Joins values with a style and a script into one HTML text that loads and runs nothing else.

The page's Content-Security-Policy names the two by their hashes. Values stand in blocks that no
browser runs: packed as base64, or as JSON whose marks of HTML are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

#: What a block of JSON must not hold: a mark of HTML, and the line ends that HTML parsers know.
_MARKS: Final = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&'\u2028\u2029"}
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


def page(head: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """Return the page of a head and of the ``packed`` parts that it shows when asked for them."""
    style, script = _resource("page.css"), _resource("page.js")
    blocks = {"head": json_block(head), **parts}
    given = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "base-uri 'none'; form-action 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        "style": style,
        "script": script,
        "data": "\n".join(
            f'<script type="application/json" id="{name}">{text}</script>'
            for name, text in blocks.items()
        ),
    }
    return _PLACE.sub(lambda place: given[place[1]], _resource("page.html"))


def packed(value: object) -> str:
    """Return a value as compressed JSON in base64."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode("ascii")


def json_block(value: object) -> str:
    """Return a value as JSON that stands in a block of HTML and cannot end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_MARKS).encode("utf-8", "replace").decode("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


@cache
def _resource(name: str) -> str:
    from importlib.resources import files

    return files("hiermem.view").joinpath(name).read_text(encoding="utf-8")
