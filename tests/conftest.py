"""Settings that hold for every test."""

import pytest
from hypothesis import settings

from hiermem.engine.calls import store_retry
from hiermem.engine.summaries import commit

# Shared machines stall: a slow example says nothing about the code. Timings are not asserted.
settings.register_profile("hiermem", deadline=None, print_blob=True)
settings.load_profile("hiermem")


@pytest.fixture(autouse=True, scope="session")
def short_pauses():
    """Shorten the pauses before a failed store is tried again: they prove nothing and add up."""
    with pytest.MonkeyPatch.context() as patch:
        for each in (commit, store_retry):
            assert each._PAUSE >= 0.01
            patch.setattr(each, "_PAUSE", each._PAUSE / 100)
        yield
