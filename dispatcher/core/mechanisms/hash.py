"""Hash: samples go to workers by the value of one field, independent of caches and links. A strong baseline."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays
from esd.dispatcher.core.mechanisms.draws import content_order
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.native import solver
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import HashOptions

_PROFILED_BATCHES = 16
_PROFILED_SAMPLES = 16_384  # ends the profile earlier with large batches, so that it does not delay decisions


class Hash:
    """Sends samples with the same value in one field to the same worker, as far as its workload allows.

    The value of a field of lists is the first id; samples with an empty list share a value as well. Rendezvous hashing
    selects the worker, which stays the same from iteration to iteration. The job names the field, or the mechanism
    chooses the field with the least cost on a profile, the first batches of the stream. It chooses at the first batch,
    and again whenever the profile has doubled.
    """

    lookahead = 0

    def __init__(self, job: JobSpec) -> None:
        """Reads the number of the field from the job's `HashOptions`; None makes the mechanism choose it."""
        given = cast(HashOptions, job.options).hash_field
        self._given = given is not None
        self._field = given or 0
        self._profile: list[tuple[NDArray[np.uint64], NDArray[np.int32]]] | None = []
        self._next = 0  # the iteration that is profiled next
        if self._given or job.fields == 1:
            self._profile = None

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Gives each sample to the worker that rendezvous hashing ranks highest among the workers with room."""
        order = content_order(problem.batch)  # decides which samples of one value get the room
        values = problem.batch.first_ids
        if self._profile is not None and problem.iteration >= self._next:  # balancing assigns a batch several times
            self._next = problem.iteration + 1
            self._choose(values[order], problem)
        workers = np.empty(len(order), np.int32)
        workers[order] = solver.assign_by_value(values[order, self._field], problem.capacities)
        return Assignment(workers)

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the chosen field, and the profile until it is complete, for `load`."""
        if self._given:
            return {}
        saved = {"field": np.array(self._field), "next": np.array(self._next)}
        for number, (values, capacities) in enumerate(self._profile or []):
            saved |= {f"values_{number}": values, f"capacities_{number}": capacities}
        return saved | {"complete": np.array(self._profile is None)}

    def load(self, saved: Arrays) -> None:
        """Restores the chosen field and the profile; a field set by `--hash-field` takes precedence."""
        if self._given:
            return
        self._field, self._next = int(saved["field"]), int(saved["next"])
        batches = sum(name.startswith("values_") for name in saved)
        profile = [(saved[f"values_{number}"], saved[f"capacities_{number}"]) for number in range(batches)]
        self._profile = None if saved["complete"] else profile

    def _choose(self, values: NDArray[np.uint64], problem: DispatchInput) -> None:
        profile = self._profile or []
        profile.append((values, problem.capacities))
        samples = sum(len(ids) for ids, _ in profile)
        complete = len(profile) == _PROFILED_BATCHES or samples >= _PROFILED_SAMPLES
        if complete or len(profile).bit_count() == 1:
            ids = np.concatenate([ids for ids, _ in profile])
            costs = solver.profile_fields(ids, np.stack([room for _, room in profile]), problem.link_costs)
            self._field = int(costs.argmin())
        self._profile = None if complete else profile
