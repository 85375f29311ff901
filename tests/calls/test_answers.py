"""What a model returns is data from outside: an answer or one typed error, within bounds."""

import json
import random
import tracemalloc
from collections.abc import Callable

import pytest
from sampling import params

from hiermem.calls.answers import MAX_ANSWER, parse
from hiermem.calls.failures import InvalidAnswerError
from hiermem.types.trivector import MOST_MENTIONS, Answer

GOOD = {
    "summary": "Ana chose SQLite.",
    "features": ["store"],
    "entities": [
        {"type": "person", "name": "Ana", "aliases": ["A."], "description": "chose it",
         "tags": ["dev"], "confidence": 0.9, "messages": [1, 2]},
        {"type": "technology", "name": "SQLite", "aliases": [], "description": "",
         "tags": [], "confidence": 1, "messages": []},
    ],
    "relations": [
        {"source": {"type": "person", "name": "Ana"}, "relation": "chose",
         "target": {"type": "technology", "name": "SQLite"}, "weight": 0.8,
         "justification": "she said so", "messages": [2]},
    ],
    "deltas": [{"kind": "task", "text": "Write it down", "open": True, "messages": [3]}],
    "strategy": [{"kind": "decision", "text": "SQLite it is", "messages": [2]}],
}  # fmt: skip
TEXT = json.dumps(GOOD)
CANARY = "canary7f3a"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""), ("\n ", "\n"), ("```json\n", "\n```"), ("```json\r\n", "\r\n```\r\n"),
        ("\ufeff", ""), ("Here is the object:\n\n```JSON\n", "\n```\nSay so if it is not right."),
        ("[", "]"), ("<think>It is short</think>", " }"), ("It is short</think>", ""),
        ("", '\n<think>Or {"summary": "this"}?</think>'),
        ('```think\n{"summary": "this"}\n```\n', ""), ('<think>A { or a " is open</think>', ""),
        ("**Reasoning:** it is short.\n\n**Answer:**\n", ""),
    ],
)  # fmt: skip
def test_the_one_object_is_read_whatever_stands_around_it(before: str, after: str) -> None:
    read = parse(TEXT)
    assert (read[0].entities[1].confidence, read[1]) == (1.0, 0)
    assert parse(f"{before}{TEXT}{after}") == read
    assert parse(read[0].model_dump_json()) == read


def test_a_text_of_the_object_may_speak_of_marks() -> None:
    """Broken, what was said of a model's template is cut out of a file or an entity."""
    told = "Thoughts end at </think>; <think>x</think> and ```think are marks <|im_end|>"
    for before in ("", "<think>One object</think>", "One object</think>"):
        assert parse(before + _with(summary=told))[0].summary == told


def _with(**changes: object) -> str:
    return json.dumps(GOOD | changes)


