"""Regenerates the papers' figures: `python -m benchmarks.papers`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.papers import esd_figures, frugal_figures, herald_figures, report, scars_figures
from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import WARM_UP, Runs
from benchmarks.papers.workload import Workload

PAPERS: dict[str, Callable[[Sequence[Runs]], Iterator[Figure]]] = {
    "esd": esd_figures.figures,
    "herald": herald_figures.figures,
    "scars": scars_figures.figures,
    "frugal": frugal_figures.figures,
}
DATA = ("flights", "synthetic:criteo")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the experiments and writes JSON, Markdown and plots."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--data", nargs="+", default=DATA, help="flights, synthetic:..., criteo:PATH, avazu:PATH, ...")
    parser.add_argument("--papers", nargs="+", default=list(PAPERS), choices=PAPERS)
    parser.add_argument("--samples", type=int, default=80_000, help="of each data set")
    parser.add_argument("--iterations", type=int, default=40, help=f"after {WARM_UP} of warm-up")
    parser.add_argument("--seeds", type=int, default=1, help="to average costs over")
    parser.add_argument("--out", type=Path, default=Path("docs/papers"))
    given = parser.parse_args(arguments)

    runs = [Runs(Workload.load(uri, given.samples), given.iterations, given.seeds) for uri in given.data]
    workloads = [
        f"{run.workload.name}: {len(run.workload.trace):,} samples, {run.workload.fields} fields,"
        f" {run.workload.rows:,} distinct ids"
        for run in runs
    ]
    command = " ".join(["python -m benchmarks.papers", *(sys.argv[1:] if arguments is None else arguments)])
    for paper in given.papers:
        report.write(paper, list(_measured(PAPERS[paper](runs))), given.out, command, workloads)


def _measured(figures: Iterator[Figure]) -> Iterator[Figure]:
    """Says what took how long."""
    started = time.perf_counter()
    for figure in figures:
        print(f"{time.perf_counter() - started:6.1f} s  {figure.title}", file=sys.stderr)
        yield figure
        started = time.perf_counter()


if __name__ == "__main__":
    main()
