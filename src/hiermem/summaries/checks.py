# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides what keeps a model's answer from becoming memory.

Each check is a name, what the model is told of it, and a predicate. An answer to which one applies
is never taken. The subject of a conversation never counts against an answer: a summary may tell of
errors, refusals, code and apologies, so such a form counts only if it is the whole answer. The name
and the words are journalled, so they hold no text of a message or an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Final, NamedTuple

from hiermem.data import word_lists
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.summaries.terms import tells_of
from hiermem.text import language, reasoning
from hiermem.text.anchors import Fidelity
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

#: The labels of speakers that have no name of their own.
_GENERIC: Final = frozenset({"user", "assistant", "tool", "system"})
#: The one who answers, if nobody else is called so.
_ASSISTANT: Final = re.compile(
    r"\b(?:assistant|assistent|assistente|asistente|ассистент)\b|助手|助理", re.IGNORECASE
)


class Problem(NamedTuple):
    """Why an answer cannot be memory: the name of the check, and what the model is told."""

    kind: str
    says: str


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


def check(answer: Answer) -> tuple[Problem, ...]:
    """Return the problems of ``answer``; () if it may become memory.

    An answer that was extracted from its inputs, as its units show, is held to ``ALWAYS`` alone.
    """
    checks: tuple[Check, ...] = ALWAYS if answer.response.units else (*ALWAYS, *WRITTEN)
    if says_nothing(answer.text):
        checks = tuple(each for each in ALWAYS if each.name in _OF_NOTHING)
    values = _sizes(answer)
    return tuple(
        Problem(each.name, each.says.format_map(values)) for each in checks if each.applies(answer)
    )


def _sizes(answer: Answer) -> dict[str, object]:
    """Return the length of an answer and its limit, in words, or characters if it has no blanks."""
    words = len(answer.text.split())
    unit, size = (
        ("words", words) if 12 * words > len(answer.text) else ("characters", len(answer.text))
    )
    most = size * answer.request.max_tokens // max(1, answer.tokens)
    return {"size": f"{size} {unit}", "most": most}


