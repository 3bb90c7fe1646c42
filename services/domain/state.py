"""The state of a job, as its dispatcher reports it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from statistics import fmean
from typing import Self

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import PhaseTimes, TransferCounts
from esd.services.domain.sync import NO_FIGURES, Figures

_LONGEST_NAME = 1000  # of held-out samples, in characters
KEPT_EVALUATIONS = 128  # the latest; a restarted driver decides by them whether the model still improves


class JobPhase(Enum):
    """The life of a job; FAILED may follow any phase but FINISHED.

    Example:
        >>> esd.JobPhase("finished") is esd.JobPhase.FINISHED
        True
    """

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
        measured_bandwidth: bytes per second that it measures, smoothed (weight 0.2 for the newest); 0 before the first.
        workload: m_j, its samples in the latest planned iteration.
        late_iterations: number of iterations that it delayed far beyond the usual time, under this dispatcher.
        held_back: samples beyond which balanced workloads would assign it more if its cache had room; 0: it has room.
        rests: whether it has no samples, and so gets no sums of dense gradients, in the latest planned iteration.

    Example:
        >>> state = esd.WorkerState(
        ...     "edge-1", slot=0, bandwidth=12.5e6, cache_rows=20_000, iterations=40,
        ...     transfers=esd.TransferCounts(miss_pull=900), phases=esd.PhaseTimes(compute=4.0),
        ...     seconds_since_heartbeat=0.2, address="edge-1:7000", workload=64,
        ... )
        >>> state.phases.compute / state.iterations
        0.1
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
    held_back: int = 0
    rests: bool = False


@dataclass(frozen=True, slots=True)
class ShadowCost:
    """The cost of the first `iterations` of the stream under another mechanism, simulated with caches of its own."""

    mechanism: str
    iterations: int
    cost_seconds: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """One epoch that ended early.

    Attributes:
        cause: why the epoch ended.
        epoch: the epoch that began afterwards.
        iterations_redone: number of iterations that all workers had trained and had to train again.
        seconds: time from the end of the epoch to the beginning of the next.
    """

    cause: str
    epoch: int
    iterations_redone: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a model on samples that it had not been trained on. NaN until there are such samples.

    Attributes:
        loss: mean logistic loss.
        auc: area under the ROC curve; NaN until both labels were seen.
        normalised_entropy: the loss, divided by the loss of always predicting the mean of the labels; below 1 the model
            has learnt something (He et al., 2014). NaN until both labels were seen.
        calibration: mean of the predictions, divided by the mean of the labels; 1 is right. NaN without a positive.
        gauc: the AUC within each group of samples, averaged over the groups by their samples; over a whole stream, the
            average over consecutive windows of 32,768 samples. NaN if samples have no groups, or no group has both
            labels.

    Example:
        >>> quality = esd.Quality(loss=0.48, auc=0.72, normalised_entropy=0.91, calibration=1.02)
        >>> quality.normalised_entropy < 1, quality.gauc
        (True, nan)
    """

    loss: float
    auc: float
    normalised_entropy: float
    calibration: float
    gauc: float = math.nan


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well a model of a graph predicts links, by the filtered ranks of true triples among corrupted ones.

    Attributes:
        mrr: mean reciprocal rank, over the tails and the heads of all triples.
        hits_at_1: share of the ranks that are 1.
        hits_at_3: share of the ranks up to 3.
        hits_at_10: share of the ranks up to 10.

    Example:
        >>> esd.Ranking.of(np.array([[1.0, 4.0], [2.0, 20.0]]))
        Ranking(mrr=0.45, hits_at_1=0.25, hits_at_3=0.5, hits_at_10=0.75)
    """

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float

    def __str__(self) -> str:
        hits = f"{self.hits_at_1:.4f} / {self.hits_at_3:.4f} / {self.hits_at_10:.4f}"
        return f"MRR {self.mrr:.4f}, Hits@1/3/10 {hits}"

    @classmethod
    def of(cls, ranks: NDArray[np.float64]) -> Self:
        """Returns the figures of ranks of any shape, at least one, each from 1 on."""
        return cls(float((1 / ranks).mean()), *(float((ranks <= most).mean()) for most in (1, 3, 10)))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation on held-out samples.

    Attributes:
        iteration: the evaluated model has trained the iterations before this one.
        labels: the figures over all held-out samples by label, in the job's order. The loss of a label is the loss of
            its outputs; a model with a loss of its own has that loss under all labels.
        samples: names the held-out samples, in words that are the same for the same samples only, at most 1,000
            characters; empty if the driver does not name them.
        ranking: of the links of a graph; None: the model is not of a graph.

    Example:
        >>> click = esd.Quality(loss=0.5, auc=0.7, normalised_entropy=0.9, calibration=1.0)
        >>> order = esd.Quality(loss=0.1, auc=0.8, normalised_entropy=0.9, calibration=1.0)
        >>> evaluation = esd.Evaluation(iteration=1000, labels=(click, order))
        >>> evaluation.quality.auc, evaluation.quality.loss
        (0.7, 0.3)
    """

    iteration: int
    labels: tuple[Quality, ...]
    samples: str = ""
    ranking: Ranking | None = None

    def __post_init__(self) -> None:
        if len(self.samples) > _LONGEST_NAME:
            raise InvalidArgument(
                f"the name of an evaluation's samples has {len(self.samples)} characters, the limit is {_LONGEST_NAME}"
            )
        if self.iteration < 0 or not self.labels:
            raise InvalidArgument(
                f"an evaluation at iteration {self.iteration} has figures of {len(self.labels)} labels: there must be "
                "one label at least, and the iteration must not be negative"
            )

    @property
    def quality(self) -> Quality:
        """The figures of the first label, with the trained loss: the mean over all labels."""
        return replace(self.labels[0], loss=fmean(label.loss for label in self.labels))


