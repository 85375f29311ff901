"""A griffe extension: the reference shows the methods of the blocking classes as methods.

Griffe reads the source, where a derived method is an attribute of its class, such as
``search = blocking(AsyncSession.search)``, ``space = blocking_as(AsyncMemory.space, Space)`` or
``open = opening(AsyncMemory.open)``. Each becomes the function that it is at run time: the
parameters, overloads and docstring of the asynchronous method, without ``async``, and the class
that it returns here.
"""

from __future__ import annotations

from typing import Any

import griffe

#: Classes whose instances a memory gives out: how they are made is no part of the reference.
MADE_BY_OTHERS = (
    "api.sync.Graph", "api.sync.Manager", "api.sync.Session", "api.sync.Space", "api.sync.Worker",
    "api.session.AsyncSession", "api.space.AsyncSpace", "work.worker.AsyncWorker",
    "extraction.tenant_graph.AsyncGraph",
)  # fmt: skip


class BlockingMethods(griffe.Extension):
    """Makes functions of the attributes that ``blocking`` derived in ``hiermem.api.sync``."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace the attributes once the whole package is read.

        Raises LookupError where there are none, so that a renamed ``blocking`` ends the build.
        """
        if pkg.path != "hiermem":
            return
        module = pkg["api.sync"]
        calls = {f"{module.path}.{name}" for name in ("blocking", "blocking_as", "opening")}
        derived = [
            (owner, attribute, attribute.value)
            for owner in module.classes.values()
            for attribute in owner.attributes.values()
            if isinstance(attribute.value, griffe.ExprCall)
            and attribute.value.canonical_path in calls
        ]
        if {call.canonical_path for _, _, call in derived} != calls:
            raise LookupError(
                "a method of hiermem.api.sync is derived by none of these: " + str(calls)
            )
        for owner, attribute, call in derived:
            method = pkg.modules_collection[call.arguments[0].canonical_path]
            made = _derived(method, attribute, owner)
            if call.function.name == "opening":
                made.labels.add("classmethod")
                made.returns = owner.name
            elif len(call.arguments) > 1:
                answer = pkg.modules_collection[call.arguments[1].canonical_path]
                made.returns = getattr(answer, "returns", None) or answer.name
            owner.set_member(attribute.name, made)
        for name in MADE_BY_OTHERS:
            pkg[name].members.pop("__init__", None)


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
