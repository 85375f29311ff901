"""The prompts of hiermem: one text file per task, level and style, each with its version.

A prompt is data. It is read from its file, checked by ``PromptTemplate`` and covered by the
strategy hash, so a changed prompt makes other summaries that never count as the same. A user's own
templates are a mapping with the same names and take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from hiermem.errors import ConfigError
from hiermem.prompts.template import PromptTemplate

#: From this level on, one family of prompts serves every level.
_TOP = 3


def load(
    level: int, style: str, prompts: Mapping[str, PromptTemplate | str] | None = None
) -> PromptTemplate:
    """Return the prompt of ``level`` and ``style``; one in ``prompts`` (by name) comes first.

    A text in ``prompts`` is read like a template file. Raises ConfigError if there is none.
    """
    return load_named(f"summarise.l{min(level, _TOP)}.{style}", prompts)


def load_named(
    name: str, prompts: Mapping[str, PromptTemplate | str] | None = None
) -> PromptTemplate:
    """Return the prompt of that name, such as ``extract.map``; one in ``prompts`` comes first.

    Raises ConfigError if there is none.
    """
    own = (prompts or {}).get(name)
    if own is None:
        return _shipped(name)
    return own if isinstance(own, PromptTemplate) else PromptTemplate.parse(own)


@cache
def _shipped(name: str) -> PromptTemplate:
    """Read a template that comes with the package."""
    folder = files(__name__)
    known = sorted(
        entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt")
    )
    if name not in known:
        raise ConfigError(
            f"prompt {name!r} does not exist; use {', '.join(known)}, or pass it in prompts"
        )
    return PromptTemplate.parse((folder / f"{name}.txt").read_text(encoding="utf-8"))
