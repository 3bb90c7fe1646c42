"""The workers that rest: they get no sums of dense gradients while they have no samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.jobs import JobSpec
from esd.services.domain.worker_set import WorkerSet

_FOR_EVER = 2**62  # iterations


class Resting:
    """Decides the role of every worker, from the workloads of the iterations of one epoch, in order.

    A return costs as many times the bytes of a sum as the optimizer keeps values for each parameter, with the parameter
    itself. How long a worker will have no samples is not known, so it rests once it has had none for as many
    iterations: then a pause costs its link at most twice as much as with that knowledge (ski rental). It returns in the
    first iteration that gives it samples. A worker with a fixed workload of 0 never gets any, and rests at once.

    No worker rests in a job whose sums every worker needs: with other ways to sum than `server`, which keep errors of
    low ranks or make averages, and with the gradients of replicated rows.

    Args:
        job: of the workers.
        members: the workers of the epoch, whose copies are all the same at its beginning.
        bandwidths: of the links, [n]: the fastest of the workers that can gives.
        allowed: whether all members may rest.

    Attributes:
        return_sums: the bytes of a return, relative to the bytes of a sum of dense gradients; 0: no worker rests.
    """

    def __init__(self, job: JobSpec, members: WorkerSet, bandwidths: Sequence[float], *, allowed: bool) -> None:
        rests = allowed and type(job.dense_sum) is ServerSum and not job.sync.pinned_rows
        self._members = np.array(list(members), np.int64)
        self._present = np.isin(np.arange(len(bandwidths)), self._members)
        values = job.model.dense_optimizer.values_per_parameter
        self.return_sums = values if rests else 0
        self._patience = values if rests else _FOR_EVER
        self._bandwidths = np.asarray(bandwidths, np.float64)
        fixed = job.workload_limits is None and not job.sites
        never = np.array(job.workloads) == 0 if fixed else np.zeros(len(bandwidths), np.bool_)
        self._idle = np.where(never & rests, self._patience, 0)  # iterations in a row without samples
        self._behind = np.zeros(len(bandwidths), np.bool_)  # whose copies are old

    @property
    def keeper(self) -> int:
        """The slot of the first member whose copy is the newest: it stores the parameters."""
        return int(self._members[~self._behind[self._members]][0])

    def plan(self, workloads: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Returns the roles of all workers in the next iteration, uint32 [n] of DenseRole; only members rest.

        Args:
            workloads: the samples of each worker, int64 [n], of which one at least has some.
        """
        works = workloads > 0
        returns = self._behind & works
        rests = ~works & self._present & (self._idle >= self._patience)
        roles = np.where(rests, DenseRole.RESTS, DenseRole.TRAINS)
        if returns.any():
            roles = np.where(rests, DenseRole.RESTS_ON, DenseRole.TRAINS_ON)
            roles[returns] = DenseRole.RETURNS
            roles[self._giver(rests)] = DenseRole.GIVES
        self._idle = np.where(works, 0, self._idle + 1)
        self._behind = rests
        return roles.astype(np.uint32)

    def _giver(self, rests: NDArray[np.bool_]) -> int:
        """Returns a worker with the newest copy that does not begin to rest, such as one that just had samples."""
        able = self._members[~(self._behind | rests)[self._members]]
        return int(able[np.argmax(self._bandwidths[able])])
