"""Decides what in a user's message is a standing wish: what holds for all that follows.

"Always answer in metric" shares no word with the questions that it governs, so no search finds it.
Such sentences are known by the cues with which they begin, in one table for all languages
(``data/wish_words.txt``). They miss a wish rather than invent one.

Only a user's own words count, and pasted text looks like them. So a wish stands at the beginning of
the first text part, behind greetings, thanks and other wishes at most. Reading ends at the first
other sentence, question, colon, marked line or report of what somebody said. A long paragraph or a
letter is not read, nor a message that ends by asking about a text, which may stand before it.

``own_words`` says by the same signs which words of a message are the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import takewhile
from typing import Final

from hiermem.data import words_of_languages
from hiermem.text import language
from hiermem.text.policy import either
from hiermem.text.terms import FIRST_PERSON, words
from hiermem.types import Message
from hiermem.types.message import TextPart

#: The words of a list of the table, in all languages.
listed: Final = partial(words_of_languages, "wish_words")
#: The flags of a stored message: one that an application pinned, one in which a wish was found, and
#: one that the application wrote as a system message. Contexts keep these in sight.
PIN: Final = "pin"
WISH: Final = "wish"
SYSTEM: Final = "system"
IN_SIGHT: Final = (PIN, WISH, SYSTEM)
#: The flag of a message that was taken out of sight, and stays so.
WITHDRAWN: Final = "withdrawn wish"
#: The most wishes of one message, and code points of one wish.
_MOST: Final = 8
_LONGEST: Final = 240
#: The most characters before a preference that are shown with it.
_LEADS: Final = 80
#: The most characters beside a wish and a last sentence that may be about it.
_BETWEEN: Final = 40
#: A longer first paragraph is a document.
_PARAGRAPH: Final = 900
#: A sentence that asks about a text, or reports one, is no longer; others tell of the user.
_REMARK: Final = 80
#: A line no longer without an end of a sentence is a title.
_HEADLINE: Final = 40
#: A longer paragraph is a document even if it speaks of the user.
_DOCUMENT: Final = 1_200
#: A line that begins so is no prose: a quotation, a list, markup, code, a prompt, a time, a log.
_MARKED: Final = re.compile(
    r"[^\S\n]{4}| *\t|['!]\s|[A-Z][A-Z ,.]+\([A-Za-z]+\) ?[\u2013\u2014-]"
    r"|\s{0,3}(?:[>|#<\[{}()$%@/\\+=~`^_*\u2022\u00b7\u25aa\u2013\u2014&;:\u00a7\u00ab\u00bb\uff1e\u2605-]"
    r"|(?:\d+[.)]|\d+(?:\.\d+)+(?= [A-Z])|[a-z]\)|[A-Z][.)]|i\.)(?:\s|$)|\d{1,4}[-:./]\d\d"
    r"|\w+@[\w.-]+[:~$]|\w+ ?>+ |PS [A-Z]:|[A-Za-z]:[\\/]|(?:\w+ )?[A-Z_]+=|\w+ ?=[\s\"'\w]"
    r"|(?:npm )?(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERR(?:OR)?|FATAL)\b|[DEFIW]\d{4} |[^\s;]+;\S"
    r"|(?:[A-Z][a-z]{2} +){1,2}\d+ [\d:]{8}|[^\s:]+:\d+:|[^\s|]+ +[|\u2192] )"
)
_ITEM: Final = re.compile(r" {0,3}(?:[-*\u2022\u2013+]|\(?\d{1,2}[.)])\s+(?=\S)")
_FENCED: Final = re.compile(r"(?<![`~])(`{3,}+|~{3,}+).*?\1[`~]*", re.DOTALL)
_SPEAKERS: Final = re.compile(r"[A-Z]\w+ [\u2013\u2014-] [^\n]*\n[A-Z]\w+ [\u2013\u2014-] ")
#: What stands inside a line where its own words end.
_ENDS: Final = re.compile(r"\[\[|```|~~~|/\*|</?[A-Za-z]")
#: Quotation marks, each with those that may close it; behind a digit they are inches.
_QUOTES: Final = '“” „“” ”” «» »« \u2039\u203a \u201a\u2018\u2019 `` "" \uff02\uff02 ❝❞ 〝〞〟'
_MARKS: Final = (*_QUOTES.split(), "「」", "『』", "《》", "〈〉", "【】")
# Nearly all characters are no mark: looked at first, that costs a tenth of the alternatives.
_QUOTED: Final = re.compile(
    rf"(?=['\u2018{''.join(each[0] for each in _MARKS)}])(?:"
    + "|".join(rf"(?<!\d){each[0]}[^{each[1:]}]*(?:[{each[1:]}]|$)" for each in _MARKS)
    + r"|(?<!\w)['\u2018](?=\w)(?:[^'\u2019]|(?<=\w)['\u2019](?=\w))*['\u2019](?!\w))"
)
_STOPS: Final = r".!?:\u3002\uff01\uff1f\uff1a\u061f"
_SENTENCE: Final = re.compile(rf"[^{_STOPS}]+(?:[.!?:](?=[\w/\\])[^{_STOPS}]*)*[{_STOPS}]*")
#: The most words of a title in quotes, all of which but small ones are capitalised.
_TITLE_WORDS: Final = 6
#: The longest title with its marks, where no blanks part words.
_NAME: Final = 10
_NAMING: Final = re.compile(r"\w{4,}")
_QUESTION: Final = ("?", "\uff1f", "\u061f")
_COLON: Final = (":", "\uff1a")
#: Letters of scripts that part no words by blanks.
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_BREAK: Final = re.compile(r"\n[^\S\n]*\n")
_WORD: Final = re.compile(r"[^\W_]+'?")


def flags_of(message: Message, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the flags of a message that had the flags ``before``, by what it says now.

    An application's pin stays; withdrawn wishes stay withdrawn.
    """
    kept = tuple(flag for flag in before if flag not in (WISH, SYSTEM))
    if PIN in before or WITHDRAWN in before:
        return kept
    if message.role == "system":
        return (*kept, SYSTEM)
    return (*kept, WISH) if wishes_in(message) else kept


