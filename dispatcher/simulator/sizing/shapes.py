"""The fit of SCARS' distributions to a stream's rows: Zipf, exponential and half-normal (§II, end)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STEPS = 60  # of the golden section: each shrinks the interval to 0.62 of its width, to 12 digits of the logarithm
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Shape:
    """A distribution over ranks, fitted to a table of accesses.

    Attributes:
        name: `zipf`, `exponential` or `half-normal`.
        parameter: the exponent of Zipf, or the scale of the other distributions in rows.
        distance: the largest difference of the cumulative shares, 0..1 (Kolmogorov-Smirnov).
    """

    name: str
    parameter: float
    distance: float


def fit_shapes(counts: NDArray[np.int64]) -> tuple[Shape, ...]:
    """Fits the three distributions by maximum likelihood, and returns the closest first.

    Args:
        counts: int64 [E], lookups by row, descending, not all 0.
    """
    ranks = np.arange(1, len(counts) + 1, dtype=np.float64)
    # By name: the logarithm of the ranks' weights for a parameter, and the range of the parameter.
    families: dict[str, tuple[Callable[[float], NDArray[np.float64]], tuple[float, float]]] = {
        "zipf": (lambda exponent: -exponent * np.log(ranks), (0.01, 20.0)),
        "exponential": (lambda scale: -ranks / scale, (0.1, 100.0 * len(counts))),
        "half-normal": (lambda scale: -0.5 * (ranks / scale) ** 2, (0.1, 100.0 * len(counts))),
    }
    seen = np.cumsum(counts) / counts.sum()
    shapes = []
    for name, (log_weights, limits) in families.items():
        parameter = _most_likely(log_weights, counts, limits)
        expected = np.cumsum(_probabilities(log_weights(parameter)))
        shapes.append(Shape(name, parameter, float(np.abs(expected - seen).max())))
    return tuple(sorted(shapes, key=lambda shape: shape.distance))


def _most_likely(
    log_weights: Callable[[float], NDArray[np.float64]], counts: NDArray[np.int64], limits: tuple[float, float]
) -> float:
    """Returns the parameter of greatest likelihood, by golden section over its logarithm."""

    def surprise(log_parameter: float) -> float:
        weights = log_weights(float(np.exp(log_parameter)))
        largest = weights.max()
        return float(counts.sum() * (largest + np.log(np.exp(weights - largest).sum())) - counts @ weights)

    low, high = np.log(limits)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if surprise(left) < surprise(right) else (left, high)
    return float(np.exp((low + high) / 2))


def _probabilities(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights
