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

A file too long to be written anew is only added to: the answer's text is put at its end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from hiermem.bank import lines, sections
from hiermem.bank.prompt import BankAnswer, FileAnswer, NoteBatch
from hiermem.bank.rules import check_file_name
from hiermem.bank.sections import MAX_FILE, lines_of, lost_lines, tidy, visible
from hiermem.calls.answers import blank
from hiermem.types.bank import LineOrigin, Note, Origins

#: What can be wrong with an answer; the model is asked to mend each.
AnswerFault: TypeAlias = Literal["form", "names", "notes", "content", "loss", "support", "size"]
#: The longest synthesis, in code points.
MAX_SYNTHESIS: Final = 65_536
#: The name of a missing file in a diff.
_NONE: Final = "/dev/null"
#: A page is asked for again only if it is so many times too long; else its oldest lines move.
_OVER: Final = 1.25
#: Up to this product of their line counts, two texts are compared line by line.
_MOST_COMPARED: Final = 4_000_000
_CONTEXT: Final = 3
#: The lines, and the share of a file's lines, of which no more may disappear at once.
_LOST_LINES: Final = 5
_LOST_SHARE: Final = 0.5
#: A line as tools that apply a diff see it: only a line feed ends it.
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
#: The first line of a code block that holds a whole file.
_WRAPPERS: Final = frozenset({"```markdown", "```md"})
#: Why a note goes into no file if an answer that names no notes changes none.
IN_SYNTHESIS: Final = "in the synthesis"
#: The name and the position of a problem that concerns no single file.
_ANSWER: Final = "the answer"
_WHOLE_ANSWER: Final = -1


@dataclass(eq=False)
class AnswerError(Exception):
    """A problem with the file at ``position`` in an answer, or with the whole answer if -1.

    ``file`` is the file's name if it is one of the bank's, and otherwise a description. ``detail``
    says what would be right and holds no text of the answer.
    """

    fault: AnswerFault
    detail: str
    file: str = _ANSWER
    position: int = _WHOLE_ANSWER


_UNNAMED: Final = AnswerError("notes", "it names no notes; list for each file those in it")


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
    narrowing = lines.Narrowing(shown.texts, shown.origins, drafts.values())
    problems += _narrow(answer, shown, drafts, takes, narrowing)
    asked = [_UNNAMED] if shown.rules.learn and drafts and not named else []
    meant = _losses(answer, shown, drafts, narrowing, whole=True)
    for position, (lost, of) in meant.items():
        if lost > _LOST_LINES and lost > _LOST_SHARE * of:
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
        takes = _takes_of_all(answer, shown, accepted, numbers)
        if not (any(takes) or bad):
            drops = dict.fromkeys(numbers, IN_SYNTHESIS)
    placed: set[int] = set().union(*(takes[position] for position in accepted), drops)
    if not placed and not narrowing.refused:
        return None, (*problems, *asked)
    failed = [f"{problem.file}: {problem.detail}" for problem in problems]
    for position in sorted(refused - {problem.position for problem in problems}):
        why = "lines of it went into" if position in bad else "it takes in notes of"
        failed.append(f"{answer.bank_files[position].filename}: {why} a file that was not taken")
    into = {position: answer.bank_files[position].filename for position in sorted(accepted)}
    texts = {into[position]: text for position, text in accepted.items()}
    taken = {name: text for name, text in texts.items() if shown.texts.get(name) != text}
    for rule_file in shown.rules.files:
        if rule_file.name not in shown.texts:
            taken.setdefault(rule_file.name, rule_file.skeleton)
    # A blank synthesis never replaces one with content.
    synthesis = visible(answer.synthesis).strip()[:MAX_SYNTHESIS] or shown.synthesis
    if shown.rules.learn:
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
        created=tuple(sorted(taken.keys() - shown.texts.keys())),
        updated=tuple(sorted(taken.keys() & shown.texts.keys())),
        removed={into[position]: lost for position, (lost, _) in losses.items() if lost},
        failed=tuple(failed),
        origins=lines.of_texts(narrowing.origins, taken.values()),
    ), (*problems, *asked)


