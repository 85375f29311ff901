"""Settings that hold for every test."""

import functools
import ssl

import pytest
import sampling
from hypothesis import settings

from hiermem.engine.calls import store_retry

# Shared machines stall: a slow example says nothing about the code. Timings are not asserted.
settings.register_profile("hiermem", deadline=None, print_blob=True)
settings.load_profile("hiermem")


def pytest_configure(config):
    """Say how much is drawn, before any test is imported."""
    sampling.factor = sampling.factor_of(config.option.markexpr)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let a thorough run select each test that draws more in it, and give it the time."""
    for item in items if sampling.factor else ():
        if "share" in item.fixturenames:
            item.add_marker("thorough")
        item.add_marker(pytest.mark.timeout(3_600))


@pytest.fixture(scope="session")
def share():
    """Return the function that says how many cases of a full number this run draws."""
    return sampling.share


@pytest.fixture(autouse=True, scope="session")
def one_trust_store():
    """Load the trusted certificates once, not for each client: no server here speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True, scope="session")
def short_pauses():
    """Shorten the pauses before a failed store is tried again: they prove nothing and add up."""
    with pytest.MonkeyPatch.context() as patch:
        assert store_retry._PAUSE >= 0.01
        patch.setattr(store_retry, "_PAUSE", store_retry._PAUSE / 100)
        yield
