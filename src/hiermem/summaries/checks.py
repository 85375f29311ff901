# ruff: noqa: RUF001  # the marks of other languages are meant
"""Decides what keeps a model's answer from becoming memory.

Each check is a name, what the model is told of it, and a predicate. An answer to which one applies
is never taken. The subject of a conversation never counts against an answer: a summary may tell of
errors, refusals, code and apologies, so such a form counts only if it is the whole answer, and in
prose its first sentence decides. The name and the words are journalled, so they hold no text of a
message or an answer.

A text tells of a record (``tells_of``) if the record has some of its telling words. Nearly every
text has one word of a long record by chance, so one is enough only in a text of few words. A text
whose words come from one message of many tells of that message alone; mostly it does what the
message orders. Of 128 session summaries in LoCoMo all tell of their session; of 256 pairs of a
session and a summary of another conversation, with the names of the session put in, six do.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Final, TypeAlias

from hiermem.data import word_lists
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.text import language, reasoning
from hiermem.text.entity_names import GENERIC, NO_NAME
from hiermem.text.facts import Fidelity
from hiermem.text.policy import either
from hiermem.text.terms import FIRST_PERSON, FUNCTION_WORDS, STOP_WORDS, fold, stem, words
from hiermem.text.units import prose

#: A copied stretch this long, in code points, is more than a quotation.
_ECHO: Final = 240
#: The first words of an answer; if one is missing in a text, the answer is no stretch of it.
_OPENING_WORDS: Final = 40
#: A summary of inputs of this many tokens or fewer may be as long as the inputs.
_SMALL_INPUT: Final = 200
#: A record of few words is judged if it has this many figures and identifiers.
_FEWEST_FIGURES: Final = 4
#: The share of the anchors under which an answer says too little, the fewest required anchors that
#: show it, and the tokens from which an answer has room for some of them.
_FLOOR: Final = 0.05
_FLOOR_ANCHORS: Final = 8
_FLOOR_TOKENS: Final = 80
#: A refusal, a reply or an error message is the whole answer, and at most this long.
_SHORT: Final = 600
#: The lines, and the share of all lines, from which a dialogue or code is the answer.
_FEWEST_TURNS: Final = 3
_MOSTLY: Final = 0.6
#: Repeated statements are too many from this number and this share of the text on.
_FEWEST_REPEATS: Final = 3
_MOST_REPEATED: Final = 0.3
#: A text of at least so many characters that packs to a smaller share of its bytes is a loop.
_LOOP: Final = 0.2
_SHORTEST_LOOP: Final = 100

_WORDS: Final = word_lists("answer_words")
#: The labels of speakers that have no name of their own.
_GENERIC: Final = frozenset({"user", "assistant", "tool", "system"})
_MARKED: Final = re.compile(r"\s*(?:#{1,6} |[-*•+] |\d{1,3}[.)] |\||\*\*)")
#: The mark after which a statement ends, and what closes it; or line ends. The point of a decimal
#: number is no such mark.
_STATEMENT: Final = re.compile(
    r"([.!?…。！？；\n])(?!(?<=\d\.)\d)(?:(?<!\n)[\"'”’»)\]*_]*\s*(?=[^a-zà-ÿ\s]|$)|(?<=\n)\n*)"
)
_QUOTES: Final = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|「[^」\n]*」|„[^“\n]*“")
#: Words to the reader; a question or an exclamation is spoken, too.
_TO_READER: Final = re.compile(rf"\b{either(_WORDS['to the reader'])}\b|[您你]", re.IGNORECASE)
_SPOKEN: Final = re.compile(rf"[?!？！]|{_TO_READER.pattern}", re.IGNORECASE)
_REFUSAL: Final = re.compile(rf"\W*{either(_WORDS['refusing'])}", re.IGNORECASE)
#: What is reported is no speech: "Ann said: I cannot help", "You asked for a plan".
_REPORTED: Final = re.compile(
    rf"^(?:\S+ ){{0,2}}\S+:|\b{either(_WORDS['reporting'])}\b", re.IGNORECASE
)
#: An announcement of a summary, in a line of its own.
ANNOUNCED: Final = re.compile(
    rf"[*_]*{either(_WORDS['agreeing'])}[!,.。！ ]*$"
    rf"|(?!\s*(?:[-*•+] |\d))(?=[^\n]{{0,60}}?{either(_WORDS['announcing'])})"
    r"[^\n]{0,120}[:：][*_]{0,2}\s*$",
    re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"\{\s*\"(?:error|errors|detail|message|status_code)\"\s*:|<!doctype html|<html[\s>]"
    r"|error code: [45]\d\d\b|traceback \(most recent call last\)"
    rf"|(?:(?:http |error |code )*[45]\d\d[\s:,-]*|an? )?{either(_WORDS['errors'])}"
    r"(?:[.!:][^\n]*)?$|[a-z_.]{0,60}(?:error|exception): [^\n]*$|upstream connect error",
    re.IGNORECASE,
)
_DATA: Final = re.compile(r"(?:```\w*\s*)?[\[{]\s*[\"'{]")
_FENCED: Final = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CODE_LINE: Final = re.compile(
    r"\s*(?:(?:def|class|import|from|return|const|let|var|function|public|private|async|await)\b"
    r"(?!.*[.!?]$)|(?:if|for|while|elif|else|try|except)\b.*:$|[{}()\[\];]+,?$|@\w+"
    r"|[\w.]+\([^)]*\);?$|[\w.\[\]]+ ?[+*/-]?= ?\S|SELECT\b|INSERT\b|</?\w+[^>]*>$|#include\b)"
)
#: A line of the record as prompts render it.
_RECORD_LINE: Final = re.compile(
    r"\*{0,2}[^\s:#*-][^\n:]{0,60} \((?:user|assistant|tool|system)\)\*{0,2} ?:"
)
#: The most names that a turn is recognised by.
_SPEAKERS: Final = 40


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was repaired (``repair``), and what it is held to.

    It has ``tokens``, its inputs ``input_tokens`` without the prompt. ``record`` is the prose of
    each input, ``fidelity`` what a written answer keeps of them; None for an extracted one.
    """

    response: LLMResponse
    request: LLMRequest
    tokens: int
    input_tokens: int
    record: Sequence[str] = ()
    fidelity: Fidelity | None = None

    @property
    def text(self) -> str:
        """The stripped text."""
        return self.response.text.strip()


