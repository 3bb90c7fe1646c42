"""A training job: the model, the samples, the workers and the dispatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.columns import SampleColumns
from esd.services.domain.dense_sums import AUTO, DenseSum
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, check_features
from esd.services.domain.losses import Loss
from esd.services.domain.mechanisms import OPTIONS, MechanismOptions, check_options
from esd.services.domain.negatives import Negatives
from esd.services.domain.schedules import CONSTANT, Schedule
from esd.services.domain.sites import WorkerSites, check_site, sites_of_workers
from esd.services.domain.stream_parts import MAX_STREAM_NAME, MAX_SUBMITTERS
from esd.services.domain.sync import ON_DEMAND, Sync
from esd.services.domain.tables import MAX_ADMIT_AFTER, MAX_ROW_TTL, OptimizerKind, OptimizerSpec, TableSpec
from esd.services.domain.worker_set import MAX_WORKERS

MAX_LAYERS = 64  # of the MLP; with MAX_WIDTH it bounds what a worker is asked to build before it has seen a sample
MAX_WIDTH = 16384
MAX_LABELS = 64
_MOST_32 = 2**32 - 1  # as numbers travel
_MOST_64 = 2**64 - 1
MAX_TABLES = 256  # the top 8 bits of an id are the number of its table


class RowLimitPolicy(Enum):
    """The action before an iteration that needs more rows than the table may have.

    Example:
        >>> [policy.value for policy in esd.RowLimitPolicy]
        ['refuse', 'forget']
    """

    REFUSE = "refuse"  # the job ends
    FORGET = "forget"  # the rows trained longest ago are forgotten, ties by id


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model over the embedding layer: one that comes with ESD, or one's own as `package.module:Class`.

    Attributes:
        name: see above.
        hidden: widths of the MLP's layers.
        dense_optimizer: trains the dense parameters.
        weight_decay: times the parameters, it is added to their gradients, as torch.optim does; 0: nothing is.
        clip_norm: gradients of the dense parameters whose norm over all of them is larger are scaled down to it, as
            `torch.nn.utils.clip_grad_norm_` does; 0: they stay as they are.
        loss: of its outputs; a model with a loss of its own has `Loss.OWN`. It decides which labels a job takes.

    Example:
        >>> adam = esd.OptimizerSpec(esd.OptimizerKind.ADAM, learning_rate=0.001)
        >>> esd.ModelSpec("dcn", hidden=(64, 32), dense_optimizer=adam).loss
        <Loss.BCE: 'bce'>
    """

    name: str
    hidden: tuple[int, ...]
    dense_optimizer: OptimizerSpec
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    loss: Loss = Loss.BCE

    def __post_init__(self) -> None:
        if len(self.hidden) > MAX_LAYERS:
            raise InvalidArgument(f"the model has {len(self.hidden)} hidden layers, the limit is {MAX_LAYERS}")
        for width in self.hidden:
            if not 1 <= width <= MAX_WIDTH:
                raise InvalidArgument(f"a hidden layer has width {width}, it must be in 1..{MAX_WIDTH}")
        _check_range("weight_decay", self.weight_decay, 0)
        _check_range("clip_norm", self.clip_norm, 0)
        if self.dense_optimizer.max_norm:
            raise InvalidArgument(
                f"max_norm of dense_optimizer is {self.dense_optimizer.max_norm}, it limits embedding rows only: "
                "give it to the optimizer of a table"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """The workers, the dispatch of samples to them, and the distance of checkpoints.

    The trained model depends on none of these options but by the order of float sums, on `sync` where that is not
    exact, and on `dense_sum` where that is of low rank or averages parameters, so a job that goes on from a checkpoint
    may choose all of them anew. Where parameters are averaged, it depends on every one of them.

    Attributes:
        workers: n, 1..128.
        workloads: m_j, samples of each worker per iteration; they sum to the batch size.
        mechanism: name of the dispatch mechanism.
        mechanism_options: options of that mechanism; None: their defaults, or the mechanism has none.
        budget_seconds: time for one assignment, 0 for as long as it takes. A mechanism that improves with time returns
            the best it has by then; its decisions then depend on the machine's speed.
        auto_budget: whether that time is what the workers are measured to take for an iteration without its transfers
            of rows, less the rest of its planning.
        workload_limits: the least and the most samples of a worker, when workloads follow measured times, starting
            from `workloads`; None when they stay.
        measured_links: whether link speeds follow measurements; else they are as registered.
        policy: cache replacement policy.
        sync: when workers push what they have trained, with the options of that way to synchronise.
        dense_sum: how the gradients of dense parameters and replicated rows are summed over the workers. `auto`
            becomes another way before the first epoch (`with_chosen_sum`).
        window: iterations that may be planned ahead of the slowest worker, >= 1.
        checkpoint_every: iterations between checkpoints; 0: `checkpoint_seconds` alone decides.
        checkpoint_seconds: longest time between checkpoints; 0: `checkpoint_every` alone decides. Both 0: none.
        checkpoint_bytes: bytes of samples after which a job that takes checkpoints takes one early; 0: any number. The
            dispatcher and the sample log hold the samples since the last checkpoint.
        checkpoints_kept: how many checkpoints can be gone back to, >= 1.
        sites: the site of each worker, by slot, [n]: a sample is trained by workers of its site only; empty: samples
            have no sites.
    """

    workers: int
    workloads: tuple[int, ...]
    mechanism: str
    mechanism_options: MechanismOptions | None = None
    budget_seconds: float = 0.0
    auto_budget: bool = False
    workload_limits: tuple[int, int] | None = None
    measured_links: bool = False
    policy: str
    sync: Sync = ON_DEMAND
    dense_sum: DenseSum = AUTO
    window: int
    checkpoint_every: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: int = 0
    checkpoints_kept: int = 1
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_range("workers", self.workers, 1, MAX_WORKERS)
        _check_range("window", self.window, 1, _MOST_32)
        _check_range("budget_seconds", self.budget_seconds, 0)
        _check_range("checkpoint_every", self.checkpoint_every, 0, _MOST_32)
        _check_range("checkpoint_seconds", self.checkpoint_seconds, 0)
        _check_range("checkpoint_bytes", self.checkpoint_bytes, 0, _MOST_64)
        _check_range("checkpoints_kept", self.checkpoints_kept, 1, _MOST_32)
        check_options(self.mechanism, self.mechanism_options)
        if self.auto_budget and self.budget_seconds:
            raise InvalidArgument(
                f"budget_seconds is {self.budget_seconds}, and auto_budget measures it: leave one out (--budget)"
            )
        if len(self.workloads) != self.workers:
            raise InvalidArgument(f"{len(self.workloads)} workloads given for {self.workers} workers")
        if self.workload_limits is not None:
            least, most = self.workload_limits
            if not 0 <= least <= min(self.workloads) <= max(self.workloads) <= most:
                raise InvalidArgument(
                    f"workload_limits are {least}..{most}, they must enclose the workloads {list(self.workloads)}"
                )
        self._check_sites()

    def _check_sites(self) -> None:
        if not self.sites:
            return
        if len(self.sites) != self.workers:
            raise InvalidArgument(f"{len(self.sites)} sites given for {self.workers} workers (--sites)")
        for slot, site in enumerate(self.sites):
            check_site(site, f"worker {slot}")
        if self.workload_limits is not None:
            raise InvalidArgument(
                "balanced workloads follow the times of all workers, and samples stay at their sites: leave out "
                "--workloads balanced, or --sites"
            )
        if getattr(self.options, "horizon", 1) > 1:
            raise InvalidArgument(
                f"horizon is {getattr(self.options, 'horizon', 1)}, and where later batches' samples may go depends on "
                "their sites: leave out --horizon, or --sites"
            )
        workers = sites_of_workers(self.sites)
        for name, slots in zip(workers.names, workers.slots, strict=True):
            if not sum(self.workloads[slot] for slot in slots):
                raise InvalidArgument(
                    f"the workers of site {name!r} have workloads of 0, and nobody else may train its samples: give "
                    "them other --workloads"
                )

    @property
    def worker_sites(self) -> WorkerSites | None:
        """The sites of the workers; None where samples have no sites."""
        return sites_of_workers(self.sites) if self.sites else None

    @property
    def options(self) -> MechanismOptions:
        """The options of the mechanism: the given ones, or the defaults."""
        return self.mechanism_options or OPTIONS.get(self.mechanism, MechanismOptions)()

    @property
    def takes_checkpoints(self) -> bool:
        """Whether the job takes checkpoints; a job without them fails with its first lost worker."""
        return self.checkpoint_every > 0 or self.checkpoint_seconds > 0


# Of a job: the types of what its tuples hold, and of other attributes.
_PARTS: dict[str, type] = {
    "features": Feature,
    "tables": TableSpec,
    "labels": str,
    "parameter_servers": str,
    "dense_names": str,
    "sites": str,
    "row_ttls": int,
    "admit_afters": int,
}
_KINDS: dict[str, type] = {
    "dense_features": int,
    "by_reference": bool,
    "model": ModelSpec,
    "schedule": Schedule,
    "dense_schedule": Schedule,
    "sync": Sync,
    "dense_sum": DenseSum,
    "at_max_rows": RowLimitPolicy,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(DispatchOptions):
    """Everything that determines the trained model and the dispatch.

    Attributes:
        name: the job's name, not empty.
        features: the F features of a sample, in the order of their ids.
        dense_features: d, dense features per sample.
        dense_names: their names, with their transforms (`ln(1 + price)`), by which samples are matched; empty: unknown.
        rules: the other rules that decide the samples' values, by name (`SampleColumns.rules`).
        batch_size: k, samples of one global batch.
        stream: says which samples these are, in words that are the same for the same samples only, at most 1,000
            characters; a job goes on with its own stream only. Empty: the submitter is responsible for it.
        seed: decides the initial dense parameters, and all random choices of the mechanism.
        tables: the embedding tables that are trained, 1..256, numbered as they stand here. With several, the top 8 bits
            of an id are the number of its table (esd.services.domain.ids). The first table's server also keeps the
            sample log of the job, the parts of its checkpoints and the dense parameters.
        model: the model over it.
        schedule: how the learning rate of the rows changes.
        dense_schedule: how the learning rate of the dense parameters changes.
        labels: names of the L labels of a sample.
        parameter_servers: `host:port` of every shard, in shard order.
        first_iteration: of this job; those before it were trained by an earlier one, from whose last checkpoint this
            one goes on with other samples or settings. Schedules count from here.
        max_rows: how many rows the tables together may have; 0: any number.
        at_max_rows: what happens before the iteration that needs more.
        row_ttls: by table, the iterations that a row lives without a training: the last of so many iterations in a row
            that do not train it forgets it; 0: it lives for ever. Empty: the rows of all tables do.
        admit_afters: by table, N: an id is trained from the N-th iteration on that has it, and reads its initial row
            before; 1: from the first. Empty: the ids of all tables are.
        negatives: a further feature, whose ids are drawn for each iteration and shared by the samples of a chunk; None:
            there is none. Samples are submitted without it.
        by_reference: whether labels and dense features stay at the sites, where workers read them; samples then have
            references to them.
        continues_stream: whether the stream goes on where that of the earlier job ended, in each of its sources; only
            of a job with `first_iteration`.
        submitters: how many parts the stream has, each with a submitter of its own, 1..64; no more than `batch_size`,
            since each part has a share of every global batch (`shares`).

    Example:
        >>> job = esd.JobSpec(
        ...     name="clicks", workers=2, features=(esd.Feature("user"), esd.Feature("item")), dense_features=1,
        ...     batch_size=128, workloads=esd.equal_workloads(128, 2), mechanism="joint", policy="emark",
        ...     seed=0, window=2, tables=(esd.TableSpec("clicks", 16, esd.OptimizerSpec(), 0, 0.01),),
        ...     model=esd.ModelSpec("wdl", (64,), esd.OptimizerSpec()), parameter_servers=("127.0.0.1:50052",),
        ... )
        >>> job.fields, job.takes_checkpoints
        (2, False)
    """

    name: str
    features: tuple[Feature, ...]
    dense_features: int
    batch_size: int
    seed: int
    tables: tuple[TableSpec, ...]
    model: ModelSpec
    parameter_servers: tuple[str, ...]
    schedule: Schedule = CONSTANT
    dense_schedule: Schedule = CONSTANT
    labels: tuple[str, ...] = ("label",)
    dense_names: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    stream: str = ""
    first_iteration: int = 0
    max_rows: int = 0
    at_max_rows: RowLimitPolicy = RowLimitPolicy.REFUSE
    row_ttls: tuple[int, ...] = ()
    admit_afters: tuple[int, ...] = ()
    negatives: Negatives | None = None
    by_reference: bool = False
    submitters: int = 1
    continues_stream: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidArgument("the job's name is empty")
        self._check_kinds()
        DispatchOptions.__post_init__(self)
        self._check_names()
        self.options.check_features(self.fields)
        _check_range("batch_size", self.batch_size, 1, _MOST_32)
        if min(self.workloads) < 0 or sum(self.workloads) != self.batch_size:
            raise InvalidArgument(
                f"workloads {list(self.workloads)} must not be negative and must sum to batch_size {self.batch_size}"
            )
        _check_range("max_rows", self.max_rows, 0, _MOST_64)
        _check_range("first_iteration", self.first_iteration, 0, _MOST_64)
        if self.first_iteration and not self.takes_checkpoints:
            raise InvalidArgument("a job that goes on from another one takes checkpoints: give checkpoint_every")
        self._check_stream()
        if self.forgets_rows and not self.max_rows:
            raise InvalidArgument("at_max_rows is forget (--at-max-rows) without a limit: give max_rows (--max-rows)")
        _check_range("the number of tables", len(self.tables), 1, MAX_TABLES)
        names = [table.name for table in self.tables]
        if len(set(names)) < len(names):
            raise InvalidArgument(f"two tables of the job have the same name; the names are {', '.join(names)}")
        self._check_ttls()
        self._check_admission()
        check_features(self.features, len(self.tables))
        self._check_negatives()
        if not self.parameter_servers:
            raise InvalidArgument("parameter_servers is empty, at least one shard is needed")
        if repeated := [each for each in self.parameter_servers if self.parameter_servers.count(each) > 1]:
            raise InvalidArgument(
                f"parameter_servers names {repeated[0]} more than once; each shard has a server of its own"
            )

    def _check_stream(self) -> None:
        _check_range("the length of stream", len(self.stream), 0, MAX_STREAM_NAME)
        if self.continues_stream and not self.first_iteration:
            raise InvalidArgument("continues_stream is true of a job that goes on from no other: give first_iteration")
        _check_range("submitters", self.submitters, 1, MAX_SUBMITTERS)
        if self.submitters > self.batch_size:
            raise InvalidArgument(
                f"submitters is {self.submitters} (--submitters), and a global batch of {self.batch_size} samples has "
                "no share for each of them"
            )
        if self.by_reference and not self.sites:
            raise InvalidArgument("labels and dense features stay at sites, and the workers have none: give --sites")

    def _check_ttls(self) -> None:
        if self.row_ttls and len(self.row_ttls) != len(self.tables):
            raise InvalidArgument(f"row_ttls has {len(self.row_ttls)} entries for {len(self.tables)} tables")
        for table, ttl in zip(self.tables, self.row_ttls, strict=False):
            _check_range(f"row_ttl of table {table.name!r} (--row-ttl)", ttl, 0, MAX_ROW_TTL)

    def _check_admission(self) -> None:
        afters = self.admit_afters
        if afters and len(afters) != len(self.tables):
            raise InvalidArgument(f"admit_afters has {len(afters)} entries for {len(self.tables)} tables")
        for table, after in zip(self.tables, afters, strict=False):
            _check_range(f"admit_after of table {table.name!r} (--admit-after)", after, 1, MAX_ADMIT_AFTER)
        if afters and max(afters) == 1:
            raise InvalidArgument("admit_afters are all 1, which admits every id at once: leave them out")

    def _check_negatives(self) -> None:
        negatives = self.negatives
        if negatives is None:
            return
        if not isinstance(negatives, Negatives):
            raise InvalidArgument(f"negatives of a job is {negatives!r}, it must be of the type Negatives")
        if negatives.table >= len(self.tables):
            raise InvalidArgument(f"negatives are of table {negatives.table}, the job has {len(self.tables)} tables")
        if any(feature.name == negatives.name for feature in self.features):
            raise InvalidArgument(f"negatives and a feature are both named {negatives.name!r}")
        if self.admit_afters:
            raise InvalidArgument("negatives are trained in every iteration: leave out admit_afters (--admit-after)")

    def _check_names(self) -> None:
        if not 1 <= len(set(self.labels)) == len(self.labels) <= MAX_LABELS or not all(self.labels):
            raise InvalidArgument(f"labels are {list(self.labels)}, there must be 1..{MAX_LABELS} of different names")
        names = self.dense_names
        if names and not len(set(names)) == len(names) == self.dense_features:
            raise InvalidArgument(f"dense_names are {list(names)}, they must be {self.dense_features} different names")

    def _check_kinds(self) -> None:
        """Checks the type of every value: a wrong type would fail far from here, or be taken for another value."""
        for names, kind in _PARTS.items():
            value = getattr(self, names)
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(x, kind) for x in value):
                raise InvalidArgument(f"{names} of a job is {value!r}, it must be a tuple of {kind.__name__}")
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InvalidArgument(f"{name} of a job is {value!r}, it must be of the type {kind.__name__}")

    def under(self, mechanism: str, mechanism_options: MechanismOptions | None = None) -> JobSpec:
        """Returns this job as another mechanism would dispatch it, with the defaults of everything that has one.

        So its links and workloads stay as they are. Its pushes and its checkpoints are the same.

        Args:
            mechanism: name of the other mechanism.
            mechanism_options: options of that mechanism; None: their defaults, or it has none.
        """
        options = {each.name: each.default for each in fields(DispatchOptions) if each.default is not MISSING}
        names = ("sync", "dense_sum", "checkpoint_every", "checkpoint_seconds", "checkpoint_bytes", "sites")
        kept = {name: getattr(self, name) for name in names}
        return replace(self, **options | kept | {"mechanism": mechanism, "mechanism_options": mechanism_options})

    @property
    def table(self) -> TableSpec:
        """The first table."""
        return self.tables[0]

    @property
    def shares(self) -> tuple[int, ...]:
        """The samples of each part of the stream in a global batch, as long as no part has ended."""
        return equal_workloads(self.batch_size, self.submitters)

    @property
    def columns(self) -> SampleColumns:
        """The columns of the samples that the job takes."""
        return SampleColumns(self.features, self.labels, self.dense_names, self.rules)

    def row_rates(self, table: TableSpec, steps: NDArray[np.integer]) -> NDArray[np.float32]:
        """Returns the learning rates of a table's rows in optimizer steps (iteration + 1), [r]: float32 [r]."""
        return self.schedule.rates(table.optimizer.learning_rate, steps - self.first_iteration)

    def steps_add_up(self, table: TableSpec) -> bool:
        """Returns whether steps of a table's rows with several gradients come to one step with their sum."""
        optimizer = table.optimizer
        return optimizer.kind is OptimizerKind.SGD and not optimizer.max_norm and self.schedule == CONSTANT

    def dense_rate(self, iteration: int) -> float:
        """Returns the learning rate of the dense parameters in an iteration."""
        return self.model.dense_optimizer.learning_rate * self.dense_schedule.factor(iteration - self.first_iteration)

    @property
    def fields(self) -> int:
        """F, the number of features."""
        return len(self.features)

    @property
    def forgets_rows(self) -> bool:
        """Whether rows leave the table when it is full, instead of ending the job."""
        return self.at_max_rows is RowLimitPolicy.FORGET

    @property
    def knows_all_rows(self) -> bool:
        """Whether the dispatcher knows every row of the tables, because it decides which rows are forgotten."""
        return bool(self.max_rows) or any(self.row_ttls)

    @property
    def rows_kept(self) -> int:
        """How many rows the table keeps: beyond this number the oldest are forgotten; 0: none ever are."""
        return self.max_rows if self.forgets_rows else 0


def equal_workloads(batch_size: int, workers: int) -> tuple[int, ...]:
    """Shares k out evenly; the first workers take one more sample each where k is no multiple of n.

    Raises:
        InvalidArgument: k is negative, or n below 1.

    Example:
        >>> esd.equal_workloads(10, workers=4)
        (3, 3, 2, 2)
    """
    _check_range("batch_size", batch_size, 0)
    _check_range("workers", workers, 1)
    share, rest = divmod(batch_size, workers)
    return tuple(share + (j < rest) for j in range(workers))


def _check_range(name: str, value: float, least: int, most: int | None = None) -> None:
    """Raises InvalidArgument unless the value is a finite number within its bounds."""
    finite = isinstance(value, int) or math.isfinite(value)  # an int may be too large for a float
    if not (finite and least <= value and (most is None or value <= most)):
        bounds = f"at least {least} and finite" if most is None else f"in {least}..{most}"
        raise InvalidArgument(f"{name} is {value}, it must be {bounds}")
