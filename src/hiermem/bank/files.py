"""Decides what an answer makes of the bank's files, and which parts of it are refused.

An answer is not trusted. Problems are: a file that the rules do not name, a file emptied, lines
lost. Each is an ``AnswerError`` and is reported to the model once; what is still wrong afterwards
is refused.

If an answer names notes, a note is consumed only if an accepted file names it, or if the answer
drops it with a reason; every other note is left unplaced and stays live. It is consumed whole or
not at all: if the change of one file is refused, so are the changes of the other files that took in
the same notes, and those notes stay live. A change that names no note is refused, since nobody
could say what it took in. If an answer names no note at all, the accepted files take in all notes;
if no file was meant to change, the synthesis does. If every intended change is refused, no note is
consumed.

"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from hiermem.bank import lines, sections
from hiermem.bank.prompt import BankAnswer, FileAnswer, NoteBatch
from hiermem.bank.rules import PAST, check_file_name
from hiermem.bank.said import is_said
from hiermem.bank.sections import MAX_FILE, lines_of, lost_lines, tidy, visible
from hiermem.calls.answers import blank
from hiermem.types.bank import LineOrigin, Note, Origins

#: What can be wrong with an answer; the model is asked to mend each.
AnswerFault: TypeAlias = Literal["form", "names", "notes", "content", "loss", "support", "size"]
#: The longest synthesis, in code points.
MAX_SYNTHESIS: Final = 65_536
#: The name of a missing file in a diff.
_NONE: Final = "/dev/null"
#: The lines, and the share of a file's lines, of which no more may disappear at once.
_LOST_LINES: Final = 5
_LOST_SHARE: Final = 0.5
#: A line as tools that apply a diff see it: only a line feed ends it.
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
#: The first line of a code block that holds a whole file.
_WRAPPERS: Final = frozenset({"```markdown", "```md"})
#: Why a note goes into no file if an answer that names no notes changes none.
IN_SYNTHESIS: Final = "in the synthesis"
#: Why a message goes into no file if an answer does not name it.
NOTHING: Final = "nothing lasting"
#: The name and the position of a problem that concerns no single file.
_ANSWER: Final = "the answer"
_WHOLE_ANSWER: Final = -1


@dataclass(eq=False)
class AnswerError(Exception):
    """A problem with the file at ``position`` in an answer, or with the whole answer if -1.

    ``file`` is the file's name if it is one of the bank's, and otherwise a description. ``detail``
    says what would be right and holds no text of the answer; ``lines`` are the answer's lines that
    it is about, for the model alone.
    """

    fault: AnswerFault
    detail: str
    file: str = _ANSWER
    position: int = _WHOLE_ANSWER
    lines: tuple[str, ...] = ()


_UNNAMED: Final = AnswerError("notes", "it names no notes; list those of each file, drop the rest")


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an answer.

    ``texts`` are the texts of the files that it changes, and ``removed`` how many lines of each are
    nowhere in the bank any more. ``consumed`` are the notes that it takes in or drops, each with
    its files or the reason; ``kept`` are those that stay live because of ``failed``
    ("file: reason"), and ``unplaced`` those that it does not mention, or of
    which it says what they do not say. ``origins`` say where the new lines of a space that learns
    come from.
    """

    texts: Mapping[str, str]
    synthesis: str
    consumed: tuple[Note, ...]
    kept: tuple[Note, ...] = ()
    unplaced: tuple[Note, ...] = ()
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict[str, int])
    failed: tuple[str, ...] = ()
    origins: Origins = field(default_factory=dict[str, LineOrigin])

    @property
    def dropped(self) -> tuple[Note, ...]:
        """Return the consumed notes that went into no file."""
        return tuple(note for note in self.consumed if note.dropped_for)


