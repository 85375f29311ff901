"""Writes what a model would answer to a prompt, from the prompt alone, as a server sees it.

The one rule: nothing of the library's own request reaches it; what it knows of the record it reads
back out of the rendered text, so a record that cannot be read there could not be by a model either.
"""

import re
from collections.abc import Sequence

from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import ChatMessage, LLMRequest, SourceText
from hiermem.testing.llms import write
from hiermem.tokens import default_counter

_RECORD = re.compile(r"<<record (\w+)>>\n(.*?)\n?<<end of record \1>>", re.DOTALL)
_DAY = re.compile(r"\[([^\]\n]{1,40})\]")
_SAID = re.compile(
    r"(?:#(?P<index>\d+) )?(?P<who>[^\s:][^\n:]{0,200}?)"
    r"(?: \((?P<role>system|user|assistant|tool)\))?: ?(?P<text>.*)"
)
_BELOW = re.compile(r"\((?:Summary|Part) \d+ of \d+(?:, (?P<date>[^)\n]{1,40}))?\)")
_TARGET = re.compile(r"about (\d+) lines?,")
#: The tokens of a line of one fact, as a model counts them.
_LINE = 24
_PERCENT = re.compile(r"about (\d+)% of the length")

#: The date line of a day, and the beginning of a message.
_RECORD_LINE = re.compile(r"^(?:\[\d{4}-\d\d-\d\d\]\n|(?:User|Assistant): )", re.MULTILINE)


def answer(messages: Sequence[tuple[str, str]], *, max_tokens: int, json: bool = False) -> str:
    """Answer rendered ``(role, content)`` messages in at most ``max_tokens`` tokens."""
    prompt = "\n".join(content for _, content in messages)
    inputs = record(prompt)
    counter = default_counter()
    target = max_tokens
    if told := _TARGET.search(prompt):
        target = int(told[1]) * _LINE
    elif told := _PERCENT.search(prompt):
        target = int(told[1]) * sum(counter.count(each.text) for each in inputs) // 100
    request = LLMRequest(
        task="extract" if json else "summarise",
        messages=tuple(
            ChatMessage("system" if role == "system" else "user", content)
            for role, content in messages
        ),
        inputs=inputs,
        target_tokens=max(1, min(target, max_tokens)),
        max_tokens=max_tokens,
        counter=counter,
    )
    if json:
        return ExtractiveLLM().extract(request)
    # A model that summarises writes no lines in the form of the record; those would be refused.
    return _RECORD_LINE.sub("", write(request))


def record(prompt: str) -> tuple[SourceText, ...]:
    """Read the record of a prompt back: its messages, or the summaries it is made of."""
    found = _RECORD.search(prompt)
    if found is None:
        return ()
    sources: list[SourceText] = []
    lines: list[str] = []
    day, head = "", SourceText(None, "user", "", "", "")

    def close() -> None:
        if lines:
            text = "\n".join(lines)
            sources.append(SourceText(head.index, head.role, head.speaker, head.date or day, text))
            lines.clear()

    for line in found[2].split("\n"):
        if below := _BELOW.fullmatch(line):
            close()
            head = SourceText(None, "user", "", below["date"] or "", "")
        elif head.date:
            lines.append(line)
        elif _DAY.fullmatch(line):
            close()
            day, head = line[1:-1], SourceText(None, "user", "", "", "")
        elif said := _SAID.fullmatch(line):
            close()
            number, who = said["index"], said["who"]
            named = who.casefold() if who.casefold() in ("assistant", "system", "tool") else "user"
            head = SourceText(
                int(number) if number else len(sources),
                said["role"] or named,  # type: ignore[arg-type]
                who,
                "",
                "",
            )
            lines.append(said["text"])
        else:
            lines.append(line.removeprefix("  "))
    close()
    return tuple(sources)
