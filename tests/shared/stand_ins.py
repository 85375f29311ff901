"""What tests put in the place of a counter and of a clock."""

from datetime import UTC, datetime, timedelta


class WordCounter:
    """A counter that costs nothing: a token is a word."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


class Clock:
    """A clock that a test moves, and that moves by ``step`` at every look."""

    def __init__(
        self,
        at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC),
        step: timedelta = timedelta(0),
    ) -> None:
        self.at, self.step = at, step

    def __call__(self) -> datetime:
        self.at += self.step
        return self.at