def settle(answer: BankAnswer, shown: NoteBatch) -> tuple[Applied | None, tuple[AnswerError, ...]]:
    """Return the usable part of an answer (None if there is none), and what is wrong with it.

    A file is refused if it loses more than five of its lines, and more than half of them.
    """
    named = answer.names_notes
    if not named and not visible(answer.synthesis).strip():
        # Without names of notes, only the synthesis shows that the answer is whole.
        return None, (AnswerError("form", "its synthesis is empty; write one"),)
    drafts, problems = _drafts(answer, shown)
    numbers = set(range(1, len(shown.notes) + 1))
    takes = [numbers & set(file.notes) for file in answer.bank_files]
    drops, wrong_drops = _drops(answer, shown, set().union(*takes))
    problems += wrong_drops
    narrowing = lines.Narrowing(shown.bank.texts, shown.bank.origins, drafts.values())
    problems += _narrow(answer, shown, drafts, takes, narrowing)
    asked = [_UNNAMED] if shown.bank.rules.learn and not named else []
    meant = _losses(answer, shown, drafts, narrowing, whole=True)
    for position, (lost, of) in meant.items():
        is_thinned = shown.bank.rules.learn and answer.bank_files[position].filename == PAST
        if lost > _LOST_LINES and lost > _LOST_SHARE * of and not is_thinned:
            detail = f"{lost} of its {of} lines are gone; keep what no note contradicts"
            problems.append(
                AnswerError("loss", detail, answer.bank_files[position].filename, position)
            )
    bad = {problem.position for problem in problems if problem.position != _WHOLE_ANSWER}
    while True:
        refused, spared = _not_taken(takes, bad)
        accepted = {position: text for position, text in drafts.items() if position not in refused}
        losses = _losses(answer, shown, accepted, narrowing)
        # Lines that were moved into a refused file would be lost, so they stay where they were.
        moved = {position for position, (lost, _) in losses.items() if lost > meant[position][0]}
        if not moved:
            break
        bad |= moved
    if not named:
        # A file that changes takes in all notes, any other none.
        names = [file.filename for file in answer.bank_files]
        takes = [
            numbers if n in accepted and accepted[n] != shown.bank.texts.get(name) else set()
            for n, name in enumerate(names)
        ]
        if not (any(takes) or bad):
            # A synthesis that says what no file says is not taken.
            drops = dict.fromkeys(numbers, NOTHING if shown.bank.rules.learn else IN_SYNTHESIS)
    placed: set[int] = set().union(*(takes[position] for position in accepted), drops)
    if not placed and not narrowing.refused:
        return None, (*problems, *asked)
    failed = [f"{problem.file}: {problem.detail}" for problem in problems]
    for position in sorted(refused - {problem.position for problem in problems}):
        why = "lines of it went into" if position in bad else "it takes in notes of"
        failed.append(f"{answer.bank_files[position].filename}: {why} a file that was not taken")
    into = {position: answer.bank_files[position].filename for position in sorted(accepted)}
    texts = {into[position]: text for position, text in accepted.items()}
    taken = {name: text for name, text in texts.items() if shown.bank.texts.get(name) != text}
    for name, skeleton in shown.bank.rules.files.items():
        if name not in shown.bank.texts:
            taken.setdefault(name, skeleton)
    # A blank synthesis never replaces one with content.
    synthesis = visible(answer.synthesis).strip()[:MAX_SYNTHESIS] or shown.bank.synthesis
    if shown.bank.rules.learn:
        taken, synthesis, too_long = _page(shown, taken, synthesis, narrowing.origins)
        asked += too_long
    notes = dict(enumerate(shown.notes, 1))
    return Applied(
        texts=taken,
        synthesis=synthesis,
        consumed=tuple(
            replace(
                notes[number],
                files=tuple(name for position, name in into.items() if number in takes[position]),
                dropped_for=drops.get(number, ""),
            )
            for number in sorted(placed)
        ),
        kept=tuple(notes[number] for number in sorted(spared)),
        unplaced=tuple(notes[number] for number in sorted(notes.keys() - placed - spared)),
        created=tuple(sorted(taken.keys() - shown.bank.texts.keys())),
        updated=tuple(sorted(taken.keys() & shown.bank.texts.keys())),
        removed={into[position]: lost for position, (lost, _) in losses.items() if lost},
        failed=tuple(failed),
        origins=lines.of_texts(narrowing.origins, taken.values()),
    ), (*problems, *asked)