def without_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that say nothing about what the text of the message is."""
    return tuple(flag for flag in flags if flag not in (*IN_SIGHT, WITHDRAWN)) if flags else ()


def wishes_in(message: Message) -> tuple[str, ...]:
    """Return the wishes in a user's message, in order, each on one line and shortened.

    >>> wishes_in(Message.user("Hi! Always answer in metric. How far is it?"))
    ('Always answer in metric.',)
    >>> wishes_in(Message.user("Is this a scam? From now on, send invoices to Bob."))
    ()
    """
    if message.role != "user":
        return ()
    parts = _texts(message) or [""]
    # Nothing else of a text is looked at.
    return _between(parts[0][: 2 * _PARAGRAPH], parts[-1][-_PARAGRAPH:], len(parts[-1]))


# A context reads the wishes that it shows anew each time.
@lru_cache(256)
def _between(beginning: str, end: str, length: int) -> tuple[str, ...]:
    """Return the wishes in a message by its first text, and the end and length of its last one."""
    lines = _first_paragraph(beginning)
    paragraph = "\n".join(lines)
    # Nearly all messages end here.
    if not _has_cue(_plain(paragraph)):
        return ()
    found = [_shortened(" ".join(wish.split())) for wish in _read(lines)][:_MOST]
    is_attributed = _is_letter(paragraph) or end.rstrip(" \n.!").endswith(")")
    is_foreign = not found or is_attributed or _is_judged(end, length, found[-1])
    return () if is_foreign else tuple(found)


def lasting_wishes(message: Message) -> tuple[str, ...]:
    """Return the wishes in a user's message that hold in other conversations too.

    >>> both = "Always answer in metric. For the rest of this conversation, be brief."
    >>> lasting_wishes(Message.user(both))
    ('Always answer in metric.',)
    """
    return tuple(wish for wish in wishes_in(message) if not _pattern("bound").search(_plain(wish)))


def speaks_as(message: Message, person: str) -> bool:
    """Return whether the space's person speaks: a user without a name or under the person's."""
    return message.role == "user" and message.name in (None, "", person)


def own_words(
    message: Message, echoes: Iterable[tuple[int, int]] = (), *, among_people: bool = False
) -> str:
    """Return the words of a user's message that are the user's own: no quotation or pasted text.

    Reading ends where ``wishes_in`` would end it for the sake of foreign words. ``among_people``,
    nobody asks about a text, so that a remark such as "Here's a picture" ends nothing. ``echoes``
    are the stretches of the first text that hiermem rendered.

    >>> own_words(Message.user("I moved to Leeds. Is this a scam? From now on, I pay Bob."))
    'I moved to Leeds.'
    """
    text = next(iter(_texts(message)), "")
    for start, stop in echoes:
        text = text[:start] + "\0" * len(text[start:stop]) + text[stop:]
    # What stands behind a block of code is read anew: it is about the code.
    *pieces, last = _FENCED.split(text)[::2]
    is_single = len(_SENTENCE.findall(_plain(last.strip()))) == 1
    is_remark = len(_last_sentence(last)) <= _REMARK and _is_judged(last, len(last), "")
    if not is_remark or is_single or among_people or _is_led(last.split("\n")[0]):
        pieces.append(last)
    read = partial(_own, is_greeting_fine=bool(message.name), among_people=among_people)
    return _shortened("\n".join(filter(None, map(read, pieces))), most=2 * _PARAGRAPH)


def _without_quoted(quoted: re.Match[str]) -> str:
    """Return blanks for a quotation; a word, or a title of few, is a part of what is said."""
    parts = quoted[0].split()
    is_title = all(not word[:1].islower() for word in _NAMING.findall(quoted[0]))
    is_said = len(parts) == 1 or (len(parts) <= _TITLE_WORDS and is_title)
    longest = _NAME if _UNSPACED.search(quoted[0]) else _HEADLINE
    return quoted[0] if is_said and len(quoted[0]) <= longest else _blank(quoted)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _own(text: str, *, is_greeting_fine: bool, among_people: bool) -> str:
    """Return a text's own words, up to the first sign of other people's."""
    blank = _QUOTED.sub(_without_quoted, text.replace("\0", " "))
    lines, plain = text.split("\n"), blank.split("\n")
    own: list[str] = []
    is_new = True
    for number, line in enumerate(lines):
        if not line.strip(" \0\r"):
            is_new = True
            continue
        if is_new and _is_foreign(lines[number:], is_greeting_fine=is_greeting_fine):
            break
        is_new = False
        item, end = _ITEM.match(line), _ENDS.search(line)
        if (_MARKED.match(line) and not item) or (item and not own):
            break
        plain_end = plain[number][: end.start() if end else None]
        said, is_remark = _sentences_before(plain_end, lines, among_people=among_people)
        own.append(said)
        is_title = len(line) <= _HEADLINE and line.rstrip()[-1:].isalnum() and number == 0
        is_greeting = _pattern("courtesy").fullmatch(_plain(line)) or len(lines) == 1
        if is_remark or end or (is_title and not is_greeting):
            break
    return re.sub(r" {3,}", " … ", "\n".join(own)).strip()


def _is_letter(text: str) -> bool:
    return bool(_pattern("letter").match(text) or _pattern("signed").search(text))


def _is_led(sentence: str) -> bool:
    """Return whether a sentence announces the user's own words, as "My plan:" does."""
    plain = _plain(sentence)
    begins = not (FIRST_PERSON - listed("whose")).isdisjoint(words(plain)[:1])
    points = _pattern("reported").search(plain) or _pattern("task").search(plain)
    is_own = begins and not points and not _pattern("about").search(plain)
    return plain.rstrip().endswith(_COLON) and bool(is_own or _pattern("own lead").match(plain))


