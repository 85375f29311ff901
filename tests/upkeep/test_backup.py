"""A backup that was made is named by every later erasure, whatever became of others."""

import asyncio
from functools import partial

from stand_ins import START

from hiermem import AsyncMemory, Message, UsageError


async def test_of_two_backups_to_one_place_the_one_that_was_made_is_named(tmp_path):
    """Broken, an erasure hides a copy that holds what was erased."""
    path, place = tmp_path / "a.db", tmp_path / "copy.db"
    # Both are made at the same instant, which a coarse clock makes of two near ones.
    opened = partial(AsyncMemory.open, path, clock=lambda: START)
    async with opened() as one, opened() as other:
        await one.session("s").append(Message.user("The ferry leaves at 14:20."))
        ended = await asyncio.gather(one.backup(place), other.backup(place), return_exceptions=True)
        assert sorted(isinstance(each, UsageError) for each in ended) == [False, True]
        receipt = await one.session("s").erase([0])
        assert [copy.place for copy in receipt.copies] == [str(place)]
