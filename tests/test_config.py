"""Which settings are refused when they are made, each with an error of the library."""

from datetime import timedelta

import pytest

from hiermem.config import HierarchyConfig, LevelConfig
from hiermem.errors import ConfigError


@pytest.mark.parametrize("preset", [HierarchyConfig.by_tokens, HierarchyConfig.by_chars])
def test_p8_no_more_than_200_tokens_may_be_kept_word_for_word(preset):
    assert preset(verbatim_tokens=200).verbatim_tokens == 200
    for over in (201, 10**6):
        with pytest.raises(ConfigError, match="verbatim_tokens"):
            preset(verbatim_tokens=over)
    # Nor does a higher threshold make room for a higher floor.
    levels = (LevelConfig(target_ratio=0.5, style="detailed", floor=5000),)
    high = {"levels": levels, "verbatim_tokens": 5000}
    for make, wrong in (
        (preset, {"verbatim_tokens": 0}),
        (HierarchyConfig.by_tokens, {"levels": levels}),
        (HierarchyConfig.by_tokens, high),
    ):
        with pytest.raises(ConfigError):
            make(**wrong)


@pytest.mark.parametrize("more", [{}, {"wiggle": 0.1}, {"group_chars": 500}])
def test_no_levels_at_all_are_refused_in_the_librarys_words(more):
    with pytest.raises(ConfigError, match="levels"):
        HierarchyConfig.by_chars(levels=(), **more)


def test_a_silence_can_close_a_window_whatever_its_target():
    """A window never holds more than its target for long, so a higher bound means "never"."""
    assert HierarchyConfig.by_chars().min_flush == 3000
    assert HierarchyConfig.by_chars(window_chars=4_000).min_flush == 2000
    assert HierarchyConfig.by_chars(window_chars=60_000).min_flush == 3000
    assert HierarchyConfig.by_chars(window_chars=4_000, min_flush_chars=4_000).min_flush == 4_000
    for wrong in (
        lambda: HierarchyConfig.by_chars(window_chars=4_000, min_flush_chars=4_001),
        lambda: HierarchyConfig.by_tokens(target=100, min_flush=101),
    ):
        with pytest.raises(ConfigError, match=r"min_flush .* is above target"):
            wrong()


@pytest.mark.parametrize("name", ["max_age", "flush_after"])
def test_a_number_that_was_meant_in_milliseconds_is_asked_about(name):
    """1,200,000 seconds are two weeks: no silence would ever close a window."""
    for preset in (HierarchyConfig.by_tokens, HierarchyConfig.by_chars):
        with pytest.raises(
            ConfigError, match=rf"{name} is 1,200,000 seconds.*milliseconds=1200000"
        ):
            preset(**{name: 1_200_000})
        assert getattr(preset(**{name: 604_800}), name) == timedelta(weeks=1)
        long = preset(**{name: timedelta(days=30)})
        assert HierarchyConfig.from_json(long.to_json()) == long
