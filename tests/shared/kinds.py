"""Which of the errors of one class is meant."""

from collections.abc import Callable

from hiermem import HiermemError


def of_kind(kind: str) -> Callable[[HiermemError], bool]:
    """Return what tells whether an error is of this kind; ``pytest.raises`` takes it."""
    return lambda error: error.kind == kind
