"""The solver benchmark as a plot: one panel per number of workers and family, time over samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.solver import PAPER_CUDA, PAPER_SERIAL, Result
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.extras import is_missing

_PAPER_WORKERS, _PAPER_FAMILY = 8, "esd"


def save_plot(results: Sequence[Result], path: Path) -> None:
    """Draws median, least and largest times; Table 2 of the paper is in the panel of its setting.

    Raises:
        InvalidArgument: matplotlib is not installed, or the file's ending is none it knows.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
    except ImportError:
        raise InvalidArgument(is_missing("--plot", "matplotlib", "bench")) from None

    panels = sorted({(r.n, r.family) for r in results})
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.5 * rows), layout="constrained")
    for place, (n, family) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        panel = [r for r in results if (r.n, r.family) == (n, family)]
        for solver in dict.fromkeys(r.solver for r in panel):
            line = sorted((r for r in panel if r.solver == solver), key=lambda r: r.k)
            middle = [r.ms_median for r in line]
            spread = [[r.ms_median - r.ms_min for r in line], [r.ms_max - r.ms_median for r in line]]
            axes.errorbar([r.k for r in line], middle, spread, marker=".", linewidth=1, label=solver)
        if (n, family) == (_PAPER_WORKERS, _PAPER_FAMILY):
            for name, table in (("paper, serial", PAPER_SERIAL), ("paper, CUDA", PAPER_CUDA)):
                axes.plot([n * m for m in table], list(table.values()), "--", color="gray", label=name)
        axes.set(title=f"n = {n}, {family}", xlabel="samples", ylabel="ms", xscale="log", yscale="log")
        axes.grid(visible=True, linewidth=0.3)
        axes.legend(fontsize=6)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise InvalidArgument(f"--plot {path}: {error}") from None
