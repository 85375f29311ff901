"""Modules that are loaded when they are first used, so that a program loads only what it uses.

A module that must be cheap to import takes what it calls in this way::

    if TYPE_CHECKING:
        from hiermem.engine.log import read
    else:
        read = LazyModule("hiermem.engine.log.read")

Type checkers and the import contracts see the import. An annotation says ``read.Tree`` there, and
``typing.get_type_hints`` loads the module for it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["LazyModule"]


class LazyModule(ModuleType):
    """Stands for the module of its name, and loads it when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
