# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides what becomes of an answer: take it, ask once more with what was wrong, or give up.

First the summary is cut out of the answer: reasoning, a fence around the whole, an announcement
before it and an offer after it are no part of a summary, in whatever combination they come. An
answer that was cut off loses its incomplete last line; the rest is kept if enough of the requested
length is left.

Then it is judged. An answer counts as extracted only if each of its units stands in the inputs. It
is judged by its size and form alone, because its words are the record's own: the errors that only a
writer can make (language, inventions) cannot occur in it. An answer to which a check applies is
never taken.

A model that keeps failing the checks is asked ever more rarely, and at last left alone::

    two requests -> stand-in -> one request after 1 h -> 4 h -> 16 h -> 64 h -> none

An attempt is a call whose answer was not taken, or whose failure says something of the text
(``calls.failures.is_attempt``). Any other call without an answer counts only if an earlier one
had none either and the model has answered other calls since. So an outage costs no attempt.
Attempts are counted by the node's input hash, which covers the model's name and the prompt's
version. So a fork or a rebuild with the same inputs continues the count, and another model, prompt
or input begins a new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from hiermem.calls.answers import Accepted, Rejected, Retry, Verdict
from hiermem.calls.limits import request_tokens
from hiermem.data import word_lists
from hiermem.prompts.template import before_record, second_request
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.summaries.checks import (
    ANNOUNCED,
    MENDABLE,
    Answer,
    check,
    is_to_reader,
    speaks_of_marks,
    statements,
)
from hiermem.text import language, policy, units
from hiermem.text.facts import Source, find
from hiermem.text.policy import stands_in
from hiermem.text.reasoning import text_of, without_reasoning
from hiermem.text.terms import fold, stem, words, written
from hiermem.types import Span, Unit

#: The share of the requested length that a cut answer must still have.
LEAST_LEFT: Final = 0.6

#: What an answer is wrapped in: a tag, or a fence around all that is no remark, closed or not.
_WRAPPED: Final = re.compile(
    r"\A(?P<head>.{0,400}?)"
    r"(?:<(?P<tag>(?:final_?)?(?:summary|answer|output|result|response)|final)>(?P<told>.*?)"
    r"(?:</(?P=tag)>|\Z)"
    r"|^(?P<fence>`{3,}|~{3,})[ \t]*(?:markdown|md|te?xt|plain(?:text)?|summary|output)?[ \t]*\n"
    r"(?P<body>(?:(?!^(?P=fence)).)*?)(?:\n?^(?P=fence)[ \t]*$|(?P=fence)?\Z))"
    r"(?P<tail>.{0,400})\Z",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
#: An offer at the end of an answer is no longer than this.
_REMARK: Final = 400
#: An answer of up to this many times its limit is cut instead of asked for again.
MOST_OVER: Final = 1.2
_HEADING: Final = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*\n]+\*\*:?\s*$)")
_SECTION: Final = re.compile(rf"^(?={_HEADING.pattern})", re.MULTILINE)
#: What stands above lines: a heading, or a day.
_ABOVE: Final = (_HEADING, re.compile(r"\s*\[(?:\w{3} )?\d{4}-\d\d-\d\d\]\s*$"))
_ITEM: Final = re.compile(r"\s*(?:[-*•+]|\(?\d{1,3}[.)])\s")
_ROW: Final = re.compile(r"\s*\|")
_CODE: Final = re.compile(r"\s*```")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
#: Scripts whose sentences have no mark at their end.
_UNMARKED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
#: Characters that end a line inside a sentence.
_OPEN: Final = ",，、;；(（[{-–—/&"
#: A line of more words than this, or of more characters of a script without spaces, is a sentence.
_LONG_LINE: Final = 12
_LONG_UNSPACED: Final = 30
#: The word lists; "no end" of a language are words that no sentence of it ends with.
_WORDS: Final = word_lists("answer_words")
_HAN_DANGLING: Final = "的和与及或而并把被将对从向给让但因在"
_SHORTEST_CUT: Final = 4
#: The words at the end of a line by which it is recognised.
_TAIL: Final = 3
#: The words at the end of a line that are recognised as a quotation.
_QUOTED: Final = 8
_SENTENCE_END: Final = re.compile(r"(?<=\w{2})[.!?…][\"'”’»)\]]*(?=\s)|[。！？][」』”]*")


