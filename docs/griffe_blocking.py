"""A griffe extension: the reference shows the methods of the blocking classes as methods.

Griffe reads the source, where a derived method is an attribute of its class, such as
``search = blocking(AsyncSession.search)``. Each becomes the function that it is at run time: the
parameters, overloads and docstring of the asynchronous method, without ``async``.
"""

from __future__ import annotations

from typing import Any

import griffe


class BlockingMethods(griffe.Extension):
    """Makes functions of the attributes that ``blocking`` derived in ``hiermem.api.sync``."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace the attributes once the whole package is read."""
        if pkg.path != "hiermem":
            return
        for owner in pkg["api.sync"].classes.values():
            for name, attribute in owner.attributes.items():
                value = attribute.value
                if not isinstance(value, griffe.ExprCall):
                    continue
                if value.canonical_path == "hiermem.api.sync.blocking":
                    (method,) = value.arguments
                    found = pkg.modules_collection[method.canonical_path]
                    owner.set_member(name, _derived(found, attribute, owner))


def _derived(
    method: griffe.Function, attribute: griffe.Attribute, owner: griffe.Class
) -> griffe.Function:
    """Return the blocking method of ``method``, at the attribute's place in the source."""
    found = griffe.Function(
        attribute.name,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parameters=method.parameters,
        returns=method.returns,
        docstring=method.docstring,
        parent=owner,
    )
    found.overloads = [_derived(each, attribute, owner) for each in method.overloads or ()] or None
    return found
