"""A fault in a model's own code is shown as far as that can hold neither a text nor a key."""

import pytest

from hiermem.calls.failures import described, places
from hiermem.convert import from_openai
from hiermem.errors import ModelError, UsageError

REQUEST = "Summarise.", "Kanarienvogel im Text, said Ada to Marie-Claire, who has 4 pumps."
KEY = "sk-kanarienvogel-7731"


def raised(fault):
    """Return the error that ``fault`` raises."""
    try:
        fault()
    except Exception as error:  # noqa: BLE001 - any
        return error
    raise AssertionError


def fails_with(error):
    def fault():
        raise error

    return fault


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda: "a" + None, 'TypeError: can only concatenate str (not "NoneType") to str'),
        (lambda: None.text, "AttributeError: 'NoneType' object has no attribute 'text'"),
        (lambda: {}["choices"], "KeyError: 'choices'"),
        (lambda: ["a"].index(*range(9)), "TypeError: index expected at most 3 arguments, got 9"),
        (lambda: undefined, "NameError: name 'undefined' is not defined"),  # noqa: F821
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (fails_with(UsageError("it must answer text")), "UsageError: it must answer text"),
    ],
)
def test_what_python_says_of_broken_code_is_shown(fault, said):
    """Broken, a function with a wrong name in it fails without a word of what is wrong."""
    told = described(raised(fault), REQUEST)
    assert told.startswith(said)
    assert "test_faults.py:" in told


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("any text"),
        ValueError("invalid literal for int() with base 10: 'any text'"),
        TypeError("cannot join Kanarienvogel im Text"),
        TypeError("x" * 500 + " any text"),
        TypeError("no\nany text"),
        TypeError(f"Illegal header value {KEY}"),
        KeyError(KEY),
        KeyError("Ada"),
        KeyError("Marie-Claire"),
        ModelError("any text"),
        UsageError("Kanarienvogel im Text is no rule"),
    ],
)
def test_what_may_be_a_text_or_a_key_is_not(error):
    """Broken, a message of a user or a key stands in the log, and in the store for ever."""
    told = described(raised(fails_with(error)), REQUEST)
    assert told.startswith(f"{type(error).__name__} (test_faults.py:")
    for secret in ("any text", "Kanarienvogel", KEY, "Ada", "Claire"):
        assert secret not in told


def no_file():
    raise ValueError("no file of the model is found")


def no_such_file(path="Kanarienvogel im Text"):
    raise RuntimeError(f"there is no model at {path}, or it cannot be read")


def only_data(path="any text"):
    raise RuntimeError(path)


def a_key():
    raise ValueError("the key sk-kanarienvogel-7731 is refused")


def quotes_the_request():
    raise ValueError("Kanarienvogel im Text")


class SpeechlessError(RuntimeError):
    def __str__(self):
        raise TypeError


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (no_file, "ValueError: no file of the model is found ("),
        (no_such_file, "RuntimeError: there is no model at …, or it cannot be read ("),
        (only_data, "RuntimeError (test_faults.py:"),
        (lambda: int(KEY), "ValueError (test_faults.py:"),
        (a_key, "ValueError (test_faults.py:"),
        (quotes_the_request, "ValueError (test_faults.py:"),
        (fails_with(SpeechlessError()), "SpeechlessError (test_faults.py:"),
    ],
)
def test_of_other_texts_that_is_shown_which_stands_in_the_code(fault, said):
    """Broken, the words that a function's author chose are lost, or data between them is shown."""
    assert described(raised(fault), REQUEST).startswith(said)


def test_the_places_are_those_of_the_code_that_is_not_hiermems_own():
    def inner():
        return from_openai(3)

    found = places(raised(inner))
    assert [place.partition(" in ")[2] for place in found] == ["raised", "inner"]
    assert described(KeyError("a"), ()) == "KeyError: 'a'", "it was never raised"