def repair(response: LLMResponse, *, request: LLMRequest) -> LLMResponse:
    """Return ``response`` as it is judged and stored: unwrapped, and trimmed if it was cut off.

    The finish reason of a trimmed answer says whether enough is left: "stop" or "length".
    """
    if (
        request.schema is not None
        or response.units
        or response.finish_reason not in ("stop", "length")
    ):
        return response
    text = _shortened(unwrapped(response.text, spoken=speaks_of_marks(request)), request)
    if not (response.finish_reason == "length" or _is_cut(text, response, request=request)):
        return replace(response, text=text) if text != response.text.strip() else response
    lines = _whole_lines(text, flagged=response.finish_reason == "length")
    if request.counter.count(lines) >= LEAST_LEFT * request.target_tokens:
        return replace(response, text=lines, finish_reason="stop")
    return replace(response, text=text, finish_reason="length")


def unwrapped(text: str, *, spoken: bool = False) -> str:
    r"""Return an answer without reasoning, its fence or tag, an announcement, and a closing offer.

    ``spoken``: the record speaks of marks of reasoning, and so may the answer.

    >>> unwrapped("Here is the summary:\n\n## Overview\nThey rent.\n\nLet me know!")
    '## Overview\nThey rent.'
    """
    before = None
    bare = partial(without_reasoning, spoken=spoken)
    while text != before:
        before = text
        for step in (bare, text_of, _inside, _unannounced, _without_offer):
            text = step(text).strip()
    return text


def _inside(text: str) -> str:
    """Return what stands inside a tag or a fence that has only remarks around it."""
    match = _WRAPPED.match(text)
    if match is None:
        return text
    head, tail = match["head"].strip(), match["tail"].strip()
    if head and not (ANNOUNCED.match(head) or all(map(is_to_reader, statements(head)))):
        return text
    if tail and not all(map(is_to_reader, statements(tail))):
        return text
    return str(match["body"] if match["told"] is None else match["told"])


def _unannounced(text: str) -> str:
    first, _, rest = text.partition("\n")
    return rest if rest.strip() and ANNOUNCED.match(first.strip()) else text


def _without_offer(text: str) -> str:
    body, gap, last = text.rpartition("\n\n")
    marked = _HEADING.match(last) or _ITEM.match(last) or _ROW.match(last)
    short = len(last) <= _REMARK
    if gap and body.strip() and short and not marked and all(map(is_to_reader, statements(last))):
        return body.rstrip().removesuffix("---")
    return text


def _shortened(text: str, request: LLMRequest) -> str:
    """Return an answer that is at most a fifth too long without last lines of longest sections.

    So what is open, at the end, stays. One that is as long as the record stays as it is, to be
    refused: it may be a copy of it.
    """
    count, limit = request.counter.count, request.max_tokens
    tokens = count(text)
    is_mendable = limit < tokens <= MOST_OVER * limit
    if not is_mendable or tokens >= sum(count(each.text) for each in request.inputs):
        return text
    sections = [section.splitlines() for section in _SECTION.split(text)]
    while count(shorter := "\n".join(line for lines in sections for line in lines)) > limit:
        longest = max(sections, key=lambda lines: sum(map(len, lines)))
        longest.pop()
        _strip_end(longest)
    return shorter or text


def _strip_end(lines: list[str]) -> None:
    """Remove blank lines, and headings and days without lines, from the end."""
    while lines and (not lines[-1].strip() or any(form.match(lines[-1]) for form in _ABOVE)):
        lines.pop()


def _whole_lines(text: str, *, flagged: bool) -> str:
    """Return the lines of ``text`` without an incomplete last one and headings left without lines.

    If the model was stopped (``flagged``), a last line is whole only if its sentence ends. A
    paragraph keeps its whole sentences.
    """
    lines = text.splitlines()
    if lines and not (flagged and ends_sentence(lines[-1])):
        last = lines.pop()
        ends = list(_SENTENCE_END.finditer(last))
        if ends and not (_ITEM.match(last) or _ROW.match(last) or _HEADING.match(last)):
            lines.append(last[: ends[-1].end()])
    _strip_end(lines)
    return "\n".join(lines).strip()