def _is_echo(answer: Answer) -> bool:
    """Return whether the answer is one stretch of its inputs or of the prompt."""
    words = answer.text.split()
    whole = " ".join(words)
    if len(whole) < _ECHO:
        return False
    stated = [" ".join(source.text for source in answer.request.inputs)]
    stated += [message.content for message in answer.request.messages]
    return any(
        all(word in each for word in words[:_OPENING_WORDS]) and whole in " ".join(each.split())
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
        if _ASSISTANT.search(prose(answer.text)) and not _ASSISTANT.search(record):
            return True
    if facts is None:
        return False
    strangers = len(facts.strangers)
    if strangers > facts.named and (strangers > 1 or _names_nobody(answer.text, people)):
        return True
    return len(facts.invented) > facts.supported


def _names_nobody(text: str, people: set[str]) -> bool:
    """Return whether ``text`` names none of several people."""
    lower = text.casefold()
    return len(people) > 1 and not any(part in lower for name in people for part in name.split())


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


_WORDS: Final = word_lists("answer_words")
#: A refusal, a reply or an error message is the whole answer, and at most this long.
_SHORT: Final = 600
_HTTP_TEXT: Final = (
    r"(?:bad request|unauthori[sz]ed|forbidden|not found|request timeout|too many requests"
    r"|internal server error|bad gateway|service (?:temporarily )?unavailable|gateway time-?out)"
)
#: The beginning of an error's body of any length.
_ERROR_BODY: Final = re.compile(
    r"\{\s*\"(?:error|errors|detail|message|status_code)\"\s*:"
    r"|<!doctype html|<html[\s>]"
    r"|error code: [45]\d\d\b"
    r"|traceback \(most recent call last\)",
    re.IGNORECASE,
)
_ERROR_LINE: Final = re.compile(
    rf"(?:(?:http |http/1\.1 |error |status |code )?[45]\d\d\b[\s:,-]*{_HTTP_TEXT}"
    rf"|{_HTTP_TEXT}[.!]?\s*$"
    r"|(?:the )?(?:request|connection|read|operation|call) (?:has )?(?:timed[ -]out|timeout)\b"
    r"[^\n]{0,80}$"
    r"|connection (?:error|refused|reset)[^\n]{0,80}$"
    r"|upstream (?:connect error|request timeout)"
    r"|(?:rate limit|quota|context length|maximum context length)\b[^.\n]{0,40}\bexceeded\b[^\n]*$"
    r"|(?:[a-z_.]{0,60}(?:error|exception)): [^\n]*$"
    r"|an? (?:unexpected |internal )?error (?:has )?occurred\b[^\n]*$)",
    re.IGNORECASE,
)
#: An announcement of a summary.
ANNOUNCED: Final = re.compile(
    r"(?:sure|certainly|of course|okay|absolutely|gerne|d['’]accord|claro|好的|当然)[!,.。！ ]*$"
    r"|[*_]{0,2}(?:(?:sure|certainly|of course|okay|ok|absolutely|great)\b(?: thing)?[!,. ]*)?"
    r"(?:(?:here(?:[’']s| is| are)|below is|this is|the following is)\b[^\n]{0,80}"
    r"|(?:klar|gerne|natürlich|selbstverständlich)?[!,. ]*"
    r"(?:hier (?:ist|folgt|kommt)|nachfolgend|im folgenden)\b[^\n]{0,80}"
    r"|(?:bien sûr|d'accord|voici|volontiers)\b[^\n]{0,80}"
    r"|(?:claro|por supuesto|aquí (?:está|tienes?|va)|a continuación)\b[^\n]{0,80}"
    r"|(?:好的|当然)?[，,。！! ]*(?:以下是?|下面是)[^\n]{0,30}"
    r"|summary(?: of the (?:record|conversation))?)[:：][*_]{0,2}\s*$",
    re.IGNORECASE,
)
_JSON_START: Final = re.compile(r"(?:```(?:json)?\s*)?(?:\{\s*\"|\[\s*[{\"])", re.IGNORECASE)
_JSON_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


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


def declines(answer: str) -> bool:
    """Return whether each statement of a short answer declines, or is a remark beside that."""
    remarks = _remarks(answer)
    return any(map(_declines, remarks)) and all(
        _declines(remark) or is_remark(remark) for remark in remarks
    )


def is_error(answer: str) -> bool:
    """Return whether an answer is the error message of a program."""
    short = len(answer) <= _SHORT and _ERROR_LINE.match(answer) is not None
    return short or _ERROR_BODY.match(answer[:_SHORT]) is not None


_FENCED: Final = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_KEY: Final = re.compile(r"[\"'][\w .-]{1,60}[\"']\s*:")
#: The share of an answer from which a piece of data counts as the answer.
_MOSTLY: Final = 0.6
_CODE_LINE: Final = re.compile(
    r"\s*(?:(?:def|class|import|from|return|const|let|var|function|public|private|async|await)\b"
    r"(?!.*[.!?]$)|(?:if|for|while|elif|else|try|except)\b.*:$|[{}()\[\];]+,?$|@\w+"
    r"|[\w.]+\([^)]*\);?$|[\w.\[\]]+ ?[+*/-]?= ?\S|SELECT\b|INSERT\b|</?\w+[^>]*>$|#include\b)"
)
_MARKED: Final = re.compile(r"\s*(?:#{1,6} |[-*•+] |\d{1,3}[.)] |\||\*\*)")


def is_cut_json(answer: str) -> bool:
    """Return whether an answer begins as JSON and ends before the JSON does."""
    if not _JSON_START.match(answer):
        return False
    bare = _JSON_STRING.sub("", answer)
    return '"' in bare or any(bare.count(a) > bare.count(b) for a, b in ("{}", "[]"))


def is_data(answer: str) -> bool:
    """Return whether an answer is a JSON value, or one with a few words around it."""
    bare = answer.replace("```json", "").replace("```", "").strip()
    if bare.startswith("{") and bare.endswith("}"):
        return True
    if bare.startswith("[") and bare.endswith("]"):
        try:
            return isinstance(json.loads(bare), list)
        except (ValueError, RecursionError):
            return _KEY.search(bare) is not None
    begin, end = bare.find("{"), bare.rfind("}")
    within = bare[begin : end + 1] if 0 <= begin < end else ""
    return len(within) > _MOSTLY * len(bare) and _KEY.search(within) is not None


def is_code(answer: str) -> bool:
    """Return whether all of an answer's words stand in code blocks, or most lines are code."""
    outside = _FENCED.sub("", answer)
    if outside != answer and not re.search(r"\w{2}", outside):
        return True
    lines = [line for line in outside.splitlines() if line.strip()]
    coded = sum(_CODE_LINE.match(line) is not None for line in lines if not _MARKED.match(line))
    return bool(lines) and coded > _MOSTLY * len(lines)


#: The mark after which a statement ends, and what closes it; or line ends. The point of a decimal
#: number is no such mark.
_STATEMENT: Final = re.compile(
    r"([.!?…。！？；\n])(?!(?<=\d\.)\d)(?:(?<!\n)[\"'”’»)\]*_]*\s*(?=[^a-zà-ÿ\s]|$)|(?<=\n)\n*)"
)
_TERM: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]|\\w+(?:[-./:]\\w+)*")
_ASCII_TERM: Final = re.compile(r"\w+(?:[-./:]\w+)*", re.ASCII)
#: Repeated statements are too many from this number and this share of the text on.
_FEWEST_REPEATS: Final = 3
_MOST_REPEATED: Final = 0.3
#: A long text of which so many statements add no word that the record has is a loop.
_LONG: Final = 8
_EMPTY_SHARE: Final = 0.6
_TELLING: Final = 3
#: The distinct share of the sequences of four terms under which a text is a loop, and the fewest
#: sequences that show it.
_SEQUENCE: Final = 4
_FEWEST_SEQUENCES: Final = 36
_LEAST_DISTINCT: Final = 0.35


