"""The options that `esd train`, `esd simulate` and `esd plan` share: how the command line writes and explains them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from esd.cli.console import OUTPUT
from esd.cli.job_file import Config, Without, with_place
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
    Submitters,
    WeightDecay,
)
from esd.cli.limits import within
from esd.cli.model import Hidden, LossOption, Model
from esd.cli.storage import (
    AdmitAfter,
    AtMaxRows,
    CheckpointBytes,
    CheckpointEvery,
    CheckpointSeconds,
    CheckpointsKept,
    MaxRows,
    RowTtl,
)
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.solvers import SOLVERS
from esd.run.cache_size import DEFAULT_CACHE_BYTES, DEFAULT_CACHE_RATIO
from esd.run.options import DEFAULT_BATCH, RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import Criterion, LaiaReading
from esd.services.domain.tables import OptimizerKind

# The groups of options in `--help`.
TRAINING = "What is trained"
CLUSTER = "Workers"
DISPATCH = "Dispatch"

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
Workers = Annotated[int, typer.Option(**within("workers"), help="Number of workers.", rich_help_panel=CLUSTER)]
Links = Annotated[
    str,
    typer.Option(
        help="Link of each machine in bits per second, or one for all: 500m,500m,50m,50m. Rows, plans, samples, dense "
        "sums and checkpoints share it, in each direction.",
        rich_help_panel=CLUSTER,
    ),
]
Lan = Annotated[
    str | None,
    typer.Option(
        help="Speed of a second network of each machine, for the all-reduce and the direct rows between workers.",
        show_default="none: they share the link",
        rich_help_panel=CLUSTER,
    ),
]
Sites = Annotated[
    str | None,
    typer.Option(
        help="Site of each worker: north,north,south. A sample is trained by workers of its site only; the schema "
        "names the column of sites.",
        show_default="none: anywhere",
        rich_help_panel=CLUSTER,
    ),
]
SiteValues = Annotated[
    Path | None,
    typer.Option(
        help="Folder of esd data site-values: labels and dense features stay at the sites, and samples refer to them.",
        show_default="none: samples travel as a whole",
        rich_help_panel=CLUSTER,
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
LaiaReadingOption = Annotated[
    LaiaReading,
    typer.Option(
        help="laia: the copies that count, by Herald's text the latest ones, by its code also copies whose worker took "
        "part in the row's last training.",
        rich_help_panel=DISPATCH,
    ),
]
HashField = Annotated[
    int | None,
    typer.Option(
        **within("hash_field"),
        help="hash: number of the field whose values decide, 0 for the first.",
        show_default="the best one on the first batches",
        rich_help_panel=DISPATCH,
    ),
]
Horizon = Annotated[
    int,
    typer.Option(
        **within("horizon"), help="joint: batches a decision looks at, its own included.", rich_help_panel=DISPATCH
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        **within("batch"),
        help="Samples per worker and iteration.",
        show_default=str(DEFAULT_BATCH),
        rich_help_panel=TRAINING,
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
        show_default="any",
        rich_help_panel=CLUSTER,
    ),
]
MeasuredLinks = Annotated[
    bool, typer.Option("--measured-links", help="Link speeds follow measurements.", rich_help_panel=CLUSTER)
]
Dim = Annotated[int, typer.Option(**within("dim"), help="Values per embedding row.", rich_help_panel=TRAINING)]
CacheRatio = Annotated[
    float | None,
    typer.Option(
        **within("cache_ratio"),
        help="Cache of a worker, as a share of the data's ids.",
        show_default=f"{DEFAULT_CACHE_RATIO} up to {DEFAULT_CACHE_BYTES >> 20} MiB in all, or an iteration's rows",
        rich_help_panel=CLUSTER,
    ),
]
CacheRows = Annotated[
    int | None,
    typer.Option(
        **within("cache_rows"), help="Cache of a worker in rows, instead of --cache-ratio.", rich_help_panel=CLUSTER
    ),
]
Policy = Annotated[
    str, typer.Option(help="Cache replacement: emark, emark-size, reuse, lru, lfu or static.", rich_help_panel=CLUSTER)
]
SyncOption = Annotated[
    str,
    typer.Option(
        "--sync",
        help="When trained rows are pushed: when others need them (on-demand); before that, while links are idle "
        "(proactive); all, while the next iteration trains (full); all, before it trains (write-through); all, and "
        "each is pulled again, as without a cache (none); never the R rows that are read most, which all workers train "
        "(replicated:R); what has gathered beyond a bound, while others may lack it (bounded:PULL,PUSH).",
        rich_help_panel=TRAINING,
    ),
]
DenseSumOption = Annotated[
    str,
    typer.Option(
        "--dense",
        help="How dense gradients are summed over the workers: in a ring of the workers (all-reduce), or at the "
        "parameter server, to which each sends them once (server), or sends factors of rank R, which makes another "
        "model (low-rank:R). Or parameters are averaged every H iterations, which makes a model that depends on the "
        "workers (every:H). Without it (auto) the links decide: slow or unequal ones need server.",
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
        **within("iterations"),
        help="Iterations after which the run ends.",
        show_default="all of the data",
        rich_help_panel=TRAINING,
    ),
]
SkipBad = Annotated[
    int,
    typer.Option(**within("skip_bad"), help="Malformed records to skip before giving up.", rich_help_panel=TRAINING),
]
Seed = Annotated[
    int,
    typer.Option(**within("seed"), help="Seed of rows, dense parameters and random choices.", rich_help_panel=TRAINING),
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
Shadows = Annotated[
    str | None,
    typer.Option(
        help="Mechanisms whose cost on the same stream is computed for comparison, with commas between them, each with "
        "a value of its first option if another than the default is meant (laia:text); none: none of them, which saves "
        "their memory and time.",
        show_default=",".join(DispatcherSettings.model_fields["shadow_mechanisms"].default),
        rich_help_panel=DISPATCH,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="Where workers train: cpu, cuda (all GPUs of this machine in turn), cuda:N, auto (cuda where there are "
        "GPUs, else cpu), or one for each worker: cuda:0,cuda:1.",
        show_default="ESD_WORKER_DEVICE, or cpu",
        rich_help_panel=CLUSTER,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        file_okay=False,
        help="Directory for the trained model (the folder model), the record of the run (page.html, history.jsonl, "
        "run.json, events.jsonl; `esd page` shows and compares runs), and the logs.",
        rich_help_panel=OUTPUT,
    ),
]
Graphs = Annotated[
    bool | None,
    typer.Option(
        "--graphs/--no-graphs",
        help="Whether the model's folder gets its computation as torch.export (model.pt2) and ONNX (model.onnx), which "
        "takes some seconds. With --graphs a file that cannot be made is an error.",
        show_default="as far as possible, with a warning",
        rich_help_panel=OUTPUT,
    ),
]


# How the command line declares each field of RunOptions.
_DECLARED: dict[str, Any] = {
    "data": Data,
    "schema": SchemaFile,
    "model": Model,
    "hidden": Hidden,
    "loss": LossOption,
    "workers": Workers,
    "links": Links,
    "lan": Lan,
    "sites": Sites,
    "site_values": SiteValues,
    "measured_links": MeasuredLinks,
    "mechanism": Mechanism,
    "alpha": Alpha,
    "criterion": CriterionOption,
    "solver": Solver,
    "eviction_term": EvictionTerm,
    "laia_reading": LaiaReadingOption,
    "hash_field": HashField,
    "horizon": Horizon,
    "budget": Budget,
    "batch": Batch,
    "workloads": Workloads,
    "workload_limits": WorkloadLimits,
    "dim": Dim,
    "cache_ratio": CacheRatio,
    "cache_rows": CacheRows,
    "policy": Policy,
    "sync": SyncOption,
    "dense_sum": DenseSumOption,
    "direct": Direct,
    "optimizer": Optimizer,
    "learning_rate": LearningRate,
    "dense_learning_rate": DenseLearningRate,
    "lr_schedule": LearningRateSchedule,
    "dense_lr_schedule": DenseLearningRateSchedule,
    "weight_decay": WeightDecay,
    "clip": Clip,
    "submitters": Submitters,
    "epochs": EpochsOption,
    "shuffle": Shuffle,
    "hot_batches": HotBatchesOption,
    "evaluate": Evaluate,
    "holdout": Holdout,
    "evaluate_every": EvaluateEvery,
    "early_stop": EarlyStopOption,
    "iterations": Iterations,
    "skip_bad": SkipBad,
    "seed": Seed,
    "checkpoint_every": CheckpointEvery,
    "max_rows": MaxRows,
    "at_max_rows": AtMaxRows,
    "row_ttl": RowTtl,
    "admit_after": AdmitAfter,
    "checkpoint_seconds": CheckpointSeconds,
    "checkpoint_bytes": CheckpointBytes,
    "checkpoints_kept": CheckpointsKept,
}


def takes_run_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turns `function(chosen: RunOptions, ...)` into a command.

    Its options are RunOptions' fields, the function's own, `--config`, whose file gives the others, and `--without`.
    """
    own = list(inspect.signature(function).parameters.values())[1:]
    hints = get_type_hints(function, include_extras=True)
    names = [field.name for field in fields(RunOptions)]

    takes_context = "context" in hints

    @wraps(function)
    def command(config: Path | None, without: str | None, context: typer.Context, **values: Any) -> None:  # noqa: ARG001
        try:
            chosen = RunOptions(**{name: values.pop(name) for name in names})
            function(chosen, **values, **({"context": context} if takes_context else {}))
        except InvalidArgument as error:
            if config is None:
                raise
            raise with_place(error, context, config) from error

    own = [parameter for parameter in own if parameter.name != "context"]
    of_the_file = ("config", "without")
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in of_the_file]
    parameters += [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        for field in fields(RunOptions)
    ]
    parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY))
    annotations = {"config": Config, "without": Without, **_DECLARED, **hints, "context": typer.Context}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=annotations[parameter.name]) for parameter in parameters]
    )
    command.__annotations__ = {parameter.name: annotations[parameter.name] for parameter in parameters}
    return command
