"""The handles' methods are made from the functions that do the work, and look like the protocol's.

Broken, ``help()`` and an editor show another call than the one that works, or an argument by name
is refused in one store and taken in another.
"""

import inspect

import pytest

from hiermem.protocols import TenantStore, TreeStore
from hiermem.records.run import Tenant, Tree

HANDLES = [(TenantStore, Tenant), (TreeStore, Tree)]


def arguments(method):
    """Return name, kind and default of each argument."""
    return [
        (one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()
    ]


@pytest.mark.parametrize(("protocol", "handle"), HANDLES)
def test_a_handles_methods_have_the_arguments_of_the_protocol(protocol, handle):
    for name, member in vars(protocol).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            method = getattr(handle, name)
            assert arguments(method) == arguments(member), name
            assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(member), name
            assert (method.__name__, bool(method.__doc__)) == (name, True)
