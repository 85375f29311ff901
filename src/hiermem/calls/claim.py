"""Decides how a run's claim is written, how long it is believed, and which clocks allow that.

A claim is a record's body. It names the run and its process, and ends by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hiermem.config import LONGEST_LEASE

#: How long the offset between a memory's clock and its store's is believed.
COMPARED_AFTER: Final = timedelta(hours=1)

#: How long before its end a claim is believed at most.
MOST_BELIEVED: Final = timedelta(seconds=1.25 * LONGEST_LEASE)


class ClaimLostError(Exception):
    """Another run took the work over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's claim; no other run does its work before ``until``.

    ``process`` is the mark of its process, "" if that is unknown; ``nonce`` tells each writing of
    the claim from others.
    """

    run_id: str
    until: datetime
    process: str = ""
    nonce: str = ""


def is_believed(until: datetime, *, now: datetime) -> bool:
    """Return whether a claim that is to end at ``until`` holds now.

    One that ends later than the longest lease would was written while a clock was ahead, and
    nobody waits for it. A quarter more is granted, since the clocks may differ by so much.
    """
    return now < until <= now + MOST_BELIEVED


def moved_too_far(moved: timedelta, lease: float) -> bool:
    """Return whether two clocks moved apart by more than a quarter of a lease, in seconds."""
    return abs(moved) > timedelta(seconds=lease) / 4


def write_claim(claim: Claim) -> str:
    """Return a claim as a record's body."""
    value = {"run": claim.run_id, "until": claim.until.isoformat()}
    return json.dumps(value | {"process": claim.process, "nonce": claim.nonce})


def read_claim(body: str) -> Claim | None:
    """Return the claim that a record holds; None where it holds none, or a time without a zone."""
    try:
        found = json.loads(body)
        until = datetime.fromisoformat(found["until"])
        claim = Claim(str(found["run"]), until, str(found["process"]), str(found["nonce"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return claim if until.tzinfo is not None else None
