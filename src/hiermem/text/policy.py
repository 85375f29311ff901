"""Decides which text may come in, how far it may be believed, and which words count in a summary.

Every text that reaches a store or a prompt has passed this policy, so that every store accepts the
same set of texts and returns them code point for code point. A lone surrogate or a NUL is refused,
or replaced by U+FFFD where the session was opened with that option, as is an empty id or name of a
tool call: a model server may name no call, and the answer has been paid for. A text over its cap is
always refused, because cutting would lose content. Nothing else is changed: no normalisation, no
stripping. Sizes are in code points. What a text means or costs is decided elsewhere.

A summary's trust is the lowest of its sources', so that a tool's output cannot gain standing by
being summarised.

Words are read one sentence-like unit at a time and in one pass, so that the cost is linear for any
text: each has a term, and may be an anchor or a filler. The lists are English; words of other
languages count as plain words, and scripts without spaces are read as pairs of characters. This
module scores nothing: weights belong to ``salience``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from hiermem.data import word_lists
from hiermem.errors import InvalidMessageError
from hiermem.types import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Part,
    StoredMessage,
    TextPart,
    ToolCall,
    Trust,
)
from hiermem.types.brief import FrozenDict

#: The kinds of terms, weakest first: an ordinary word; a word of deciding, promising or denying;
#: a name, number, date, path or identifier.
PLAIN: Final = 1
DECISION: Final = 2
ANCHOR: Final = 3


def words(text: str) -> frozenset[str]:
    """Read a list of words."""
    return frozenset(text.split())


def either(phrases: Iterable[str]) -> str:
    """Return a pattern for any of ``phrases``, for the longest that stands in a place.

    Phrases share their beginnings in it. A plain list of alternatives would be tried in full at
    every word of a text. An apostrophe stands for the curved one too.

    >>> either(["to", "do", "done", "door"])
    '(?:do(?:ne|or)?|to)'
    """
    rests: dict[str, list[str]] = {}
    for phrase in sorted(phrases):
        rests.setdefault(phrase[:1], []).append(phrase[1:])
    ends = rests.pop("", None)
    branches = [
        ("['\u2019]" if head == "'" else re.escape(head)) + either(rest)
        for head, rest in rests.items()
    ]
    if len(branches) == 1 and ends is None:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("" if ends is None else "?") if branches else ""


_WORDS: Final = word_lists("lexicon_words")
_STOP: Final = _WORDS["stop"]
_TIME: Final = _WORDS["time"]
_DECISION: Final = _WORDS["decision"]
_FILLER: Final = _WORDS["filler"]
#: Words that may stand between a filler and its comma: "Thanks so much, ...".
_FILLER_TAIL: Final = frozenset({"so", "much", "a", "lot"})
_BACK_CHANNEL: Final = _FILLER | _WORDS["back channel"]
_COURTESY: Final = _BACK_CHANNEL | _WORDS["courtesies"]

_WORD: Final = re.compile(
    r"https?://[^\s)>\]]+"  # a URL
    r"|(?:[\w.-]{1,80}/)+[\w.-]+"  # a path
    r"|[A-Za-z_]\w*(?:\.\w+)+"  # a dotted name
    r"|\w+(?:[-'’]\w+)*"  # noqa: RUF001 - the typographic apostrophe is meant
)
#: The last alternative alone: it finds the same words in a text without slashes and inner dots.
_PLAIN_WORD: Final = re.compile(r"\w+(?:[-'’]\w+)*")  # noqa: RUF001
_LETTERS: Final = re.compile(r"\w+")
#: The bytes of ASCII text, with blanks for those that are no part of a word.
_BLANKED: Final = bytes(
    code if chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in range(128)
).ljust(256)
_DIGIT: Final = re.compile(r"\d")
_UNSPACED: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f"
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]+")
_LEADING_FILLER: Final = re.compile(r"([A-Za-z]+)((?: [A-Za-z]+){0,3}?)\s*[,!.…—-]+\s+")
#: Somebody is addressed by name at the end: "No problem, John!"
_ADDRESS: Final = re.compile(r", [A-Z][a-z]+[.!…]*$")
#: A pronoun as subject, or a pronoun as object with no clause between it and the start; lower case.
_LEANING: Final = re.compile(
    rf"(?:{either(_WORDS['joining'])} )?(?:{either(_WORDS['pronouns'])}(?:['’]\w+)?\b"  # noqa: RUF001
    rf"|(?:that|this)(?:['’]s|['’]ll| {either(_WORDS['after a pronoun'])})\b"  # noqa: RUF001
    rf"|(?:(?!{either(_WORDS['between clauses'])} )[\w'’]+ ){{1,4}}"  # noqa: RUF001
    rf"{either(_WORDS['objects'])}(?=[ .!?…]|$))"
)
_THANKS: Final = re.compile(
    r"(?:many thanks|thanks|thank you|i? ?appreciate)(?: so much| very much| a lot)?"
    r"(?: for)? (?:all )?(?:the|your|that|this|these|those) (?:[\w-]+ ){0,2}"
    rf"{either(_WORDS['thanked'])}[.!\s]*\Z",
    re.IGNORECASE,
)
#: Two letters of a word, which are none of a formula's commands.
_ANY_WORD: Final = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2}|[^\W\d_A-Za-z]")
_CLOSING: Final = re.compile(rf"{either(_WORDS['closing'])}\b[^\d`]*$", re.IGNORECASE)
#: The longest word whose reading is kept, since longer strings are no words, and the most readings.
_LONGEST_KEPT: Final = 24
_MOST_KEPT: Final = 32_768


def words_of(text: str) -> list[str]:
    """Return the runs of letters, figures and underscores in ``text``.

    >>> words_of("It's 5 o'clock.")
    ['It', 's', '5', 'o', 'clock']
    """
    if text.isascii():
        # Bytes are translated several times as fast as text.
        return text.encode("ascii").translate(_BLANKED).decode("ascii").split()
    return _LETTERS.findall(text)


def stands_in(word: str, text: str) -> bool:
    """Return whether ``word`` stands in ``text`` as a word of its own."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(word, at + 1)
    return False