def check(answer: Answer) -> dict[str, str]:
    """Return what the model is told of each check that applies, by name; {} if it may be memory.

    An answer that was extracted from its inputs, as its units show, is held to ``ALWAYS`` alone.
    """
    checks = ALWAYS if answer.response.units else (*ALWAYS, *WRITTEN)
    if says_nothing(answer.text):
        checks = [each for each in ALWAYS if each[0] in _OF_NOTHING]
    values = _sizes(answer)
    return {name: says.format_map(values) for name, says, applies in checks if applies(answer)}


def _sizes(answer: Answer) -> dict[str, object]:
    """Return the length of an answer and its limit, in words, or characters if it has no blanks."""
    count, length = len(answer.text.split()), len(answer.text)
    unit, size = ("words", count) if 12 * count > length else ("characters", length)
    most = size * answer.request.max_tokens // max(1, answer.tokens)
    return {"size": f"{size} {unit}", "most": most}


def _is_echo(answer: Answer) -> bool:
    """Return whether the answer is one stretch of its inputs or of the prompt."""
    opening = answer.text.split()
    whole = " ".join(opening)
    if len(whole) < _ECHO:
        return False
    stated = [" ".join(source.text for source in answer.request.inputs)]
    stated += [message.content for message in answer.request.messages]
    return any(
        all(word in each for word in opening[:_OPENING_WORDS]) and whole in " ".join(each.split())
        for each in stated
    )


def _is_unrelated(answer: Answer) -> bool:
    """Return whether an answer in the language of its inputs tells nothing of them.

    Inputs of few words are judged by their figures and identifiers.
    """
    inputs, facts = answer.request.inputs, answer.fidelity
    names = " ".join({source.speaker for source in inputs})
    tells = tells_of(answer.text, [source.text for source in inputs], names=names)
    if tells is None and facts is not None:
        has_none = facts.missing == facts.required and not facts.supported
        return has_none and len(facts.required) >= _FEWEST_FIGURES
    return tells is False and not _is_in_another_language(answer)


