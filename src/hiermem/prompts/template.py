"""Decides what a model reads: a template's constant words, the facts, and the record as data.

Text from a conversation stands only between the two marks of the record. The marks hold a hash of
everything between them, so no text inside can write the closing mark. The constant part comes first
and the record after it, because providers' prompt caches reward a constant prefix. Texts are
rendered here; files are read by ``hiermem.prompts``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hiermem.errors import ConfigError
from hiermem.protocols import ChatMessage, SourceText
from hiermem.text import language
from hiermem.text.policy import words
from hiermem.text.units import prose

_TIME: Final = "%Y-%m-%d %H:%M"
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
#: A heading of a summary that is an input of another one.
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*:?[ \t]*#*$", re.MULTILINE)
#: The line that dates the lines below it, in a summary.
_DAY: Final = re.compile(r"^\[(\d{4}-\d\d-\d\d)\]$", re.MULTILINE)
_PLACES: Final = words(
    "title participants period start end duration count message_count language length most overlap"
    " record"
)
#: The places of a consolidation prompt, whose name begins with this word.
_BANK: Final = "consolidate"
_BANK_PLACES: Final = words("rules files missing synthesis count period record")
#: Words per token of a line under its day, by language. Models count words better than tokens.
_WORDS: Final = {"English": 0.7}
_OTHER_WORDS: Final = 0.5
#: The share of these from level 3 on, where names, figures and days stand closer together.
_DENSE: Final = 0.7
#: The share of its allotted length by which a text may be longer before it is too long for what is
#: stated; the hard limit is half as much again.
_STATED: Final = 1.1
#: Characters per token of the languages that are written without spaces.
_CHARACTERS: Final = {"Chinese": 1.3, "Japanese": 1.3}
#: Code points of the inputs that are read to name their language.
_SAMPLE: Final = 6_000
_ROLE_WORD: Final = re.compile(r"user|assistant|system|tool|[(\uff08:]", re.IGNORECASE)
#: The bytes of a record that are hashed at once.
_PIECE: Final = 2_000


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """One prompt: a system part and a user part, with places to fill.

    ``user`` may hold ``{{title}}``, ``{{participants}}``, ``{{period}}``, ``{{start}}``,
    ``{{end}}``, ``{{duration}}``, ``{{count}}``, ``{{message_count}}``, ``{{language}}``,
    ``{{length}}`` and ``{{overlap}}``, and must hold ``{{record}}``; a line whose
    places are all empty is left out. The prompt of an extraction may hold ``{{most}}``. A prompt
    named ``consolidate`` may hold ``{{rules}}``, ``{{files}}``, ``{{missing}}``, ``{{synthesis}}``,
    ``{{period}}`` and ``{{count}}`` instead, and its record is the notes. Raises ConfigError if a
    place is unknown or the record has none.
    """

    name: str
    version: str
    system: str
    user: str

    def __post_init__(self) -> None:
        places = set(_PLACE.findall(self.user))
        known = _BANK_PLACES if self.name.startswith(_BANK) else _PLACES
        if unknown := (places | set(_PLACE.findall(self.system))) - known:
            raise ConfigError(
                f"prompt {self.name!r} has unknown places {sorted(unknown)}; "
                f"it may use {sorted(known)}"
            )
        if "record" not in places or _PLACE.search(self.system):
            raise ConfigError(
                f"prompt {self.name!r} needs {{record}} in its user part; its system part "
                "has no places"
            )

    @property
    def identity(self) -> str:
        """Return name, version and a hash of the words, which the strategy hash covers."""
        words = json.dumps([self.system, self.user])
        return f"{self.name}@{self.version}#{hashlib.sha256(words.encode()).hexdigest()[:16]}"

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """Read a template file: header lines, then the parts under ``[system]`` and ``[user]``.

        The header holds ``name`` and ``version``. Raises ConfigError if a part is missing.
        """
        head, mark, rest = text.partition("\n[system]\n")
        system, second, user = rest.partition("\n[user]\n")
        fields = {
            key.strip(): value.strip()
            for key, colon, value in (line.partition(":") for line in head.splitlines())
            if colon and not key.startswith("#")
        }
        if not (mark and second and fields.get("name") and fields.get("version")):
            raise ConfigError(
                "invalid prompt file; write 'name: ...', 'version: ...', a [system] and a "
                "[user] part"
            )
        return cls(
            name=fields["name"],
            version=fields["version"],
            system=system.strip(),
            user=user.strip(),
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about the record that a prompt states; none of them is hashed."""

    title: str | None
    participants: tuple[str, ...]
    first_at: datetime
    last_at: datetime
    messages: int
    summaries: int = 0
    level: int = 1


@dataclass(frozen=True, slots=True)
class Length:
    """The target length of a text and its hard limit, in tokens."""

    target: int
    limit: int


def render(
    template: PromptTemplate,
    inputs: Sequence[SourceText],
    *,
    facts: Facts,
    length: Length,
    ratio: float | None = None,
    overlap: str = "",
) -> tuple[ChatMessage, ...]:
    """Fill ``template``: a system message that never varies, and a user message with the data.

    Where a ``ratio`` is given, the prompt states that share of the record in place of ``length``.
    """
    spoken = language_of(inputs)
    values = fact_values(facts) | {
        "language": spoken,
        "length": _length(length, spoken, ratio, dense=facts.level > 2),
        "overlap": marked("earlier", overlap) if overlap else "",
        "record": marked("record", plain(inputs)),
    }
    return fill(template, values)


