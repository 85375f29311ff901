"""What is read of a state without unpacking it is what unpacking gives."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hiermem.config import HierarchyConfig
from hiermem.tree import fold
from hiermem.tree.fold import SessionState, has_open_window
from hiermem.tree.turns import Arrival

START = datetime(1969, 12, 31, 23, tzinfo=UTC)
NAMES = ("main", '"]]', "]],1,2,true,false]]", '[[1]],0,0,false,false]]"]', "\\")
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 3000), st.sampled_from("mmmmft")), max_size=40
)


@given(STEPS)
def test_an_open_window_is_seen_without_unpacking_the_state(steps):
    """Broken, an append would leave a window that no worker closes when its time is over."""
    config, state = HierarchyConfig.by_tokens(max_messages=4), SessionState()
    for place, (thread, size, kind) in enumerate(steps):
        at = START + timedelta(minutes=place)
        if kind == "m":
            calls = ("c",) if size % 5 == 0 else ()
            role = "assistant" if size % 2 else "user"
            arrival = Arrival(state.next_index, thread, role, size=size, tokens=size, at=at,
                              calls=calls if role == "assistant" else ())  # fmt: skip
            state = fold.arrive(state, [arrival], config).state
        elif kind == "f":
            state = fold.flush(state, config).state
        else:
            state = fold.tick(state, at + timedelta(days=1), config).state
        assert has_open_window(state.to_json()) == bool(state.open_windows())
    assert not has_open_window("")
