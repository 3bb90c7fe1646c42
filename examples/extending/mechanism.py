"""A dispatch mechanism of one's own: samples go by the value of one field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from esd.dispatcher.core.mechanisms import Assignment, DispatchInput
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import mix64
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import MechanismOptions


@dataclass(frozen=True, slots=True)
class ByFieldOptions(MechanismOptions):
    """The choice of a job: the options with their defaults and their checks.

    Attributes:
        by_field: number of the field that decides, 0 for the first.
    """

    name: ClassVar[str] = "by-field"
    by_field: int = 0

    def check_features(self, features: int) -> None:
        """Refuses a field that samples do not have."""
        if not 0 <= self.by_field < features:
            raise InvalidArgument(f"by_field is {self.by_field}, it must be in 0..{features - 1} (--by-field)")


class ByField:
    """Trains samples that have the same value in one field at the same worker, as far as workloads allow.

    A value's hash does not change, so that it stays about where it was in the iteration before.
    """

    lookahead = 0  # it looks at no batch but the one to assign

    def __init__(self, job: JobSpec) -> None:
        """A mechanism is built from the job, whose options it may read."""
        self._field = cast(ByFieldOptions, job.options).by_field

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Sorts the samples by the hash, and gives the first capacities[0] of them to worker 0, and so on."""
        order = np.argsort(mix64(problem.batch.first_ids[:, self._field]), kind="stable")
        workers = np.empty(len(order), np.int32)
        workers[order] = np.repeat(np.arange(len(problem.capacities), dtype=np.int32), problem.capacities)
        return Assignment(workers)
