"""Whether the score of the best hit tells questions with an answer from questions without one.

    HIERMEM_DATA=path/to/data python benchmarks/unanswerable.py

LoCoMo's adversarial questions ask one speaker for what the other one said. The table has the share
of the questions of each kind whose best hit scores less than a bound, and at the end the area under
the curve: how often a question with an answer scores higher than one without.
"""

from __future__ import annotations

import numpy as np
from conversations import ADVERSARIAL, folder, locomo

from hiermem import Memory

BOUNDS = (0.2, 0.3, 0.4, 0.5)


def main() -> None:
    """Search for every question of LoCoMo and print the table."""
    best: dict[bool, list[float]] = {True: [], False: []}
    for chat in locomo(folder()):
        with Memory.open(":memory:") as memory:
            session = memory.session(chat.name)
            session.append(chat.messages)
            for question in chat.questions:
                hits = session.search(question.text, 1)
                score = hits[0].score if hits else 0.0
                best[question.kind != ADVERSARIAL].append(score)
    present, absent = (np.array(best[answered]) for answered in (True, False))
    print("best hit below", *BOUNDS)
    for name, scores in (("with an answer", present), ("without", absent)):
        print(f"{name} ({len(scores)})", *(f"{(scores < bound).mean():.2f}" for bound in BOUNDS))
    higher = (present[:, None] > absent[None]).mean() + 0.5 * (
        present[:, None] == absent[None]
    ).mean()
    print(f"area under the curve {higher:.2f}")


if __name__ == "__main__":
    main()
