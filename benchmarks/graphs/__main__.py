"""ComplEx by ESD and by PyKEEN on one graph, models by the number of workers, and the bytes of negatives.

    apt-get install wordnet-base && python examples/graphs/wordnet.py wordnet/ --synsets 6000
    pip install pykeen==1.11.1
    python -m benchmarks.graphs wordnet/ [--epochs 30] [--seeds 5] [--json]

Each seed trains ESD on a cluster of two local workers and PyKEEN in one process (reference.py), with the same triples,
batches of 512, dimension, loss, number of shared negatives, optimizer, epochs and law of the initial values; each
side draws its own order of triples, negatives and initial values. Ranks are filtered and realistic. `t` is the
difference of the two means by its standard error (Welch). Then:

- PyKEEN's evaluator judges the rows of ESD's first model, beside ESD's own evaluation of them;
- the distance of the models of 2 and 4 workers from the model of 1, relative to its norm, by table;
- the bytes between the dispatcher and all others, driver and workers, with negatives that 1,200 samples share and
  without any, counted at a proxy.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.graphs.cluster import carried, trained
from benchmarks.graphs.reference import Reference
from benchmarks.graphs.settings import FIGURES, Settings
from benchmarks.quality.means import apart

_WORKERS = 2  # of the compared runs
_SIZES = (1, 2, 4)  # of the clusters whose models are compared


def main() -> None:
    """Trains everything, and prints tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="folder of train.txt, valid.txt and test.txt")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, ...; at least 2")
    parser.add_argument("--dim", type=int, default=64, help="values of a row")
    parser.add_argument("--negatives", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    settings = Settings(given.graph, given.dim, given.negatives, given.epochs, given.lr)
    figures = measure(settings, given.seeds)
    if given.json:
        print(json.dumps(figures))
    else:
        for table in _tables(figures):
            Console().print(table)


def measure(settings: Settings, seeds: int) -> dict[str, Any]:
    """Returns all figures."""
    reference = Reference(settings)
    ours, theirs = [], []
    for seed in range(seeds):
        ours.append(trained(settings, _WORKERS, seed))
        theirs.append(reference.train(seed))
        print(seed, ours[-1].figures, theirs[-1], file=sys.stderr)
    models = {workers: ours[0] if workers == _WORKERS else trained(settings, workers, 0) for workers in _SIZES}
    alone = models[1].rows
    return {
        "quality": {
            name: apart({"esd": [each.figures[name] for each in ours], "pykeen": [each[name] for each in theirs]})
            for name in FIGURES
        },
        "evaluators": {"esd": ours[0].figures, "pykeen": reference.judge(*ours[0].rows)},
        "distances": {
            workers: [float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(alone, model.rows, strict=True)]
            for workers, model in models.items()
            if workers > 1
        },
        "bytes": [asdict(carried(settings, negatives)) for negatives in (0, settings.negatives)],
    }


def _tables(figures: dict[str, Any]) -> list[Table]:
    quality = Table("", "ESD", "PyKEEN", "t", "ESD's first model", "the same by PyKEEN's evaluator")
    for name, row in figures["quality"].items():
        sides = (f"{row[side]['mean']:.4f} ± {row[side]['spread']:.4f}" for side in ("esd", "pykeen"))
        judged = (f"{figures['evaluators'][side][name]:.6f}" for side in ("esd", "pykeen"))
        quality.add_row(name, *sides, f"{row['t']:.1f}", *judged)
    distances = Table("workers", "entities", "relations", title="Distance from the model of one worker")
    for workers, of_tables in figures["distances"].items():
        distances.add_row(str(workers), *(f"{each:.1e}" for each in of_tables))
    carried_bytes = Table("negatives", "bytes to it", "bytes from it", title="The dispatcher, per iteration of 1,200")
    for row in figures["bytes"]:
        sent = (f"{row[side]:,.0f}" for side in ("to_dispatcher", "from_dispatcher"))
        carried_bytes.add_row(str(row["negatives"]), *sent)
    return [quality, distances, carried_bytes]


if __name__ == "__main__":
    main()
