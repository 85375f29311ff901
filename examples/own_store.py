"""A store of your own: a file of JSON lines, one a commit, that is replayed when it is opened.

``JsonLines`` is the whole adapter: an ordered map of bytes, over which ``MapStore`` keeps rows.
``TestJsonLines`` is the whole test file. Run as a script, the file shows the store at work and then
runs its tests; it needs the extra ``testing``.

    python examples/own_store.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from pathlib import Path

from hiermem import Memory, Message
from hiermem.stores.map import MapStore
from hiermem.testing import StoreConformance


class JsonLines:
    """An ordered map in memory, and a file with every change of it. One process may open it."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}
        self._file = path.open("a+b", buffering=0)
        if os.name == "posix":  # a new file's name must survive a power loss, too
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        self._file.seek(0)
        for line in self._file.read().splitlines(keepends=True):
            if line.endswith(b"\n"):  # or else the process died in this commit
                self._apply(json.loads(line))
                self._size += len(line)
        self._file.truncate(self._size)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None."""
        return [self._values.get(key) for key in keys]

    def scan(
        self, low: bytes, high: bytes, *, limit: int | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return the pairs from ``low`` to before ``high``, in order, at most ``limit``."""
        keys = self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]
        keys = keys[::-1] if reverse else keys
        return [(key, self._values[key]) for key in keys[:limit]]

    def write(self, batch: Mapping[bytes, bytes | None], *, durable: bool) -> None:
        """Append a batch as one line, and apply it; None deletes."""
        line = rest = _line(batch)
        try:
            while rest:  # on a full disk a part is written, then it raises
                rest = rest[self._file.write(rest) :]
            if durable:
                os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(self._size)  # nothing of it is left for the next write
            raise
        self._size += len(line)
        self._apply(json.loads(line))

    def scrub(self) -> None:
        """Write the file anew, without what was deleted."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(_line(self._values))
            file.flush()
            os.fsync(file.fileno())
        self.close()
        fresh.replace(self._path)
        self.__init__(self._path)  # type: ignore[misc]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _apply(self, written: dict[str, str | None]) -> None:
        for name, value in written.items():
            key = name.encode("latin-1")
            if value is not None:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value.encode("latin-1")
            elif self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]


def _line(batch: Mapping[bytes, bytes | None]) -> bytes:
    # Each byte is a character, so that English text can be read in the file.
    changes = {
        key.decode("latin-1"): value and value.decode("latin-1") for key, value in batch.items()
    }
    return json.dumps(changes, ensure_ascii=False).encode() + b"\n"


class TestJsonLines(StoreConformance):
    """Every condition of the contract."""

    async def open_store(self, path: Path) -> MapStore:
        """Open the store at ``path``."""
        return MapStore(JsonLines(path))


def main() -> int:
    """Show that a conversation survives in the file, then run the conformance suite."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.jsonl"
        with Memory(store=MapStore(JsonLines(path))) as memory:
            memory.session("pumps").append(Message.user("Pump 3 was set to 210 rpm."))
        print(f"{path.name}: {len(path.read_bytes().splitlines())} commits")
        with Memory(store=MapStore(JsonLines(path))) as memory:
            print(memory.session("pumps").messages()[0].content)
    sys.stdout.flush()
    options = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib")
    return subprocess.call([sys.executable, "-m", "pytest", __file__, *options])  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
