"""One worker's cache as the engine mirrors it, in plain Python. Policies: ESD paper, sections 8.1 and 8.2."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction

MAX_FREQUENCY = 1023
MOST_TRAININGS = 16  # of policy "reuse"
GRACE = 10  # iterations


@dataclass
class Copy:
    """A cached copy of a row in one worker's cache."""

    slot: int
    size: int
    frequency: int = 0
    mark: int = 0
    outdated: bool = False
    arrival: tuple[int, int, int] = (0, 0, 0)  # at its place in the policy's order: iteration, step, id
    last_use: int = -1
    hot: bool = False
    trainings: int = 0
    pinned: bool = False  # it may not leave


class Cache:
    """One worker's cache: copies by id, and the policy that orders them."""

    def __init__(self, capacity: int, policy: str) -> None:
        self.capacity = capacity
        self.policy = policy
        self.copies: dict[int, Copy] = {}
        self.slots: Counter[int] = Counter()  # by table, those that were ever used
        self.vacant: dict[int, list[int]] = defaultdict(list)  # by table, slots without a copy
        self.target = 1

    def order(self, copy: Copy, now: int) -> tuple:
        """The copy with the lowest key leaves first."""
        if self.policy == "reuse":
            reuse = Fraction(copy.trainings, now - copy.arrival[0] + GRACE)
            return (False, copy.arrival) if copy.outdated else (True, reuse, copy.trainings, copy.arrival)
        if self.policy == "lru":
            return copy.arrival
        if self.policy == "lfu":
            return (copy.frequency, copy.arrival)
        if self.policy == "static":
            return (copy.hot, copy.arrival)
        if self.policy == "emark-size":
            return (not copy.outdated, copy.mark, Fraction(copy.frequency, copy.size), -copy.size, copy.arrival)
        return (not copy.outdated, copy.mark, copy.frequency, copy.arrival)

    def victim(self, now: int) -> int:
        """The id that leaves next; its copy is not used by iteration `now`."""
        may_leave = {x: copy for x, copy in self.copies.items() if copy.last_use != now and not copy.pinned}
        lowest = all(copy.mark == self.target and not copy.outdated for copy in may_leave.values())
        if self.policy.startswith("emark") and lowest:
            self.target += 1
        return min(may_leave, key=lambda x: self.order(may_leave[x], now))

    def use(self, x: int, now: int, *, hot: bool, trainings: int, step: int = 2) -> None:
        copy = self.copies[x]
        copy.frequency = min(copy.frequency + 1, MAX_FREQUENCY)
        copy.mark = self.target
        copy.outdated = False
        copy.hot = hot
        copy.trainings = min(trainings, MOST_TRAININGS)
        copy.arrival = (now, step, x)

    def outdate(self, x: int, now: int, *, by_flush: bool = False) -> None:
        self.copies[x].outdated = True
        if self.policy.startswith("emark") or self.policy == "reuse":
            self.copies[x].arrival = (now, 0 if by_flush else 1, x)
