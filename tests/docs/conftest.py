"""What the tests of documents and examples share."""

import pytest
from scripts import Scripts


@pytest.fixture(scope="session")
def scripts():
    """Return the process that runs a script as ``python script`` would, without the loading."""
    with Scripts() as running:
        yield running
