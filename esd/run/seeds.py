"""The same run with several seeds, and how much its figures depend on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from esd.run.early_stop import RANKING
from esd.run.results import Result

# The figures that the seed decides; figures of held-out samples have the same names.
_FIGURES = ("loss", "auc", "normalised_entropy", "calibration")
_HELD_OUT = "held_out"


def over_seeds(first: int, count: int, run: Callable[[int], Result]) -> Result:
    """Runs once for each of the seeds `first` to `first + count - 1`.

    Returns:
        `runs`, the results in order, each with its `seed`; `mean` and `spread` of the figures of the model, the spread
        being the sample standard deviation. A figure that a run lacks is NaN in both.
    """
    runs = [run(seed) | {"seed": seed} for seed in range(first, first + count)]
    figures = {name: [each[name] for each in runs] for name in _FIGURES}
    if all(each[_HELD_OUT] is not None for each in runs):
        names = [name for name in (*_FIGURES, *RANKING) if name in runs[0][_HELD_OUT]]
        figures |= {f"{_HELD_OUT}.{name}": [each[_HELD_OUT][name] for each in runs] for name in names}
    return {
        "runs": runs,
        "mean": {name: fmean(values) for name, values in figures.items()},
        "spread": {name: _spread(values) for name, values in figures.items()},
    }


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2 or any(map(math.isnan, values)):
        return math.nan
    return stdev(values)
