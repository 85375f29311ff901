"""What a failed call means: by status, by the signs that go before it, and what is never said."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hiermem.calls.failures import (
    TEXT,
    back_off,
    of_answer,
    of_transport,
    refused_field,
    retry_after,
    to_error,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


PASSING = (408, 409, 424, 425, 429, 499, 500, 502, 503, 504, 529, 599)
LASTING = (400, 401, 402, 403, 404, 405, 410, 415, 422, 451, 501, 505)
#: Of those that may pass, the ones that mean that nothing was generated.
NEVER_BEGUN = (409, 425, 429, 529)


@pytest.mark.parametrize("status", PASSING + LASTING)
def test_a_status_says_whether_to_ask_again_and_whether_nothing_was_paid(status):
    """Broken, a wrong key is asked with for an hour, or what may be charged counts for nothing."""
    error = to_error(of_answer(status), model="m")
    assert error.retryable == (status in PASSING)
    assert error.charged is (False if status in LASTING + NEVER_BEGUN else None)


@pytest.mark.parametrize(
    ("status", "words", "message", "kind"),
    [
        (413, (), "", "overflow"),
        (400, ("context_length_exceeded",), "", "overflow"),
        (400, ("invalid_request_error",), "prompt is too long: 210000 tokens > 200", "overflow"),
        (400, (400,), "This model's maximum context length is 4096 tokens.", "overflow"),
        (400, (), "the request exceeds the available context size. try increasing", "overflow"),
        (400, (), "input length and `max_tokens` exceed context limit: 1 + 2 > 2", "overflow"),
        (400, (), "The input token count (4) exceeds the maximum number of tokens", "overflow"),
        (422, (), "`inputs` tokens + `max_new_tokens` must be <= 4097", "overflow"),
        (429, ("rate_limit_exceeded",), "Request too large for gpt-x on tokens per", "overflow"),
        (400, ("content_filter",), "", "refused"),
        (400, ("invalid_request_error",), "blocked by content filtering policy", "refused"),
        (403, (), "Your input was flagged as violating our content policy", "refused"),
        (451, (), "", "refused"),
        (429, ("insufficient_quota",), "", "permanent"),
        (429, ("rate_limit_exceeded",), "", "transient"),
        (None, ("overloaded_error",), "", "transient"),
        (None, ("authentication_error",), "", "permanent"),
        (None, (), "", "transient"),
    ],
)
def test_words_say_more_than_the_status_at_any_server(status, words, message, kind):
    """As a bad request a large one would not be made smaller; as a rate limit it would wait."""
    failure = of_answer(status, words=words, message=message)
    assert to_error(failure, model="m").kind == kind
    # A stream that ends in an error had begun: nobody knows what of it is charged.
    assert failure.charged is (None if status is None else False)
    assert failure.status == status


def test_a_503_that_says_when_to_come_back_was_turned_away_at_the_door():
    assert of_answer(503, headers={"retry-after": "2"}).charged is False


@pytest.mark.parametrize(
    ("names", "kind", "charged"),
    [
        ({"APIConnectionError", "ConnectError", "TransportError"}, "transient", False),
        ({"APITimeoutError", "APIConnectionError", "ReadTimeout"}, "timeout", None),
        ({"APITimeoutError", "ConnectTimeout", "TimeoutException"}, "transient", False),
        ({"APIConnectionError", "RemoteProtocolError", "TransportError"}, "transient", None),
        ({"ConnectError", "SSLCertVerificationError", "OSError"}, "permanent", False),
        ({"LocalProtocolError", "TransportError"}, "permanent", False),
        ({"JSONDecodeError", "ValueError"}, "transient", None),
        ({"ConnectionResetError", "OSError"}, "transient", None),
    ],
)  # fmt: skip
def test_a_connection_that_never_was_is_told_from_one_that_broke(names, kind, charged):
    """Only what certainly never reached the provider is free; what broke later may be paid for."""
    found = of_transport(names)
    assert found is not None
    assert (found.kind, found.charged) == (kind, charged)


def test_what_is_no_connections_failure_is_not_made_one():
    assert of_transport({"TypeError", "Exception"}) is None


# -- how long to wait


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "date"]), st.text()))
@example({"retry-after": "nan"})
@example({"retry-after": "inf"})
@example({"retry-after": "-5"})
@example({"retry-after-ms": "1e400"})
@example({"retry-after": "Wed, 99 Foo 2026 00:00:00 GMT"})
@example({"retry-after": "Thu, 01 Jan 99999999999 00:00:00 GMT"})
@example({"retry-after": "Thu, 01 Jan 2026 00:00:00 +9999999999999999999"})
def test_a_wait_is_a_finite_number_or_none(headers):
    """An endless or negative wait, out of a header that anybody may write, would stop a run."""
    wait = retry_after(headers, NOW)
    assert wait is None or 0 <= wait < float("inf")


@given(st.integers(0, 10_000), st.integers(-100_000, 100_000))
def test_a_date_is_counted_from_the_servers_own_clock(seconds, off):
    """A clock of ours that is off by a day must not make us wait a day."""
    theirs = NOW + timedelta(seconds=off)
    until = format_datetime(theirs + timedelta(seconds=seconds), usegmt=True)
    date = format_datetime(theirs, usegmt=True)
    assert retry_after({"retry-after": until, "date": date}, NOW) == seconds
    assert retry_after({"retry-after": until}, NOW) == max(0, seconds + off)
    assert retry_after({"retry-after": until}) is None


def test_milliseconds_go_before_seconds():
    assert retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25


# -- what is never said


@given(
    status=st.none() | st.integers(400, 599),
    message=st.text(min_size=4, max_size=80),
    words=st.lists(st.text(max_size=40) | st.integers(), max_size=2),
    request_id=st.text(max_size=100),
)
@example(400, "sk-secret said: no", ["sk-proj-4f9Z"], "sk-proj-4f9Z")
@example(400, "no", ["Bearer abc"], "id\nwith a line")
def test_an_error_repeats_nothing_but_harmless_words(status, message, words, request_id):
    """A provider's words may quote the prompt or the key, and errors go into logs."""
    found = of_answer(
        status, words=words, message=f"«{message}»", headers={"x-request-id": request_id}, now=NOW
    )
    error = to_error(found, model="m")
    assert f"«{message}»" not in str(error)
    assert "sk-" not in str(error)
    assert str(error).isprintable()
    assert found.code == "" or found.code.replace("_", "").isalpha()
    assert (found.kind in ("transient", "timeout")) or found.charged is not None or status is None


