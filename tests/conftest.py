"""Settings that hold for every test."""

import pytest
from hypothesis import settings

from hiermem.engine import ledger, steady

# Shared machines stall: a slow example says nothing about the code. Timings are not asserted.
settings.register_profile("hiermem", deadline=None, print_blob=True)
settings.load_profile("hiermem")


@pytest.fixture(autouse=True, scope="session")
def short_pauses():
    """Shorten the pauses before a failed store is tried again: they prove nothing and add up."""
    with pytest.MonkeyPatch.context() as patch:
        for each in (ledger, steady):
            assert each._PAUSE >= 0.01
            patch.setattr(each, "_PAUSE", each._PAUSE / 100)
        yield
