"""A mapping that does not change, which can be copied, pickled and written as JSON."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NoReturn, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("this mapping does not change; make a dict of it and change that")


# ``Any``, because it takes the place of methods with different signatures.
_REFUSED: Any = _refuse


class FrozenDict(dict[K, V]):
    """A dict that refuses every change; its values are not copied.

    >>> FrozenDict({"a": 1}) == {"a": 1}
    True
    """

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _REFUSED
    clear = pop = popitem = setdefault = update = _REFUSED

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict[K, V]:
        return FrozenDict(deepcopy(dict(self), memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)