BOMBS = {
    "deep lists": '{"summary":' + "[" * 100_000, "deep objects": '{"a":' * 100_000,
    "closed deep": '{"summary":' + "[" * 70 + "]" * 70 + "}",
    "many lists": '{"features":[' + "[]," * 200_000 + "[]]}",
    "many objects": '{"entities":[' + "{}," * 200_000 + "{}]}",
    "many figures": '{"features":[' + "1.5," * 200_000 + "1]}",
    "many numbers": '{"features":[' + "300," * 200_000 + "1]}",
    "many mentions": '{"entities":[{"messages":[' + "300, " * 200_000 + "1]}]}",
    "many texts": '{"features":[' + '"ab",' * 150_000 + '"a"]}',
    "long text": '{"summary":"' + "x" * (MAX_ANSWER + 1) + '"}',
    "escaped quotes": '{"summary":"' + '\\"' * 300_000,
    "open quotes": '{"summary":' + '"\\' * 300_000,
    "great integer": '{"summary":' + "9" * 500_000 + "}", "great exponent": '{"summary":1e999999}',
    "long fraction": '{"summary":0.' + "1" * 400_000 + "}",
    "one key often": "{" + '"summary":"",' * 20_000 + '"summary":""}',
    "spaces": "{" + " " * 900_000, "fences": "```\n" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", params(BOMBS, 6))
def test_a_bomb_is_a_typed_error_at_a_bounded_cost(name: str) -> None:
    bomb = BOMBS[name]
    tracemalloc.start()
    with pytest.raises(InvalidAnswerError):
        parse(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 10 * len(bomb) + 262_144


@pytest.mark.parametrize(
    "around",
    [
        "Based on the notes {about stores}: {}", '<think>Perhaps {}? No, {"a": 1}.</think>{}',
        '{"draft": true}</think>{}', "{ is a brace. {}", "{}\n\nNote: {x} was left out.",
        '```json\n{}\n```\nor {"summary": 7}', 'He said "{no" and I say {}',
    ],
)  # fmt: skip
def test_the_last_object_that_fits_is_read_whatever_braces_stand_around_it(around: str) -> None:
    """Broken, a model that speaks in braces never consolidates, and is paid for twice."""
    text = TEXT.join(around.rsplit("{}", 1))
    assert parse(text) == parse(TEXT)
    assert parse(f"{_with(summary='an earlier draft')} or {TEXT}") == parse(TEXT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("Here you are.", "not_json"),
        (f"[{TEXT},{TEXT}]", "not_json"),
        ("[]", "not_json"),
        (TEXT[:-1], "not_json"),
        (f"<think>Perhaps {TEXT}?", "not_json"),
        (f"&lt;think&gt;Perhaps {TEXT}?", "not_json"),
        (f"```think\n{TEXT}", "not_json"),
        ('{"summary":"a","summary":"b"}', "duplicate_key"),
        ('{"summary":NaN}', "not_finite"),
        ('{"summary":-Infinity}', "not_finite"),
        ('{"summary":1e400}', "not_finite"),
        ('{"summary":"\\u0000"}', "bad_text"),
        ('{"summary":"\\ud800"}', "bad_text"),
        ("{}", "schema"),
        (_with(extra=1), "schema"),
        (_with(summary=7), "schema"),
        (_with(features=[7]), "schema"),
        (_with(features={"x": 1}), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"confidence": "0.5"}]), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"confidence": True}]), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"confidence": 1.5}]), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"type": "thing"}]), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"messages": [-1]}]), "schema"),
        (_with(entities=[GOOD["entities"][0] | {"messages": [1.0]}]), "schema"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        parse(text)
    assert caught.value.problem == problem


def test_the_place_of_a_wrong_value_is_named_by_its_path() -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        parse(_with(entities=[GOOD["entities"][0], GOOD["entities"][1] | {"type": 3}]))
    assert caught.value.where == "entities.1.type"


@pytest.mark.parametrize(
    "text",
    [
        _with(**{CANARY: 1}),
        _with(summary=[CANARY]),
        _with(entities=[GOOD["entities"][0] | {"type": CANARY}]),
        _with(entities=[GOOD["entities"][0] | {CANARY: CANARY}]),
        '{"summary":"' + CANARY,
        CANARY,
        '{"' + CANARY + '":1,"' + CANARY + '":2}',
    ],
)
def test_nothing_that_the_model_wrote_is_in_the_error_or_its_causes(text: str) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        parse(text)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in f"{error}{error!r}{vars(error)}"
        error = error.__cause__ or error.__context__


def test_a_mutation_gives_an_answer_or_a_typed_error(share: Callable[[int, int], int]) -> None:
    chance = random.Random(7)
    parts = ["{", "}", "[", "]", ",", ":", '"', "\\", "\\u", "\ud800", "\x00", "1e999", "NaN", "é",
             "null", "true", "-", "0", '"x":1', "[[[[", "```", "\n", "\uff19",
             '"entities":[{}],']  # fmt: skip
    read, problems = 0, set()
    for _ in range(share(10_000, 1_500)):
        text = TEXT
        for _ in range(chance.randint(1, 4)):
            at, until = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
            kind = chance.randrange(4)
            if kind == 0:
                text = text[:at] + chance.choice(parts) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + chance.randint(1, 9) :]
            elif kind == 2:
                text = text[:until] + text[at:until] + text[until:]
            else:
                text = text[:at] + chance.choice(parts) + text[at + 1 :]
            text = text or "{"
        try:
            answer, _ = parse(text)
        except InvalidAnswerError as error:
            problems.add(error.problem)
        else:
            assert parse(answer.model_dump_json())[0] == answer
            read += 1
    assert read > share(100, 15)
    assert len(problems) >= 4


def test_the_largest_answer_of_the_schema_is_read() -> None:
    entity = GOOD["entities"][0] | {"description": "d" * 300, "messages": list(range(16))}
    text = json.dumps(GOOD | {"entities": [entity | {"name": f"n{i}"} for i in range(200)]})
    answer, _ = parse(text)
    assert len(answer.entities) == 200
    assert isinstance(answer, Answer)


def test_many_numbers_of_messages_are_no_bomb() -> None:
    """A model that cites generously is cut to the bound, not refused as too dense."""
    entity = GOOD["entities"][0] | {"messages": list(range(100, 400))}
    text = json.dumps(GOOD | {"entities": [entity | {"name": f"n{i}"} for i in range(60)]})
    assert {len(each.messages) for each in parse(text)[0].entities} == {MOST_MENTIONS}
