"""What a model answers to a consolidation is data from outside: a value, or one typed error."""

import itertools
import json

import pytest

from hiermem.bank.prompt import read_answer
from hiermem.calls.failures import InvalidAnswerError

GOOD = {
    "bank_files": [
        {"filename": "progress.md", "content": "# P", "action": "updated", "notes": [1, 2]},
        {"filename": "log.md", "content": "# Log", "action": "created", "notes": []},
    ],
    "synthesis": "All is well.",
}
PUBLISHED = {
    "bank_files": [
        {"filename": "progress.md", "content": "# P\n\n- x\n", "action": "updated"},
        {"filename": "log.md", "content": "# Log\n", "action": "created"},
    ],
    "synthesis": "All is well.",
}
TEXT = json.dumps(GOOD)
CANARY = "canary7f3a"


def file(**changes: object) -> str:
    return json.dumps({"bank_files": [{**GOOD["bank_files"][0], **changes}], "synthesis": ""})  # type: ignore[dict-item]


def dropping(drops: object) -> str:
    return json.dumps(GOOD | {"dropped": drops})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (f"Here it is:\n```json\n{TEXT}\n```\n", TEXT),
        (file(content=None, notes=None), file(content="", notes=[])),
        (file(notes=7), file(notes=[7])),
        (dropping(None), TEXT),
        (dropping([{"note": 2, "reason": "x"}]), dropping([{"notes": [2], "reason": "x"}])),
        # An action is a wish, and never an error.
        *((file(action=word), file()) for word in ["created", "kept", "", 1, None, [], {"a": 1}]),
    ],
    ids=itertools.count(),
)
def test_what_can_mean_one_thing_only_is_mended(text: str, meant: str) -> None:
    """Broken if a model that mixes up two words lost an answer that was paid for."""
    assert read_answer(text) == read_answer(meant)


def test_notes_are_optional_names() -> None:
    """The published format has none: then the answer speaks of all notes."""
    read = read_answer(json.dumps(PUBLISHED))
    assert [(each.filename, each.content) for each in read.bank_files] == [
        ("progress.md", "# P\n\n- x\n"), ("log.md", "# Log\n"),
    ]  # fmt: skip
    assert not read.names_notes
    dropped = [{"note": 1, "reason": "x"}]
    assert read_answer(json.dumps(PUBLISHED | {"dropped": dropped})).names_notes
    assert read_answer(TEXT).names_notes


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PUBLISHED | {"synthesis": None}),
        json.dumps(PUBLISHED | {"bank_files": [{"content": "x", "action": "created"}]}),
        json.dumps(PUBLISHED | {"bank_files": {"a.md": "x"}}),
        json.dumps(GOOD | {"dropped": [3]}), json.dumps(GOOD | {"dropped": [{"note": 1}]}),
        json.dumps(GOOD | {"dropped": [{"note": 0, "reason": "x"}]}),
        json.dumps(GOOD | {"dropped": [{"note": 1, "reason": 5}]}),
        "", "  ", "I'm sorry, but I can't help with that.", TEXT[:-20], "[]", "{}",
        '{"bank_files": "none", "synthesis": ""}', '{"bank_files": [[]], "synthesis": ""}',
        '{"bank_files": [], "synthesis": null}', '{"bank_files": []}', '{"synthesis": ""}',
        '{"bank_files": [], "synthesis": "", "more": 1}',
        '{"bank_files": [], "synthesis": "", "bank_files": []}',
        '{"bank_files": [], "synthesis": "\\u0000"}', '{"bank_files": [], "synthesis": "\\ud800"}',
        file(filename=5), file(filename="x" * 600), file(edits=[]), file(notes=[0]),
        file(notes=[True]), file(notes=["1"]), file(notes=[1.5]), file(extra=1),
        file(notes=[float("nan")]),
        '{"bank_files": ' + "[" * 100_000, '{"a":' * 100 + "1" + "}" * 100,
        '{"bank_files": [' + '{"filename":"a","action":"x"},' * 5_000 + '{}], "synthesis": ""}',
        '{"bank_files": [], "synthesis": "' + "x" * 1_100_000 + '"}',
        '{"bank_files": [{"filename": "a.md", "action": "x", "notes": [' + "1," * 200_000 + "1]}]}",
        '{"bank_files": [{"filename": "a.md", "action": "x", "notes": [' + "9" * 5_000 + "]}]}",
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_anything_else_is_one_typed_error(text: str) -> None:
    with pytest.raises(InvalidAnswerError):
        read_answer(text)


def test_no_error_holds_a_word_of_the_answer() -> None:
    bad = (
        f'{{"{CANARY}": 1, "bank_files": [], "synthesis": ""}}', file(notes=[CANARY]),
        f"{CANARY} no", file(filename=[CANARY]), file(**{CANARY: 1}),
        f'{{"bank_files": [], "synthesis": "{CANARY}',
    )  # fmt: skip
    for text in bad:
        with pytest.raises(InvalidAnswerError) as caught:
            read_answer(text)
        assert CANARY not in str(caught.value)
        assert CANARY not in repr(caught.value.__cause__) + repr(caught.value.__context__)
