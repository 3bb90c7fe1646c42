"""Mechanisms in turns (A B C A B C ...), so that other work on the machine slows all of them alike."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.e2e.bounds import arithmetic_seconds, duplex_seconds
from benchmarks.e2e.places import Place
from benchmarks.e2e.run import Window, measure
from esd.run.cache_size import DEFAULT_CACHE_RATIO
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, training_stream
from esd.services.domain.ids import distinct_values

_ARITHMETIC_ITERATIONS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Milliseconds and bytes are per iteration.

    Attributes:
        data: the samples.
        mechanism: as on the command line: `joint/balanced`, `laia/direct`.
        turn: number of the run of this mechanism on these data.
        load: the machine's load average at the end of the run, including these processes.
        iterations: number of measured iterations.
        iterations_per_second: their rate.
        processor_ms: processor time by process.
        thread_ms: the same by kind of process and name of thread, mean over the processes of a kind.
        pulled_bytes: bytes that all workers received from the parameter servers or from each other.
        pushed_bytes: bytes that all workers sent to the parameter servers or to each other.
        direct_bytes: bytes that all workers sent to each other.
        links_ms: the links' bound, both directions at once: the larger of two means. One is of the least time that the
            slowest worker's rows take in each iteration, the other of all bytes on the busiest link.
        processors_ms: the processors' bound: processor time of all processes by the number of cores.
        arithmetic_ms: processor time of the training steps of all workers without anything else, not by cores.
    """

    data: str
    mechanism: str
    turn: int
    load: float
    iterations: int
    iterations_per_second: float
    processor_ms: Mapping[str, float]
    thread_ms: Mapping[str, Mapping[str, float]]
    pulled_bytes: float
    pushed_bytes: float
    direct_bytes: float
    links_ms: float
    processors_ms: float
    arithmetic_ms: float

    def as_json(self) -> dict[str, Any]:
        """Returns all figures by name."""
        return asdict(self) | {"over_bound": self.over_bound}

    @property
    def over_bound(self) -> float:
        """The time of an iteration by the larger of the two bounds."""
        return 1e3 / self.iterations_per_second / max(self.links_ms, self.processors_ms)

    @property
    def kinds(self) -> dict[str, float]:
        """Processor time by kind of process, ms: all workers together, all parameter servers together."""
        sums: dict[str, float] = {}
        for process, ms in self.processor_ms.items():
            kind = _kind(process)
            sums[kind] = sums.get(kind, 0.0) + ms
        return sums


def compare(
    data_sets: Sequence[str], mechanisms: Sequence[str], options: RunOptions, warm_up: int, turns: int,
    place: Place, progress: Callable[[str], None],
) -> Iterator[Measured]:  # fmt: skip
    """Trains every mechanism on every data set, and yields each run when it is over.

    Args:
        data_sets: as for `--data`.
        mechanisms: their names; `/balanced` after a name asks for balanced workloads, `/direct` for `--direct`.
        options: all others, with a number of iterations.
        warm_up: iterations of each run that are not measured.
        turns: runs of each mechanism on each data set.
        place: where the services run.
        progress: is told before each run.
    """
    for data in data_sets:
        cases = [_Case(replace(options, data=data), mechanism) for mechanism in mechanisms]
        for turn in range(turns):
            for case in cases:
                progress(f"{data}, {case.mechanism}, {turn + 1} of {turns}")
                yield case.measure(turn, warm_up, place)


class _Case:
    """One mechanism on one data set."""

    def __init__(self, options: RunOptions, mechanism: str) -> None:
        name, _, way = mechanism.partition("/")
        self.mechanism = mechanism
        self._options = replace(options, mechanism=name)
        match way:
            case "direct":
                self._options = replace(self._options, direct=True)
            case workloads if workloads:
                self._options = replace(self._options, workloads=workloads)
        self._stream = training_stream(self._options)
        self._cache_rows = cache_rows(self._options, self._stream)
        dataset = self._stream.dataset
        self._job = self._options.job(
            features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",)
        )
        self._arithmetic = arithmetic_seconds(
            self._options, self._job, self._stream, self._cache_rows, _ARITHMETIC_ITERATIONS
        )

    def measure(self, turn: int, warm_up: int, place: Place) -> Measured:
        window = asyncio.run(measure(self._options, self._stream, self._cache_rows, warm_up, place=place))
        rows = duplex_seconds(self._options, self._job, self._stream, self._cache_rows, window.feedback)
        of_rows = float(rows[window.first : window.first + window.iterations].mean())
        of_all = float((window.on_links / np.array(self._options.bandwidths())).max()) / window.iterations
        processors = {name: 1e3 * each.total / window.iterations for name, each in window.processors.items()}
        return Measured(
            data=self._options.data,
            mechanism=self.mechanism,
            turn=turn,
            load=os.getloadavg()[0],
            iterations=window.iterations,
            iterations_per_second=window.iterations / window.seconds,
            processor_ms=processors,
            thread_ms=_threads(window),
            pulled_bytes=float(window.pulled.sum()) / window.iterations,
            pushed_bytes=float(window.pushed.sum()) / window.iterations,
            direct_bytes=float(window.direct.sum()) / window.iterations,
            links_ms=1e3 * max(of_rows, of_all),
            processors_ms=sum(processors.values()) / (os.cpu_count() or 1),
            arithmetic_ms=1e3 * self._arithmetic,
        )


def cache_rows(options: RunOptions, stream: TrainingStream) -> int:
    """Returns the rows of a cache: a share of the data set's ids, or of the run's ids for an endless stream."""
    if options.cache_rows is not None or not stream.dataset.endless:
        return options.cache_size(stream.whole).rows
    ratio = DEFAULT_CACHE_RATIO if options.cache_ratio is None else options.cache_ratio
    return max(1, round(ratio * len(distinct_values(np.concatenate([batch.ids.reshape(-1) for batch in stream])))))


def _kind(process: str) -> str:
    return process.rpartition("-")[0] or process


def _threads(window: Window) -> dict[str, dict[str, float]]:
    kinds: dict[str, list[Mapping[str, float]]] = {}
    for process, time in window.processors.items():
        kinds.setdefault(_kind(process), []).append(time.threads)
    return {
        kind: {
            name: 1e3 * statistics.mean(each.get(name, 0.0) for each in threads) / window.iterations
            for name in dict.fromkeys(name for each in threads for name in each)
        }
        for kind, threads in kinds.items()
    }
