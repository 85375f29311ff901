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
        """Replace the attributes once the whole package is read.

        Raises LookupError where there are none, so that a renamed ``blocking`` ends the build.
        """
        if pkg.path != "hiermem":
            return
        derived = [
            (owner, attribute, attribute.value.arguments[0].canonical_path)
            for owner in pkg["api.sync"].classes.values()
            for attribute in owner.attributes.values()
            if isinstance(attribute.value, griffe.ExprCall)
            and attribute.value.canonical_path == "hiermem.api.sync.blocking"
        ]
        if not derived:
            raise LookupError("no method of hiermem.api.sync is derived by blocking()")
        for owner, attribute, path in derived:
            owner.set_member(
                attribute.name, _derived(pkg.modules_collection[path], attribute, owner)
            )


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
