"""What a live context holds against what it costs, beside other ways of filling a prompt.

Feeds chats turn by turn (append, update, context) and prints for each policy and budget:

- gold: the share of the gold answers' words that stand in the context, of questions whose evidence
  was said; the mean of the chats' means over nine moments, from half of the chat to its end;
- lines shown, by quarter of the history, oldest first: the share of messages that stand raw or by a
  line, at three of those moments;
- fill: tokens over budget, and the least right after the front of the prompt changed, while the
  history is more than twice the budget;
- cost: tokens outside the front shared with the previous prompt, per new message token; and the
  bill, in which what is shared costs a tenth.

The rivals have the same duties: the newest turns stand verbatim, and a summary is made by the same
extractive method. They pay nothing for frames. No model is called.

    HIERMEM_DATA=path/to/data python benchmarks/frontier.py [locomo] [beam] [million]
        [--chats 0,1] [--budgets 4000,8000] [--set turns=4]
        [--no-rivals] [--no-afresh] [--until MESSAGES] [--svg FILE]

Without a corpus it runs LoCoMo and BEAM; ``--chats`` chooses from each by number. ``--set`` adds a
row for another ContextPolicy and may be given several times. ``--no-afresh`` leaves out
``sticky=False``, which takes most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from conversations import Chat, Question, beam, folder, locomo
from frontier_plot import draw
from survival import stems, units_of

from hiermem import AsyncMemory, ContextPolicy, ContextSelection, Message
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.salience import select
from hiermem.text.measure import body
from hiermem.tokens import default_counter
from hiermem.types import Unit

COUNT = default_counter().count
BUDGETS = (4_000, 8_000, 16_000, 32_000)
#: Messages of each corpus between two prompts.
STEPS = {"LoCoMo": 6, "BEAM": 2, "BEAM 1M": 2}
MOMENTS = 9
#: What a shared token costs beside one that is not.
CACHED = 0.1


@dataclass(frozen=True)
class Part:
    """One part of a prompt: what it is known by, its tokens, its text, the messages it shows."""

    key: tuple[object, ...]
    tokens: int
    text: str
    shows: tuple[int, ...] = ()


#: Gives a policy's prompt after so many messages.
Policy: TypeAlias = Callable[[int], Sequence[Part]]


@dataclass
class Tally:
    """Sums over the prompts of one policy at one budget in one chat."""

    budget: int
    before: Sequence[Part] = ()
    sent: int = 0
    total: int = 0
    new: int = 0
    fills: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    gold: list[float] = field(default_factory=list)
    quarters: list[list[float]] = field(default_factory=list)

    def add(self, parts: Sequence[Part], *, new: int, history: int) -> None:
        """Count one prompt."""
        same = 0
        for old, now in zip(self.before, parts, strict=False):
            if old.key != now.key:
                break
            same += 1
        tokens = sum(part.tokens for part in parts)
        assert tokens <= self.budget, (tokens, self.budget)
        self.sent += tokens - sum(part.tokens for part in parts[:same])
        self.total += tokens
        self.new += new
        if history > 2 * self.budget:
            self.fills.append(tokens / self.budget)
            if same < len(self.before):
                self.moved.append(tokens / self.budget)
        self.before = parts


class ChatTexts:
    """A chat as the rivals see it: the size and the text of every message."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.sizes = [COUNT(body(message)) + 4 for message in chat.messages]
        self.texts = [f"{each.name or each.role}: {body(each)}" for each in chat.messages]
        self.talk = all(message.role == "user" for message in chat.messages)

    def raw(self, start: int, done: int) -> list[Part]:
        """Return messages verbatim."""
        return [Part((at,), self.sizes[at], self.texts[at], (at,)) for at in range(start, done)]

    def newest(self, done: int, room: int) -> int:
        """Return where the newest messages begin that fit."""
        while done and self.sizes[done - 1] <= room:
            done -= 1
            room -= self.sizes[done]
        return done

    def floor(self, done: int, budget: int) -> int:
        """Return where the turns begin that have to stand verbatim."""
        starts = [
            at
            for at in range(done - 1, -1, -1)
            if (done - at) % 2 == 0 or not self.talk
            if self.talk or self.chat.messages[at].role == "user"
        ][:2]
        two = starts[-1] if starts else 0
        if sum(self.sizes[two:done]) <= budget // 3:
            return two
        return max(starts[0] if starts else 0, self.newest(done, budget))


def window(chat_texts: ChatTexts, budget: int) -> Policy:
    """Keep the newest messages that fit."""
    return lambda done: chat_texts.raw(chat_texts.newest(done, budget), done)


