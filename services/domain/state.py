"""What a dispatcher tells about its job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.domain.jobs import JobSpec
from services.domain.reports import PhaseTimes, TransferCounts


class JobPhase(Enum):
    """The life of a job; FAILED may follow any phase but FINISHED."""

    WAITING_FOR_WORKERS = "waiting for workers"
    RUNNING = "running"
    FLUSHING = "flushing"
    FINISHED = "finished"
    FAILED = "failed"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker of the job; transfers and phases are totals over its confirmed iterations.

    Attributes:
        bandwidth: bytes per second of its link, as registered.
        measured_bandwidth: as it reports, smoothed (weight 0.2 for the newest); 0 before the first measurement.
        workload: m_j, its samples in the latest planned iteration.
        late_iterations: that it held up for much longer than usual, since this dispatcher took the job up.
    """

    worker: str
    slot: int
    bandwidth: float
    cache_rows: int
    iterations: int
    transfers: TransferCounts
    phases: PhaseTimes
    seconds_since_heartbeat: float
    address: str
    measured_bandwidth: float = 0.0
    workload: int = 0
    late_iterations: int = 0


@dataclass(frozen=True, slots=True)
class ShadowCost:
    """What the first `iterations` of the stream would have cost under another mechanism, with caches of its own."""

    mechanism: str
    iterations: int
    cost_seconds: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """One epoch that ended early.

    Attributes:
        epoch: that began afterwards.
        iterations_redone: trained by all workers before, and once more.
        seconds: from the end of the epoch to the beginning of the next.
    """

    cause: str
    epoch: int
    iterations_redone: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobState:
    """The job's figures so far.

    Attributes:
        failure: the cause, when the phase is FAILED.
        iterations_confirmed: by every worker.
        loss: mean progressive logistic loss over all confirmed samples, NaN before the first.
        auc: progressive area under the ROC curve, NaN until both labels were seen.
        cost_seconds: sum of T_j over all operations (ESD paper, eq. 4).
        makespan_seconds: sum over iterations of the slowest worker's T_j x operations.
        expected_cost_seconds: the mechanism's own estimate, per sample.
        lookups: (row, worker) pairs that training needed.
        hits: of these, latest version in the cache.
        decision_median_seconds: over the latest 4096 decisions.
        decision_p99_seconds: likewise.
        training_seconds: first plan published to last confirmation.
        shadow_costs: of the mechanisms that follow in the shadow.
        checkpoint: committed last, named by the iteration that follows it.
        recoveries: since this dispatcher took the job up.
        forgotten_rows: that the plans make leave the table.
    """

    job: JobSpec
    phase: JobPhase
    failure: str
    samples_submitted: int
    iterations_planned: int
    iterations_confirmed: int
    loss: float
    auc: float
    workers: tuple[WorkerState, ...]
    cost_seconds: float
    makespan_seconds: float
    expected_cost_seconds: float
    lookups: int
    hits: int
    decision_median_seconds: float
    decision_p99_seconds: float
    training_seconds: float
    shadow_costs: tuple[ShadowCost, ...] = ()
    epoch: int = 0
    checkpoint: int = 0
    recoveries: tuple[Recovery, ...] = ()
    forgotten_rows: int = 0
