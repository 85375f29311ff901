"""Tools for adapter authors: conformance suites, strategies, faults and fakes.

Nothing else in the library imports this package, and only this package imports pytest and
Hypothesis (``pip install "hiermem-memory[testing]"``).

A store author's test file, whole::

    from hiermem.testing import StoreConformance

    class TestMyStore(StoreConformance):
        async def open_store(self, path):
            return await MyStore.open(path)
"""

from __future__ import annotations

import pytest

# So that a failed assert in an author's run shows the values, as in his own tests.
pytest.register_assert_rewrite(
    "hiermem.testing.stores",
    "hiermem.testing.session_conditions",
    "hiermem.testing.change_conditions",
    "hiermem.testing.removal_conditions",
    "hiermem.testing.node_conditions",
    "hiermem.testing.tree_conditions",
    "hiermem.testing.epoch_conditions",
    "hiermem.testing.journal_conditions",
    "hiermem.testing.record_conditions",
    "hiermem.testing.listing_conditions",
    "hiermem.testing.dump_conditions",
    "hiermem.testing.machine",
    "hiermem.testing.twins",
)

from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore  # noqa: E402
from hiermem.testing.llms import FaultyLLM, ScriptedLLM  # noqa: E402
from hiermem.testing.stores import StoreConformance  # noqa: E402

__all__ = ["DiedError", "FaultPlan", "FaultyLLM", "FaultyStore", "ScriptedLLM", "StoreConformance"]