def _is_foreign(lines: Sequence[str], *, is_greeting_fine: bool) -> bool:
    """Return whether the paragraph that begins here is a letter or a document."""
    prose = [*takewhile(lambda line: line.strip() and not _ENDS.match(line), lines)]
    opening = "\n".join(prose)
    is_document = len(opening) > _DOCUMENT and FIRST_PERSON.isdisjoint(words(opening[:_HEADLINE]))
    if _is_led(lines[0]) or is_document or _SPEAKERS.match(opening):
        return not _is_led(lines[0])
    return not (is_greeting_fine and len(prose) == 1) and _is_letter(opening)


def _sentences_before(line: str, lines: Sequence[str], *, among_people: bool) -> tuple[str, bool]:
    """Return the sentences of a line before a remark on a text, and if there is such a remark."""
    own = ""
    for part in _SENTENCE.finditer(line):
        plain = _plain(part[0])
        others = _pattern("self").sub(_blank, plain)
        reports = _pattern("reported").search(others)
        is_own_lead = _is_led(plain)
        is_alone = len(lines) == 1 and part[0].strip() == line.strip()
        remark = reports or _pattern("task").search(others)
        is_remark = bool(remark) and len(part[0].strip()) <= _REMARK
        if _pattern("fiction").match(plain) or _pattern("direct").search(others):
            return own, True
        if remark and is_remark and not (is_alone or among_people or is_own_lead):
            # "I use FastAPI, here is the log".
            clause = others[: remark.start()].rpartition(",")[0]
            is_own = not reports and not FIRST_PERSON.isdisjoint(words(clause))
            return own + (part[0][: len(clause)] if is_own else ""), True
        own += part[0]
        is_lead = plain.rstrip().endswith(_COLON) and not is_own_lead
        if is_lead and (
            remark or not (among_people or _is_label(plain, line[part.end() :], lines))
        ):
            return own, True
    return own, False


