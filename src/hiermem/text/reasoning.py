# ruff: noqa: RUF001  # the brackets of other templates are meant
"""Finds the reasoning that a model writes into its answer, whatever marks it puts around it.

The marks are those of templates that a server did not parse: ``<think>``, ``[THINK]``, ``◁think▷``,
``<seed:think>``, ``<|START_THINKING|>``, ``<details type="reasoning">``, the channels of harmony.
They are known by their form, so that new names of the same kind are found too. A mark in back
quotes is spoken of and is none.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = (
    r"(?:think|thought|reason|reflect|analy[sz]|scratch_?pad|monologue|deliberat|思考|推理)"
)
_MARK: Final = re.compile(
    rf"(?<![\w`])(?:<\|?/?[\w:.-]{{0,20}}?{_NAME}\w{{0,8}}(?:\s[^<>\n]{{0,80}})?\|?>"
    rf"|[◁【]/?{_NAME}\w{{0,8}}[▷】]"
    r"|(?-i:\[/?(?:THINK|THOUGHT|REASON)[A-Z]{0,6}\])(?!\()"
    rf"|<details\s[^<>\n]{{0,40}}{_NAME}[^<>\n]{{0,60}}>|</details>)",
    re.IGNORECASE,
)
_CLOSES: Final = re.compile(r"[<\[◁【]\|?(?:/|end_)", re.IGNORECASE)
#: The channel of an answer, and any channel.
_FINAL: Final = re.compile(r"<\|?channel\|?>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_CHANNEL: Final = re.compile(r"<\|?channel\|?>")
#: What begins and ends a turn in the templates of chat models.
_BEGIN: Final = re.compile(
    r"\s*(?:<\|(?:im_start|start|start_header_id)\|>\s*(?:assistant)?|<\|end_header_id\|>"
    r"|<\|message\|>|<start_of_turn>\s*(?:model)?|<s>)"
)
_END: Final = re.compile(
    r"(?<!`)(?:<\|(?:im_end|im_start|eot_id|eom_id|end|endoftext|end_of_text|end_of_turn|return|call"
    r"|start)\|>|<(?:end|start)_of_turn>|</?s>(?=\s*\Z)|<｜[^｜\n]{0,40}｜>)"
)


def without_reasoning(text: str) -> str:
    """Return an answer without reasoning and the marks of turns; unclosed reasoning stays.

    What stands before a closing mark without an opening one is reasoning: the template wrote the
    opening mark.

    >>> without_reasoning("They ask for dates.</think>Ada rents."), without_reasoning("<think>Hm.")
    ('Ada rents.', '<think>Hm.')
    """
    text = _without_turns(text)
    kept: list[str] = []
    at, opened = 0, ""
    for match in _MARK.finditer(text):
        mark = match.group()
        if not _CLOSES.match(mark):
            if not opened:
                kept.append(text[at : match.start()])
                at, opened = match.start(), mark
        elif mark.startswith("</details") == opened.startswith("<details"):
            if not opened:
                kept.clear()
            at, opened = match.end(), ""
    return "".join((*kept, text[at:])).strip() if at else text


def holds_reasoning(text: str) -> bool:
    """Return whether a text has a mark of reasoning, or of a channel."""
    found = (match.group() for match in _MARK.finditer(text))
    return any(mark != "</details>" for mark in found) or _CHANNEL.search(text) is not None


def is_unclosed(text: str) -> bool:
    """Return whether a text begins with reasoning that has no end.

    >>> is_unclosed("<think>Perhaps {}?"), is_unclosed("<think>Perhaps.</think>{}")
    (True, False)
    """
    mark = _MARK.match(without_reasoning(text).lstrip())
    return mark is not None and _CLOSES.match(mark.group()) is None


def _without_turns(text: str) -> str:
    finals = list(_FINAL.finditer(text)) if "channel" in text else []
    if finals:
        text = text[finals[-1].end() :]
    while match := _BEGIN.match(text):
        text = text[match.end() :]
    end = _END.search(text)
    # Of a text with other channels only, nothing is the answer.
    if end is not None and text[: end.start()].strip():
        text = text[: end.start()]
    return text.strip()