def _is_literal(word: str) -> bool:
    """Return whether ``word`` is a number, path, URL or identifier rather than a word."""
    if not word.isalpha() and (
        _DIGIT.search(word) is not None
        or "/" in word
        or "_" in word
        or ("." in word and len(word) > 3)
    ):
        return True
    return word[1:] != word[1:].lower() and not word.isupper()


def _read(word: str) -> tuple[str, int, int] | None:
    """Return the term of ``word``, its kind as the first word of a piece, and its kind inside one.

    A capital at the start of a sentence proves nothing, so only a capital inside it marks a name.
    Returns None for a word without meaning of its own.
    """
    from hiermem.text.terms import stem

    lower = word.lower().replace("’", "'")  # noqa: RUF001
    if _is_literal(word):
        return lower, ANCHOR, ANCHOR
    if lower in _TIME:
        return stem(lower), ANCHOR, ANCHOR
    if lower in _DECISION:
        return stem(lower), DECISION, DECISION
    if lower in _STOP or len(lower) < 2:
        return None
    return stem(lower.removesuffix("'s")), PLAIN, ANCHOR if word[0].isupper() else PLAIN


#: The readings of words of letters alone, which a language repeats in every text. No number, path
#: or identifier of a conversation stays in memory in it.
_kept: Final = lru_cache(_MOST_KEPT)(_read)


def _reading(word: str) -> tuple[str, int, int] | None:
    return _kept(word) if word.isalpha() and len(word) <= _LONGEST_KEPT else _read(word)


def terms_of(text: str) -> dict[str, int]:
    """Return the terms of one piece of text, each with its strongest kind in the piece.

    >>> terms_of("We never met Ana in Porto")
    {'never': 2, 'met': 1, 'ana': 3, 'porto': 3}
    """
    found: dict[str, int] = {}
    if not text.isascii() and _UNSPACED_RUN.search(text):
        for run in _UNSPACED_RUN.findall(text):
            for at in range(max(1, len(run) - 1)):
                found[run[at : at + 2]] = PLAIN
        text = _UNSPACED_RUN.sub(" ", text)
    readings = list(map(_reading, _words(text)))
    if readings and (first := readings[0]) is not None:
        term, kind, _ = first
        readings[0] = term, kind, kind
    for term, _, kind in filter(None, readings):
        if kind > found.get(term, 0):
            found[term] = kind
    return found


def _words(text: str) -> list[str]:
    """Return the words, paths and URLs of a text."""
    if "/" in text or "." in text[:-1]:
        return _WORD.findall(text)
    if "-" in text or "'" in text or not text.isascii():
        return _PLAIN_WORD.findall(text)
    return words_of(text)


