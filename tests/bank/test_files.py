"""What is taken of a model's answer, and what is not: the bank is never believed into anything."""

from typing import Any, get_args

import pytest
from bankwork import PROGRESS, batch_of, note, notes, response, state, whole
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.bank.batches import judge
from hiermem.bank.files import AnswerFault, Applied, diff
from hiermem.bank.sections import lines_of
from hiermem.calls.answers import Accepted, Rejected, Retry

DECISIONS = "# Decisions\n\n## What was decided\n\n- use SQLite\n"
TECH = "# Tech\n\n## Stack\n\n- Python\n"
MORE = f"{DECISIONS}- use uv\n"
ALL = {"progress.md": PROGRESS, "decisions.md": DECISIONS, "techContext.md": TECH}


def taken(*files: Any, bank: Any = ALL, given: int = 3, **more: Any) -> Applied:
    verdict = judge(batch_of(state(bank), notes(given)), response(*files, **more))
    assert isinstance(verdict, Accepted), verdict
    return verdict.value


def wrong(*files: Any, bank: Any = ALL, given: int = 3) -> str:
    """Give what an answer is asked again for; asked for once more, none of it is taken."""
    batch = batch_of(state(bank), notes(given))
    verdict = judge(batch, response(*files))
    assert isinstance(verdict, Retry), verdict
    last = verdict.judge(response(*files))
    assert isinstance(last, Rejected)
    assert last.reason == verdict.reason
    assert verdict.reason.partition(": ")[2] in verdict.request.messages[-1].content
    return verdict.reason


def test_a_file_that_is_not_in_the_answer_is_as_it_was() -> None:
    applied = taken(whole("decisions.md", MORE, notes=(1, 3)))
    assert set(applied.texts) == {"decisions.md"}
    assert applied.updated == ("decisions.md",)
    assert applied.synthesis == "After."
    assert [each.key for each in applied.consumed] == [notes(3)[0].key, notes(3)[2].key]
    assert {each.files for each in applied.consumed} == {("decisions.md",)}
    assert list(applied.unplaced) == notes(3)[1:2]
    assert "+- use uv" in diff("decisions.md", DECISIONS, applied.texts["decisions.md"])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        # A file that comes back as it was counts as unchanged: else the history names it.
        (DECISIONS, None), (DECISIONS.strip(), None),
        (DECISIONS.replace("\n", "\r\n") + "\n\n", None),
        # A whole file in a code block is taken out of it.
        (f"```markdown\n{DECISIONS}- more\n```", f"{DECISIONS}- more\n"),
        # What cannot be seen does not reach the bank.
        (DECISIONS + "- use\u202e uv\u200b \U000e0041\U000e0042now\u2028\ufeff",
         DECISIONS + "- use uv now\n"),
    ],
)  # fmt: skip
def test_the_text_of_a_file_is_what_can_be_seen_of_it(content: str, text: str | None) -> None:
    applied = taken(whole("decisions.md", content), synthesis="a\u202eb")
    assert applied.texts == ({"decisions.md": text} if text else {})
    assert applied.updated == (("decisions.md",) if text else ())
    assert (applied.created, applied.synthesis) == ((), "ab")
    blank = taken(whole("decisions.md", content), synthesis=" \n")
    assert blank.synthesis == "Before.", "a blank one leaves the one before"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (whole("../out.md", "# x"), "file 1: its name cannot be used"),
        (whole("other.md", "# x"), "rules name no such file"),
        (whole("Progress.md", "# x"), "rules name no such file"),
        (whole("progress.md", " \n\u200b"), "files are never emptied"),
        (whole("progress.md", f"---\ntitle: x\n---\n{PROGRESS}"), "front matter"),
        (whole("progress.md", f"{PROGRESS}\n```\nopen"), "comment open"),
        (whole("progress.md", PROGRESS + "x" * 300_000), "characters"),
        (whole("progress.md", PROGRESS, notes=(4,)), "that was not shown"),
        ({"filename": "progress.md", "notes": [1]}, "files are never emptied"),
    ],
)
def test_what_cannot_be_taken_is_asked_for_again_and_then_refused(file: Any, why: str) -> None:
    assert why in wrong(file)


def test_a_file_answered_twice_is_taken_neither_time() -> None:
    once = whole("decisions.md", MORE)
    assert "duplicate file" in wrong(once, once)


