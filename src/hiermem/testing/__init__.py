"""Tools for adapter authors: conformance suites, faults and fakes.

Nothing else in the library imports this package, and only this package imports pytest
(``pip install "hiermem-memory[testing]"``).

A store author's test file, whole::

    from hiermem.testing import StoreConformance

    class TestMyStore(StoreConformance):
        async def open_store(self, path):
            return await MyStore.open(path)
"""

from __future__ import annotations

import pkgutil

import pytest

# So that a failed assert in an author's run shows the values, as in his own tests.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)

from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore  # noqa: E402
from hiermem.testing.llms import FaultyLLM, ScriptedLLM  # noqa: E402
from hiermem.testing.stores import StoreConformance  # noqa: E402

__all__ = ["DiedError", "FaultPlan", "FaultyLLM", "FaultyStore", "ScriptedLLM", "StoreConformance"]
