"""Tables of a comparison: medians over the turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table

from benchmarks.e2e.comparison import Measured

_LEAST_MS = 0.05  # threads with less are not shown


def tables(runs: Sequence[Measured]) -> Iterator[Table]:
    """Makes the tables of all data sets: the speed of each mechanism, and the processor time by process."""
    for data in dict.fromkeys(run.data for run in runs):
        of_data = [run for run in runs if run.data == data]
        groups = {
            mechanism: [run for run in of_data if run.mechanism == mechanism]
            for mechanism in dict.fromkeys(run.mechanism for run in of_data)
        }
        yield _rates(data, groups)
        yield _processors(data, groups)
        yield _threads(data, groups)


def _rates(data: str, groups: dict[str, list[Measured]]) -> Table:
    """The bounds are the links' and the processors'; `steps` is the arithmetic alone, of all workers."""
    table = Table(
        "mechanism", "it/s", "turns", "ms", "links", "processors", "by bound", "steps", "MB pulled", "MB pushed",
        "MB direct",
        title=f"{data}: an iteration, its bounds in ms, ms of arithmetic, bytes",
    )  # fmt: skip
    for mechanism, runs in groups.items():
        rates = [run.iterations_per_second for run in runs]
        table.add_row(
            mechanism,
            f"{statistics.median(rates):.2f}",
            f"{min(rates):.1f}-{max(rates):.1f}",
            f"{1e3 / statistics.median(rates):.1f}",
            _median(runs, lambda run: run.links_ms),
            _median(runs, lambda run: run.processors_ms),
            _median(runs, lambda run: run.over_bound, 2),
            _median(runs, lambda run: run.arithmetic_ms),
            _median(runs, lambda run: run.pulled_bytes / 1e6, 2),
            _median(runs, lambda run: run.pushed_bytes / 1e6, 2),
            _median(runs, lambda run: run.direct_bytes / 1e6, 2),
        )
    return table


def _processors(data: str, groups: dict[str, list[Measured]]) -> Table:
    kinds = list(dict.fromkeys(kind for runs in groups.values() for run in runs for kind in run.kinds))
    table = Table("mechanism", *kinds, "all", title=f"{data}: processor time of an iteration, ms")
    for mechanism, runs in groups.items():
        shares = [_median(runs, lambda run, kind=kind: run.kinds[kind]) for kind in kinds]  # type: ignore[misc]
        table.add_row(mechanism, *shares, _median(runs, lambda run: sum(run.processor_ms.values())))
    return table


def _threads(data: str, groups: dict[str, list[Measured]]) -> Table:
    """One process of each kind, by thread."""
    table = Table("process", "thread", *groups, title=f"{data}: processor time of an iteration by thread, ms")
    runs = [run for group in groups.values() for run in group]
    names = dict.fromkeys((kind, name) for run in runs for kind, threads in run.thread_ms.items() for name in threads)
    for kind, name in names:
        medians = [statistics.median(run.thread_ms[kind].get(name, 0.0) for run in group) for group in groups.values()]
        if max(medians) >= _LEAST_MS:
            table.add_row(kind, name, *(f"{ms:.2f}" for ms in medians))
    return table


def _median(runs: Sequence[Measured], figure: Callable[[Measured], float], digits: int = 1) -> str:
    return f"{statistics.median(figure(run) for run in runs):.{digits}f}"
