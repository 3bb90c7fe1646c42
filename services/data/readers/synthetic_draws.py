"""Random numbers as pure functions of 64 random bits, so that any sample can be generated on its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.data.hashing import field_key
from services.domain.ids import mix64


def draw(sources: NDArray[np.uint64], purpose: str, width: int | None = None) -> NDArray[np.uint64]:
    """64 random bits for each source [k] and purpose; with a width, that many of them: uint64 [k, width]."""
    bits = mix64(sources ^ np.uint64(field_key(f"synthetic {purpose}")))
    if width is None:
        return bits
    return mix64(bits[:, None] ^ np.arange(1, width + 1, dtype=np.uint64))


def uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform in [0, 1) from the upper 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Mean 0, variance 1, about normal: the sum of four 16-bit uniform numbers."""
    total = np.zeros(bits.shape, np.uint64)
    for shift in (0, 16, 32, 48):
        total += (bits >> np.uint64(shift)) & np.uint64(0xFFFF)
    normal_sum: NDArray[np.float64] = (total.astype(np.float64) / 65536 - 2) * 3**0.5
    return normal_sum


def zipf_ranks(
    uniform_draws: NDArray[np.float64], cardinality: NDArray[np.int64] | int, skew: float
) -> NDArray[np.int64]:
    """Ranks from 0 with P(rank r) about (r + 1)^-skew: the inverse of the continuous law on [1, cardinality + 1)."""
    ends = np.asarray(cardinality) + 1.0
    if skew == 1:
        places = ends**uniform_draws
    else:
        rest = 1 - skew
        places = (1 + uniform_draws * (ends**rest - 1)) ** (1 / rest)
    return np.minimum(places.astype(np.int64), cardinality) - 1
