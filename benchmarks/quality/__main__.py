"""Held-out AUC and normalised entropy of every model on both real data sets, beside plain torch.

    python -m benchmarks.quality [--models wdl,dlrm] [--data flights] [--seeds 5] [--json] [--results FILE]

Each model is trained with each seed by ESD, on a cluster of two local workers whose caches are far smaller than the
table, and by a loop in plain torch (plain_torch.py, plain_models.py), which shares neither models nor rows nor random
numbers with it: same samples, same batches, same optimizers, and the same laws of the initial values. `t` is the
difference of the two means by its standard error (Welch). Without a difference it is beyond 4.7 in one of 640
comparisons of five seeds, so in one of twenty tables of 32.

Runs are kept in FILE, one per line, and those that are there already are not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quality import cluster, plain_torch
from benchmarks.quality.means import apart
from benchmarks.quality.plain_models import PLAIN_MODELS
from benchmarks.quality.samples import DATA, load
from esd.run.options import RunOptions
from esd.services.domain.tables import OptimizerKind

BATCH, ITERATIONS = 1024, 80
OPTIONS = RunOptions(
    workers=2,
    links="10g",
    batch=BATCH // 2,
    dim=16,
    hidden="64,32",
    cache_rows=30_000,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.005,
    checkpoint_every=0,
)
_FIGURES = ("auc", "normalised_entropy")

Run = dict[str, Any]


def main() -> None:
    """Makes the runs that are missing, and prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(PLAIN_MODELS), help="comma-separated; default: all")
    parser.add_argument("--data", default=",".join(DATA), help="comma-separated; default: both")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, ... of each")
    parser.add_argument("--results", type=Path, default=Path("build/quality.jsonl"), help="file of the runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    chosen = list(product(given.data.split(","), given.models.split(",")))
    for data, model in chosen:
        if data not in DATA or model not in PLAIN_MODELS:
            parser.error(f"{data} with {model}: data are {', '.join(DATA)}, models {', '.join(PLAIN_MODELS)}")
    runs = _read(given.results)
    for data, model in chosen:
        for side in ("esd", "torch"):
            made = {run["seed"] for run in runs if (run["data"], run["model"], run["side"]) == (data, model, side)}
            missing = [seed for seed in range(given.seeds) if seed not in made]
            if missing:
                runs += _train(data, model, side, missing, given.results)
    rows = [compared(runs, data, model, given.seeds) for data, model in chosen]
    if given.json:
        print(json.dumps({"rows": rows}))
    else:
        Console().print(_table(rows))


def _read(results: Path) -> list[Run]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _train(data: str, model: str, side: str, seeds: list[int], results: Path) -> list[Run]:
    """Trains with each of the seeds, and writes down every run as soon as it is over."""
    options, samples = replace(OPTIONS, model=model), load(data, BATCH, ITERATIONS, history=model == "tbsm")
    made: list[Run] = []
    results.parent.mkdir(parents=True, exist_ok=True)

    def keep(seed: int, auc: float, normalised_entropy: float) -> None:
        figures = {"auc": auc, "normalised_entropy": normalised_entropy}
        made.append({"data": data, "model": model, "side": side, "seed": seed, **figures})
        with results.open("a") as file:
            file.write(json.dumps(made[-1]) + "\n")
        print(made[-1], file=sys.stderr)

    if side == "esd":
        cluster.train(samples, options, seeds, lambda seed, made: keep(seed, *figures_of(made)))
    else:
        for seed in seeds:
            keep(seed, *plain_torch.train(samples, replace(options, seed=seed)))
    return made


def figures_of(evaluations: cluster.Evaluations) -> tuple[float, float]:
    """Returns AUC and normalised entropy of the trained model."""
    last = evaluations[-1].quality
    return last.auc, last.normalised_entropy


def compared(runs: list[Run], data: str, model: str, seeds: int) -> Run:
    """Returns mean and spread of each figure and side, and how far they are apart."""
    row: Run = {"data": data, "model": model}
    for figure in _FIGURES:
        row[figure] = apart(
            {
                side: [
                    run[figure]
                    for run in runs
                    if (run["data"], run["model"], run["side"]) == (data, model, side) and run["seed"] < seeds
                ]
                for side in ("esd", "torch")
            }
        )
    return row


def _table(rows: list[Run]) -> Table:
    table = Table("data", "model", "AUC, ESD", "AUC, torch", "t", "NE, ESD", "NE, torch", "t")
    for row in rows:
        cells = []
        for figure in _FIGURES:
            sides = [row[figure][side] for side in ("esd", "torch")]
            cells += [*(f"{side['mean']:.4f} ± {side['spread']:.4f}" for side in sides), f"{row[figure]['t']:.1f}"]
        table.add_row(row["data"], row["model"], *cells)
    return table


if __name__ == "__main__":
    main()