def _is_cut(text: str, response: LLMResponse, *, request: LLMRequest) -> bool:
    """Return whether an answer that claims to be whole ends in the middle of a sentence."""
    last = text.rstrip().rpartition("\n")[2].strip()
    if not last or any(form.match(last) for form in (_HEADING, _ROW, _CODE)):
        return False
    tokens, spent = request.counter.count(text), response.usage.output_tokens or 0
    # No server stops an answer beyond its limit: it is too long, and whole.
    if ends_sentence(last) or _UNMARKED.search(last) or tokens > request.max_tokens:
        return False
    record = "\n".join(source.text for source in request.inputs)
    if _is_quoted(last, record):
        return False
    return (
        max(tokens, spent) >= request.max_tokens
        or last[-1] in _OPEN
        or any(last.count(a) > last.count(b) for a, b in ("()", "[]", "（）"))
        or _dangles(last, text, record)
        or (not _ITEM.match(last) and _is_long(last))
    )


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with a mark that may end a sentence, or with what may close one.

    >>> ends_sentence("They rent."), ends_sentence("They rent;")
    (True, False)
    """
    end = line.rstrip()[-1:]
    return bool(end) and not end.isalnum() and end not in _OPEN


def _is_quoted(line: str, record: str) -> bool:
    """Return whether the end of a line stands in the record, which then has no mark there."""
    tail = line.casefold().split()[-_QUOTED:]
    return len(tail) >= _TAIL and " ".join(tail) in " ".join(record.casefold().split())


def _is_long(line: str) -> bool:
    unspaced = len(_UNSPACED.findall(line))
    return unspaced > _LONG_UNSPACED or len(line.split()) > _LONG_LINE


def _dangles(last: str, text: str, record: str) -> bool:
    """Return whether the last word of an answer is half a word, or asks for another one."""
    ending = written(last)
    if last[-1] in _HAN_DANGLING or not ending or _UNSPACED.search(ending[-1]):
        return last[-1] in _HAN_DANGLING
    spoken = language.guess(text) or language.guess(record) or "en"
    if len(ending) > 2 and ending[-1] in _WORDS.get(f"no end {spoken}", ()):
        return True
    word, known = fold(ending[-1]), words(f"{record}\n{text[: -len(last)]}")
    return (
        len(word) >= _SHORTEST_CUT
        and stem(word) not in map(stem, known)
        and any(each.startswith(word) and len(each) > len(word) + 2 for each in known)
    )


#: Requests for one text before the stand-in: the ordinary one and one that says what was wrong.
PROMPTS: Final = 2
#: The most tokens that a second request adds to say what was wrong.
_COMPLAINT: Final = 200
#: The most anchors kept with a revision, and the most unsupported figures and names.
MOST_ANCHORS: Final = 64
#: The most anchors of the inputs that are searched for in an extract.
_MOST_SOUGHT: Final = 256


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that may become a revision, and the measures of its worth.

    ``units`` are () if the text was written and not extracted; ``anchors`` are the text's own.
    ``problems`` are what a model is told of each check that applies, by the check's name.
    ``fidelity`` is the share of the inputs' weightiest anchors that it keeps, None if there are
    none. ``shortened``: lines of the answer were left out.
    """

    text: str
    tokens: int
    units: tuple[Unit, ...]
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    fidelity: float | None = None
    unsupported: tuple[str, ...] = ()
    model: str = ""
    anchors: tuple[str, ...] = ()
    shortened: bool = False

    @property
    def fit(self) -> bool:
        """Return whether the draft may become memory."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Standard:
    """What the answers to one request are held to.

    ``source`` is what is read in the request's inputs, ``input_tokens`` their tokens, and ``known``
    their anchors if these are on record, weightiest first. A model that ``is_deterministic`` is not
    asked again: its answer would be the same. ``window`` is the model's, None if it has no limit.
    """

    source: Source
    input_tokens: int
    known: Sequence[str] | None = None
    is_deterministic: bool = False
    window: int | None = None


def judge(
    request: LLMRequest, standard: Standard, response: LLMResponse, *, tried: int = 1
) -> Verdict[Draft]:
    """Judge the answer to ``request``, the ``tried``-th."""
    draft = assess(request, standard, response)
    if draft.fit:
        return Accepted(draft, draft.model)
    reason = ",".join(draft.problems)
    if tried < PROMPTS and not (draft.units or standard.is_deterministic):
        shown = draft.text if _may_be_shown(draft, request, standard.window) else ""
        again = replace(
            request,
            messages=second_request(request.messages, draft.problems.values(), answer=shown),
        )
        return Retry(again, reason, partial(judge, again, standard, tried=tried + 1))
    return Rejected(reason, detail=reason)


def _may_be_shown(draft: Draft, request: LLMRequest, window: int | None) -> bool:
    """Return whether a second request shows the first answer: one that can be mended, and fits."""
    if not MENDABLE.issuperset(draft.problems):
        return False
    added = draft.tokens + request.max_tokens + _COMPLAINT
    if draft.tokens > 2 * request.max_tokens:
        return False
    if window is None:
        return True
    return request_tokens(request.messages, request.counter.count) + added <= window


def assess(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Assess an answer as an extract if it is one, whatever it claims to be."""
    if is_extract(response, request=request):
        return assess_extract(request, standard, response)
    return assess_written(request, standard, replace(response, units=()))


