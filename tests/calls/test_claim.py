"""How long a claim is believed: while it lasts, and never longer than a lease can last."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hiermem import UpdatePolicy
from hiermem.calls.claim import is_believed, read_claim, write_claim
from hiermem.calls.report import with_current_outcome
from hiermem.config import LONGEST_LEASE
from hiermem.types.transaction import RunRecord

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONGEST = 1.25 * timedelta(seconds=LONGEST_LEASE)
offsets = st.timedeltas(timedelta(days=-400), timedelta(days=400))


@given(offsets)
def test_a_lease_is_believed_while_it_lasts_and_not_beyond_the_longest(offset: timedelta) -> None:
    """A clock that was a year ahead would lock its work for a year."""
    assert is_believed(NOW + offset, now=NOW) == (timedelta(0) < offset <= LONGEST)


@given(st.floats(0.001, LONGEST_LEASE), st.floats(0, 0.999))
def test_every_lease_that_a_policy_allows_is_believed_to_its_end(
    length: float, share: float
) -> None:
    """Otherwise two runs would pay for the same text."""
    lease = UpdatePolicy(lease=length).lease
    until = NOW + timedelta(seconds=lease)
    assert is_believed(until, now=NOW + timedelta(seconds=lease * share))
    assert is_believed(until, now=NOW - timedelta(seconds=lease / 4))


@given(offsets)
def test_runs_and_claims_go_by_the_same_rule(offset: timedelta) -> None:
    """A claim that holds must be that of a run that is shown as running."""
    until = NOW + offset
    run = RunRecord("r", "update", "s", NOW, detail={"alive_until": until.isoformat()})
    believed = is_believed(until, now=NOW)
    assert (with_current_outcome(run, NOW).outcome == "running") == believed
    body = write_claim("r", until, process="process", nonce="nonce")
    assert read_claim(body) == ("r", until, "process")


def test_a_claim_without_a_time_zone_is_nobodys() -> None:
    """It cannot be compared with the store's time; a damaged record must not stop a run."""
    assert (
        read_claim('{"run": "r", "until": "2026-03-01T12:00:00", "process": "", "nonce": ""}')
        is None
    )