def shortened(count: int) -> str:
    return "\n".join(PROGRESS.splitlines()[:-count]) + "\n"


NINE = "\n".join(lines_of(PROGRESS)[-9:])
STRUCK = PROGRESS.replace("- feature 3", "-   feature\t3 ").replace(
    "- feature 4", "- ~~feature 4~~ (dropped on 2 May)"
)


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        # Of fourteen lines, more than half of them, and more than five, is eight.
        ([whole("progress.md", shortened(7))], 7), ([whole("progress.md", shortened(8))], None),
        # Of a short file, no five lines are too many.
        ([whole("decisions.md", DECISIONS.replace("SQLite", "DuckDB"))], 1),
        ([whole("decisions.md", "# New\n")], 3),
        # Folded white space, struck lines and moved ones have not vanished.
        ([whole("progress.md", STRUCK)], 0),
        ([whole("progress.md", shortened(9)), whole("decisions.md", DECISIONS + NINE)], 0),
    ],
)  # fmt: skip
def test_too_many_vanished_lines_are_refused(files: list[Any], lost: int | None) -> None:
    if lost is None:
        assert "8 of its 14 lines are gone" in wrong(*files)
    else:
        assert sum(taken(*files).removed.values()) == lost


def test_a_line_that_another_file_had_before_is_no_moved_one() -> None:
    """Or a file could be emptied of whatever any other file happens to say."""
    twice = {**ALL, "decisions.md": f"{DECISIONS}{NINE}\n"}
    assert "9 of its 14 lines" in wrong(whole("progress.md", shortened(9)), bank=twice)


GOOD = whole("decisions.md", MORE, notes=(1,))
BAD = whole("progress.md", " ", notes=(2,))


def last(*files: Any, given: int = 4, dropped: tuple[int, ...] = ()) -> Any:
    batch = batch_of(state(ALL), notes(given))
    return judge(batch, response(*files, dropped=dropped), asked=get_args(AnswerFault))


def test_a_file_that_names_no_notes_is_refused_where_another_names_some() -> None:
    """Nobody could say what it took in."""
    applied = last(GOOD, whole("techContext.md", f"{TECH}- Rust\n", notes=())).value
    assert set(applied.texts) == {"decisions.md"}
    assert "it names no notes" in applied.failed[0]


def test_files_that_share_a_note_with_one_that_is_not_taken_are_not_taken_either() -> None:
    """Or that note would be applied again, to the file that has it already."""
    both = whole("decisions.md", MORE, notes=(1, 2))
    third = whole("techContext.md", f"{TECH}- z\n", notes=(1,))
    applied = last(both, BAD, third, dropped=(3,)).value
    assert applied.texts == {}
    assert [each.key for each in applied.kept] == [each.key for each in notes(4)[:2]]
    assert len(applied.failed) == 3


@pytest.mark.parametrize("count", [3, 9])
@pytest.mark.parametrize("why", ["loss", "content", "notes"])
def test_a_line_that_was_moved_into_a_file_that_is_not_taken_stays_where_it_was(
    count: int, why: str
) -> None:
    """Or it would be in neither file, and nothing would say so."""
    moved = "\n".join(lines_of(PROGRESS)[-count:])
    source = whole("progress.md", shortened(count), notes=(1,))
    other = "# Tech\n\n" + "".join(f"- part {n}\n" for n in range(20))
    bank = {**ALL, "techContext.md": other}
    if why == "loss":
        files = [source, whole("techContext.md", f"# Tech\n\n{moved}\n", notes=(2,))]
    elif why == "content":
        open_code = f"{other}\n```\n{moved}\n"
        files = [source, whole("techContext.md", open_code, notes=(2,))]
    else:
        bad = whole("techContext.md", " ", notes=(2,))
        files = [source, whole("decisions.md", DECISIONS + moved, notes=(2,)), bad]
    batch = batch_of(state(bank), notes(3))
    verdict = judge(batch, response(*files, dropped=(3,)), asked=("content", "loss"))
    assert isinstance(verdict, Accepted)
    applied = verdict.value
    assert applied.texts == applied.removed == {}
    assert [each.key for each in applied.kept] == [each.key for each in notes(3)[:2]]
    assert "progress.md: lines of it went into a file that was not taken" in applied.failed
    if why == "content":
        again = judge(batch, response(*files))
        assert isinstance(again, Retry)
        assert "lines are gone" not in again.reason  # what it meant to move, it did not drop