def _terms(text: str) -> list[str]:
    """Return the words of ``text`` in one case, and its figures and names with what joins them."""
    return (_ASCII_TERM if text.isascii() else _TERM).findall(text.casefold())


def statements(text: str) -> list[str]:
    """Return the sentences and lines of ``text``."""
    pieces, marks = (parts := _STATEMENT.split(text))[::2], [*parts[1::2], ""]
    return [statement for piece in map(add, pieces, marks) if (statement := piece.strip())]


def repeats(answer: str, record: str) -> bool:
    """Return whether an answer is a loop: of one statement, of variations, or of a few words."""
    sentences = [each for each in statements(answer) if not each.startswith("#")]
    plain = _WORDS["plain"]
    telling = [tuple(word for word in _terms(each) if word not in plain) for each in sentences]
    seen: set[tuple[str, ...]] = set()
    length = repeated = 0
    for sentence, words in zip(sentences, telling, strict=True):
        if len(words) > 1 and words in seen:
            length, repeated = length + len(sentence), repeated + 1
        seen.add(words)
    if repeated >= _FEWEST_REPEATS and length > _MOST_REPEATED * len(answer):
        return True
    if _is_loop(_terms(answer)):
        return True
    longer = [
        (sentence, frozenset(words))
        for sentence, words in zip(sentences, telling, strict=True)
        if len(set(words)) >= _TELLING
    ]
    if len(longer) < _LONG:
        return False
    own = [words for sentence, words in longer if folded(sentence).lstrip("-*• ") not in record]
    return len(own) >= _LONG and _adds_nothing(own, record)


