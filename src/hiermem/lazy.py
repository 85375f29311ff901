"""Modules that are loaded when they are first used, so that a program loads only what it uses.

A module that must be cheap to import takes what it calls in this way::

    if TYPE_CHECKING:
        from hiermem.log import read
    else:
        read = LazyModule("hiermem.context.read")

Type checkers and the import contracts see the import. An annotation says ``read.Tree`` there, and
``typing.get_type_hints`` loads the module for it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any

__all__ = ["LazyModule"]


_lock = RLock()
# A fork waits while a thread loads a module. Otherwise a child could inherit the module half
# loaded, and would wait for ever for the thread that loads it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class LazyModule(ModuleType):
    """Stands for the module of its name, and loads it when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        module = sys.modules.get(self.__name__)
        if module is None or getattr(module.__spec__, "_initializing", False):
            with _lock:
                module = import_module(self.__name__)
        return getattr(module, name)