def assess_written(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Repair and check one written answer."""
    whole = unwrapped(response.text, spoken=speaks_of_marks(request))
    response = repair(response, request=request)
    text = policy.check(
        response.text.strip()[: policy.MAX_CONTENT],
        what="summary",
        cap=policy.MAX_CONTENT,
        on_bad="replace",
    )
    tokens = request.counter.count(text)
    facts = standard.source.fidelity(text)
    return Draft(
        text=text,
        tokens=tokens,
        units=(),
        problems=check(
            Answer(
                replace(response, text=text),
                request,
                tokens,
                standard.input_tokens,
                record=standard.source.prose_of_inputs,
                fidelity=facts,
            )
        ),
        fidelity=facts.value,
        unsupported=facts.unsupported[:MOST_ANCHORS],
        model=response.model,
        anchors=facts.anchors[:MOST_ANCHORS],
        shortened=len(response.text.strip()) < len(whole),
    )


def assess_extract(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Check one answer that ``is_extract``: its size and form, and which anchors it keeps.

    The check makes at most one pass over the inputs, because an extract is made for every window of
    a conversation.
    """
    text = response.text
    tokens = request.counter.count(text)
    sought = standard.known
    if sought is None:
        source = "\n".join(source.text for source in request.inputs)
        sought = find(source, limit=_MOST_SOUGHT)
    required = sought[: anchor_limit(request.target_tokens)]
    standing = tuple(anchor for anchor in sought if stands_in(anchor, text))
    lost = set(required).difference(standing)
    return Draft(
        text=text,
        tokens=tokens,
        units=response.units,
        problems=check(Answer(response, request, tokens, standard.input_tokens)),
        fidelity=1.0 - len(lost) / len(required) if required else None,
        model=response.model,
        anchors=standing[:MOST_ANCHORS],
    )


def is_extract(response: LLMResponse, *, request: LLMRequest) -> bool:
    """Return whether an answer is made of units of the request's inputs, as its ``units`` claim.

    Most units stand unchanged in their message, which one search of that message shows. The inputs
    are split again only for a unit that does not (a code digest, a cut or capitalised piece).
    """
    extract = response.units
    if not extract or units.render(extract) != response.text:
        return False
    days = {"", *(source.date for source in request.inputs)}
    names = {"", *(" ".join(source.speaker.split()) for source in request.inputs)}
    texts: dict[int | None, list[str]] = {}
    recorded: set[str] = set()
    for source in request.inputs:
        texts.setdefault(source.index, []).append(source.text)
        for unit in source.units:
            recorded.add(unit.text)
            days.add(unit.date)
            names.add(unit.speaker)
    if any(unit.date not in days for unit in extract):
        return False
    labels = {unit.speaker for unit in extract} - names
    if any(not _is_start(label, names) for label in labels):
        return False
    altered = {
        unit.text
        for unit in extract
        if unit.text not in recorded
        and not any(unit.text in text for text in texts.get(unit.index, ()))
    }
    if not altered:
        return True
    whole = {unit.text for source in request.inputs for unit in units.of_source(source)}
    return all(_is_start(text, whole) for text in altered - whole)


def _is_start(text: str, whole: set[str]) -> bool:
    """Return whether ``text`` is the start of a text in ``whole``, with or without a cut mark."""
    start = text.removesuffix("…")
    return bool(start) and any(each.startswith(start) for each in whole)


def source_of(request: LLMRequest, *, limit: int) -> Source:
    """Return what written answers to ``request`` are held to: ``limit`` anchors of its inputs.

    A writer also saw days, speakers, title, people and overlap. What a prompt says after the record
    may name figures that an earlier answer invented.
    """
    days = dict.fromkeys(source.date for source in request.inputs)
    speakers = dict.fromkeys(source.speaker for source in request.inputs)
    asked = (message.content for message in request.messages if message.role != "system")
    beside = (*days, *speakers, *(before_record(content) for content in asked))
    return Source([each.text for each in request.inputs], limit=limit, beside=beside)


def anchor_limit(target: int) -> int:
    """Return how many anchors a text of ``target`` tokens must keep: one for every twenty tokens.

    A sentence that explains a figure has about twenty tokens.
    """
    return max(4, min(64, target // 20))


#: The kind of the records that hold a count; their scope is the session, their key the input hash.
RETRY: Final = "retry"
#: After how long the text is asked for once more: so long, then four times as long, so often.
_FIRST: Final = timedelta(hours=1)
_TIMES: Final = 4
_TRIES: Final = 4
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """The attempts at one text: how many, when the last one ended, and what was wrong then.

    ``unanswered`` is the id of the first call without an answer that did not count, "" if there is
    none.
    """

    count: int = 0
    last: datetime | None = None
    unanswered: str = ""
    error: str = ""

    def prompts_due(self, now: datetime, *, max_attempts: int) -> int:
        """Return how many requests may be sent now: 2, 1, or 0 to leave the model alone."""
        first = max(PROMPTS, max_attempts)
        if self.count < first:
            return min(PROMPTS, first - self.count)
        step = self.count - first
        if step >= _TRIES or self.last is None:
            return 0
        return int(now >= self.last + _FIRST * _TIMES**step)

    def spend(self, number: int, *, now: datetime, error: str) -> AttemptCount:
        """Return the count after ``number`` more attempts."""
        return AttemptCount(self.count + number, now, error=error) if number else self

    def miss(self, call_id: str, *, answered: bool, now: datetime, error: str) -> AttemptCount:
        """Return the count after a call without an answer.

        ``answered``: the model has answered a later call than the ``unanswered`` one.
        """
        first = self.unanswered or call_id
        spent = self.spend(int(bool(self.unanswered) and answered), now=now, error=error)
        return replace(spent, unanswered=first, error=error)


def together(counts: Iterable[AttemptCount]) -> AttemptCount:
    """Return what the counts of several sessions say together: the furthest one of them."""
    return max(
        counts,
        key=lambda count: (count.count, count.last or _NEVER, count.unanswered),
        default=AttemptCount(),
    )


def to_json(count: AttemptCount, span: Span) -> str:
    """Write a count, with the messages that the text is made of."""
    last = count.last.isoformat() if count.last else None
    data = asdict(count) | {"last": last, "span": [span.start, span.stop]}
    return json.dumps(data, separators=(",", ":"))


def from_json(body: str) -> AttemptCount:
    """Read a count."""
    data = json.loads(body)
    last = datetime.fromisoformat(data["last"]) if data["last"] else None
    return AttemptCount(data["count"], last, data["unanswered"], data["error"])


def covers(body: str, indices: Collection[int]) -> bool:
    """Return whether a count is that of a text which any of these messages is part of."""
    start, stop = json.loads(body)["span"]
    return any(start <= index < stop for index in indices)
