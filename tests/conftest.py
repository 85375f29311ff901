"""Settings that hold for every test."""

import functools
import gc
import os
import shutil
import ssl
import sys
import tempfile
from pathlib import Path

import pytest
import sampling
from hypothesis import settings
from scripts import Scripts
from stand_ins import store_of

from hiermem.calls import retry
from hiermem.summaries import assess
from hiermem.summaries import node as making

#: The most texts of which a reading is kept.
MOST_KNOWN = 500
#: A file system in memory, where there is one, and the least room that the tests need in it.
MEMORY, ROOM = Path("/dev/shm"), 500_000_000


def files_in_memory():
    """Put the files of the tests into memory, unless TMPDIR names another place.

    A third of the run is waiting for the disk otherwise. What the tests prove does not need it:
    they kill processes and not the machine, and what a process wrote outlives it in either place.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"] = str(MEMORY)  # for the processes that tests start as well
        tempfile.tempdir = None


def modules_compiled_once():
    """Have compiled modules kept, also where the environment says not to, as container images do.

    Each of the many processes that tests start would compile the whole library again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # for the processes that tests start
    sys.dont_write_bytecode = False


def pytest_configure(config):
    """Say how much is drawn and where files are put, before any test is imported."""
    files_in_memory()
    modules_compiled_once()
    sampling.factor = sampling.factor_of(config.option.markexpr)
    # Shared machines stall: a slow example says nothing about the code. Timings are not asserted.
    # A property draws the same cases in each run, so that a failure can be repeated.
    settings.register_profile(
        "hiermem",
        database=None,
        deadline=None,
        derandomize=not sampling.others,
        print_blob=True,
        max_examples=sampling.share(100),
    )
    settings.load_profile("hiermem")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let a thorough run select each test that draws more in it, and give it the time."""
    for item in items if sampling.factor else ():
        draws = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if draws or not {"share", "every"}.isdisjoint(item.fixturenames):
            item.add_marker("thorough")
        item.add_marker(pytest.mark.timeout(3_600))


def pytest_collection_finish():
    """Have the collector of cyclic garbage run seldom, and never over the collected tests.

    Every full collection reads all objects, and most of them live as long as the run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def share():
    """Return the function that says how many cases of a full number this run draws."""
    return sampling.share


@pytest.fixture(scope="session")
def every():
    """Return the function that says which part of a test's places this run tries."""
    return sampling.every


@pytest.fixture(scope="session")
def scripts():
    """Return what runs a script in a process of its own, without the second of loading."""
    with Scripts() as running:
        yield running


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    """Return a store of each kind that needs no server."""
    opened = await store_of(request.param, tmp_path / "m.db")
    yield opened
    await opened.close()


@pytest.fixture(autouse=True, scope="session")
def one_trust_store():
    """Load the trusted certificates once, not for each client: no server here speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_reading_of_equal_texts():
    """Assess equal answers, and label equal inputs, once.

    Both are pure, and a test that ends a run at each of its places has the same texts each time.
    """
    assess_written, known = assess.assess_written, {}

    def assessed(request, standard, response):
        key = request, response, standard.input_tokens
        draft = known.get(key)
        if draft is None:
            draft = assess_written(request, standard, response)
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[key] = draft
        return draft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assess, "assess_written", assessed)
        patch.setattr(making, "of_inputs", functools.lru_cache(MOST_KNOWN)(making.of_inputs))
        yield


@pytest.fixture(autouse=True, scope="session")
def short_pauses():
    """Shorten the pauses before a failed store is tried again: they prove nothing and add up."""
    with pytest.MonkeyPatch.context() as patch:
        first, longest = retry._AGAIN
        assert first >= 0.01
        patch.setattr(retry, "_AGAIN", (first / 100, longest))
        yield
