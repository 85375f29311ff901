"""Decides when two texts, or two ways of making a text, are the same.

A hash covers everything that can change the result, and nothing more. Session, index, title and
participants are left out on purpose, so a fork or a re-pack finds the summaries that were made
before. Every hash is tagged with its method, so hashes of a later method can be stored alongside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

_TAG: Final = "sha256:"


def _hash(kind: str, parts: Sequence[object]) -> str:
    """Hash ``parts`` as canonical JSON under ``kind``, so that no two lists are confused."""
    written = json.dumps([kind, *parts], ensure_ascii=True, separators=(",", ":"))
    return _TAG + hashlib.sha256(written.encode("ascii")).hexdigest()


def strategy_hash(
    *,
    template: str,
    style: str,
    lengths: Sequence[object],
    temperature: float,
    model: str,
    counter: str,
) -> str:
    """Hash the way in which summaries of one level are made.

    ``template`` is the identity of the prompt (name, version and a hash of its text); ``lengths``
    are the settings that decide how long summaries up to this level are.
    """
    return _hash("strategy", [template, style, list(lengths), temperature, model, counter])


def input_hash(*, level: int, strategy: str, outputs: Sequence[str], overlap: str = "") -> str:
    """Hash a node's sources: its inputs' output hashes, in order, and the strategy.

    >>> a = input_hash(level=1, strategy="s", outputs=["x", "y"])
    >>> a == input_hash(level=1, strategy="s", outputs=["y", "x"])
    False
    """
    return _hash("input", [level, strategy, list(outputs), overlap])


def output_hash(
    *,
    text: str,
    anchors: Sequence[str] = (),
    tags: Sequence[str] = (),
    entities: Sequence[str] = (),
) -> str:
    """Hash a node's text. An equal hash stops the dirty mark from moving further up."""
    return _hash("output", [text, list(anchors), list(tags), list(entities)])


#: The strategy of nodes whose inputs are kept word for word: they depend on no setting or model.
VERBATIM: Final = _hash("strategy", ["verbatim"])