def _is_loop(flow: Sequence[str]) -> bool:
    """Return whether the terms of a text come in few different sequences."""
    sequences = len(flow) - _SEQUENCE + 1
    most = _LEAST_DISTINCT * sequences
    # The first place of each term ends another sequence, except at the beginning of the text.
    if sequences < _FEWEST_SEQUENCES or len(set(flow)) - _SEQUENCE >= most:
        return False
    return len(set(zip(*(flow[at:] for at in range(_SEQUENCE)), strict=False))) < most


def _adds_nothing(terms: Sequence[frozenset[str]], text: str) -> bool:
    """Return whether most statements have no word of the record that was not said before."""
    if len(frozenset().union(*terms)) >= len(terms) * _SEQUENCE:
        return False
    record = set(_terms(text))
    earlier: set[str] = set()
    empty = 0
    for words in terms:
        empty += not any(word in record and word not in earlier for word in words)
        earlier |= words
    return empty > _EMPTY_SHARE * len(terms)


_ROLES: Final = "user|assistant|tool|system"
#: A line of the record as prompts render it.
_RECORD_LINE: Final = re.compile(rf"\*{{0,2}}[^\s:#*-][^\n:]{{0,60}} \((?:{_ROLES})\)\*{{0,2}} ?:")
_DAY_LINE: Final = re.compile(r"\[(?:\w{3} )?\d{4}-\d\d-\d\d\]")
_FEWEST_TURNS: Final = 3
#: Words of somebody who speaks or is spoken to.
_TALK: Final = re.compile(
    r"[?!？！]|\b(?:i|i'm|i'll|i've|i'd|my|me|you|your|you're|mine"
    r"|ich|mir|mich|mein\w*|du|dir|dich|dein\w*|ihnen|je|j'\w+|moi|mon|ma|mes|tu|toi|ton|vous|votre"
    r"|yo|mi|mis|tú|te|tus|usted|me|я|мне|меня|мой|ты|вы|вам|тебе)\b|[我你您]",
    re.IGNORECASE,
)
_QUOTES: Final = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|「[^」\n]*」|„[^“\n]*“")
_SPEAKERS: Final = 40


def continues(answer: str, record: str, *, request: LLMRequest) -> bool:
    """Return whether an answer is a dialogue: lines in the record's form, or invented turns.

    Turns that the record holds are quotations, and a note may begin with a speaker's name.
    """
    lines = [line for line in answer.splitlines() if line.strip()]
    shaped = sum(_RECORD_LINE.match(line) is not None for line in lines)
    if shaped >= _FEWEST_TURNS or 2 * shaped > len(lines):
        return True
    # A transcript is no summary, whether its lines stand in the record or not.
    opening = re.compile(rf"\*{{0,2}}(?:{_labels(request)})\*{{0,2}} ?[:：]", re.IGNORECASE)
    talk = sum(opening.match(line) is not None and _talks(line) for line in lines)
    days = sum(_DAY_LINE.fullmatch(line.strip()) is not None for line in lines)
    if talk >= _FEWEST_TURNS and 2 * talk > len(lines) - days:
        return True
    turns = list(_turns(answer, request=request))
    if len(turns) < _FEWEST_TURNS:
        return False
    invented = sum(_talks(turn) and not _is_quoted(turn, record) for turn in turns)
    return 2 * invented > len(turns)


def _labels(request: LLMRequest) -> str:
    """Return a pattern of the names that a turn may begin with."""
    speakers = {source.speaker.strip() for source in request.inputs[: 10 * _SPEAKERS]}
    names = [name for name in sorted(speakers) if name][:_SPEAKERS]
    return "|".join(map(re.escape, (*names, *sorted(_WORDS["speakers"]))))


def _talks(turn: str) -> bool:
    return _TALK.search(_QUOTES.sub("", turn)) is not None


