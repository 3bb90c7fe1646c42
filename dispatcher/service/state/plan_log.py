"""Published plans, kept until the worker they are for has confirmed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protos import dispatcher_pb2 as pb


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """One worker's plan of one iteration, ready to be sent, and its number of samples m."""

    message: pb.PlanMessage
    samples: int


class PlanLog:
    """The plans of n workers by iteration.

    Args:
        workers: n.
        first: the first iteration.

    Attributes:
        iterations: the iteration that is published next.
        cuts: the flush plans of each checkpoint that is not complete, by the iteration it comes before.
        flush: the flush plan of each worker, once published.
    """

    def __init__(self, workers: int, first: int = 0) -> None:
        self._plans: list[dict[int, PublishedPlan]] = [{} for _ in range(workers)]
        self.iterations = first
        self.cuts: dict[int, Sequence[pb.PlanMessage]] = {}
        self.flush: Sequence[pb.PlanMessage] = ()

    def publish(self, plans: Sequence[PublishedPlan]) -> None:
        """Adds the next iteration: one plan per worker, in slot order."""
        for kept, plan in zip(self._plans, plans, strict=True):
            kept[self.iterations] = plan
        self.iterations += 1

    def get(self, slot: int, iteration: int) -> PublishedPlan:
        """A plan that is published and not confirmed."""
        return self._plans[slot][iteration]

    def confirm(self, slot: int, iteration: int) -> None:
        """Forgets a plan that its worker has carried out."""
        del self._plans[slot][iteration]