def test_what_helps_to_look_it_up_is_there():
    found = of_answer(
        429,
        words=("rate_limit_exceeded", "requests"),
        headers={"x-request-id": "req_0123abc", "retry-after": "7"},
    )
    error = to_error(found, model="gpt-x")
    assert str(error) == (
        "gpt-x: too many requests (HTTP 429, rate_limit_exceeded, request req_0123abc)"
    )
    assert error.retry_after == 7


# -- fields


@pytest.mark.parametrize(
    ("param", "message", "field"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0.3", "temperature"),
        (None, "temperature: Extra inputs are not permitted", "temperature"),
        ("max_tokens", "Unsupported parameter: use 'max_completion_tokens' instead", "max_tokens"),
        ("max_tokens", "max_tokens is too large: 9000", None),
        ("messages", "temperature is not supported", None),
        (None, "the temperatures are unknown", None),
        (None, "", None),
    ],
)
def test_a_field_is_left_out_only_where_the_server_does_not_take_it(param, message, field):
    """Leaving out a field whose value is wrong would hide the mistake, and change the answers."""
    fields = ("temperature", "max_tokens")
    refusal, fault = (of_answer(at, param=param, message=message) for at in (400, 500))
    assert refused_field(refusal, fields) == field
    assert refused_field(fault, fields) is None


@pytest.mark.parametrize(("failures", "seconds"), [(0, 15), (1, 15), (2, 30), (3, 60), (500, 3600)])
def test_a_failure_is_left_alone_for_longer_each_time(failures, seconds):
    assert back_off(failures, TEXT) == seconds
