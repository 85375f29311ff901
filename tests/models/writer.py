"""Writes what a model would answer to a prompt, from the prompt alone, as a server sees it.

The one rule: nothing of the library's own request reaches it; what it knows of the record it reads
back out of the rendered text, so a record that cannot be read there could not be by a model either.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import ChatMessage, LLMRequest, SourceText
from hiermem.testing.llms import write
from hiermem.tokens import default_counter

_RECORD = re.compile(r"<<record (\w+)>>\n(.*?)\n?<<end of record \1>>", re.DOTALL)
_DAY = re.compile(r"\[[^\]\n]{1,40}\]")
#: The first line of a message, and that of a summary.
_BEGINS = re.compile(
    r"(?:#\d+ )?(?P<who>[^\s:#(\[-][^\n:]{0,200}?)"
    r"(?: \((?P<role>system|user|assistant|tool)\))?: ?(?P<text>.*)"
    r"|\((?:Summary|Part) \d+ of \d+(?:, [^)\n]{1,40})?\)"
)
#: The date line of a day, and the beginning of a message.
_RECORD_LINE = re.compile(r"^(?:\[\d{4}-\d\d-\d\d\]\n|(?:User|Assistant): )", re.MULTILINE)


def answer(messages: Sequence[tuple[str, str]], *, max_tokens: int, json: bool = False) -> str:
    """Answer rendered ``(role, content)`` messages in at most ``max_tokens`` tokens."""
    request = LLMRequest(
        task="extract" if json else "summarise",
        messages=tuple(
            ChatMessage("system" if role == "system" else "user", content)
            for role, content in messages
        ),
        inputs=record("\n".join(content for _, content in messages)),
        target_tokens=max_tokens,
        max_tokens=max_tokens,
        counter=default_counter(),
    )
    if json:
        return ExtractiveLLM().extract(request)
    # A model that summarises writes no lines in the form of the record; those would be refused.
    return _RECORD_LINE.sub("", write(request))


def record(prompt: str) -> tuple[SourceText, ...]:
    """Read the record of a prompt back: its messages, or the summaries it is made of."""
    found = _RECORD.search(prompt)
    sources: list[SourceText] = []
    for line in found[2].split("\n") if found else ():
        if _DAY.fullmatch(line):
            continue
        begins = _BEGINS.fullmatch(line)
        if begins is None and sources:
            last = sources[-1]
            text = f"{last.text}\n{line.removeprefix('  ')}".lstrip()
            sources[-1] = replace(last, text=text)
            continue
        who, role, text = begins.groups("") if begins else ("", "", line)
        named = who.casefold() if who.casefold() in ("assistant", "system", "tool") else "user"
        sources.append(SourceText(len(sources), role or named, who, "", text))  # type: ignore[arg-type]
    return tuple(sources)
