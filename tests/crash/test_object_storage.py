"""Exporters of a bank to object storage that are killed: what lies there is one whole revision."""

import asyncio
import json
import os
import sys
from pathlib import Path
from random import Random

import pytest
from object_servers import RULES, URL, make_revisions, opened

from hiermem import AsyncMemory, FileError
from hiermem.stores.memory import MemoryStore

sys.path.insert(0, str(Path(__file__).parent))
from test_sigkill import kill, nursery  # noqa: F401 - a fixture

pytest.importorskip("obstore", reason="obstore is in the extra object-store")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
REVISIONS, KILLS = 12, 60


async def texts(space) -> dict[str, str]:
    return {name: await space.read(name) for name in await space.files()}


@pytest.mark.parametrize(
    "server",
    [
        "small",
        pytest.param("moto", marks=pytest.mark.thorough),
        pytest.param("seaweedfs", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.thorough
async def test_a_killed_exporter_leaves_one_whole_revision(nursery, tmp_path, share, server):  # noqa: F811
    """SIGKILL at random moments, also while another one exports; the next one goes on."""
    await make_revisions(tmp_path, REVISIONS)
    states = {}
    for number in range(1, REVISIONS + 1):
        async with AsyncMemory.open(tmp_path / f"{number}.db") as memory:
            states[number] = await texts(memory.space("x"))
    luck, done, seen = Random(11), 0, set()
    with opened(server, tmp_path / "data") as options:
        for each in range(share(KILLS, 5)):
            url = f"{URL}/{each // 10}"
            place = {"url": url, "options": options, "revisions": REVISIONS}
            (tmp_path / "place.json").write_text(json.dumps(place))
            done = 0 if each % 10 == 0 else done
            pid = nursery.begin("export", tmp_path, max(1, done))
            for _ in range(luck.randint(0, 3)):
                line = nursery.line(60)
                assert line is not None, "the child hangs"
                if not line.startswith("exported"):
                    break
                done = int(line.split()[1])
            await asyncio.sleep(luck.random() * 0.08)
            kill(pid)
            for line in nursery.rest():
                done = int(line.split()[1]) if line.startswith("exported") else done
            other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
            try:
                await other.load(url, options=options)
            except FileError:
                assert done == 0, "an exported revision is gone"
                continue
            held = await texts(other)
            assert held in states.values(), "files of two revisions"
            number = next(number for number, state in states.items() if state == held)
            assert number >= done, "an older revision is there than was exported"
            seen.add(number)
        async with AsyncMemory.open(tmp_path / f"{REVISIONS}.db") as memory:
            await memory.space("x").export(url, options=options)
            assert (await memory.space("x").load(url, options=options)).revision is None
        other = AsyncMemory(store=MemoryStore()).space("x", rules=RULES)
        await other.load(url, options=options)
        assert await texts(other) == states[REVISIONS]
    assert len(seen) > 1, "it was killed in the same place each time"
