"""The latest plans of a job, which its observers read: bounded in bytes, one copy for all observers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.watched import PlanStage


@dataclass(frozen=True, slots=True)
class KeptPlans:
    """Plans of all workers of an epoch that belong together, as they were published.

    Attributes:
        epoch: the epoch.
        iteration: the iteration; of a flush, the number of iterations before it.
        stage: the kind of the plans.
        workers: the name of each slot's worker; empty for a slot without a member.
        messages: the encoded plan of each slot.
    """

    epoch: int
    iteration: int
    stage: PlanStage
    workers: Sequence[str]
    messages: Sequence[bytes]

    @property
    def position(self) -> tuple[int, int, int]:
        """The place in the order of publication, in which positions rise."""
        return self.epoch, self.iteration, self.stage.value

    @property
    def size(self) -> int:
        """The length of the plans, in bytes."""
        return sum(map(len, self.messages))


class PlanHistory:
    """The latest plans of a job, numbered as they are published.

    An observer that does not read holds no plan: it has a number, and loses the plans that the history drops.

    Args:
        most_bytes: the largest length of all plans; the latest plans stay, however long they are.
        variable: the setting of this length, for errors.

    Attributes:
        end: the number of the next plans.
        size: the length of all plans, in bytes.
    """

    def __init__(self, most_bytes: int, variable: str) -> None:
        self.end = 0
        self.size = 0
        self._most_bytes = most_bytes
        self._variable = variable
        self._kept: dict[int, KeptPlans] = {}
        self._first = 0  # number of the oldest kept plans

    @property
    def latest(self) -> KeptPlans | None:
        """The latest plans of an iteration that are kept."""
        kept = (self._kept[number] for number in range(self.end - 1, self._first - 1, -1))
        return next((each for each in kept if each.stage is PlanStage.ITERATION), None)

    def add(self, plans: KeptPlans) -> None:
        """Adds plans that are published now, and drops the oldest ones beyond the largest length."""
        self._kept[self.end] = plans
        self.end += 1
        self.size += plans.size
        while self.size > self._most_bytes and len(self._kept) > 1:
            self.size -= self._kept.pop(self._first).size
            self._first += 1

    def get(self, number: int) -> KeptPlans:
        """Returns plans by their number, which must be below `end`.

        Raises:
            FailedPrecondition: the plans were dropped.
        """
        if number < self._first:
            oldest = self._kept[self._first]
            raise FailedPrecondition(
                f"the observer is too slow: {self._first - number} plans that it has not read are dropped, the oldest "
                f"kept are of {_name(oldest.position)}; watch from there, read faster, or raise {self._variable} (now "
                f"{self._most_bytes} bytes)"
            )
        return self._kept[number]

    def find(self, epoch: int, iteration: int) -> int:
        """Returns the number of the first plans of an iteration of an epoch, or of the first plans after it.

        Raises:
            FailedPrecondition: these plans were dropped, or published by an earlier dispatcher.
        """
        wanted = (epoch, iteration, 0)
        if self._kept and wanted < (oldest := self._kept[self._first].position) and wanted[:2] != oldest[:2]:
            raise FailedPrecondition(
                f"the plans of {_name(wanted)} are not kept: they were dropped, or an earlier dispatcher published "
                f"them. The oldest are of {_name(oldest)}; {self._variable} is {self._most_bytes} bytes"
            )
        numbers = range(self._first, self.end)
        return next((number for number in numbers if self._kept[number].position >= wanted), self.end)


def _name(position: tuple[int, int, int]) -> str:
    epoch, iteration, _ = position
    return f"iteration {iteration} of epoch {epoch}"