def fact_values(facts: Facts) -> dict[str, str]:
    """Return the values of the places for the facts about a record."""
    return {
        "title": _line(facts.title or ""),
        "participants": ", ".join(map(_line, facts.participants)),
        "period": _period(facts),
        "start": f"{facts.first_at:{_TIME}}",
        "end": f"{facts.last_at:{_TIME}}",
        "duration": _duration(facts.last_at - facts.first_at),
        "message_count": str(facts.messages),
        "count": _count(facts),
    }


def fill(template: PromptTemplate, values: Mapping[str, str]) -> tuple[ChatMessage, ...]:
    """Put ``values`` into the places of ``template``; drop lines with empty places only."""
    lines: list[str] = []
    for line in template.user.splitlines():
        places = _PLACE.findall(line)
        if not places or any(values.get(place) for place in places):
            lines.append(_PLACE.sub(lambda match: values.get(match.group(1), ""), line))
    return (ChatMessage("system", template.system), ChatMessage("user", "\n".join(lines)))


def second_request(
    messages: Sequence[ChatMessage], complaints: Iterable[str], *, answer: str = ""
) -> tuple[ChatMessage, ...]:
    """Return a second request that says what was wrong, and shows the first ``answer`` if given.

    The addition stands at the end, so everything before it is still in the provider's cache.
    """
    wrong = "\n".join(f"- {each}" for each in complaints)
    asked = (
        f"The answer could not be used:\n{wrong}\n"
        "Write the whole summary again and nothing else, in the form and length asked for."
    )
    if answer:
        return (*messages, ChatMessage("assistant", answer), ChatMessage("user", asked))
    *before, last = messages
    return (*before, ChatMessage(last.role, f"{last.content}\n\n{asked}"))


def plain(inputs: Sequence[SourceText]) -> str:
    """Write inputs as ``[date]`` and ``Speaker: text`` lines, and summaries under their number.

    Further lines of a message are indented, so the text itself cannot invent a speaker at the
    margin. A summary's headings are plain lines, so that they are not taken for those of the
    answer. Days have their weekday, from which a model reckons "last Friday".
    """
    lines: list[str] = []
    shown = ""
    number = 0
    summaries = sum(source.index is None for source in inputs)
    for source in inputs:
        if source.index is None:
            number += 1
            text, days = _DAY.subn(lambda day: day_line(day[1]), source.text)
            day = f", {source.date}" if source.date and not days else ""
            lines.append(f"({_line(source.speaker)} {number} of {summaries}{day})")
            lines.append(_HEADING.sub(r"\1:", text))
            continue
        if source.date and source.date != shown:
            lines.append(day_line(source.date))
            shown = source.date
        lines.append(said(source))
    return "\n".join(lines)


def day_line(day: str) -> str:
    """Return the line that dates the lines below it; a day of the calendar has its weekday.

    >>> day_line("2023-07-27")
    '[Thu 2023-07-27]'
    """
    with suppress(ValueError):
        # The name does not depend on a locale.
        return f"[{date.fromisoformat(day).ctime()[:3]} {day}]"
    return f"[{day}]"


def said(source: SourceText) -> str:
    """Write one message with its speaker; further lines of its text are indented.

    The role stands beside the speaker where the name does not say it. A named speaker without a
    role is a user; a name that could be read as a role always has its role beside it.
    """
    text = source.text.replace("\n", "\n  ")
    name = _line(source.speaker)
    plainly = name.casefold() == source.role or (
        source.role == "user" and not _ROLE_WORD.search(name)
    )
    return f"{name}: {text}" if plainly else f"{name} ({source.role}): {text}"


def before_record(content: str) -> str:
    """Return what a rendered prompt says before its record."""
    return content.partition("<<record ")[0]


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


def language_of(inputs: Sequence[SourceText]) -> str:
    """Return the name of the language of the inputs, "" where it is not clear."""
    # Each input gets a share, so that one long input does not decide.
    share = max(200, _SAMPLE // max(1, len(inputs)))
    sample = "\n".join(prose(source.text[:_SAMPLE])[:share] for source in inputs)
    return language.name(sample) or ""


def _line(text: str) -> str:
    """Put a name or title on one short line."""
    return " ".join(text.split())[:200]


def _period(facts: Facts) -> str:
    first, last = f"{facts.first_at:{_TIME}}", f"{facts.last_at:{_TIME}}"
    if first == last:
        return first
    same_day = facts.first_at.date() == facts.last_at.date()
    return f"{first} to {last.rpartition(' ')[2] if same_day else last}"


def _duration(time: timedelta) -> str:
    """Return a length of time in its two largest units.

    >>> _duration(timedelta(hours=26, minutes=5))
    '1 day 2 hours'
    """
    minutes = int(time.total_seconds()) // 60
    units = {"day": minutes // 1440, "hour": minutes // 60 % 24, "minute": minutes % 60}
    named = [_some(number, unit) for unit, number in units.items() if number]
    return " ".join(named[:2]) or "less than a minute"


def _count(facts: Facts) -> str:
    messages = _some(facts.messages, "message")
    if not facts.summaries:
        return messages
    return f"{facts.summaries} summaries that cover {messages}"


def _length(length: Length, spoken: str, ratio: float | None, *, dense: bool) -> str:
    """State the one limit of a text, in what a model can count."""
    if ratio is not None:
        return f"about {ratio:.0%} of the length of the record"
    tokens = min(_STATED * length.target, length.limit) * (_DENSE if dense else 1)
    if characters := _CHARACTERS.get(spoken):
        return f"at most {max(1, int(tokens * characters))} characters, all included"
    words = max(1, int(tokens * _WORDS.get(spoken, _OTHER_WORDS)))
    return f"at most {_some(words, 'word')}, all included"


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