def is_back_channel(text: str, names: frozenset[str] = frozenset(), *, wide: bool = False) -> bool:
    """Return whether ``text`` only keeps a conversation going ("Wow, thanks!"), without content.

    The ``names``, in lower case, are those of the speakers, who are only addressed. If ``wide``,
    farewells and cheers are without content, too.

    >>> [is_back_channel(text) for text in ("Sounds good!", "No worries, John!", "No new bugs.")]
    [True, True, False]
    """
    if len(text) >= 90 or "?" in text:
        return False
    if _THANKS.match(text):
        return True
    words = words_of(text.lower())
    if len(words) > 1 and _ADDRESS.search(text) and words[-1] not in _TIME:
        del words[-1]
    said = [word for word in words if word not in names]
    return 0 < len(said) <= 10 and (_COURTESY if wide else _BACK_CHANNEL).issuperset(said)


def is_heading(text: str) -> bool:
    """Return whether ``text`` only announces the text under it.

    >>> is_heading("Tuning Parameters:"), is_heading("Ratio: 3")
    (True, False)
    """
    return text.endswith((":", "："))  # noqa: RUF001


def is_closing(text: str) -> bool:
    """Return whether ``text`` only offers more help, as answers do at their end.

    >>> is_closing("Let me know if you need more!"), is_closing("Let me know by 18:00.")
    (True, False)
    """
    return _CLOSING.match(text) is not None


def is_item(text: str) -> bool:
    """Return whether ``text`` is an item of a list.

    >>> is_item("- Response format: JSON"), is_item("-3 degrees")
    (True, False)
    """
    return text.startswith("- ")


def leans(text: str) -> bool:
    """Return whether ``text`` refers to a thing that only the text before it names.

    This is so where ``text`` begins with a pronoun, or has a pronoun as object before any other
    clause could have named the thing.

    >>> leans("A friend made it for me."), leans("I bought a lamp and put it here.")
    (True, False)
    """
    return _LEANING.match(text.lower()) is not None


def has_word(text: str) -> bool:
    """Return whether ``text`` has a word: a formula or a mark has none.

    >>> has_word("It costs 3."), has_word("a + b = 3"), has_word("1,20")
    (True, False, False)
    """
    return _ANY_WORD.search(text) is not None


def strip_fillers(text: str) -> str:
    """Drop leading fillers, but only those that punctuation sets off.

    "Thanks Mel, we won." becomes "We won.", and "Thanks, Mel." becomes "". "No new bugs" keeps its
    "No", because every word that is part of a clause is kept.
    """
    whole = text
    while match := _LEADING_FILLER.match(text):
        opening, tail = match.groups()
        if opening.lower() not in _FILLER or len(text) - match.end() < 3:
            break
        if not all(
            word[0].isupper() or word.lower() in _FILLER or word.lower() in _FILLER_TAIL
            for word in tail.split()
        ):
            break
        text = text[match.end() :]
        text = text[0].upper() + text[1:]
    word = text.rstrip(".!…")
    # Only the name of somebody who was thanked or greeted is left.
    is_name = word.isalpha() and word.istitle() and word.lower() not in _TIME
    return "" if text is not whole and is_name else text


OnBad: TypeAlias = Literal["refuse", "replace"]

#: The text of one message: its content, with the texts, references and JSON of all its parts.
MAX_CONTENT = 4_194_304
#: Tenant, session id, title, thread, message key, speaker's name, tool name, id of a tool call.
MAX_NAME = 512
#: The parts of one message.
MAX_PARTS = 1_024
#: The tool calls of one message.
MAX_CALLS = 1_024
#: The arguments of all the tool calls of one message.
MAX_ARGUMENTS = 1_048_576
#: The metadata of one message: code points of its texts and keys, and one for each other value.
MAX_METADATA = 1_048_576
#: The nesting of metadata and of JSON parts.
MAX_DEPTH = 64

# Python's default digit limit refuses to print an integer of more bits, so no JSON can hold it.
_MAX_BITS = 4_096
_BAD = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def check(text: str, *, what: str, cap: int, on_bad: OnBad = "refuse") -> str:
    """Return ``text`` as a plain str that any store can hold, or refuse it.

    ``what`` names the value in the error, which never holds any of the text. ``cap`` is in code
    points. Raises InvalidMessageError.

    >>> check("plain", what="title", cap=10)
    'plain'
    """
    if not isinstance(text, str):
        raise InvalidMessageError(f"{what} is {type(text).__name__}; it must be text")
    # A subclass may override any method, so its own methods are not called.
    text = str.__str__(text)
    if len(text) > cap:
        raise InvalidMessageError(
            f"{what} has {len(text):,} characters; at most {cap:,} are allowed"
        )
    # Most texts are ASCII, which is recognised at once.
    found = None if text.isascii() and "\x00" not in text else _BAD.search(text)
    if found is None:
        return text
    if on_bad == "refuse":
        kind = "a NUL" if found.group() == "\x00" else "a lone surrogate"
        raise InvalidMessageError(
            f"{what} has {kind} at character {found.start():,}; remove it, or open the session "
            'with on_bad_text="replace"'
        )
    # Two surrogate halves in a row become the character that they encode; a half alone and a NUL
    # become U+FFFD.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", _REPLACEMENT)


