"""Decides how a run's claim is written, how long it is believed, and which clocks allow that.

A claim is a record's body. It names the run and its process, and ends by itself.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from hiermem.config import LONGEST_LEASE

#: How long the offset between a memory's clock and its store's is believed.
COMPARED_AFTER: Final = timedelta(hours=1)

#: How long before its end a claim is believed at most.
MOST_BELIEVED: Final = timedelta(seconds=1.25 * LONGEST_LEASE)


class ClaimLostError(Exception):
    """Another run took the work over."""


def is_believed(until: datetime, *, now: datetime) -> bool:
    """Return whether a claim that is to end at ``until`` holds now.

    One that ends later than the longest lease would was written while a clock was ahead, and
    nobody waits for it. A quarter more is granted, since the clocks may differ by so much.
    """
    return now < until <= now + MOST_BELIEVED


def moved_too_far(moved: timedelta, lease: float) -> bool:
    """Return whether two clocks moved apart by more than a quarter of a lease, in seconds."""
    return abs(moved) > timedelta(seconds=lease) / 4


def write_claim(run_id: str, until: datetime, *, process: str = "", nonce: str = "") -> str:
    """Return the body of the record by which no other run does the work of ``run_id`` for a time.

    ``process`` is the mark of its process, "" if that is unknown; ``nonce`` tells each writing of
    the claim from others.
    """
    value = {"run": run_id, "until": until.isoformat()}
    return json.dumps(value | {"process": process, "nonce": nonce})


def read_claim(body: str) -> tuple[str, datetime, str] | None:
    """Return the run, the end and the process of the claim that a record holds.

    None where it holds none, or a time without a zone.
    """
    try:
        value = json.loads(body)
        until = datetime.fromisoformat(value["until"])
        claim = str(value["run"]), until, str(value["process"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return claim if until.tzinfo is not None else None