def _turns(answer: str, *, request: LLMRequest) -> Iterator[str]:
    """Yield what stands after each speaker's name and colon."""
    opening = re.compile(
        r"(?:^|\n|(?<=[.!?…。！？])\s?)[ \t>*-]{0,8}"
        rf"(?:{_labels(request)})(?: \((?:{_ROLES})\))?\*{{0,2}} ?[:：]",
        re.IGNORECASE,
    )
    labels = list(opening.finditer(answer))
    ends = [*(label.start() for label in labels[1:]), len(answer)]
    for label, end in zip(labels, ends, strict=False):
        yield answer[label.end() : end]


def _is_quoted(turn: str, record: str) -> bool:
    """Return whether at least half of a turn's sentences stand in the record."""
    sentences = [folded(sentence) for sentence in statements(turn)]
    return 2 * sum(sentence in record for sentence in sentences) >= len(sentences)


def folded(text: str) -> str:
    """Return ``text`` in one case, its words apart by one blank."""
    return " ".join(text.casefold().split())


_WORK: Final = (
    r"summar\w+|help\w*|assist\w*|comply|process\w*|provid\w+|request\w*|content|conversation\w*"
    r"|transcript|material|topic|discuss\w*|private|personal|sensitive|task|engag\w+"
    r"|do (?:that|this)"
    r"|zusammen\w+|helfen|hilfe|anfrage|gespräch\w*|inhalt\w*|bearbeiten|beantworten|wunsch"
    r"|résum\w+|aider|demande|conversation|contenu|traiter|répondre"
    r"|resum\w+|ayudar\w*|conversación|solicitud|contenido|procesar|petición"
    r"|резюм\w+|помочь|запрос\w*|разговор\w*|содержан\w+"
)
_HAN_WORK: Final = "总结|摘要|概括|帮助|帮您|帮你|协助|请求|内容|对话|处理|提供|回答"
#: Somebody who speaks for himself and will or can not do what was asked.
_DECLINES: Final = re.compile(
    r"\b(?:i|we)(?:['’]m| am|['’]re| are|['’]d| would)?\b[^.!?\n]{0,60}?"
    r"\b(?:can(?:['’]t|not| not)|could(?:n['’]t| not)|won['’]t|will not|unable|not able|declin\w+"
    r"|refus\w+|(?:rather|prefer) not|not (?:feel )?comfortable|not (?:permitted|allowed)"
    r"|uncomfortable|do(?:n['’]t| not) (?:feel|think|want|have))\b"
    r"|(?:n['’]t|not) something (?:that )?(?:i|we)\b"
    r"|\bcan(?:['’]t|not| not) be (?:summari[sz]ed|processed|completed|fulfilled)\b"
    r"|(?:against|violat\w+|outside) (?:my|our|the) (?:\w+ )?(?:guidelines|polic\w+|rules|scope)"
    r"|\bich\b[^.!?\n]{0,80}\b(?:nicht|ablehnen|keine?n?)\b|\b(?:kann|darf|möchte|werde) ich\b"
    r"[^.!?\n]{0,80}\b(?:nicht|keine?n?)\b|\bmuss ich\b[^.!?\n]{0,60}\bablehnen\b"
    r"|\bje (?:ne|n['’]|refuse|regrette|préfère ne)|\bil m['’]est impossible"
    r"|\bno (?:puedo|podemos|me es posible|estoy|debo|quiero|me siento)\b|\bme niego\b"
    r"|\bprefiero no\b|\bnon posso\b|\bnão posso\b"
    r"|\bя (?:\w+ ){0,3}не\b|\bне (?:могу|можем|буду|вправе)\b"
    r"|我[^。！？\n]{0,20}(?:无法|不能|不便|不会|拒绝|不愿|没办法)"
    r"|(?:抱歉|对不起|很遗憾|不好意思)[^。！？\n]{0,30}(?:无法|不能|不便)|申し訳[^。\n]{0,30}できません",
    re.IGNORECASE,
)
_WORK_NAMED: Final = re.compile(rf"\b(?:{_WORK})\b|{_HAN_WORK}", re.IGNORECASE)
#: Who says it, where it is reported: "Ann said: I cannot help".
_REPORTED: Final = re.compile(
    r"^(?:\S+ ){0,2}\S+:"
    r"|^[^.!?]{1,60}?\b(?:said|says|told|asked|wrote|replied|sagte|sagt|dit|dijo)\b"
    r"|\b(?:said|says|replied|sagte|dijo) (?:the|der|die|el|la|[A-Z])"
)
#: Courtesies, and the praise and the offers of somebody who answers.
_COURTESY: Final = re.compile(
    r"(?:thank(?:s| you)|i appreciate|i understand|i[’']m (?:glad|happy|sorry|here)|sure|certainly"
    r"|of course|absolutely|great|wow|hello|hi|hey|congratulations|that[’']s|that is|what a|how "
    r"|good luck|here are some|you[’']re welcome|i hope|i apologi[sz]e|sorry|welcome|it sounds like"
    r"|danke|vielen dank|gerne|hallo|das ist (?:ja )?(?:toll|schön|wunderbar|großartig)|viel erfolg"
    r"|merci|bonjour|bravo|c['’]est (?:merveilleux|super|formidable)|bonne chance|je comprends"
    r"|gracias|hola|claro|qué |felicidades|es maravilloso|buena suerte|entiendo"
    r"|спасибо|здравствуйте|конечно"
    r"|谢谢|感谢|您好|你好|好的|当然|太好了|加油|祝)",
    re.IGNORECASE,
)
_TO_READER: Final = re.compile(
    r"\b(?:let me know|please (?:share|provide|paste|send|tell|specify|confirm|clarify)|feel free"
    r"|don[’']t hesitate|(?:would|do|did|are|can|could|have|is there) you\b|would you like"
    r"|(?:shall|should|can|may|could|do) i\b|how (?:can|may) i|anything else|you (?:can|could"
    r"|should|might|may|will|need|must|are|want to|have to)\b|you[’'](?:re|ll|ve)\b|your"
    r"|i[’']?(?:ll| will| can| could|m here|m happy|d be (?:happy|glad))\b[^.]*\b"
    r"(?:you|help|summar)|soll ich|möchten sie|möchtest du|wünschen sie|brauchen sie"
    r"|kann ich (?:ihnen|dir)"
    r"|bitte (?:teilen|senden|geben|schicken|stellen)|lassen sie mich|sagen sie mir|haben sie"
    r"|hast du|ihnen|dir"
    r"|souhaitez[- ]vous|voulez[- ]vous|veux-tu|puis-je|dois-je|avez[- ]vous|n['’]hésitez"
    r"|dites[- ]moi|faites[- ]moi|veuillez|souhaiteriez|votre|vos"
    r"|(?:te|le|les) gustaría|quieres?|quiere que|desea[s]?|puedo ayudar\w*|necesitas?|dime"
    r"|avísame|no dudes?|por favor|debo|tienes|tiene (?:alguna|preguntas)|podrías?"
    r"|хотите|могу ли|нужно ли вам|скажите|пожалуйста)\b"
    r"|[您你](?:想|要|需|希望|可以|能|有|是否|觉得|愿意)|需要我|要不要我|是否需要|请(?:提供|告诉|发送|分享|告知|问|随时)|如果[您你]",
    re.IGNORECASE,
)
#: Somebody who reports what "you" said does summarise.
_REPORTED_TO_YOU: Final = re.compile(
    r"\byou (?:asked|said|told|wanted|decided|mentioned|described|reported|explained|had|were)\b",
    re.IGNORECASE,
)
#: The share of an answer's sentences that speak to the reader in a reply.
_REPLIES: Final = 0.6


