"""The options that `esd train` and `esd simulate` share, and what they mean together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from esd.cli.budget import parse_alpha, parse_budget
from esd.cli.hot_batches import in_hot_batches
from esd.cli.job_file import Config
from esd.cli.learning import (
    Clip,
    DenseLearningRate,
    DenseLearningRateSchedule,
    EarlyStopOption,
    EpochsOption,
    Evaluate,
    EvaluateEvery,
    Holdout,
    HotBatchesOption,
    LearningRate,
    LearningRateSchedule,
    Shuffle,
    WeightDecay,
    parse_schedule,
)
from esd.cli.model import Hidden, LossOption, Model, parse_hidden
from esd.cli.storage import (
    TABLE,
    AtMaxRows,
    CheckpointEvery,
    CheckpointSeconds,
    CheckpointsKept,
    MaxRows,
)
from esd.cli.workloads import parse_limits, parse_workloads
from esd.data import Dataset, count_distinct, open_data
from esd.data.epochs import Epochs
from esd.data.schema import job_tables
from esd.data.schema_file import name_of, read_schema
from esd.data.split import split
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.solvers import SOLVERS
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature
from esd.services.domain.jobs import MAX_HORIZON, Criterion, JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
from esd.services.domain.links import parse_links
from esd.services.domain.losses import Loss
from esd.services.domain.schedules import Schedule
from esd.services.domain.sync import parse_sync
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

DEFAULT_BATCH = 64
BALANCED = "balanced"
DEFAULT_CACHE_RATIO = 0.08  # ESD §6.1
PLAN_WINDOW = 4  # iterations planned ahead, the running one included: two overlap, more absorb jitter

# The groups of options in `--help`.
TRAINING = "What is trained"
CLUSTER = "Workers"
DISPATCH = "Dispatch"
OUTPUT = "Output"

Data = Annotated[
    str,
    typer.Option(
        help="flights, journey, synthetic:NAME (criteo, avazu or zipf), or READER:PATH (criteo, avazu, criteo-search, "
        "movielens or taobao), where PATH is files, folders or patterns such as day_*.gz, with commas between them.",
        rich_help_panel=TRAINING,
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="TOML file that says what the columns of your own files are (esd data inspect proposes one): "
        "--data 'events/*.parquet' --schema events.toml.",
        rich_help_panel=TRAINING,
    ),
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Number of workers.", rich_help_panel=CLUSTER)]
Links = Annotated[
    str,
    typer.Option(
        help="Link of each worker in bits per second, or one for all: 500m,500m,50m,50m.", rich_help_panel=CLUSTER
    ),
]
Mechanism = Annotated[str, typer.Option(help=f"Dispatch mechanism: {', '.join(MECHANISMS)}.", rich_help_panel=DISPATCH)]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Time for one assignment: milliseconds, or auto, what training is measured to leave. A first one is made "
        "whatever time it takes.",
        show_default="as long as it takes",
        rich_help_panel=DISPATCH,
    ),
]
Alpha = Annotated[
    str,
    typer.Option(
        help="esd: share of the samples that the exact solver assigns, 0 to 1, or auto: as the budget allows.",
        rich_help_panel=DISPATCH,
    ),
]
CriterionOption = Annotated[
    Criterion, typer.Option(help="esd: which samples go to the exact solver.", rich_help_panel=DISPATCH)
]
Solver = Annotated[
    str,
    typer.Option(help=f"esd: who solves the exact part: {', '.join(SOLVERS)}. All agree.", rich_help_panel=DISPATCH),
]
EvictionTerm = Annotated[
    bool,
    typer.Option(
        "--eviction-term",
        help="esd, esd-priced: expected costs contain the evict pushes a row may cause.",
        rich_help_panel=DISPATCH,
    ),
]
HashField = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="hash: number of the field whose values decide, 0 for the first.",
        show_default="the best one on the first batches",
        rich_help_panel=DISPATCH,
    ),
]
Horizon = Annotated[
    int,
    typer.Option(
        min=1, max=MAX_HORIZON, help="joint: batches a decision looks at, its own included.", rich_help_panel=DISPATCH
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1, help="Samples per worker and iteration.", show_default=str(DEFAULT_BATCH), rich_help_panel=TRAINING
    ),
]
Workloads = Annotated[
    str | None,
    typer.Option(
        help="Samples of each worker per iteration: equal, balanced (so that all take equally long) or 96,96,32,32.",
        show_default="equal",
        rich_help_panel=CLUSTER,
    ),
]
WorkloadLimits = Annotated[
    str | None,
    typer.Option(
        help="balanced: least and most samples of a worker, 16,128.",
        show_default="any from 1 on",
        rich_help_panel=CLUSTER,
    ),
]
MeasuredLinks = Annotated[
    bool, typer.Option("--measured-links", help="Link speeds follow measurements.", rich_help_panel=CLUSTER)
]
Dim = Annotated[int, typer.Option(min=1, max=4096, help="Values per embedding row.", rich_help_panel=TRAINING)]
CacheRatio = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Cache of a worker, as a share of the data's ids.",
        show_default=f"{DEFAULT_CACHE_RATIO}, or what an iteration may need",
        rich_help_panel=CLUSTER,
    ),
]
CacheRows = Annotated[
    int | None,
    typer.Option(min=1, help="Cache of a worker in rows, instead of --cache-ratio.", rich_help_panel=CLUSTER),
]
Policy = Annotated[
    str, typer.Option(help="Cache replacement: emark, emark-size, reuse, lru, lfu or static.", rich_help_panel=CLUSTER)
]
SyncOption = Annotated[
    str,
    typer.Option(
        "--sync",
        help="When trained rows are pushed: when others need them (on-demand); before that, while links are idle "
        "(proactive); all, while the next iteration trains (full); all, before it trains (write-through); never those "
        "of the R that are read most, which all workers train (replicated:R); what has gathered beyond a bound, while "
        "others may lack it (bounded:PULL,PUSH).",
        rich_help_panel=TRAINING,
    ),
]
Direct = Annotated[
    bool,
    typer.Option(
        "--direct",
        help="A row that one other worker alone needs goes straight to it, past the parameter server (with --sync "
        "on-demand). Workers must reach each other.",
        rich_help_panel=TRAINING,
    ),
]
Optimizer = Annotated[
    OptimizerKind, typer.Option(help="Optimizer of the rows and of the dense parameters.", rich_help_panel=TRAINING)
]
Iterations = Annotated[
    int | None,
    typer.Option(
        min=1, help="Iterations after which the run ends.", show_default="all of the data", rich_help_panel=TRAINING
    ),
]
SkipBad = Annotated[
    int, typer.Option(min=0, help="Malformed records to skip before giving up.", rich_help_panel=TRAINING)
]
Seed = Annotated[
    int, typer.Option(min=0, help="Seed of rows, dense parameters and random choices.", rich_help_panel=TRAINING)
]
Dispatcher = Annotated[
    str | None,
    typer.Option(
        "--dispatcher", help="HOST:PORT of a dispatcher that runs already; nothing is started.", rich_help_panel=CLUSTER
    ),
]
ParameterServers = Annotated[
    str | None,
    typer.Option(
        help="with --dispatcher: HOST:PORT of every parameter server as workers reach it, in shard order.",
        rich_help_panel=CLUSTER,
    ),
]
DecisionLog = Annotated[
    Path | None,
    typer.Option(
        "--decision-log",
        dir_okay=False,
        writable=True,
        help="File that takes what the plans depend on besides the samples, for `esd simulate --replay`.",
        rich_help_panel=DISPATCH,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.", rich_help_panel=OUTPUT)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        file_okay=False,
        help="Directory for the trained model (model.npz) and the logs.",
        rich_help_panel=OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run, as the user gave them; see the aliases above for their meaning."""

    data: Data = "flights"
    schema: SchemaFile = None
    model: Model = "wdl"
    hidden: Hidden = "256,128"
    loss: LossOption = Loss.BCE
    workers: Workers = 4
    links: Links = "500m"
    measured_links: MeasuredLinks = False
    mechanism: Mechanism = "joint"
    alpha: Alpha = "1"
    criterion: CriterionOption = Criterion.MIN2_MIN
    solver: Solver = "auto"
    eviction_term: EvictionTerm = False
    hash_field: HashField = None
    horizon: Horizon = 1
    budget: Budget = None
    batch: Batch = None
    workloads: Workloads = None
    workload_limits: WorkloadLimits = None
    dim: Dim = 64
    cache_ratio: CacheRatio = None
    cache_rows: CacheRows = None
    policy: Policy = "emark"
    sync: SyncOption = "on-demand"
    direct: Direct = False
    optimizer: Optimizer = OptimizerKind.ROWWISE_ADAGRAD
    learning_rate: LearningRate = 0.02
    dense_learning_rate: DenseLearningRate = None
    lr_schedule: LearningRateSchedule = "constant"
    dense_lr_schedule: DenseLearningRateSchedule = None
    weight_decay: WeightDecay = 0.0
    clip: Clip = 0.0
    epochs: EpochsOption = 1
    shuffle: Shuffle = 0
    hot_batches: HotBatchesOption = 0
    evaluate: Evaluate = None
    holdout: Holdout = ""
    evaluate_every: EvaluateEvery = 0
    early_stop: EarlyStopOption = None
    iterations: Iterations = None
    skip_bad: SkipBad = 0
    seed: Seed = 0
    checkpoint_every: CheckpointEvery = 1000
    max_rows: MaxRows = 0
    at_max_rows: AtMaxRows = RowLimitPolicy.REFUSE
    checkpoint_seconds: CheckpointSeconds = 0.0
    checkpoints_kept: CheckpointsKept = 2

    @property
    def data_name(self) -> str:
        """The job's name, of which a table's may be made: that of the reader, or of the schema's file."""
        return self.data.partition(":")[0] if self.schema is None else name_of(self.schema)

    def worker_samples(self) -> tuple[int, ...]:
        """Returns m_j, the samples of each worker per iteration."""
        if self.workloads in (None, "equal", BALANCED):
            return equal_workloads((self.batch or DEFAULT_BATCH) * self.workers, self.workers)
        return parse_workloads(str(self.workloads), self.workers, self.batch)

    def limits(self) -> tuple[int, int] | None:
        """Returns m_min and m_max of balanced workloads, None when workloads are fixed."""
        if self.workloads == BALANCED:
            return parse_limits(self.workload_limits, sum(self.worker_samples()))
        if self.workload_limits is not None:
            raise InvalidArgument("--workload-limits needs --workloads balanced")
        return None

    def bandwidths(self) -> tuple[float, ...]:
        """Returns the speed of every worker's link, bytes per second."""
        return parse_links(self.links, self.workers)

    def job(
        self,
        *,
        features: tuple[Feature, ...],
        dense_features: int,
        parameter_servers: tuple[str, ...],
        stream: str = "",
        table: str = TABLE,
        iterations: int | None = None,
        labels: tuple[str, ...] = ("label",),
    ) -> JobSpec:
        """Returns the job that these options describe, on data of the given shape, fingerprint and length if known."""
        schema = None if self.schema is None else read_schema(self.schema)
        if schema is not None and schema.label_range is not None:
            self.loss.check_range(*schema.label_range)
        workloads = self.worker_samples()
        rows = OptimizerSpec(self.optimizer, self.learning_rate)
        first = TableSpec(table, self.dim, rows, self.seed, self.dim**-0.5)
        dense_rate = self.learning_rate if self.dense_learning_rate is None else self.dense_learning_rate
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS_OF_THE_JOB}
        options |= parse_alpha(self.alpha) | parse_budget(self.budget) | parse_sync(self.sync)
        options |= {  # what is derived, from other options or from the data
            "name": self.data_name,
            "features": features,
            "labels": labels,
            "dense_features": dense_features,
            "batch_size": sum(workloads),
            "stream": stream,
            "workloads": workloads,
            "workload_limits": self.limits(),
            "window": PLAN_WINDOW,
            "tables": job_tables(schema, features, first),
            "model": ModelSpec(
                self.model,
                parse_hidden(self.hidden),
                OptimizerSpec(self.optimizer, dense_rate),
                self.weight_decay,
                self.clip,
                self.loss,
            ),
            "schedule": parse_schedule(self.lr_schedule, iterations),
            "dense_schedule": self._dense_schedule(iterations),
            "parameter_servers": parameter_servers,
        }
        if self.evaluate_every:  # at checkpoints, which stay until they are evaluated
            if self.checkpoint_seconds:
                raise InvalidArgument("--evaluate-every decides on checkpoints: leave out --checkpoint-seconds")
            kept = max(self.checkpoints_kept, 2 + -(-self.horizon // self.evaluate_every))
            options |= {"checkpoint_every": self.evaluate_every, "checkpoints_kept": kept}
        return JobSpec(**options)

    def _dense_schedule(self, iterations: int | None) -> Schedule:
        if self.dense_lr_schedule is None:
            return parse_schedule(self.lr_schedule, iterations)
        return parse_schedule(self.dense_lr_schedule, iterations, "--dense-lr-schedule")

    def open(self, batch_size: int) -> Dataset:
        """Opens what is trained of the data, with all its epochs, in batches of up to `batch_size` samples."""
        return self.open_parts(batch_size)[0]

    def open_parts(self, batch_size: int) -> tuple[Dataset, Dataset | None]:
        """Opens the data once: what is trained of it, with all its epochs, and what --holdout keeps back, if anything.

        Both come in batches of up to `batch_size` samples.
        """
        trained, held_back = self.open_all(self.data, batch_size), None
        if self.holdout:
            trained, held_back = split(trained, self.holdout, "--holdout {}")
        if self.epochs > 1 or self.shuffle:
            trained = Epochs(trained, epochs=self.epochs, shuffle=self.shuffle, seed=self.seed, batch_size=batch_size)
        if self.hot_batches:
            job = replace(self, lr_schedule="constant", dense_lr_schedule=None).job(  # its end may not be known
                features=trained.features,
                dense_features=len(trained.dense_features),
                labels=trained.labels,
                parameter_servers=("not started",),
            )
            trained = in_hot_batches(trained, job, self.hot_batches)
        return trained, held_back

    def open_all(self, uri: str, batch_size: int) -> Dataset:
        """Opens all samples of some data, once, in the order in which they are."""
        return open_data(uri, batch_size, seed=self.seed, skip_bad=self.skip_bad, schema=self.schema)

    def cache_size(self, dataset: Dataset) -> int:
        """Returns the rows of one worker's cache. Counts the data set's ids if the cache is a share of them.

        Where nobody says how large it is, it holds what the samples of one iteration may need: of little data, too.
        """
        if self.cache_rows is not None:
            if self.cache_ratio is not None:
                raise InvalidArgument("--cache-rows and --cache-ratio exclude each other")
            return self.cache_rows
        if dataset.endless:
            raise InvalidArgument(f"{self.data} is endless, so its ids cannot be counted: give --cache-rows")
        distinct = count_distinct(self.data, seed=self.seed, skip_bad=self.skip_bad, schema=self.schema)
        if self.cache_ratio is not None:
            return max(1, round(self.cache_ratio * distinct))
        needed = max(self.worker_samples()) * sum(feature.max_length for feature in dataset.features)
        return max(1, round(DEFAULT_CACHE_RATIO * distinct), min(distinct, needed))


# Options that the job has under the same name and in the same form; whoever adds one to both adds it to the command.
_OPTIONS_OF_THE_JOB = {option.name for option in fields(JobSpec)} & {option.name for option in fields(RunOptions)}


def takes_run_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turns `function(chosen: RunOptions, ...)` into a command.

    Its options are RunOptions' fields, the function's own, and `--config`, whose file gives the others.
    """
    own = list(inspect.signature(function).parameters.values())[1:]
    hints = get_type_hints(function, include_extras=True)
    shared = get_type_hints(RunOptions, include_extras=True)
    names = [field.name for field in fields(RunOptions)]

    @wraps(function)
    def command(config: Path | None, **values: Any) -> None:  # noqa: ARG001 - its callback has read the file
        chosen = RunOptions(**{name: values.pop(name) for name in names})
        function(chosen, **values)

    parameters = [inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None)]
    parameters += [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        for field in fields(RunOptions)
    ]
    parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    annotations = {"config": Config, **shared, **hints}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=annotations[parameter.name]) for parameter in parameters]
    )
    command.__annotations__ = {parameter.name: annotations[parameter.name] for parameter in parameters}
    return command
