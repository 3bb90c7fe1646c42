"""Held-out figures of ways to sum dense gradients, beside the first of them: `python -m benchmarks.quality.dense`.

Wide & Deep with Adagrad, rows of 128 values and hidden layers of 256 and 128, on two local workers with 128 samples
each. A seed gives all ways the same initial values. Prints a line of JSON for each data set, with the mean of each way
and its distance from the first way's mean (Welch, as in benchmarks/quality/__main__.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from benchmarks.quality import cluster
from benchmarks.quality.__main__ import figures_of
from benchmarks.quality.means import apart
from benchmarks.quality.samples import DATA, Samples, load
from esd.run.options import RunOptions

BATCH = 256  # samples of an iteration
OPTIONS = RunOptions(
    model="wdl",
    workers=2,
    links="10g",
    batch=BATCH // 2,
    dim=128,
    hidden="256,128",
    cache_rows=100_000,
    mechanism="random",  # moves other rows, and trains the same model
    checkpoint_every=0,
)
_FIGURES = ("auc", "normalised_entropy")


def main() -> None:
    """Trains each way with each seed, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dense", nargs="+", default=["server", "low-rank:8"], help="the first is compared with")
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--iterations", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, ... of each")
    given = parser.parse_args()
    for data in given.data:
        samples = load(data, BATCH, given.iterations)
        found = {way: train(samples, data, way, given.seeds) for way in given.dense}
        first, *others = given.dense
        for way in others:
            sides = {
                figure: apart({side: [made[at] for made in found[side]] for side in (first, way)})
                for at, figure in enumerate(_FIGURES)
            }
            print(json.dumps({"data": data, "seeds": given.seeds, "iterations": given.iterations} | sides), flush=True)


def train(samples: Samples, data: str, way: str, seeds: int) -> list[tuple[float, float]]:
    """Returns AUC and normalised entropy of the model of each seed, and shows them."""
    figures: list[tuple[float, float]] = []

    def tell(seed: int, evaluations: cluster.Evaluations) -> None:
        figures.append(figures_of(evaluations))
        print(data, way, seed, *figures[-1], file=sys.stderr, flush=True)

    cluster.train(samples, replace(OPTIONS, data=data, dense_sum=way), range(seeds), tell)
    return figures


if __name__ == "__main__":
    main()