def replies(answer: str) -> bool:
    """Return whether a short answer offers, asks or advises the reader as a whole."""
    remarks = _remarks(answer)
    to_reader = sum(_declines(remark) or is_remark(remark) for remark in remarks)
    if remarks and to_reader == len(remarks):
        return not any(map(_declines, remarks))
    return to_reader >= 2 and to_reader >= _REPLIES * len(remarks)


def _remarks(answer: str) -> list[str]:
    """Return the statements of an answer that may be a reply: a short one without lists."""
    if len(answer) > _SHORT or any(_MARKED.match(line) for line in answer.splitlines()):
        return []
    return statements(answer)


def _declines(statement: str) -> bool:
    bare = _QUOTES.sub("", statement)
    return (
        _DECLINES.search(bare) is not None
        and _WORK_NAMED.search(bare) is not None
        and _REPORTED.search(bare) is None
    )


def is_remark(statement: str) -> bool:
    """Return whether a sentence is a courtesy, a question or an offer to the reader.

    >>> is_remark("Would you like me to go on?"), is_remark("Ann asked what it costs.")
    (True, False)
    """
    bare = _QUOTES.sub("", statement)
    if _REPORTED.search(bare) or _REPORTED_TO_YOU.search(bare):
        return False
    return _COURTESY.match(bare) is not None or _TO_READER.search(bare) is not None


