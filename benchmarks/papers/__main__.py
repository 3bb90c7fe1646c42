"""Regenerates the papers' figures: `python -m benchmarks.papers`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.papers import esd_figures, frugal_figures, herald_figures, laia_figures, report, scars_figures
from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import WARM_UP, Runs
from benchmarks.papers.workload import Workload

SIMULATED: dict[str, Callable[[Sequence[Runs]], Iterator[Figure]]] = {
    "esd": esd_figures.figures,
    "herald": herald_figures.figures,
    "scars": scars_figures.figures,
    "frugal": frugal_figures.figures,
    "laia": laia_figures.figures,
}
_TITLES = {"laia": "Against both readings of LAIA, simulated"}  # of pages that are not of one paper
PAPERS = [name for name in SIMULATED if name not in _TITLES]
DATA = ("flights", "synthetic:criteo")
_COUNTED = (
    "All figures are counted from plans, exactly: a row that several samples of a worker share moves once. The papers"
    " measured other data (and more of it) on other machines, so what can be compared is the direction and the size of"
    " an effect. `n/a`: a cache is smaller than what its worker trains in one iteration, or the trace is too short."
    " Figures with brackets are the mean, the least and the largest of several seeds; where those are the same digits,"
    " one of them is shown. LAIA's score is by Herald's code unless its text is named."
)
_TIMED = (
    "Every run is real services: processes of one machine that speak gRPC, links shaped by token buckets, one parameter"
    " server with the memory store. The papers measured other data on larger machines, so what can be compared is the"
    " direction and the size of an effect. Figures with brackets are the mean, the least and the largest of several"
    " seeds. LAIA's score is by Herald's code."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the experiments and writes pages, plots and the measured values."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--papers", nargs="+", default=PAPERS, choices=SIMULATED)
    parser.add_argument("--seeds", type=int, default=1, help="of random choices; --live: of ESD Fig. 4a")
    parser.add_argument("--out", type=Path, default=Path("docs/papers"), help="folder of the pages and plots")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/results/papers"), help="folder of the measured values, JSON"
    )
    parser.add_argument(
        "--live", action="store_true", help="times on real services; runs in RESULTS/live-runs.json are not repeated"
    )
    simulated = parser.add_argument_group("without --live")
    simulated.add_argument("--data", nargs="+", default=DATA, help="flights, synthetic:..., criteo:PATH, ...")
    simulated.add_argument("--samples", type=int, default=80_000, help="of each data set")
    simulated.add_argument("--iterations", type=int, default=40, help=f"after {WARM_UP} of warm-up")
    given = parser.parse_args(arguments)
    command = " ".join(["python -m benchmarks.papers", *(sys.argv[1:] if arguments is None else arguments)])
    (_live if given.live else _simulated)(given, command)


def _simulated(given: argparse.Namespace, command: str) -> None:
    runs = [Runs(Workload.load(uri, given.samples), given.iterations, given.seeds) for uri in given.data]
    workloads = [
        f"- {run.workload.name}: {len(run.workload.trace):,} samples, {run.workload.fields} fields,"
        f" {run.workload.rows:,} distinct ids"
        for run in runs
    ]
    above = [f"Written by `{command}`. Workloads:", "", *workloads, "", _COUNTED]
    for paper in given.papers:
        title = _TITLES.get(paper, f"Figures of the {paper.upper()} paper, simulated")
        page = report.Page(paper, title, above)
        report.write(page, list(_measured(SIMULATED[paper](runs))), given.out, given.results)


def _live(given: argparse.Namespace, command: str) -> None:
    from benchmarks.papers import live  # noqa: PLC0415 - torch takes seconds to import

    runs = live.LiveRuns(given.results / "live-runs.json", given.seeds, lambda run: print(run, file=sys.stderr))
    for paper in given.papers:
        figures = list(_measured(live.FIGURES[paper](runs)))
        least, most = runs.loads
        machine = f"{os.cpu_count()} cores, load averages {least:.0f} to {most:.0f}, those processes among them."
        above = [f"Written by `{command}` on {machine}", "", _TIMED]
        page = report.Page(f"{paper}-live", f"Figures of the {paper.upper()} paper, live", above)
        report.write(page, figures, given.out, given.results)


def _measured(figures: Iterator[Figure]) -> Iterator[Figure]:
    """Prints the seconds that each figure took."""
    started = time.perf_counter()
    for figure in figures:
        print(f"{time.perf_counter() - started:6.1f} s  {figure.title}", file=sys.stderr)
        yield figure
        started = time.perf_counter()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; with --live, the same command resumes after the last finished run")