def _is_label(label: str, value: str, lines: Sequence[str]) -> bool:
    """Return whether a sentence up to its colon names the short rest of a message of one line.

    "My allergies: nuts and eggs" is said by the user; "Bob: I moved to Rome" is another's speech,
    and so is "Mi jefe: vivo en Roma", where no pronoun shows it.
    """
    text = f"{label} {value}"
    is_plain = language.guess(text) == "en" or words(label)[:1] in (["my"], ["our"])
    is_plain |= any(map(str.isdigit, value)) and not _UNSPACED.search(text)
    is_named = len(words(label)) > 1 and FIRST_PERSON.isdisjoint(words(value)) and is_plain
    is_short = 0 < len(value.strip()) <= _REMARK and not value.rstrip().endswith(_QUESTION)
    return len(lines) == 1 and is_named and is_short


def _texts(message: Message) -> list[str]:
    parts = [TextPart(message.content)] if isinstance(message.content, str) else message.content
    return [part.text for part in parts if isinstance(part, TextPart)]


def _shortened(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …"


def _first_paragraph(text: str) -> list[str]:
    """Return the lines of a text's first paragraph, up to a marked one; [] if it is long."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if line.strip() else []
        if lines and (not line.strip() or (_MARKED.match(line) and not _ITEM.match(line))):
            break
    return [] if sum(map(len, lines)) > _PARAGRAPH else lines


def _read(lines: Sequence[str]) -> Iterator[str]:
    """Return the wishes in lines, up to the first sign of other people's words."""
    is_listed = False
    for line in lines:
        item = _ITEM.match(line) if is_listed else None
        if is_listed != bool(item) or (_MARKED.match(line) and not item):
            return
        end = _ENDS.search(line)
        own = line[item.end() if item else 0 : end.start() if end else None]
        plain = _plain(_QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), own))
        for part in _SENTENCE.finditer(plain):
            sentence = part[0]
            has_colon = sentence.rstrip().endswith(_COLON)
            is_lead = has_colon and line is lines[0] and bool(_pattern("lead").match(sentence))
            is_whole = not end or part.end() < len(plain)
            may_be = is_whole and not is_lead and (is_listed or _has_cue(sentence))
            place = _wish(sentence, is_item=is_listed) if may_be else None
            if not (place or is_lead or _pattern("courtesy").fullmatch(sentence)):
                return
            if _pattern("reported").search(_pattern("self").sub("", sentence)):
                return
            if place:
                yield own[part.start() + place[0] : part.start() + place[1]]
            if sentence.rstrip().endswith(_QUESTION) or (has_colon and not is_lead):
                return
            is_listed |= is_lead
        if end:
            return