def _is_in_another_language(answer: Answer) -> bool:
    """Return whether the answer is clearly in another language than all of the record."""
    answered = language.guess(prose(answer.text))
    if answered is None:
        return False
    # Each input gets a share, so that one long input does not decide for two languages.
    share = max(200, 6000 // max(1, len(answer.record)))
    spoken = language.guess("\n".join(each[:share] for each in answer.record))
    return spoken is not None and spoken != answered


def _is_invented(answer: Answer) -> bool:
    """Return whether most names, figures and dates are not in the record, or who speaks in it."""
    inputs, facts = answer.request.inputs, answer.fidelity
    messages = [source for source in inputs if source.index is not None]
    people = {source.speaker.casefold() for source in messages if source.speaker.strip()} - _GENERIC
    if len(people) > 1 and all(source.role == "user" for source in messages):
        record = " ".join(f"{source.speaker} {source.text}" for source in messages)
        if _WORDS["assistant"].intersection(words(answer.text)).difference(words(record)):
            return True
    if facts is None:
        return False
    strangers = len(facts.strangers)
    names_nobody = len(people) > 1 and not any(
        part in answer.text.casefold() for name in people for part in name.split()
    )
    if strangers > facts.named and (strangers > 1 or names_nobody):
        return True
    return _digits(facts.invented) > _digits(facts.supported)


def _digits(numbers: Sequence[str]) -> int:
    """Return how many digits some numbers have: a long one claims more."""
    return sum(map(str.isalnum, "".join(numbers)))


def _says_too_little(answer: Answer) -> bool:
    """Return whether a longer answer keeps almost none of the facts of its inputs."""
    facts = answer.fidelity
    return (
        facts is not None
        and facts.value is not None
        and len(facts.required) >= _FLOOR_ANCHORS
        and answer.tokens >= _FLOOR_TOKENS
        and facts.value < _FLOOR
    )


def speaks_of_marks(request: LLMRequest) -> bool:
    """Return whether the inputs speak of marks of reasoning, so that an answer may as well."""
    return any(reasoning.speaks_of_marks(source.text) for source in request.inputs)


def says_nothing(answer: str) -> bool:
    """Return whether an answer has no word beyond its headings, or is a word for nothing."""
    lines = (line for line in answer.splitlines() if not line.lstrip().startswith("#"))
    return (
        not any(char.isalnum() for line in lines for char in line)
        or answer.casefold().strip("\"'`*.!:()[]<> ") in _WORDS["placeholders"]
        or (len(answer) <= _SHORT and ANNOUNCED.match(answer) is not None)
    )


def statements(text: str) -> list[str]:
    """Return the sentences and lines of ``text``."""
    pieces, marks = (parts := _STATEMENT.split(text))[::2], [*parts[1::2], ""]
    return [statement for piece in map(add, pieces, marks) if (statement := piece.strip())]


def is_to_reader(statement: str, *, form: re.Pattern[str] = _TO_READER) -> bool:
    """Return whether a sentence has words to the reader, or another form, that are not reported.

    >>> is_to_reader("Would you like me to go on?"), is_to_reader("You asked what it costs.")
    (True, False)
    """
    bare = _QUOTES.sub("", statement)
    return form.search(bare) is not None and _REPORTED.search(bare) is None


def _remarks(answer: str) -> list[str]:
    """Return the statements of an answer that may be a reply: a short one without lists."""
    if len(answer) > _SHORT or any(map(_MARKED.match, answer.splitlines())):
        return []
    return statements(answer)


def _refuses(answer: str) -> bool:
    """Return whether the first sentence of a short answer says that there will be no summary."""
    first = "".join(_remarks(answer)[:1])
    return _REFUSAL.match(first) is not None and _REPORTED.search(first) is None


def _replies(answer: str) -> bool:
    """Return whether the first and the last sentence of a short answer speak to the reader."""
    remarks = _remarks(answer)
    return bool(remarks) and all(is_to_reader(remarks[at], form=_SPOKEN) for at in (0, -1))


def _is_data(answer: str) -> bool:
    """Return whether an answer begins as data, has no word outside code, or is mostly code."""
    outside = _FENCED.sub("", answer)
    lines = [line for line in outside.splitlines() if line.strip()]
    code = sum(bool(_CODE_LINE.match(line)) for line in lines if not _MARKED.match(line))
    return (
        _DATA.match(answer) is not None
        or not re.search(r"\w{2}", outside)
        or code > _MOSTLY * len(lines)
    )


def _repeats(answer: Answer) -> bool:
    """Return whether an answer is a loop: of statements, or of words that pack far too well."""
    text = answer.text
    stated = [statement.casefold() for statement in statements(text)]
    again = Counter(stated) - Counter(set(stated))
    length = sum(len(statement) * number for statement, number in again.items())
    if again.total() >= _FEWEST_REPEATS and length > _MOST_REPEATED * len(text):
        return True
    record = "\n".join(source.text for source in answer.request.inputs)[: len(text)]
    return len(text) >= _SHORTEST_LOOP and _packed(text) < min(_LOOP, _packed(record) / 2)


def _packed(text: str) -> float:
    """Return the share of its bytes that a text packs to."""
    data = text.casefold().encode("utf-8", "replace")
    return len(zlib.compress(data, 1)) / max(1, len(data))


def _continues(answer: Answer) -> bool:
    """Return whether an answer is a dialogue: lines in the record's form, or turns that talk.

    Turns may stand in one line. A note may begin with a speaker's name, and quote.
    """
    lines = [line for line in answer.text.splitlines() if line.strip()]
    shaped = sum(_RECORD_LINE.match(line) is not None for line in lines)
    names = {source.speaker.strip() for source in answer.request.inputs[: 10 * _SPEAKERS]} - {""}
    labels = "|".join(map(re.escape, (*sorted(names)[:_SPEAKERS], *sorted(_WORDS["speakers"]))))
    opening = re.compile(
        rf"(?:^|(?<=[.!?…。！？])\s?)\*{{0,2}}(?:{labels})\*{{0,2}} ?[:：]",
        re.IGNORECASE | re.MULTILINE,
    )
    turns = opening.split(answer.text)[1:]
    bare = [_QUOTES.sub("", turn) for turn in turns]
    talk = sum(
        bool(_SPOKEN.search(turn) or FIRST_PERSON.intersection(words(turn))) for turn in bare
    )
    return (
        shaped >= _FEWEST_TURNS
        or 2 * shaped > len(lines)
        or (len(turns) >= _FEWEST_TURNS and 2 * talk > len(turns))
    )


#: A check of an answer: its name, what the model is told if it applies, and the predicate.
Check: TypeAlias = tuple[str, str, Callable[[Answer], bool]]
_REFUSED: Final = "It was a refusal. Nothing but a summary is asked of you."
#: What any answer is held to, also one that was extracted.
ALWAYS: Final[Sequence[Check]] = (
    ("truncated", "It was cut off at its end. Write fewer and shorter lines.",
     lambda a: a.response.finish_reason == "length"),
    ("refused", _REFUSED, lambda a: a.response.finish_reason == "refusal"),
    ("error_text", "It was an error message.",
     lambda a: a.response.finish_reason == "error" or _ERROR.match(a.text) is not None),
    ("empty", "It said nothing.", lambda a: says_nothing(a.text)),
    ("too_long", "It was too long: {size}, of at most {most}. Leave out whole lines.",
     lambda a: a.tokens > a.request.max_tokens),
    ("not_smaller", "It was as long as the record. Write fewer lines.",
     lambda a: a.tokens > a.input_tokens - (a.input_tokens > _SMALL_INPUT)),
)  # fmt: skip
#: What a written answer is held to besides.
WRITTEN: Final[Sequence[Check]] = (
    ("refused", _REFUSED, lambda a: _refuses(a.text)),
    ("reasoning", "It held your reasoning. Write the summary alone.",
     lambda a: reasoning.holds_reasoning(a.text, spoken=speaks_of_marks(a.request))),
    ("not_prose", "It was data or code. Write headings and lines.",
     lambda a: _is_data(a.text)),
    ("repetitive", "It said the same again and again. Say each thing once.",
     _repeats),
    ("continuation",
     "It continued the conversation. Report what was said in the record.", _continues),
    ("reply", "It spoke to the reader. Report what was said in the record.",
     lambda a: _replies(a.text)),
    ("echo", "It copied what it was given. Summarise the record in other words.", _is_echo),
    ("unrelated", "It told nothing of the record.", _is_unrelated),
    ("wrong_language", "It was not in the language of the record.", _is_in_another_language),
    ("invented", "It had names, figures or dates that are not in the record.", _is_invented),
    ("vague", "It left out the names, figures and dates of the record.", _says_too_little),
)  # fmt: skip
#: With these an answer is close to one that could be taken, so a second request shows it.
MENDABLE: Final = frozenset(
    ("too_long", "not_smaller", "reply", "wrong_language", "invented", "vague")
)
#: What can be said of an answer that says nothing.
_OF_NOTHING: Final = ("truncated", "refused", "error_text", "empty")


#: Letters by which two forms of a word are the same.
_HEAD: Final = 5
#: A record with fewer words than this is not judged.
_FEWEST_WORDS: Final = 6
#: One of this many telling words of a text stands in the record.
_SHARE: Final = 5
#: In a record of this many messages or more, a text has words of several, unless the one message
#: has a third of all words. So many words of a text may stand in that message alone.
_SEVERAL: Final = 4
_FEW: Final = 3
#: Scripts in which a word may have a prefix of one letter: Hebrew, Arabic.
_PREFIXING: Final = re.compile("[\u0590-\u07ff]")
#: Scripts that write words of several letters without spaces: Thai, Lao, Tibetan, Burmese, Khmer.
#: A pair of such letters stands in any text by chance, four rarely.
_RUNS: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
_STRETCH: Final = re.compile(f"(?=([{_RUNS}]{{4}}))")
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t].*$", re.MULTILINE)
#: Signs of grammar in scripts without spaces, and the letters that ``_STRETCH`` reads.
_PARTICLE: Final = re.compile(
    f"[{_RUNS}\u3040-\u309f的了是在和与及也都就不很我你他她它们这那有要把被给对到从将一个来去上下里]"
)


