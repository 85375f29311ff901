"""What failed in a way that may pass is tried again; anything else is raised at once."""

import asyncio

import pytest

from hiermem.calls.retry import backing_off


class PassingError(Exception):
    pass


@pytest.mark.parametrize("failures", range(6))
async def test_a_call_is_made_until_it_succeeds_or_its_tries_are_over(failures: int) -> None:
    made, slept = [], []

    async def call() -> str:
        made.append(len(made))
        if len(made) <= failures:
            raise PassingError(len(made))
        return "done"

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    work = backing_off(
        call, tries=4, pauses=(1.0, 2.5),
        passing=lambda error: isinstance(error, PassingError), sleep=sleep,
    )  # fmt: skip
    if failures < 4:
        assert await work == "done"
    else:
        with pytest.raises(PassingError, match="4"):
            await work
    assert len(made) == min(failures + 1, 4)
    assert len(slept) == len(made) - 1
    assert all(0 <= pause <= most for pause, most in zip(slept, (1.0, 2.0, 2.5), strict=False))


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
async def test_what_will_not_pass_is_raised_at_once(error: type[BaseException]) -> None:
    made = []

    async def call() -> None:
        made.append(1)
        raise PassingError if len(made) == 1 else error

    async def sleep(_: float) -> None: ...

    with pytest.raises(error):
        await backing_off(
            call, tries=9, pauses=(0.0, 0.0),
            passing=lambda each: isinstance(each, PassingError), sleep=sleep,
        )  # fmt: skip
    assert len(made) == 2
