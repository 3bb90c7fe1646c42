"""How far the means of two sides are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any


def apart(sides: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Returns mean and spread (the sample standard deviation) of two sides by name, and `t`.

    This is the difference of the first mean and the second by its standard error (Welch).
    """
    found = {
        side: {"mean": fmean(values), "spread": stdev(values) if len(values) > 1 else math.nan}
        for side, values in sides.items()
    }
    first, second = found.values()
    error = math.sqrt(sum(found[side]["spread"] ** 2 / len(values) for side, values in sides.items()))
    return {**found, "t": (first["mean"] - second["mean"]) / error if error else math.nan}