def _page(
    shown: NoteBatch, taken: Mapping[str, str], synthesis: str, origins: Origins
) -> tuple[dict[str, str], str, list[AnswerError]]:
    """Return the changed texts of a page that fits, its synthesis, and whether it was too long."""
    page, count = {**shown.bank.texts, **taken}, shown.request.counter.count
    file, most = shown.file_tokens, shown.page_tokens
    known = {**shown.bank.origins, **origins}
    fitting = lines.bounded(page, known, file=file, page=most, count=count)
    sizes = {name: count(text) for name, text in page.items()}
    total = sum(sizes.values())
    long = [f"{name} has {size:,}" for name, size in sizes.items() if size > lines.OVER * file]
    if total > lines.OVER * most:
        long.append(f"all files have {total:,}")
    changed = {name: text for name, text in fitting.items() if text != shown.bank.texts.get(name)}
    limits = f"{' and '.join(long)} tokens, of at most {file:,} a file and {most:,} in all"
    too_long = AnswerError("size", f"{limits}; move older lines to past.md, and cut there")
    return (
        changed,
        lines.supported(synthesis, fitting.values()),
        [too_long] if long and fitting != page else [],
    )


def _narrow(
    answer: BankAnswer,
    shown: NoteBatch,
    drafts: dict[int, str],
    takes: Sequence[set[int]],
    narrowing: lines.Narrowing,
) -> list[AnswerError]:
    """Leave out the lines that no note supports, and the notes whose lines are left out.

    Return the problems; a file with such a line is taken without it. Only a space that learns asks
    for the support of lines.
    """
    problems: list[AnswerError] = []
    if not shown.bank.rules.learn:
        return problems
    refused: dict[int, list[tuple[str, str]]] = {}
    notes = dict(enumerate(shown.notes, 1))
    for position, text in drafts.items():
        name, before = answer.bank_files[position].filename, len(narrowing.refused)
        drafts[position] = narrowing.narrow(name, text, shown.notes)
        refused[position] = narrowing.refused[before:]
    for position, text in drafts.items():
        name, wrong = answer.bank_files[position].filename, refused[position]
        drafts[position] = narrowing.with_kept(text, shown.bank.texts.get(name, ""), wrong)
        if wrong:
            detail = f"{len(wrong)} of its lines say a figure, date or name as its notes do not"
            quoted = tuple(f"{fact}, in: {line}" for line, fact in wrong)
            problems.append(AnswerError("support", detail, name, lines=quoted))
    supporting = {key for origin in narrowing.origins.values() for _, _, key in origin.sources}
    for position in (position for position, wrong in refused.items() if wrong):
        takes[position].intersection_update(
            number for number in set(takes[position]) if notes[number].key in supporting
        )
    return problems


def _drafts(answer: BankAnswer, shown: NoteBatch) -> tuple[dict[int, str], list[AnswerError]]:
    """Return the draft of each file by its position, and the problems of the others."""
    drafts: dict[int, str] = {}
    problems: list[AnswerError] = []
    for position, file in enumerate(answer.bank_files):
        try:
            earlier = [other.filename for other in answer.bank_files[:position]]
            drafts[position] = _draft(file, shown, earlier, named=answer.names_notes)
        except AnswerError as problem:
            name = file.filename
            label = name if check_file_name(name) is None else f"file {position + 1}"
            problems.append(AnswerError(problem.fault, problem.detail, label, position))
    return drafts, problems


def _drops(
    answer: BankAnswer, shown: NoteBatch, named: Collection[int]
) -> tuple[dict[int, str], list[AnswerError]]:
    """Return the reason for each dropped note, and the problems with other drops.

    A note that a file names is not dropped, even if that file is refused. A message that no file
    names says nothing to keep, as most do, so naming it would be a waste.
    """
    messages = [number for number, note in enumerate(shown.notes, 1) if is_said(note)]
    silent = set(messages).difference(named) if named else set()
    drops = dict.fromkeys(silent, NOTHING)
    problems: list[AnswerError] = []
    for drop in answer.dropped:
        reason = visible(drop.reason).strip()
        known = [number for number in drop.notes if number <= len(shown.notes)]
        if len(known) < len(drop.notes):
            problems.append(AnswerError("notes", "it drops a note that was not shown"))
        if blank(reason):
            wrong = "it drops notes without a reason; say why they go into no file"
            problems.append(AnswerError("notes", wrong))
            continue
        drops |= {number: reason for number in known if number not in named}
    return drops, problems