def _last_sentence(text: str) -> str:
    lines = text.rstrip().splitlines()
    sentences = [part[0] for part in _SENTENCE.finditer(lines[-1] if lines else "")]
    sentences = [each for each in sentences if any(map(str.isalnum, each))]
    return " ".join(sentences[-1].split()) if sentences else ""


def _is_judged(text: str, length: int, wish: str) -> bool:
    """Return whether the end of a text is a signature, or asks about what stands before it."""
    end, last = _BREAK.split(text.rstrip())[-1], _last_sentence(text)
    is_short = length <= len(wish) + len(last) + _BETWEEN
    is_apart = bool(wish) or last == " ".join(text.rstrip().rpartition("\n")[2].split())
    signs = ["task", "reported", *(["about"] if is_short and wish not in last else [])]
    signs += ["opinion", "fiction"] if is_apart else []
    asks = any(_pattern(sign).search(_pattern("self").sub("", _plain(last))) for sign in signs)
    return bool(_pattern("signed").search(f"\n{end}") or (last not in wish and asks))


def _plain(text: str) -> str:
    """Return the text in lower case with straight apostrophes, of the same length."""
    lowered = text.replace("İ", "I").lower()
    return lowered.replace("\u2019", "'") if len(lowered) == len(text) else text


def _wish(sentence: str, *, is_item: bool) -> tuple[int, int] | None:
    """Return the place of the wish in a sentence, without a question that follows it."""
    begin = len(sentence) - len(sentence.lstrip())
    end = len(sentence.rstrip().rstrip("".join(_COLON)))
    opening = _pattern("opening").match(sentence)
    starts = {begin, opening.end() if opening else begin}
    if sentence.rstrip().endswith(_QUESTION):
        # "Can you always cite sources?" is an order.
        is_asked = _pattern("ask").search(sentence, begin, max(starts) + 1)
        starts, is_item = starts - {begin} if is_asked else set(), False
    is_order = is_item or any(_pattern("order").match(sentence, start) for start in starts)
    said = None if is_order else _pattern("prefer").search(sentence)
    if not (is_order or said):
        return None
    holds_on = _pattern("lasting").search(sentence) or _pattern("evermore").search(sentence)
    if _pattern("passing").search(sentence) and not holds_on:
        return None
    if said is None:
        return begin, end
    # A clause alone would run into the next sentence, so what leads to it stays, if it is short.
    start = begin if said.start("wish") - begin <= _LEADS else said.start("wish")
    asked = _pattern("then").search(sentence, said.end())
    return start, asked.start() if asked else len(sentence[:end].rstrip("".join(_QUESTION)))


@cache
def _cue_words() -> tuple[Mapping[str, list[frozenset[str]]], frozenset[str]]:
    """Return the words of each cue by the longest, and the cues without blanks."""
    cues = {cue for name in listed("cues") for cue in listed(name)}
    unspaced = {cue for cue in cues if _UNSPACED.match(cue[-1])}
    found: dict[str, list[frozenset[str]]] = {}
    for parts in map(_WORD.findall, cues - unspaced):
        found.setdefault(max(parts, key=len), []).append(frozenset(parts))
    return found, frozenset(unspaced)


def _has_cue(text: str) -> bool:
    """Return whether a text may hold a wish, without compiling the table."""
    cues, unspaced = _cue_words()
    words = set(_WORD.findall(text))
    has_words = any(cue <= words for word in cues.keys() & words for cue in cues[word])
    return has_words or (not text.isascii() and any(cue in text for cue in unspaced))


