"""The options of one run, as plain values, and their meaning together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from esd.data import Dataset, open_data
from esd.data.dataset import negatives_of, table_options_of
from esd.data.distinct import distinct_ids_of
from esd.data.epochs import Epochs
from esd.data.schema import Schema, TableOptions, admit_afters, job_tables, row_ttls
from esd.data.schema_file import name_of, read_schema
from esd.data.site_values import ByReference
from esd.data.sites import at_sites
from esd.data.split import split
from esd.run.budget import parse_alpha, parse_budget
from esd.run.cache_size import CacheSize, default_cache
from esd.run.hot_batches import in_hot_batches
from esd.run.links import parse_links
from esd.run.mechanism import choose_options
from esd.run.model import parse_hidden
from esd.run.schedules import parse_schedule
from esd.run.workloads import parse_limits, parse_workloads
from esd.services.domain.dense_sums import parse_dense_sum
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature
from esd.services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
from esd.services.domain.losses import Loss
from esd.services.domain.mechanisms import MAX_HORIZON, OPTIONS, Criterion, LaiaReading
from esd.services.domain.negatives import Negatives
from esd.services.domain.schedules import Schedule
from esd.services.domain.stream_parts import MAX_SUBMITTERS
from esd.services.domain.sync import parse_sync
from esd.services.domain.tables import MAX_ADMIT_AFTER, MAX_ROW_TTL, OptimizerKind, OptimizerSpec, TableSpec
from esd.services.domain.units import parse_size, parse_speed
from esd.services.domain.worker_set import MAX_WORKERS

DEFAULT_BATCH = 64
BALANCED = "balanced"
PLAN_WINDOW = 4  # iterations planned ahead, the running one included: two overlap, more absorb jitter
TABLE = "embeddings"  # the table of the rows where no name is given

# Fields whose option on the command line has another name.
_SHORT_NAMES = {"learning_rate": "lr", "dense_learning_rate": "dense-lr", "dense_sum": "dense"}


# The least and the most of each field that is a number; None: any.
LIMITS: Mapping[str, tuple[int, int | None]] = {
    "workers": (1, MAX_WORKERS),
    "hash_field": (0, None),
    "horizon": (1, MAX_HORIZON),
    "batch": (1, None),
    "dim": (1, 4096),
    "cache_ratio": (0, 1),
    "cache_rows": (1, None),
    "weight_decay": (0, None),
    "clip": (0, None),
    "epochs": (1, None),
    "shuffle": (0, None),
    "hot_batches": (0, None),
    "evaluate_every": (0, None),
    "submitters": (1, MAX_SUBMITTERS),
    "iterations": (1, None),
    "skip_bad": (0, None),
    "seed": (0, None),
    "checkpoint_every": (0, None),
    "max_rows": (0, None),
    "row_ttl": (0, MAX_ROW_TTL),
    "admit_after": (1, MAX_ADMIT_AFTER),
    "checkpoint_seconds": (0, None),
    "checkpoints_kept": (1, None),
}


def option_name(field: str) -> str:
    """Returns the option of a field as the command line and every message write it: `--lr` for `learning_rate`."""
    return "--" + _SHORT_NAMES.get(field, field.replace("_", "-"))


_MOST_CACHE_ROWS = 2**32 - 1  # of one worker, as the number travels


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run. A text has the form that the command line takes; `esd train --help` shows every one.

    Attributes:
        data: samples: `flights`, `journey`, `synthetic:NAME`, or `READER:PATH`; with a schema the path of files.
        schema: the description of the columns of files, or its TOML file; None: the reader knows its columns.
        model: a built-in model, or `package.module:Class`.
        hidden: widths of the model's hidden layers, `256,128`.
        loss: loss of the model.
        workers: n, 1 to 128.
        links: speed of every machine's link in bits per second, `500m,50m`, or one speed for all. All that a worker
            sends and receives shares it.
        lan: speed of a second network for the traffic between workers; None: there is none.
        sites: site of every worker, `north,north,south`: a sample is trained by workers of its site only; None:
            anywhere.
        site_values: folder that `esd data site-values` has written: labels and dense features stay at the sites, and
            samples refer to them; None: samples travel as a whole.
        measured_links: whether link speeds follow measurements.
        mechanism: the dispatch mechanism, one of `esd.dispatcher.core.mechanisms.MECHANISMS`.
        alpha: share of the samples that the exact solver assigns, `0` to `1`, or `auto`.
        criterion: which samples go to the exact solver.
        solver: the exact solver; `auto` takes the fastest one that runs here.
        eviction_term: whether expected costs contain the evict pushes that a row may cause.
        laia_reading: the copies that LAIA counts: by Herald's text the latest ones, by its code also trained ones.
        hash_field: number of the field that mechanism `hash` goes by; None: the best one on the first batches.
        horizon: batches that a decision of `joint` looks at, its own included.
        budget: milliseconds of one assignment, or `auto`; None: as long as it takes.
        batch: samples per worker and iteration in the mean; None: 64.
        workloads: samples of each worker, `96,32`, or `equal` (None) or `balanced`.
        workload_limits: with balanced workloads the least and the most samples of a worker, `16,128`.
        dim: D, values of an embedding row.
        cache_ratio: cache of a worker as a share of the data's ids; None: as `default_cache` sizes it.
        cache_rows: cache of a worker in rows, instead of `cache_ratio`.
        policy: cache replacement: emark, emark-size, reuse, lru, lfu or static.
        sync: when trained rows are pushed: `on-demand` or another way of `esd.services.domain.sync`.
        dense_sum: how dense gradients are summed over the workers: `all-reduce`, `server` or `low-rank:R`, or
            `every:H` for averages of dense parameters; `auto`: by the first or the second, as the links of the workers
            are.
        direct: whether a row that one other worker alone needs goes straight to it.
        optimizer: of the rows and of the dense parameters.
        learning_rate: of the rows, and of the dense parameters unless `dense_learning_rate` is given.
        dense_learning_rate: of the dense parameters.
        lr_schedule: how learning rates change: constant, cosine[:N[:SHARE]], step:N:SHARE, after warm-up:N.
        dense_lr_schedule: the schedule of the dense parameters; None: `lr_schedule`.
        weight_decay: times the dense parameters, added to their gradients.
        clip: longest gradient of all dense parameters together; 0: any length.
        submitters: parts of the stream, each with a submitter of its own: this run submits part 0, `esd submit` the
            others.
        epochs: how often the data are trained.
        shuffle: samples of the buffer through which each epoch is shuffled; 0: the order stays.
        hot_batches: with replicated rows the iterations that a sample waits for a mini-batch of its kind; 0: none.
        evaluate: data that judge the model and are not trained, as `data`.
        holdout: the last part of the data, which judges instead of being trained: a share, `0.1`, or a time, `1d`.
        evaluate_every: iterations between evaluations, each at a checkpoint; 0: one at the end.
        early_stop: `METRIC:N`, which ends the run when N evaluations in a row are no better.
        iterations: after which the run ends; None: with the data.
        skip_bad: malformed records that are skipped before one is an error.
        seed: of rows, dense parameters, order and random choices.
        checkpoint_every: iterations between checkpoints; 0: by `checkpoint_seconds`.
        max_rows: rows that the tables may have; 0: any number.
        at_max_rows: whether a run that needs more rows than that is refused, or forgets rows.
        row_ttl: iterations without a training after which a row is forgotten; 0: none. A schema may have others.
        admit_after: N, an id is trained from the N-th iteration on that has it; 1: at once. A schema may have others.
        checkpoint_seconds: longest time between checkpoints; 0: any.
        checkpoint_bytes: bytes of samples after which a checkpoint is taken early, such as `256MiB`; `0`: any number.
        checkpoints_kept: checkpoints that can be gone back to.

    Raises:
        InvalidArgument: a number is not within its LIMITS. A message names a field as the command line does: `--lr`.
    """

    data: str = "flights"
    schema: Path | Schema | None = None
    model: str = "wdl"
    hidden: str = "256,128"
    loss: Loss = Loss.BCE
    workers: int = 4
    links: str = "500m"
    lan: str | None = None
    sites: str | None = None
    site_values: Path | None = None
    measured_links: bool = False
    mechanism: str = "joint"
    alpha: str = "1"
    criterion: Criterion = Criterion.MIN2_MIN
    solver: str = "auto"
    eviction_term: bool = False
    laia_reading: LaiaReading = LaiaReading.CODE
    hash_field: int | None = None
    horizon: int = 1
    budget: str | None = None
    batch: int | None = None
    workloads: str | None = None
    workload_limits: str | None = None
    dim: int = 64
    cache_ratio: float | None = None
    cache_rows: int | None = None
    policy: str = "emark"
    sync: str = "on-demand"
    dense_sum: str = "auto"
    direct: bool = False
    optimizer: OptimizerKind = OptimizerKind.ROWWISE_ADAGRAD
    learning_rate: float = 0.02
    dense_learning_rate: float | None = None
    lr_schedule: str = "constant"
    dense_lr_schedule: str | None = None
    weight_decay: float = 0.0
    clip: float = 0.0
    submitters: int = 1
    epochs: int = 1
    shuffle: int = 0
    hot_batches: int = 0
    evaluate: str | None = None
    holdout: str = ""
    evaluate_every: int = 0
    early_stop: str | None = None
    iterations: int | None = None
    skip_bad: int = 0
    seed: int = 0
    checkpoint_every: int = 1000
    max_rows: int = 0
    at_max_rows: RowLimitPolicy = RowLimitPolicy.REFUSE
    row_ttl: int = 0
    admit_after: int = 1
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: str = "256MiB"
    checkpoints_kept: int = 2

    def __post_init__(self) -> None:
        """Checks the numbers. Texts are checked when they are read, by `job` and the methods below.

        Numbers of numpy, as a search over a grid has them, become Python's, which records of the run can hold.
        """
        for option in fields(self):
            if isinstance(value := getattr(self, option.name), np.generic):
                object.__setattr__(self, option.name, value.item())
        for field, (least, most) in LIMITS.items():
            value = getattr(self, field)
            if value is not None and not least <= value <= (math.inf if most is None else most):
                limits = f"at least {least}" if most is None else f"from {least} to {most}"
                raise InvalidArgument(f"{option_name(field)} is {value}, it must be {limits}")

    def under(self, mechanism: str) -> RunOptions:
        """Returns these options with another mechanism, whose own options have their defaults."""
        own = _OPTIONS_OF_MECHANISMS
        defaults: dict[str, Any] = {option.name: option.default for option in fields(self) if option.name in own}
        return replace(self, mechanism=mechanism, **defaults)

    @property
    def data_name(self) -> str:
        """The job's name, from which a table's name may be made: the name of the reader, or of the schema's file."""
        if self.schema is None:
            return self.data.partition(":")[0]
        return name_of(self.schema) if isinstance(self.schema, Path) else "samples"

    @property
    def described(self) -> Schema | None:
        """The schema, read from its file if a file has it."""
        return read_schema(self.schema) if isinstance(self.schema, Path) else self.schema

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

    def worker_sites(self) -> tuple[str, ...]:
        """Returns the site of every worker; empty where samples do not stay at sites."""
        return () if self.sites is None else tuple(site.strip() for site in self.sites.split(","))

    def _most_samples(self) -> int:
        """Returns the most samples that a worker may have in a batch: with sites, a whole batch may be of one."""
        workloads, sites = self.worker_samples(), self.worker_sites()
        if len(sites) != len(workloads):  # there are none, or the job refuses them
            return max(workloads)
        of_site = Counter[str]()
        for site, samples in zip(sites, workloads, strict=True):
            of_site[site] += samples
        shares = [samples / max(1, of_site[site]) for site, samples in zip(sites, workloads, strict=True)]
        return math.ceil(sum(workloads) * max(shares))

    def lan_bandwidth(self) -> float | None:
        """Returns the speed of the second network, bytes per second, or None if there is none."""
        return None if self.lan is None else parse_speed(self.lan)

    def job(
        self,
        *,
        features: tuple[Feature, ...],
        dense_features: tuple[str, ...],
        parameter_servers: tuple[str, ...],
        stream: str = "",
        table: str = TABLE,
        iterations: int | None = None,
        labels: tuple[str, ...] = ("label",),
        negatives: Negatives | None = None,
        table_options: Mapping[str, TableOptions] = MappingProxyType({}),
    ) -> JobSpec:
        """Returns the job that these options describe, on data of the given shape, fingerprint and length if known."""
        schema = self.described
        if schema is not None and schema.label_range is not None:
            self.loss.check_range(*schema.label_range)
        workloads = self.worker_samples()
        dense_rate = self.learning_rate if self.dense_learning_rate is None else self.dense_learning_rate
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS_OF_THE_JOB}
        options |= parse_budget(self.budget)
        of_mechanisms = {name: getattr(self, name) for name in _OPTIONS_OF_MECHANISMS} | parse_alpha(self.alpha)
        options |= {  # what is derived, from other options or from the data
            "name": self.data_name,
            "features": features,
            "labels": labels,
            "negatives": negatives,
            "dense_features": len(dense_features),
            "dense_names": dense_features,
            "rules": () if schema is None else schema.rules,
            "batch_size": sum(workloads),
            "stream": stream,
            "sync": parse_sync(self.sync, direct=self.direct),
            "mechanism_options": choose_options(self.mechanism, of_mechanisms),
            "dense_sum": parse_dense_sum(self.dense_sum),
            "workloads": workloads,
            "workload_limits": self.limits(),
            "sites": self.worker_sites(),
            "by_reference": self.site_values is not None,
            "window": PLAN_WINDOW,
            "tables": self._tables(features, table_options, table),
            "row_ttls": row_ttls(schema, features, self.row_ttl),
            "admit_afters": admit_afters(schema, features, self.admit_after),
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
            "checkpoint_bytes": self._checkpoint_bytes(),
        }
        if self.evaluate_every:  # at checkpoints, which stay until they are evaluated
            if self.checkpoint_seconds:
                raise InvalidArgument("--evaluate-every decides on checkpoints: leave out --checkpoint-seconds")
            kept = max(self.checkpoints_kept, 2 + -(-self.horizon // self.evaluate_every))
            options |= {"checkpoint_every": self.evaluate_every, "checkpoints_kept": kept}
        return JobSpec(**options)

    def _tables(
        self, features: tuple[Feature, ...], options: Mapping[str, TableOptions], table: str = TABLE
    ) -> tuple[TableSpec, ...]:
        rows = OptimizerSpec(self.optimizer, self.learning_rate)
        first = TableSpec(table, self.dim, rows, self.seed, self.dim**-0.5)
        return job_tables(self.described, features, first, options)

    def _checkpoint_bytes(self) -> int:
        if self.checkpoint_bytes == "0":
            return 0
        try:
            return parse_size(self.checkpoint_bytes)
        except InvalidArgument as error:
            raise InvalidArgument(f"{option_name('checkpoint_bytes')}: {error}") from None

    def _dense_schedule(self, iterations: int | None) -> Schedule:
        if self.dense_lr_schedule is None:
            return parse_schedule(self.lr_schedule, iterations)
        return parse_schedule(self.dense_lr_schedule, iterations, "--dense-lr-schedule")

    def open(self, batch_size: int) -> Dataset:
        """Opens the trained part of the data, with all its epochs, in batches of up to `batch_size` samples."""
        return self.open_parts(batch_size)[0]

    def open_parts(self, batch_size: int, opened: Dataset | None = None) -> tuple[Dataset, Dataset | None, Dataset]:
        """Opens the data once, in batches of up to `batch_size` samples.

        Args:
            batch_size: as above.
            opened: the data, if they are open already.

        Returns:
            The trained part with all its epochs; the part that --holdout keeps back, if any; and all samples, once.
        """
        whole = trained = self.open_all(self.data, batch_size) if opened is None else opened
        if self.sites is not None:
            whole = trained = at_sites(whole, self.worker_sites())
        if self.site_values is not None:
            trained = self._by_reference(whole, self.site_values)
        held_back = None
        if self.holdout:
            trained, held_back = split(trained, self.holdout, "--holdout {}")
        if self.epochs > 1 or self.shuffle:
            trained = Epochs(trained, epochs=self.epochs, shuffle=self.shuffle, seed=self.seed, batch_size=batch_size)
        if self.hot_batches:
            if negatives_of(trained) is not None:
                raise InvalidArgument("--hot-batches goes by the samples alone, and negatives are rows of every batch")
            job = replace(self, lr_schedule="constant", dense_lr_schedule=None).job(  # its end may not be known
                features=trained.features,
                dense_features=trained.dense_features,
                labels=trained.labels,
                table_options=table_options_of(trained),
                parameter_servers=("not started",),
            )
            trained = in_hot_batches(trained, job, self.hot_batches)
        return trained, held_back, whole

    def _by_reference(self, whole: Dataset, folder: Path) -> Dataset:
        if self.sites is None:
            raise InvalidArgument(
                "--site-values is for samples that stay at sites, and workers have none: give --sites"
            )
        if self.holdout:
            raise InvalidArgument(
                f"--holdout {self.holdout} needs the labels of its samples here, and --site-values leaves them at "
                "their sites: judge by other data (--evaluate)"
            )
        return ByReference(whole, folder, self.worker_sites())

    def open_all(self, uri: str, batch_size: int) -> Dataset:
        """Opens all samples of some data, once, in the order in which they are."""
        return open_data(uri, batch_size, seed=self.seed, skip_bad=self.skip_bad, schema=self.schema)

    def cache_size(self, dataset: Dataset) -> CacheSize:
        """Returns the size of each worker's cache.

        Counts the ids of all samples if the cache is a share of them; by default only until the bound is known to hold.
        """
        if self.cache_rows is not None:
            if self.cache_ratio is not None:
                raise InvalidArgument("--cache-rows and --cache-ratio exclude each other")
            if not 1 <= self.cache_rows <= _MOST_CACHE_ROWS:
                raise InvalidArgument(f"--cache-rows is {self.cache_rows}, it must be in 1..{_MOST_CACHE_ROWS}")
            return CacheSize(self.cache_rows)
        if dataset.endless:
            raise InvalidArgument(f"{self.data} is endless, so its ids cannot be counted: give --cache-rows")
        if self.cache_ratio is not None:
            return CacheSize(max(1, round(self.cache_ratio * distinct_ids_of(dataset))))
        needed = self._most_samples() * sum(feature.max_length for feature in dataset.features)
        negatives = negatives_of(dataset)
        drawn = 0 if negatives is None else negatives.most_rows(sum(self.worker_samples()))
        tables = self._tables(dataset.features, table_options_of(dataset))
        return default_cache(partial(distinct_ids_of, dataset), needed, tables, self.workers, drawn)


def plain(options: RunOptions) -> dict[str, Any]:
    """Returns options as values of JSON. A schema is named by its file, or left out."""
    given = {option.name: getattr(options, option.name) for option in fields(RunOptions)}
    if not isinstance(options.schema, Path):
        del given["schema"]
    return {
        name: value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value
        for name, value in given.items()
    }


# Options of mechanisms under the same name and in the same form; and those that the job has.
_OPTIONS_OF_MECHANISMS = {option.name for own in OPTIONS.values() for option in fields(own)} & {
    option.name for option in fields(RunOptions)
}

# Options that the job has under the same name and in the same form; whoever adds one to both adds it to the command.
_OPTIONS_OF_THE_JOB = {option.name for option in fields(JobSpec)} & {option.name for option in fields(RunOptions)}