class Check(NamedTuple):
    """A check of an answer: its name, what the model is told if it applies, and the predicate."""

    name: str
    says: str
    applies: Callable[[Answer], bool]


def _finished(reason: str) -> Callable[[Answer], bool]:
    return lambda answer: answer.response.finish_reason == reason


def _record(answer: Answer) -> str:
    return folded(" ".join(source.text for source in answer.request.inputs))


_REFUSED: Final = "It was a refusal. Nothing but a summary is asked of you."
#: What any answer is held to, also one that was extracted.
ALWAYS: Final = (
    Check("truncated", "It was cut off at its end. Write fewer and shorter lines.",
          _finished("length")),
    Check("refused", _REFUSED, _finished("refusal")),
    Check("error_text", "It was an error message.",
          lambda a: a.response.finish_reason == "error" or is_error(a.text)),
    Check("empty", "It said nothing.", lambda a: says_nothing(a.text)),
    Check("too_long", "It was too long: {size}, of at most {most}. Leave out whole lines.",
          lambda a: a.tokens > a.request.max_tokens),
    Check("not_smaller", "It was as long as the record. Write fewer lines.",
          lambda a: a.tokens > a.input_tokens - (a.input_tokens > _SMALL_INPUT)),
)  # fmt: skip
#: What a written answer is held to besides.
WRITTEN: Final = (
    Check("refused", _REFUSED, lambda a: declines(a.text)),
    Check("reasoning", "It held your reasoning. Write the summary alone.",
          lambda a: reasoning.holds_reasoning(a.text, spoken=speaks_of_marks(a.request))),
    Check("truncated", "It was JSON that is cut off. Write lines.",
          lambda a: is_cut_json(a.text)),
    Check("not_prose", "It was data or code. Write headings and lines.",
          lambda a: is_data(a.text) or is_code(a.text)),
    Check("repetitive", "It said the same again and again. Say each thing once.",
          lambda a: repeats(a.text, _record(a))),
    Check("continuation",
          "It continued the conversation. Report what was said in the record.",
          lambda a: continues(a.text, _record(a), request=a.request)),
    Check("reply", "It spoke to the reader. Report what was said in the record.",
          lambda a: replies(a.text)),
    Check("echo", "It copied what it was given. Summarise the record in other words.", _is_echo),
    Check("unrelated", "It told nothing of the record.", _is_unrelated),
    Check("wrong_language", "It was not in the language of the record.", _is_in_another_language),
    Check("invented", "It had names, figures or dates that are not in the record.", _is_invented),
    Check("vague", "It left out the names, figures and dates of the record.", _says_too_little),
)  # fmt: skip
#: With these an answer is close to one that could be taken, so a second request shows it.
MENDABLE: Final = frozenset(
    ("too_long", "not_smaller", "reply", "wrong_language", "invented", "vague")
)
#: What can be said of an answer that says nothing.
_OF_NOTHING: Final = ("truncated", "refused", "error_text", "empty")