numbers = st.lists(st.integers(1, 6), unique=True, max_size=3).map(tuple)


@drawn(80)
@given(st.lists(st.tuples(st.booleans(), numbers), max_size=3), numbers, st.integers(1, 6))
def test_each_note_is_consumed_kept_or_unplaced(
    files: list[Any], dropped: tuple[int, ...], given: int
) -> None:
    """Whatever goes wrong with which files: a note is consumed only if a file that is written names
    it or the answer drops it, and what is written took in no note that is kept."""
    files = [(good, tuple(n for n in takes if n <= given)) for good, takes in files]
    dropped = tuple(n for n in dropped if n <= given)
    answer = [
        whole(name, f"{ALL[name]}- {name}\n" if good else " ", notes=takes)
        for name, (good, takes) in zip(ALL, files, strict=False)
    ]
    if not (dropped or any(takes for _, takes in files)):
        return  # it speaks of all notes: see below
    verdict = last(*answer, given=given, dropped=dropped)
    named = {number for file in answer for number in file["notes"]}
    if isinstance(verdict, Rejected):
        assert not {*dropped} - named
        return
    applied = verdict.value
    every = [each.key for each in notes(given)]
    parts = [{each.key for each in some}
             for some in (applied.consumed, applied.kept, applied.unplaced)]  # fmt: skip
    assert sorted(key for part in parts for key in part) == every
    numbered = dict(enumerate(every, start=1))
    into = {key: [f["filename"] for f in answer if f["filename"] in applied.texts
                  and key in [numbered[n] for n in f["notes"]]] for key in every}  # fmt: skip
    for each in applied.consumed:
        assert list(each.files) == into[each.key]
        assert bool(each.files) != bool(each.dropped_for)
    assert parts[2] == {*every} - {numbered[n] for n in (*named, *dropped)}
    for file in answer:
        if file["filename"] in applied.texts:
            assert {numbered[n] for n in file["notes"]} <= parts[0]


@pytest.mark.parametrize(
    ("files", "into"),
    [
        ([whole("decisions.md", MORE, notes=())], ("decisions.md",)),
        ([whole("decisions.md", DECISIONS, notes=())], ()),
        ([], ()),
        ([whole("decisions.md", MORE, notes=()), whole("up.md", "x", notes=())], ("decisions.md",)),
    ],
)
def test_an_answer_that_names_no_notes_speaks_of_all_of_them(
    files: list[Any], into: tuple[str, ...]
) -> None:
    """The published format: the files that are taken have the notes in, or else the synthesis."""
    applied = last(*files).value
    assert [each.key for each in applied.consumed] == [each.key for each in notes(4)]
    assert {each.files for each in applied.consumed} == {into}
    assert {each.dropped_for for each in applied.consumed} == {"" if into else "in the synthesis"}
    assert applied.synthesis == "After."


def test_of_an_answer_that_names_no_notes_and_has_no_file_that_is_taken_nothing_is() -> None:
    batch = batch_of(state(ALL), notes(4))
    for files, said in (([whole("up.md", "x", notes=())], "After."), ([], " ")):
        first = judge(batch, response(*files, synthesis=said))
        assert isinstance(first, Retry)
        assert isinstance(first.judge(response(*files, synthesis=said)), Rejected)


def test_nothing_that_an_answer_says_is_in_what_is_told_of_it() -> None:
    """What is told goes into the journal and the log."""
    canary = "canary7f3a"
    files = [
        whole(f"{canary}/../{canary}.md", canary),
        whole("progress.md", f"```{canary}"),
        whole("techContext.md", f"---\n{canary}: 1\n---\n"),
    ]
    verdict = last(*files)
    assert canary not in verdict.reason
    batch = batch_of(state(ALL), [note(canary)])
    again = judge(batch, response(*files))
    assert isinstance(again, Retry)
    assert canary not in again.reason


def test_a_diff_of_lines_without_an_end_is_one_that_tools_can_apply() -> None:
    """Files that come from a folder may lack it, or hold other marks that end lines elsewhere."""
    assert diff("a.md", "a", "a") == ""
    assert diff("a.md", "a\nb", "a\nc\u2028d\x0c") == (
        "--- a/a.md\n+++ b/a.md\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n"
        "+c\u2028d\x0c\n\\ No newline at end of file\n"
    )