def _page(
    shown: NoteBatch,
    taken: Mapping[str, str],
    synthesis: str,
    origins: Origins,
) -> tuple[dict[str, str], str, list[AnswerError]]:
    """Return the changed texts of a page that fits, its synthesis, and whether it was too long."""
    page, count = {**shown.texts, **taken}, shown.request.counter.count
    file, most = shown.file_tokens, shown.page_tokens
    known = {**shown.origins, **origins}
    fitting = lines.bounded(page, known, file=file, page=most, count=count)
    sizes = [*map(count, page.values())]
    is_over = max(sizes, default=0) > _OVER * file or sum(sizes) > _OVER * most
    changed = {name: text for name, text in fitting.items() if text != shown.texts.get(name)}
    limits = f"at most {file:,} tokens a file and {most:,} in all"
    too_long = AnswerError("size", f"too long: {limits}; move older lines to past.md")
    return (
        changed,
        lines.supported(synthesis, fitting.values()),
        [too_long] if is_over and fitting != page else [],
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
    if not shown.rules.learn:
        return problems
    refused: list[int] = []
    notes = dict(enumerate(shown.notes, 1))
    for position, text in drafts.items():
        name, before = answer.bank_files[position].filename, len(narrowing.refused)
        support = [notes[number] for number in sorted(takes[position])] or shown.notes
        drafts[position] = narrowing.narrow(name, text, shown.texts.get(name, ""), support)
        if left_out := len(narrowing.refused) - before:
            refused.append(position)
            detail = f"{left_out} of its lines say a figure, date or name that its notes do not"
            problems.append(AnswerError("support", detail, name))
    supporting = {key for origin in narrowing.origins.values() for _, _, key in origin.sources}
    for position in refused:
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


def _takes_of_all(
    answer: BankAnswer, shown: NoteBatch, accepted: Mapping[int, str], notes: set[int]
) -> list[set[int]]:
    """Return the notes that each file takes in, for an answer that names no notes.

    A file that changes takes in all notes, any other none.
    """
    files = answer.bank_files
    changed = {
        position
        for position, text in accepted.items()
        if text != shown.texts.get(files[position].filename)
    }
    return [notes if position in changed else set() for position in range(len(files))]


def _drops(
    answer: BankAnswer, shown: NoteBatch, named: Collection[int]
) -> tuple[dict[int, str], list[AnswerError]]:
    """Return the reason for each dropped note, and the problems with other drops.

    A note that a file names is not dropped, even if that file is refused.
    """
    drops: dict[int, str] = {}
    problems: list[AnswerError] = []
    for drop in answer.dropped:
        reason = visible(drop.reason).strip()
        if drop.note > len(shown.notes):
            wrong = "it drops a note by a number that was not shown"
        elif blank(reason):
            wrong = "it drops a note without a reason; say why it goes into no file"
        else:
            if drop.note not in named:
                drops.setdefault(drop.note, reason)
            continue
        problems.append(AnswerError("notes", wrong))
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
    losses = lost_lines(shown.texts, texts, narrowing.keeps)
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
    if name not in shown.texts and name not in shown.rules.names:
        raise AnswerError("names", "the rules name no such file; use only names from the rules")
    if name in earlier:
        raise AnswerError("form", "duplicate file; return each file once")
    if any(number > len(shown.notes) for number in file.notes):
        raise AnswerError("form", "it names a note that was not shown; use the numbers shown")
    current, text = shown.texts.get(name), tidy(_unwrapped(file.content))
    if not text:
        raise AnswerError(
            "content", ("it would become empty; keep its text, as files are never emptied")
        )
    if current and name in shown.append_only:
        text = f"{current.rstrip()}\n\n{text}"
    _check_content(text, current or "")
    if named and not file.notes and _says_more(text, current):
        raise AnswerError("notes", "it names no notes; list the numbers of its notes")
    return text


def _says_more(text: str, current: str | None) -> bool:
    """Return whether a file says anything new; headings alone of a new file do not."""
    if current is not None:
        return text != current
    return not all(line.startswith("#") for line in lines_of(text))


def _check_content(text: str, current: str) -> None:
    """Refuse content that cannot be the text of a bank file. Raises AnswerError."""
    if len(text) > MAX_FILE:
        raise AnswerError("content", f"it has more than {MAX_FILE:,} characters; make it shorter")
    if (front := sections.front_matter(text)) and front != sections.front_matter(current):
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
    refused: set[int] = set(bad)
    spared: set[int] = set().union(*(takes[position] for position in refused))
    while True:
        more = {
            position
            for position, numbers in enumerate(takes)
            if position not in refused and numbers & spared
        }
        if not more:
            return refused, spared
        refused |= more
        spared = spared.union(*(takes[position] for position in more))


def diff(name: str, before: str, after: str) -> str:
    """Return the unified diff of one file, "" if nothing changed.

    In very long files the changed stretch is one block, because comparing line by line takes time
    that grows with the product of their lengths.
    """
    old, new = _LINE.findall(before), _LINE.findall(after)
    old_name, new_name = f"a/{name}" if before else _NONE, f"b/{name}" if after else _NONE
    if len(old) * len(new) > _MOST_COMPARED:
        return _one_stretch(old, new, old_name, new_name)
    return _ended(difflib.unified_diff(old, new, old_name, new_name))


def _ended(lines: Iterable[str]) -> str:
    """Join the lines of a diff, marking a line without a line end."""
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _one_stretch(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> str:
    """Return a diff that replaces everything between the common beginning and end of two texts."""
    if old == new:
        return ""
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    most = shorter - start
    end = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    first = max(0, start - _CONTEXT)
    tail = old[len(old) - end :][:_CONTEXT]
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    counts = [start - first + len(lines) + len(tail) for lines in (gone, come)]
    hunk = f"@@ -{first + 1},{counts[0]} +{first + 1},{counts[1]} @@\n"
    lines = [" " + line for line in old[first:start]]
    lines += ["-" + line for line in gone] + ["+" + line for line in come]
    lines += [" " + line for line in tail]
    return _ended([f"--- {old_name}\n", f"+++ {new_name}\n", hunk, *lines])
