"""The context window manager in ordinary code: select a context, search it, open a summary.

The recipe of the published plan (``strategy="layered"``) gives a share of the budget to each level;
the default, "cut", leaves no message out. The example runs offline.

    python examples/manager.py
"""

from __future__ import annotations

from hiermem import ContextBudget, Memory, Message


def main() -> None:
    """Fill a session, then ask the manager for contexts and for what a summary was made from."""
    with Memory.open(":memory:") as memory:
        session = memory.session("pump-house", title="Pump house")
        session.append(
            Message.user(f"Reading {n}: pump {n % 7} ran at {2_900 + n} rpm, {40 + n % 9} C. " * 4)
            for n in range(120)
        )
        session.update()

        manager = memory.manager
        budget = ContextBudget(reserve_for_messages=1_000, available_for_summaries=1_500)
        for strategy in ("layered", "cut"):
            selection = manager.select_optimal_context("pump-house", budget, strategy=strategy)
            levels = {level: len(shown) for level, shown in sorted(selection.summaries.items())}
            print(
                f"{strategy}: {selection.total_tokens:,} of {selection.max_tokens:,} tokens, "
                f"{len(selection.recent_messages)} messages, summaries by level {levels}, "
                f"coverage {selection.coverage:.0%}"
            )

        found = manager.semantic_search("pump-house", "reading 33 of pump 5", budget=600)
        print(
            f"found: messages {[each.index for each in found.recall]}, {found.total_tokens} tokens"
        )

        parts = manager.expand("L1.0", session_id="pump-house")
        print(f"L1.0 was made from {len(parts)} messages")


if __name__ == "__main__":
    main()
