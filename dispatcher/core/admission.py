"""Admission: the ids of a batch that are trained, and the others, of which a sample reads the initial row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays
from esd.native.engine import AdmittedIds
from esd.native.engines import engine_of
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class AdmittedBatch:
    """A batch with its admitted ids alone, as the engine and the mechanism see it.

    Attributes:
        samples: the samples; an id that is not admitted is missing from its feature's list.
        ids: the same division, for the plans.
        admitted: number of ids that the batch admits to the tables.
        initial: number of distinct ids that are not admitted.
        error: share of new ids that are admitted at once, since other ids count for them
            (`esd.native.engine.Admission`).
    """

    samples: SampleBatch
    ids: AdmittedIds
    admitted: int
    initial: int
    error: float


class Admission:
    """Counts in how many iterations each id occurs, and admits an id in the N-th, with N of its table.

    The counts depend on the samples alone: not on workers, caches or plans. `esd.native.engine.Admission` has the
    method and its error.
    """

    def __init__(self, job: JobSpec) -> None:
        """Starts without any count. The job has `admit_afters`."""
        seed = job.table.seed  # which stays when a job goes on
        self._sketch = engine_of(job.workers).Admission(job.admit_afters, seed)

    def admit(self, batch: SampleBatch) -> AdmittedBatch:
        """Counts an iteration with this batch, and returns the batch with its admitted ids."""
        ids = self._sketch.count(*batch.id_columns)
        return AdmittedBatch(_with(batch, ids), ids, ids.newly, len(ids.initial_ids), self._sketch.error)

    def expect(self, batch: SampleBatch) -> SampleBatch:
        """Returns a later batch with the ids that would be admitted if it came next."""
        return _with(batch, self._sketch.expect(*batch.id_columns))

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the counts, which have 64 MiB."""
        return {"words": self._sketch.copied_words(), "full": self._sketch.full.copy()}

    def load(self, saved: Arrays) -> None:
        """Restores the counts of a job with the same `admit_afters`."""
        self._sketch.words[:] = saved["words"]
        self._sketch.full[:] = saved["full"]


def _with(batch: SampleBatch, ids: AdmittedIds) -> SampleBatch:
    return replace(batch, ids=ids.ids, lengths=ids.lengths)
