"""Trains a setting on real services and keeps the measurements in a file, so that no run is measured twice."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.e2e.comparison import cache_rows
from benchmarks.e2e.run import Window, measure
from benchmarks.papers.figure import Figure
from esd.run.options import RunOptions
from esd.run.stream import training_stream
from esd.services.domain.reports import PHASES
from esd.services.runtime.whole_files import write_whole

WARM_UP = 10  # iterations, ESD §6.1 and Herald §6.1
UNEQUAL_LINKS, EQUAL_LINKS = "40m,40m,4m,4m", "8m"  # 10 to 1 as in ESD §6.1, and so slow that they bind
# The papers' figures are about rows, so dense sums take a network of their own here.
_LAN = "100g"


@dataclass(frozen=True, slots=True)
class LiveSetting:
    """One run on real services.

    The defaults are ESD's (§6.1) at a size that two cores can train: a half of its workers and of its batch, a quarter
    of its row, links that are to each other as its own.

    Attributes:
        data: as for `esd train --data`.
        mechanism: by name.
        alpha: share of the exact solver.
        sync: a way to synchronise.
        model: by name.
        hidden: widths of the MLP.
        workers: n.
        links: of the workers, bits per second.
        batch: m, samples per worker.
        dim: values per row.
        cache_ratio: share of the data's ids that a worker caches.
        policy: cache replacement.
        shards: parameter servers.
        iterations: of the run, the warm-up included.
        seed: of rows, dense parameters and random choices.
    """

    data: str = "flights"
    mechanism: str = "laia"
    alpha: float = 1.0
    sync: str = "on-demand"
    model: str = "wdl"
    hidden: str = "256,128"
    workers: int = 4
    links: str = UNEQUAL_LINKS
    batch: int = 64
    dim: int = 128
    cache_ratio: float = 0.08
    policy: str = "emark"
    shards: int = 1
    iterations: int = 50
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the run in the file: the data, and all values that differ from the defaults."""
        changes = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return " ".join(
            [f"data={self.data}", *(f"{name}={value}" for name, value in changes.items() if name != "data")]
        )

    def options(self) -> RunOptions:
        """Returns the options of `esd train` for this setting."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "shards"}
        return RunOptions(**given, lan=_LAN, checkpoint_every=0)


@dataclass(frozen=True, slots=True)
class Speed:
    """The measurements of a run. Times and bytes are per iteration, after the warm-up.

    Attributes:
        samples: samples of an iteration.
        load: the machine's load average at the end of the run, including the run's own processes.
        iterations: number of measured iterations.
        iteration_ms: wall time.
        pulled_bytes: bytes that all workers received from the parameter servers.
        pushed_bytes: bytes that all workers sent to the parameter servers.
        phases_ms: time by phase, of each worker.
        processor_ms: processor time of all processes.
        decision_ms: median time of a decision.
        auc: AUC of all samples, each scored before it is trained.
    """

    samples: int
    load: float
    iterations: int
    iteration_ms: float
    pulled_bytes: float
    pushed_bytes: float
    phases_ms: Mapping[str, Sequence[float]]
    processor_ms: float
    decision_ms: float
    auc: float

    @property
    def stall_ms(self) -> float:
        """The longest time that a worker waits for rows, pushed or pulled."""
        return max(map(sum, zip(self.phases_ms["push"], self.phases_ms["pull"], strict=True)))

    @property
    def samples_per_second(self) -> float:
        """Samples that all workers train in a second."""
        return 1e3 * self.samples / self.iteration_ms

    @property
    def necessary_ms(self) -> float:
        """The longest time that a worker computes, which is an iteration without transfers (Herald §4.1)."""
        return max(map(sum, zip(self.phases_ms["compute"], self.phases_ms["update"], strict=True)))


class LiveRuns:
    """All runs on real services, and the file that keeps them."""

    def __init__(self, kept: Path, seeds: int, progress: Callable[[str], None]) -> None:
        """`seeds` is how many a figure takes that takes more than one; `progress` is told before each run."""
        self.seeds = seeds
        self._path = kept
        self._progress = progress
        self._kept: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}

    def speed(self, setting: LiveSetting) -> Speed:
        """Returns the measurements of a setting, from the file or from a new run."""
        if setting.name not in self._kept:
            self._progress(setting.name)
            self._kept[setting.name] = asdict(train(setting))
            kept = f"{json.dumps(self._kept, indent=1)}\n".encode()
            write_whole(self._path, lambda file: file.write(kept))
        return Speed(**self._kept[setting.name])

    def speed_up(self, setting: LiveSetting, baseline: LiveSetting) -> float:
        """Returns the iterations per second in units of a baseline's."""
        return self.speed(baseline).iteration_ms / self.speed(setting).iteration_ms

    def speed_ups(self, setting: LiveSetting, baseline: LiveSetting) -> list[float]:
        """Returns the iterations per second in units of a baseline's, for each seed."""
        return [self.speed_up(replace(setting, seed=seed), replace(baseline, seed=seed)) for seed in range(self.seeds)]

    @property
    def loads(self) -> tuple[float, float]:
        """The smallest and the largest load average of all runs in the file."""
        loads = [run["load"] for run in self._kept.values()]
        return min(loads), max(loads)


def add_lines(
    figure: Figure,
    workload: str,
    systems: Mapping[str, LiveSetting],
    knob: str,
    values: Sequence[float],
    measured: Callable[[LiveSetting], float],
) -> None:
    """Adds a line per system to a figure: the measured values over one knob of its setting."""
    for name, setting in systems.items():
        for value in values:
            changes: dict[str, Any] = {knob: value}
            figure.add(workload, f"{name} @ {value:g}", measured(replace(setting, **changes)))


def train(setting: LiveSetting) -> Speed:
    """Trains once.

    Raises:
        RuntimeError: the run was over too soon to be measured.
    """
    options = setting.options()
    stream = training_stream(options)
    window = asyncio.run(measure(options, stream, cache_rows(options, stream), WARM_UP, setting.shards))
    return _speed(stream.batch_size, window)


def _speed(samples: int, window: Window) -> Speed:
    def each(seconds: float) -> float:
        return 1e3 * seconds / window.iterations

    return Speed(
        samples=samples,
        load=os.getloadavg()[0],
        iterations=window.iterations,
        iteration_ms=each(window.seconds),
        pulled_bytes=float(window.pulled.sum()) / window.iterations,
        pushed_bytes=float(window.pushed.sum()) / window.iterations,
        phases_ms={name: [each(getattr(phases, name)) for phases in window.phases] for name in PHASES},
        processor_ms=each(sum(time.total for time in window.processors.values())),
        decision_ms=1e3 * window.decision_seconds,
        auc=window.auc,
    )