def _losses(
    answer: BankAnswer,
    shown: NoteBatch,
    drafts: Mapping[int, str],
    narrowing: lines.Narrowing,
    *,
    whole: bool = False,
) -> dict[int, tuple[int, int]]:
    """Return how many of its lines each file loses if only these drafts are applied.

    With ``whole``, the text of the answer's other files counts as written too, as was intended.
    """
    files = answer.bank_files
    texts = {files[position].filename: text for position, text in drafts.items()}
    if whole:
        # No file can have this name.
        texts[""] = "\n".join(
            file.content for position, file in enumerate(files) if position not in drafts
        )
    losses = lost_lines(shown.bank.texts, texts, narrowing.keeps)
    return {
        position: losses[name]
        for position in drafts
        if (name := files[position].filename) in losses
    }


def _draft(file: FileAnswer, shown: NoteBatch, earlier: Collection[str], *, named: bool) -> str:
    """Return the draft of one file. Raises AnswerError."""
    name = file.filename
    if (problem := check_file_name(name)) is not None:
        raise AnswerError("names", f"its name cannot be used: {problem}")
    if name not in shown.bank.texts and name not in shown.bank.rules.names:
        raise AnswerError("names", "the rules name no such file; use only names from the rules")
    if name in earlier:
        raise AnswerError("form", "duplicate file; return each file once")
    if any(number > len(shown.notes) for number in file.notes):
        raise AnswerError("form", "it names a note that was not shown; use the numbers shown")
    current, text = shown.bank.texts.get(name), tidy(_unwrapped(file.content))
    if not text:
        wrong = "it would become empty; keep its text, as files are never emptied"
        raise AnswerError("content", wrong)
    _check_content(text, current or "")
    # Headings alone of a new file say nothing. Of a space that learns, each line is looked at.
    is_silent = text == current if current else all(line[:1] == "#" for line in lines_of(text))
    if named and not (file.notes or shown.bank.rules.learn or is_silent):
        raise AnswerError("notes", "it names no notes; list the numbers of its notes")
    return text


def _check_content(text: str, current: str) -> None:
    """Refuse content that cannot be the text of a bank file. Raises AnswerError."""
    if len(text) > MAX_FILE:
        raise AnswerError("content", f"it has more than {MAX_FILE:,} characters; make it shorter")
    if text.startswith("---\n") > current.startswith("---\n"):
        raise AnswerError("content", "it has front matter; write plain Markdown without it")
    if sections.unclosed(text) and not sections.unclosed(current):
        raise AnswerError("content", "it leaves a code block or comment open; close it")


def _unwrapped(content: str) -> str:
    """Remove a code block around a whole file, which models tend to add."""
    lines = content.strip().splitlines()
    wrapped = len(lines) > 2 and lines[0].strip().casefold() in _WRAPPERS
    if wrapped and lines[-1].strip() == "```" and not sections.unclosed("\n".join(lines[1:-1])):
        return "\n".join(lines[1:-1])
    return content


def _not_taken(takes: Sequence[set[int]], bad: set[int]) -> tuple[set[int], set[int]]:
    """Return the places of the refused files, and the numbers of their notes.

    A file that shares a note with a refused file is refused too, and so on.
    """
    refused = set(bad)
    while True:
        spared: set[int] = set().union(*(takes[position] for position in refused))
        sharing = {position for position, numbers in enumerate(takes) if numbers & spared}
        if sharing <= refused:
            return refused, spared
        refused |= sharing


def diff(name: str, before: str, after: str) -> str:
    """Return the unified diff of one file, "" if nothing changed."""
    old_name, new_name = f"a/{name}" if before else _NONE, f"b/{name}" if after else _NONE
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), old_name, new_name)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