@dataclass(frozen=True, slots=True)
class JobState:
    """The job's figures so far.

    Attributes:
        failure: the cause, when the phase is FAILED.
        samples_submitted: samples of the stream that were acknowledged.
        iterations_planned: iterations whose plans exist.
        iterations_confirmed: iterations that every worker has confirmed.
        quality: quality of the model over all confirmed samples, each scored before it was trained; with several
            labels, the figures of the first one and the trained loss.
        recent: the same over the latest iterations, which hold the last 32,768 samples.
        cost_seconds: time of all operations on their links, T_j for a row (ESD paper, eq. 4).
        makespan_seconds: sum over iterations of the slowest worker's operations on its link.
        expected_cost_seconds: the mechanism's own estimate, per sample.
        lookups: (row, worker) pairs that training needed.
        hits: number of lookups that found the latest version in the worker's cache.
        decision_median_seconds: median time of a decision, over the latest 4096.
        decision_p99_seconds: 99th percentile of the same.
        training_seconds: time from the first published plan to the last confirmation.
        shadow_costs: the costs that the shadow mechanisms would have had.
        shadows_left_out: the shadow mechanisms that would need too much memory with the workers' caches.
        epoch: the present epoch.
        resumed_from: the iteration at which this dispatcher resumed the job, 0 for its beginning.
        checkpoint: the checkpoint that was committed last, named by the iteration that follows it.
        recoveries: epochs that ended early under this dispatcher.
        forgotten_rows: number of rows that the plans have removed from the full tables.
        expired_rows: number of rows that the plans have removed because their time to live was over.
        admitted_rows: number of ids that the plans have admitted to the tables (`JobSpec.admit_afters`).
        initial_reads: number of initial rows that iterations have read of ids that were not admitted then, once each.
        dense_drift: mean over averages of dense parameters of the largest `IterationReport.drift`; 0 before the first.
        evaluations: the latest ones that its drivers have recorded, by iteration, at most KEPT_EVALUATIONS.
        sync_figures: the figures of the way to synchronise, of these plans.
        labels: as `quality`, label by label, in the job's order.
        recent_labels: as `recent`, label by label.
        standstill: the cause, if the job trains nothing while samples wait; empty while it progresses.

    Example:
        >>> with esd.DispatcherClient("127.0.0.1:50051") as dispatcher:
        ...     state = dispatcher.describe()
        >>> state.iterations_confirmed if state else "the dispatcher has no job"
        'the dispatcher has no job'
    """

    job: JobSpec
    phase: JobPhase
    failure: str
    samples_submitted: int
    iterations_planned: int
    iterations_confirmed: int
    quality: Quality
    recent: Quality
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
    shadows_left_out: tuple[str, ...] = ()
    epoch: int = 0
    resumed_from: int = 0
    checkpoint: int = 0
    recoveries: tuple[Recovery, ...] = ()
    forgotten_rows: int = 0
    expired_rows: int = 0
    admitted_rows: int = 0
    initial_reads: int = 0
    dense_drift: float = 0.0
    evaluations: tuple[Evaluation, ...] = ()
    sync_figures: Figures = NO_FIGURES
    labels: tuple[Quality, ...] = ()
    recent_labels: tuple[Quality, ...] = ()
    standstill: str = ""