class Rolling:
    """A rolling summary of all that is older than the newest messages.

    With ``keep`` the newest messages that fit this share slide with each prompt, and what leaves
    them is folded in, 2,000 tokens at a time. Without, it is sticky: when the budget is reached,
    all but the newest turns is folded.
    """

    def __init__(
        self, chat_texts: ChatTexts, budget: int, share: float, keep: float | None = None
    ) -> None:
        self.chat_texts, self.budget, self.share, self.keep = chat_texts, budget, share, keep
        self.kept: tuple[Unit, ...] = ()
        self.text = ""
        self.start = 0

    def __call__(self, done: int) -> Sequence[Part]:
        """Return the prompt after so many messages."""
        sizes = self.chat_texts.sizes
        first = self.start
        if self.keep is not None:
            first = max(self.start, self.chat_texts.newest(done, int(self.keep * self.budget)))
            begin = self.start if sum(sizes[self.start : first]) < 2_000 and self.text else first
            if begin > self.start:
                self._fold(begin, int(self.share * self.budget))
        elif COUNT(self.text) + sum(sizes[self.start : done]) > self.budget:
            first = self.chat_texts.floor(done, self.budget)
            room = self.budget - sum(sizes[first:done])
            self._fold(first, min(room, int(self.share * self.budget)))
        shows = tuple({unit.index for unit in self.kept if unit.index is not None})
        text = self.text
        summary = [Part((text,), COUNT(text), text, shows)] if text else []
        return [*summary, *self.chat_texts.raw(first, done)]

    def _fold(self, stop: int, room: int) -> None:
        more = units_of(self.chat_texts.chat.messages[self.start : stop], self.start)
        made = select([*self.kept, *more], room, COUNT)
        self.kept, self.text, self.start = made.units, made.text, stop


def rivals(chat_texts: ChatTexts, budget: int) -> dict[str, Policy]:
    found: dict[str, Policy] = {"sliding window": window(chat_texts, budget)}
    found["rolling summary, sliding"] = Rolling(chat_texts, budget, 0.25, keep=0.7)
    for share in (0.25, 0.4, 0.5, 0.6):
        found[f"rolling summary, sticky, {share:g}"] = Rolling(chat_texts, budget, share)
    return found


def parts_of(selection: ContextSelection, chat_texts: ChatTexts) -> list[Part]:
    """Read a selection as a prompt's parts, without the lines of its frames."""
    found = []
    for block in selection.blocks:
        at = None if block.message is None else block.message.index
        if block.text:
            inner = block.text.split("\n", 2)[2].rpartition("\n")[0]
            found.append(Part((block.text,), block.tokens, inner))
        elif at is not None:
            found.append(Part((at,), block.tokens, chat_texts.texts[at]))
    return [replace(found[0], shows=selection.shown.messages), *found[1:]]


