"""The sticky state of a selection: what it showed, so that the next one keeps it as a prefix.

Providers bill a cached prefix at a fraction, so a cut stays as it was until it must move. The one
rule: the state pins the rendered bytes of the summary zone; losing it costs a cache miss, never a
message. It is data with a codec; ``cut`` decides when it changes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hiermem.core.cover import Covered
from hiermem.core.render import Block
from hiermem.types import Span

__all__ = ["OpenView", "Piece", "Seen", "View"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """One fenced record of the summary zone and the stretch of windows that it stands for.

    ``kind`` is "summary" for one whole node and "view" for a trimmed one; ``text`` is "" where the
    windows hold nothing to say.
    """

    kind: str
    name: str
    windows: tuple[int, int]
    span: Span
    tokens: int
    text: str
    level: int | None
    covers: tuple[Covered, ...]
    trimmed: tuple[str, ...] = ()

    def block(self) -> Block:
        """Give the block that renders it."""
        return Block(
            kind="summary" if self.kind == "summary" else "view",
            name=self.name,
            span=self.span,
            tokens=self.tokens,
            text=self.text,
            level=self.level,
        )


@dataclass(frozen=True, slots=True)
class OpenView:
    """A trimmed record of the older messages of open windows: ``runs`` are index ranges."""

    name: str
    runs: tuple[tuple[int, int], ...]
    span: Span
    tokens: int
    text: str

    def block(self) -> Block:
        """Give the block that renders it."""
        return Block("view", self.name, self.span, self.tokens, self.text)

    def holds(self, index: int) -> bool:
        """Say whether the message at ``index`` is represented here."""
        return any(begin <= index < end for begin, end in self.runs)


@dataclass(frozen=True, slots=True)
class View:
    """The cut as it stands: windows before ``boundary`` are in ``pieces``, the rest is verbatim."""

    boundary: int
    pieces: tuple[Piece, ...]
    opened: OpenView | None = None
    serial: int = 0

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(
            {"format": _FORMAT, **asdict(self)}, ensure_ascii=False, separators=(",", ":")
        )

    @classmethod
    def from_json(cls, text: str) -> View | None:
        """Read what ``to_json`` wrote; None where it is of another format."""
        data = json.loads(text)
        if data.pop("format", None) != _FORMAT:
            return None
        pieces = tuple(
            Piece(
                **{
                    **piece,
                    "windows": tuple(piece["windows"]),
                    "span": Span(**piece["span"]),
                    "trimmed": tuple(piece["trimmed"]),
                    "covers": tuple(
                        Covered(
                            **{
                                **item,
                                "windows": tuple(item["windows"]),
                                "span": Span(**item["span"]),
                            }
                        )
                        for item in piece["covers"]
                    ),
                }
            )
            for piece in data["pieces"]
        )
        opened = data["opened"]
        if opened is not None:
            runs = tuple((begin, end) for begin, end in opened["runs"])
            opened = OpenView(**{**opened, "runs": runs, "span": Span(**opened["span"])})
        return cls(data["boundary"], pieces, opened, data["serial"])


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last selection rendered, as far as the next one must know to compare.

    ``blocks`` are the (name, tokens) of its records before the verbatim zone; ``digest`` is a hash
    of its verbatim blocks, of which there were ``count`` with ``tokens`` together.
    """

    blocks: tuple[tuple[str, int], ...]
    count: int
    tokens: int
    digest: str

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Seen:
        """Read what ``to_json`` wrote."""
        data = json.loads(text)
        blocks = tuple((name, tokens) for name, tokens in data["blocks"])
        return cls(blocks, data["count"], data["tokens"], data["digest"])
