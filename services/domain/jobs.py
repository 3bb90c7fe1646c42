"""A training job: what is trained, by how many workers, under which dispatch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from services.domain.errors import InvalidArgument
from services.domain.tables import OptimizerSpec, TableSpec

MAX_WORKERS = 64  # worker sets are uint64 masks
MAX_LAYERS = 64  # of the MLP; with the next, what a worker may be asked to build before it has seen a sample
MAX_WIDTH = 16384
MAX_HORIZON = 64  # batches; the dispatcher keeps them in memory


class Criterion(Enum):
    """Which rows of the cost matrix go to the exact solver (ESD §4.3): those with the largest value."""

    MIN2_MIN = "min2-min"
    MIN3_MIN = "min3-min"
    MIN3_MIN2 = "min3-min2"
    ROW_MEAN = "row-mean"


class RowLimitPolicy(Enum):
    """What happens before an iteration that needs more rows than the table may have."""

    REFUSE = "refuse"  # the job ends
    EVICT = "evict"  # the rows trained longest ago are forgotten, ties by id


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A click-through model over the embedding layer: `wdl`, `dfm`, `dcn` or `dlrm`."""

    name: str
    hidden: tuple[int, ...]
    dense_optimizer: OptimizerSpec

    def __post_init__(self) -> None:
        if len(self.hidden) > MAX_LAYERS:
            raise InvalidArgument(f"the model has {len(self.hidden)} hidden layers, the limit is {MAX_LAYERS}")
        for width in self.hidden:
            if not 1 <= width <= MAX_WIDTH:
                raise InvalidArgument(f"a hidden layer has width {width}, it must be in 1..{MAX_WIDTH}")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Everything that determines the trained model and the dispatch.

    Attributes:
        workers: n, 1..64.
        fields: F, embedding ids per sample.
        dense_features: d.
        batch_size: k, samples of one global batch.
        workloads: m_j, samples of each worker per iteration; they sum to k.
        mechanism: name of the dispatch mechanism.
        alpha: share of the exact solver in HybridDis, 0..1.
        criterion: HybridDis' partition criterion.
        policy: cache replacement policy.
        window: iterations that may be planned ahead of the slowest worker, >= 1.
        parameter_servers: `host:port` of every shard, in shard order.
        budget_seconds: time for one assignment, 0 for as long as it takes. A mechanism that improves with time returns
            the best it has by then; its decisions then depend on the machine's speed.
        workload_limits: the least and the most samples of a worker, when workloads follow measured times, starting
            from `workloads`; None when they stay.
        eviction_term: whether expected costs contain the evict pushes that a row's entry into a full cache may cause.
        horizon: batches that one decision of `joint` looks at, its own included, 1..64.
        measured_links: whether link speeds follow measurements; else they are as registered.
        checkpoint_every: iterations between checkpoints; 0: as many as there are in `checkpoint_seconds`.
        checkpoint_seconds: longest time between checkpoints; 0: any.
        checkpoints_kept: how many can be gone back to, >= 1.
        max_rows: that the table may have; 0: any number.
        at_max_rows: what happens before the iteration that needs more.
    """

    name: str
    workers: int
    fields: int
    dense_features: int
    batch_size: int
    workloads: tuple[int, ...]
    mechanism: str
    alpha: float
    criterion: Criterion
    policy: str
    seed: int
    window: int
    table: TableSpec
    model: ModelSpec
    parameter_servers: tuple[str, ...]
    budget_seconds: float = 0.0
    workload_limits: tuple[int, int] | None = None
    measured_links: bool = False
    eviction_term: bool = False
    horizon: int = 1
    checkpoint_every: int = 0
    max_rows: int = 0
    checkpoint_seconds: float = 0.0
    checkpoints_kept: int = 1
    at_max_rows: RowLimitPolicy = RowLimitPolicy.REFUSE

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidArgument("the job's name is empty")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise InvalidArgument(f"workers is {self.workers}, it must be in 1..{MAX_WORKERS}")
        if self.fields < 1:
            raise InvalidArgument(f"fields is {self.fields}, a sample needs at least one embedding id")
        if self.batch_size < 1:
            raise InvalidArgument(f"batch_size is {self.batch_size}, it must be at least 1")
        if len(self.workloads) != self.workers:
            raise InvalidArgument(f"{len(self.workloads)} workloads given for {self.workers} workers")
        if min(self.workloads) < 0 or sum(self.workloads) != self.batch_size:
            raise InvalidArgument(
                f"workloads {list(self.workloads)} must not be negative and must sum to batch_size {self.batch_size}"
            )
        self._check_dispatch()
        self._check_checkpoints()
        if not self.parameter_servers:
            raise InvalidArgument("parameter_servers is empty, at least one shard is needed")

    def _check_dispatch(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InvalidArgument(f"alpha is {self.alpha}, it must be in 0..1")
        if self.window < 1:
            raise InvalidArgument(f"window is {self.window}, it must be at least 1")
        if not 1 <= self.horizon <= MAX_HORIZON:
            raise InvalidArgument(f"horizon is {self.horizon}, it must be in 1..{MAX_HORIZON}")
        if not (math.isfinite(self.budget_seconds) and self.budget_seconds >= 0):
            raise InvalidArgument(f"budget_seconds is {self.budget_seconds}, it must be finite and not negative")
        if self.workload_limits is not None:
            least, most = self.workload_limits
            if not 0 <= least <= min(self.workloads) <= max(self.workloads) <= most:
                raise InvalidArgument(
                    f"workload_limits are {least}..{most}, they must enclose the workloads {list(self.workloads)}"
                )
        if self.max_rows < 0:
            raise InvalidArgument(f"max_rows is {self.max_rows}, it must not be negative")
        if self.forgets_rows and not self.max_rows:
            raise InvalidArgument("at_max_rows is evict (--at-max-rows) without a limit: give max_rows (--max-rows)")

    def _check_checkpoints(self) -> None:
        if self.checkpoint_every < 0:
            raise InvalidArgument(f"checkpoint_every is {self.checkpoint_every}, it must not be negative")
        if not (math.isfinite(self.checkpoint_seconds) and self.checkpoint_seconds >= 0):
            raise InvalidArgument(
                f"checkpoint_seconds is {self.checkpoint_seconds}, it must be finite and not negative"
            )
        if self.checkpoints_kept < 1:
            raise InvalidArgument(f"checkpoints_kept is {self.checkpoints_kept}, it must be at least 1")

    @property
    def forgets_rows(self) -> bool:
        """Whether rows leave the table when it is full."""
        return self.at_max_rows is RowLimitPolicy.EVICT

    @property
    def rows_kept(self) -> int:
        """Rows of the table above which the oldest are forgotten; 0: none ever are."""
        return self.max_rows if self.forgets_rows else 0

    @property
    def takes_checkpoints(self) -> bool:
        """Whether it does; a job without fails with its first lost worker."""
        return self.checkpoint_every > 0 or self.checkpoint_seconds > 0


def equal_workloads(batch_size: int, workers: int) -> tuple[int, ...]:
    """Shares k out evenly; the first workers take one more sample each where k is no multiple of n."""
    share, rest = divmod(batch_size, workers)
    return tuple(share + (j < rest) for j in range(workers))


def scale_workloads(workloads: tuple[int, ...], samples: int) -> tuple[int, ...]:
    """Shares `samples` out in proportion to `workloads`, by largest remainder, ties to the lowest slot.

    Used for the last, short batch of a finite stream. No worker gets more than its workload when
    `samples <= sum(workloads)`.
    """
    total = sum(workloads)
    if samples == total:
        return workloads
    shares = [divmod(m * samples, total) for m in workloads]
    left = samples - sum(quotient for quotient, _ in shares)
    order = sorted(range(len(shares)), key=lambda j: (-shares[j][1], j))
    extra = set(order[:left])
    return tuple(quotient + (j in extra) for j, (quotient, _) in enumerate(shares))