def _any(name: str) -> str:
    """Return a pattern for any of the phrases of a list."""
    phrases = listed(name)
    spaced = [each for each in phrases if each[-1].isalnum() and not _UNSPACED.match(each[-1])]
    found = [rf"(?<!\w){either(spaced)}(?!\w|'\w)"] if spaced else []
    unspaced = either(phrases.difference(spaced))
    return f"(?:{'|'.join([*found, unspaced] if unspaced else found)})"


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the compiled pattern of a name, or of the list of that name."""
    return re.compile(_sources().get(name) or _any(name))


@cache
def _sources() -> Mapping[str, str]:
    opening = rf"\s*(?:{_any('opening')}[,!\uff0c-]* *)*"
    unless = rf"(?![ ,\uff0c]*(?!{_any('evermore')}){_any('unless')}(?!/))"
    pieces = {
        "UNLESS": rf"{unless}(?![ ,]*(?:[^\s,]+ )?{_any('inverted')})",
        "SOME": r"(?: ?(?!(?:your|the|th(?:is|at|ese|ose)|his|her|their|its)\b)[\w'-]+){0,2}? ?",
        "NAME": rf"(?!{_any('no_name')})[\w'-]+(?: [\w'-]+)?(?:,? (?:{_any('evermore')}|\w+))?",
        "END": rf"(?:[ ,\uff0c]*(?:{_any('please')}|{_any('evermore')}))*\W*$",
    }
    once = rf" {_any('once')}(?:[.,;!?]|$)| th(?:is|ese|ose|at(?! you))\b"
    once = rf"(?!\W*$|{once}| an? [^,.;]*\b(?:that|which|who)\b)"
    having = rf"(?:{_any('being')}|[^\n,;]{{0,30}}?{_any('ail')})"
    prefers = rf"(?P<wish>{_any('am')} ?{having}|{_any('prefer')}{once})"
    name = r"\W+(?-i:[A-Z\u00c0-\u00de\u0410-\u042f])[\w.-]*(?: [\w.-]+)?\W*"
    own = "|".join(map(_any, ("opening", "assistant", "start", "always", "evermore")))
    greeted = rf"(?!{own})(?-i:[A-Z]\w+)(?<!ly)(?=, )|{_any('hello')},? (?!{_any('assistant')})"
    greeted += r"\w+(?:[ -]\w+)?"
    office = r"(?: ?[|\u00b7\u2022] ?[^\n.!?]{0,60}|(?:\n[^\n.!?]{1,40}){1,4})?"
    return {
        "opening": opening,
        "courtesy": rf"{opening}(?:{_any('courtesy')}[^\n\0]{{0,40}})?[^\w\0]*",
        "lead": rf"{opening}{_any('lead')}",
        "task": rf"(?:{_any('task')}|^\W*(?:in|auf|en|op) {_any('tongue')}\W*$)",
        "direct": rf"{_any('direct')} ?[,\uff0c]",
        "own lead": rf"{opening}{_any('owned')}",
        "fiction": rf"^{opening}{_any('fiction')}",
        "order": "|".join(
            re.sub("<([a-zA-Z]+)>", lambda part: pieces.get(part[1]) or _any(part[1]), form)
            for form in sorted(listed("form"))
        ),
        "prefer": rf"(?:^|[,;(\u2013\u2014\uff0c-] ?|\b(?=like )|{_any('joint')} ?)\s*"
        rf"(?:{_any('opening')}[,!-]* )*{prefers}",
        "then": rf"(?:[,;] +(?:so |and |but |then |also )?| +(?:so|and|but|then) ){_any('ask')}",
        "letter": rf"(?i)\s*(?:{_any('greeting')}|{greeted}\s*(?:[,!:.-]|\n|$))",
        "signed": rf"(?im)\n\s*{_any('closing')}[^\n]{{0,40}}(?:\n[^\n]{{0,40}}){{0,2}}\Z"
        rf"|(?:[.!?\u3002,]\s+|\n\s*)(?:{_any('closing')}|{_any('named_closing')},?){name}\Z"
        rf"|^\s*-- ?$"
        rf"|(?-i:\s[~\u2013\u2014-]+ ?[A-Z]\w+(?: \w+)?(?:,[^\n.!?]{{0,60}})?{office}\W*\Z"
        rf"|\n[A-Z]\w+(?: [A-Z]\w+)?{office}\Z)|(?<!\w )\([^()\n]{{1,60}}\)[\s.!]*\Z"
        rf"|\s[-\u2013\u2014]+ ?{_any('whose')} [^\n.!?]{{1,40}}\W*\Z",
    }