def check_name(text: str, *, what: str, on_bad: OnBad = "refuse") -> str:
    """Return a name (tenant, session id, thread, key) of 1 to 512 code points, or refuse it.

    Raises InvalidMessageError.
    """
    name = check(text, what=what, cap=MAX_NAME, on_bad=on_bad)
    if not name:
        raise InvalidMessageError(f"{what} is empty; it must have 1 to {MAX_NAME} characters")
    return name


def _check_call_name(text: str, *, what: str, on_bad: OnBad) -> str:
    """Return an id or a name of a tool call; all empty ones are replaced by the same text."""
    if on_bad == "replace" and text == "":
        return _REPLACEMENT
    return check_name(text, what=what, on_bad=on_bad)


def check_json(
    value: Any, *, what: str, cap: int = MAX_METADATA, on_bad: OnBad = "refuse"
) -> tuple[Any, int]:
    """Return a copy of a JSON value in plain dicts, lists and scalars, and its weight.

    The weight is the code points of all texts and keys plus one for each value; ``cap`` bounds it.
    Mappings must have text keys, numbers must be finite, nesting is at most MAX_DEPTH; tuples
    become lists, because JSON has no other sequence. Raises InvalidMessageError for a bad text, for
    too much of it, and for a value that is not JSON.
    """
    left = cap

    def spend(weight: int) -> None:
        nonlocal left
        left -= weight
        if left < 0:
            raise InvalidMessageError(
                f"{what} is too large; at most {cap:,} characters and values are allowed"
            )

    def checked(text: str) -> str:
        spend(1 + len(text))
        return check(text, what=what, cap=cap, on_bad=on_bad)

    def copied(value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return checked(value)
        spend(1)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, (int, float)):
            return _number(value, what=what)
        if depth >= MAX_DEPTH:
            raise InvalidMessageError(f"{what} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, held in value.items():
                if not isinstance(key, str):
                    raise InvalidMessageError(
                        f"{what} has a key of type {type(key).__name__}; JSON has only texts"
                    )
                found[checked(key)] = copied(held, depth + 1)
            return found
        if isinstance(value, (list, tuple)):
            return [copied(held, depth + 1) for held in value]
        raise InvalidMessageError(
            f"{what} holds a {type(value).__name__}, which JSON does not have"
        )

    copy = copied(value, 0)
    return copy, cap - left


def _number(value: float, *, what: str) -> float:
    """Return a number that JSON has, as a plain one: it may be of a subclass (an enum's member)."""
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise InvalidMessageError(f"{what} holds an integer of over {_MAX_BITS} bits")
        return value if type(value) is int else int.__int__(value)
    if not math.isfinite(value):
        raise InvalidMessageError(f"{what} has a number that is not finite; JSON has none")
    return value if type(value) is float else float.__float__(value)


def clean_message(message: Message, *, on_bad: OnBad = "refuse") -> Message:
    """Check every text inside a message; return the message itself where nothing had to change.

    The check covers content, parts, name, thread, key, tool calls and metadata, and leaves plain
    types in all of them. Raises InvalidMessageError for a bad or too long text and for
    any other wrong shape.
    """
    if not isinstance(message, Message):
        raise InvalidMessageError(
            f"{type(message).__name__} is no Message; use Message.user(...), "
            "Message.from_openai(...) or the like"
        )
    content, key, call = message.content, message.key, message.tool_call_id
    cleaned: dict[str, Any] = {
        "content": check(content, what="content", cap=MAX_CONTENT, on_bad=on_bad)
        if isinstance(content, str)
        else _clean_parts(content, on_bad=on_bad),
        "role": str.__str__(message.role),
        "thread": check_name(message.thread, what="thread", on_bad=on_bad),
        "key": None if key is None else check_name(key, what="key", on_bad=on_bad),
        "tool_call_id": None
        if call is None
        else _check_call_name(call, what="tool_call_id", on_bad=on_bad),
        # An export often writes "" for a speaker without a name, so "" is accepted.
        "name": _small(message.name, what="name", on_bad=on_bad),
        "tool_calls": _clean_calls(message.tool_calls, on_bad=on_bad),
    }
    metadata = message.metadata
    if metadata or type(metadata) is not FrozenDict:
        if not isinstance(metadata, Mapping):
            raise InvalidMessageError(
                f"metadata is {type(metadata).__name__}; it must be a mapping from texts to JSON "
                "values"
            )
        # Even an empty mapping is copied: the caller could fill it later.
        cleaned["metadata"] = check_json(metadata, what="metadata", on_bad=on_bad)[0]
    # Every store keeps times in UTC.
    if message.created_at is not None and not 1 < message.created_at.year < 9999:
        raise InvalidMessageError("created_at must lie between the years 2 and 9998")
    changes = {
        name: value for name, value in cleaned.items() if value is not getattr(message, name)
    }
    return replace(message, **changes) if changes else message


def _clean_parts(parts: tuple[Part, ...], *, on_bad: OnBad) -> tuple[Part, ...]:
    """Check the parts one by one against the rest of the message's cap."""
    if len(parts) > MAX_PARTS:
        raise InvalidMessageError(
            f"content has {len(parts):,} parts; at most {MAX_PARTS:,} are allowed"
        )
    cleaned: list[Part] = []
    left = MAX_CONTENT
    for number, given in enumerate(parts):
        part, weight = _clean_part(given, what=f"content part {number}", cap=left, on_bad=on_bad)
        left -= weight
        cleaned.append(part)
    return tuple(cleaned)


def _clean_part(part: Part, *, what: str, cap: int, on_bad: OnBad) -> tuple[Part, int]:
    if isinstance(part, TextPart):
        text = check(part.text, what=what, cap=cap, on_bad=on_bad)
        return TextPart(text), len(text)
    if isinstance(part, JsonPart):
        if not isinstance(part.data, Mapping):
            raise InvalidMessageError(
                f"{what} holds {type(part.data).__name__}; a JsonPart holds a mapping"
            )
        data, weight = check_json(part.data, what=what, cap=cap, on_bad=on_bad)
        return JsonPart(data), weight
    reference = check(part.reference, what=what, cap=cap, on_bad=on_bad)
    if isinstance(part, ImagePart):
        detail = _small(part.detail, what=f"{what} detail", on_bad=on_bad)
        return ImagePart(reference, detail), len(reference)
    name = _small(part.name, what=f"{what} name", on_bad=on_bad)
    media_type = _small(part.media_type, what=f"{what} media type", on_bad=on_bad)
    return FilePart(reference, name, media_type), len(reference)


def _small(text: str | None, *, what: str, on_bad: OnBad) -> str | None:
    return None if text is None else check(text, what=what, cap=MAX_NAME, on_bad=on_bad)


def _clean_calls(calls: tuple[ToolCall, ...], *, on_bad: OnBad) -> tuple[ToolCall, ...]:
    if len(calls) > MAX_CALLS:
        raise InvalidMessageError(
            f"tool_calls has {len(calls):,} calls; at most {MAX_CALLS:,} are allowed"
        )
    cleaned: list[ToolCall] = []
    left = MAX_ARGUMENTS
    for number, call in enumerate(calls):
        what = f"tool call {number}"
        arguments = check(call.arguments, what=f"{what} arguments", cap=left, on_bad=on_bad)
        left -= len(arguments)
        cleaned.append(
            ToolCall(
                id=_check_call_name(call.id, what=f"{what} id", on_bad=on_bad),
                name=_check_call_name(call.name, what=f"{what} name", on_bad=on_bad),
                arguments=arguments,
                type=check_name(call.type, what=f"{what} type", on_bad=on_bad),
            )
        )
    return tuple(cleaned)


_ORDER: Final[tuple[Trust, ...]] = ("tool", "conversation", "system")


def trust_of(stored: StoredMessage) -> Trust:
    """Return how far a message may be believed: a tool's output least, a system message most."""
    if stored.role == "tool":
        return "tool"
    return "system" if stored.role == "system" else "conversation"


def lowest(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest trust; without any source, that of conversation.

    >>> lowest(["system", "tool"])
    'tool'
    """
    return _ORDER[min(map(_ORDER.index, trusts), default=_ORDER.index("conversation"))]