async def follow(
    chat: Chat,
    budgets: Sequence[int],
    policies: dict[str, ContextPolicy | None],
    *,
    with_rivals: bool,
    step: int,
) -> dict[tuple[str, int], Tally]:
    """Feed one chat and tally every policy at every budget; None is ``sticky=False``."""
    chat_texts = ChatTexts(chat)
    store = RecordStore(MemoryStore())
    memories = {
        name: AsyncMemory(store=store, context_policy=policy or ContextPolicy())
        for name, policy in policies.items()
    }
    feeder = AsyncMemory(store=store).session(chat.name)
    tallies: dict[tuple[str, int], Tally] = {}
    others = {b: rivals(chat_texts, b) if with_rivals else {} for b in budgets}
    words = [(max(q.evidence), w) for q in chat.questions if (w := wanted(chat, q))]
    half = len(chat.messages) / 2
    moments = [int(half + half * n / (MOMENTS - 1)) for n in range(MOMENTS)]
    looks = {moments[0], moments[MOMENTS // 2], moments[-1]}
    for begin in range(0, len(chat.messages), step):
        done = min(begin + step, len(chat.messages))
        await feeder.append(chat.messages[begin:done])
        await feeder.update()
        due = [moment for moment in moments if begin < moment <= done]
        for budget in budgets:
            prompts: dict[str, Sequence[Part]] = {}
            for name, memory in memories.items():
                selection = await memory.session(chat.name).context(
                    budget, view=name.replace(" ", "-"), sticky=policies[name] is not None
                )
                assert selection.coverage == 1.0
                prompts[name] = parts_of(selection, chat_texts)
            prompts |= {name: policy(done) for name, policy in others[budget].items()}
            for name, parts in prompts.items():
                tally = tallies.setdefault((name, budget), Tally(budget))
                tally.add(
                    parts,
                    new=sum(chat_texts.sizes[begin:done]),
                    history=sum(chat_texts.sizes[:done]),
                )
                for moment in due:
                    judge(tally, parts, done, words, look=moment in looks)
    return tallies


def wanted(chat: Chat, question: Question) -> frozenset[str]:
    """Return the words of an answer that its evidence holds."""
    said = " ".join(body(chat.messages[at]) for at in question.evidence)
    return stems(question.answer) & stems(said)


def judge(
    tally: Tally,
    parts: Sequence[Part],
    done: int,
    words: Sequence[tuple[int, frozenset[str]]],
    *,
    look: bool,
) -> None:
    """Note what stands in a prompt of the first ``done`` messages."""
    there = stems("\n".join(part.text for part in parts))
    shares = [len(wanted & there) / len(wanted) for last, wanted in words if last < done]
    if shares:
        tally.gold.append(fmean(shares))
    if look:
        there_at = {at for part in parts for at in part.shows}
        shown = [at in there_at for at in range(done)]
        tally.quarters.append([fmean(shown[done * n // 4 : done * (n + 1) // 4]) for n in range(4)])


def report(corpus: str, found: Sequence[dict[tuple[str, int], Tally]]) -> dict[str, Any]:
    """Print a corpus's table, means over its chats, and return it."""
    print(f"\n{corpus}, {len(found)} chats\n")
    print("| policy | budget | gold | cost | bill | fill | least | lines shown, by quarter |")
    print("|---|---|---|---|---|---|---|---|")
    rows: dict[str, Any] = {}
    for name, budget in sorted(found[0], key=lambda key: key[1]):
        tallies = [each[name, budget] for each in found]
        gold = mean(fmean(each.gold) for each in tallies if each.gold)
        sent, new = sum(each.sent for each in tallies), sum(each.new for each in tallies)
        cost = sent / new
        bill = (sent + CACHED * (sum(each.total for each in tallies) - sent)) / new
        fill = mean(fmean(each.fills) for each in tallies if each.fills)
        least = min((f for each in tallies for f in each.moved), default=float("nan"))
        quarters = [q for each in tallies for q in each.quarters]
        by_quarter = [fmean(column) for column in zip(*quarters, strict=True)] or [float("nan")]
        rows[f"{name}|{budget}"] = {"gold": gold, "cost": cost}
        print(
            f"| {name} | {budget:,} | {gold:.3f} | {cost:.2f} | {bill:.2f} | {fill:.2f} | "
            f"{least:.2f} | {' '.join(f'{share:.2f}' for share in by_quarter)} |",
            flush=True,
        )
    return rows


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else float("nan")


def million(data: Path, until: int | None) -> Iterator[Chat]:
    """Give the chat of a million tokens, for its cost: its questions are not asked."""
    chat = json.loads((data / "beam" / "beam_1m_3.json").read_text("utf-8"))["messages"]
    at, messages = datetime(2024, 3, 1, tzinfo=UTC), []
    for item in chat[:until]:
        if item.get("time_anchor"):
            at = datetime.strptime(item["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
        messages.append(Message(item["role"], item["content"], created_at=at))
    yield Chat("BEAM 1M", "beam_1m_3", messages, [])


def policy_of(text: str) -> ContextPolicy:
    return ContextPolicy(**{k: json.loads(v) for k, v in (s.split("=") for s in text.split(","))})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", metavar="corpus")
    parser.add_argument("--chats", default="")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--set", action="append", default=[], dest="more")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--no-afresh", action="store_true")
    parser.add_argument("--until", type=int)
    parser.add_argument("--svg", type=Path)
    asked = parser.parse_args()
    budgets = [int(each) for each in asked.budgets.split(",")]
    policies: dict[str, ContextPolicy | None] = {"hiermem": ContextPolicy()}
    policies |= {text: policy_of(text) for text in asked.more}
    if not (asked.no_rivals or asked.no_afresh):
        policies["hiermem, sticky=False"] = None
    data = folder()
    chosen = {int(each) for each in asked.chats.split(",") if each}
    drawn = {}
    for name in asked.corpora or ["locomo", "beam"]:
        chats = {"locomo": locomo, "beam": beam}[name](data) if name != "million" else None
        found, corpus = [], ""
        for number, chat in enumerate(chats or million(data, asked.until)):
            if chosen and number not in chosen:
                continue
            began, corpus = time.perf_counter(), chat.corpus
            found.append(
                await follow(
                    chat,
                    budgets,
                    policies,
                    with_rivals=not asked.no_rivals,
                    step=STEPS[chat.corpus],
                )
            )
            said = f"{chat.name}: {len(chat.messages)} messages"
            print(f"{said}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        drawn[corpus] = report(corpus, found)
    if asked.svg:
        asked.svg.write_text(draw(drawn, budgets), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