def _stems(*lists: Iterable[str]) -> frozenset[str]:
    plain = {fold(word) for each in lists for word in each}
    return frozenset(plain | {stem(word) for word in plain})


#: Words that say nothing in any text, and English words that say little.
_EMPTY: Final = _stems(_WORDS["contentless"], STOP_WORDS, *FUNCTION_WORDS.values())
_WEAK: Final = _stems(GENERIC, NO_NAME)


def tells_of(text: str, record: Sequence[str], *, names: str) -> bool | None:
    """Return whether ``text`` tells of the messages of ``record``; None if these have few words.

    ``names`` are those of the speakers, which prove nothing.
    """
    met = [{head for term in _terms(message) for head in _heads(term)} for message in record]
    vocabulary = frozenset().union(*met)
    if sum(not head.isdigit() for head in vocabulary) < _FEWEST_WORDS:
        return None
    speakers = {head for name in words(names) for head in _heads(stem(name))}
    own = [term for term in _terms(_HEADING.sub("", text)) if speakers.isdisjoint(_heads(term))]
    places = {
        term: [number for number, heads in enumerate(met) if not heads.isdisjoint(_heads(term))]
        for term in own
    }
    shared = [term for term in own if places[term]]
    # A figure of the text may follow from those of the record.
    stated = [term for term in own if places[term] or not term.isdigit()]
    telling = [term for term in stated if term not in _WEAK]
    found_count = sum(bool(places[term]) for term in telling)
    is_related = found_count > 1 and _SHARE * found_count >= len(telling)
    is_mostly = shared and 2 * len(shared) >= len(stated) and (found_count or not telling)
    if not is_related and not is_mostly:
        return False
    most = max(range(len(met)), key=lambda number: sum(number in places[term] for term in shared))
    if len(met) < _SEVERAL or 3 * len(met[most]) >= len(vocabulary):
        return True
    alone = [term for term in shared if places[term] == [most]]
    is_named = any(not speakers.isdisjoint(_heads(stem(word))) for word in words(text))
    # Figures of one sentence stand together, also in a fair summary.
    lone, common = (sum(not term.isdigit() for term in each) for each in (alone, shared))
    is_spread = len(met) < 2 * _SEVERAL or lone <= _FEW or 4 * lone <= 3 * common
    return is_spread and (len(alone) < len(shared) or is_named)


def _terms(text: str) -> Iterable[str]:
    """Return the stems of the words of ``text`` that say something, each once."""
    telling = (
        stem(word)
        for word in words(text)
        if len(word) >= (2 if word.isdigit() or not word.isascii() else 3)
        and not (word in _EMPTY or _PARTICLE.search(word))
    )
    terms = (term for term in telling if term not in _EMPTY)
    return dict.fromkeys([*_STRETCH.findall(fold(text)), *terms])


def _heads(term: str) -> tuple[str, ...]:
    """Return the beginnings by which the forms of a word are found."""
    if not term.isalpha():
        return (term,)
    if _PREFIXING.match(term) and len(term) > _FEW:
        return term[:_HEAD], term[1 : 1 + _HEAD]
    return (term[:_HEAD],)
