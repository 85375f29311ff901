"""The lease of a run on one piece of work, as a record's body."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hiermem.config import LONGEST_LEASE

#: How long the offset between a memory's clock and its store's is believed.
COMPARED_AFTER: Final = timedelta(hours=1)

_MOST_BELIEVED: Final = timedelta(seconds=1.25 * LONGEST_LEASE)


class ClaimLostError(Exception):
    """Another run holds the item."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's lease on one item of work; no other run asks for it before ``until``.

    ``item`` is the id, in that run, of the chunk or of the step of the reduction.
    """

    run_id: str
    until: datetime
    item: str = ""


def is_believed(until: datetime, *, now: datetime) -> bool:
    """Return whether a lease that is to end at ``until`` holds now.

    A lease that ends later than the longest lease would was written while a clock was ahead, and
    nobody waits for it. A quarter more is granted, since the clocks may differ by so much.
    """
    return now < until <= now + _MOST_BELIEVED


def moved_too_far(moved: timedelta, lease: float) -> bool:
    """Return whether two clocks moved apart by more than a quarter of a lease, in seconds."""
    return abs(moved) > timedelta(seconds=lease) / 4


def write_claim(claim: Claim) -> str:
    """Return a claim as a record's body."""
    value = {"run": claim.run_id, "until": claim.until.isoformat(), "piece": claim.item}
    return json.dumps(value)


def read_claim(body: str) -> Claim | None:
    """Return the claim that a record holds; None where it holds none, or a time without a zone."""
    try:
        found = json.loads(body)
        until = datetime.fromisoformat(found["until"])
        claim = Claim(str(found["run"]), until, str(found.get("piece", "")))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return claim if until.tzinfo is not None else None
