"""An epoch of a job: a set of workers that trains without a change, from its first iteration on, and their plans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from esd.services.domain.errors import StaleEpoch
from esd.services.domain.worker_set import WorkerSet


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """One worker's plan of one iteration.

    Attributes:
        message: the plan, encoded.
        samples: its number of samples, m.
        trace_id: of the iteration's trace; empty unless it is traced.
    """

    message: bytes
    samples: int
    trace_id: str = ""


class PlanLog:
    """The published plans of an epoch. Each is kept until its worker has confirmed it.

    Args:
        members: the slots whose workers train in the epoch. Plans of the other slots are not kept, since no worker
            would confirm them.
        first: the first iteration of the epoch.

    Attributes:
        planned: the number of planned iterations of the stream, which is also the number of the next iteration.
        checkpoint_flushes: the flush plans, by slot, of every checkpoint that is not committed; the key is the
            iteration before which the workers carry them out.
        final_flush: the flush plan of each slot at the end of the stream; empty until it is published.
    """

    def __init__(self, members: WorkerSet, first: int = 0) -> None:
        self._plans: dict[int, dict[int, PublishedPlan]] = {slot: {} for slot in members}
        self.planned = first
        self.checkpoint_flushes: dict[int, Sequence[bytes]] = {}
        self.final_flush: Sequence[bytes] = ()

    def publish(self, plans: Sequence[PublishedPlan]) -> None:
        """Adds the next iteration: one plan for each slot of the job, in slot order."""
        for slot, unconfirmed in self._plans.items():
            unconfirmed[self.planned] = plans[slot]
        self.planned += 1

    def get(self, slot: int, iteration: int) -> PublishedPlan:
        """Returns a published plan that is not confirmed. Raises KeyError if there is none."""
        return self._plans[slot][iteration]

    def confirm(self, slot: int, iteration: int) -> None:
        """Forgets a plan that its worker has carried out."""
        del self._plans[slot][iteration]

    def forget_flushes(self, iteration: int) -> None:
        """Forgets the flush plans of the checkpoints up to this one, which is committed."""
        for checkpoint in [each for each in self.checkpoint_flushes if each <= iteration]:
            del self.checkpoint_flushes[checkpoint]


@dataclass(slots=True)
class Epoch:
    """An epoch, from its beginning until its members change or the job is over.

    Attributes:
        number: rises from epoch to epoch. All plans and requests carry it, so that servers refuse an old epoch's.
        first: the first iteration.
        members: the slots whose workers train.
        plans: the plans of the members.
        reloads: the encoded content of each slot's cache at the beginning; empty when all caches begin empty.
        group_keys: the members' key-value store for setting up their all-reduce group.
        names: the name of each slot's worker, set when the epoch begins; empty for a slot without a member.
        trained: the first iteration that not all members have confirmed.
        cause: why the epoch ended early; empty while it goes on.
        ended: when it ended, on the monotonic clock.
        idle: whether it ended while the workers had done everything and the stream paused.
    """

    number: int
    first: int
    members: WorkerSet
    plans: PlanLog
    reloads: Sequence[bytes] = ()
    group_keys: dict[str, bytes] = field(default_factory=dict)
    names: Sequence[str] = field(init=False, default=())
    trained: int = field(init=False)
    cause: str = field(init=False, default="")
    ended: float = field(init=False, default=0.0)
    idle: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.trained = self.first

    @property
    def unconfirmed(self) -> int:
        """The number of planned iterations that some member has not confirmed."""
        return self.plans.planned - self.trained

    @property
    def over(self) -> bool:
        """Whether the epoch has ended early."""
        return bool(self.cause)

    def end(self, cause: str, *, idle: bool = False) -> None:
        """Ends the epoch. Every wait in it fails with the cause."""
        self.cause = cause
        self.idle = idle
        self.ended = time.monotonic()

    def raise_if_over(self) -> None:
        """Raises StaleEpoch with the cause if the epoch has ended early."""
        if self.over:
            raise StaleEpoch(f"epoch {self.number} is over: {self.cause}")

    def raise_unless_current(self, number: int) -> None:
        """Raises StaleEpoch if this epoch has ended or `number` is another one."""
        self.raise_if_over()
        if number != self.number:
            raise StaleEpoch(f"epoch {number} is not the present one: the job is in epoch {self.number}")
