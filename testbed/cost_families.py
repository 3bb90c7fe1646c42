"""Cost matrices that stress assignment solvers in different ways. All are int32 or float32 [k, n], C-contiguous."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int32] | NDArray[np.float32]

SLOW_LINK = 10  # cost of a row over a 0.5 Gbit/s link in units of one over a 5 Gbit/s link (ESD §6.1)


def links(n: int) -> NDArray[np.int32]:
    """Link costs T_j, int32 [n]: the first half of the links is fast."""
    return np.where(np.arange(n) < (n + 1) // 2, 1, SLOW_LINK).astype(np.int32)


def esd(k: int, n: int, rng: np.random.Generator) -> Costs:
    """ESD Alg. 1 on independent ids: 17 to 26 per sample, absent, clean at up to 3 workers or owned by one."""
    t = links(n)
    costs = np.zeros((k, n), np.int32)
    rows = np.arange(k)
    ids = rng.integers(17, 27, k)
    for field in range(26):
        present = field < ids
        owned = present & (rng.random(k) < 0.3)
        cached = present & (rng.random(k) < 0.6)
        holders = np.zeros((k, n), bool)
        for copy in range(3):
            holder = rng.integers(0, n, k)
            keeps = cached & (~owned if copy else cached) & (rng.random(k) < 1 / (1 + copy))
            holders[rows[keeps], holder[keeps]] = True
        owned &= holders.any(axis=1)
        push = np.where(owned, t[holders.argmax(axis=1)], 0)
        costs += np.where(holders | ~present[:, None], 0, t + push[:, None])
    return costs


def cached(k: int, n: int, rng: np.random.Generator) -> Costs:
    """ESD Alg. 1 on 26 fields of Zipf-distributed ids, after each id was last trained by a worker of its own choice."""
    t = links(n)
    costs = np.zeros((k, n), np.int32)
    for _ in range(26):
        ids = np.minimum(rng.zipf(1.1, k), 1 << 20).astype(np.uint64)
        spread = ids * np.uint64(0x9E3779B97F4A7C15)
        owner = ((spread >> np.uint64(32)) % np.uint64(n)).astype(np.int64)
        seen = ids < 200_000
        costs += t
        costs[seen] += t[owner[seen], None]
        costs[seen, owner[seen]] -= 2 * t[owner[seen]]
    return costs


def uniform(k: int, n: int, rng: np.random.Generator) -> Costs:
    """Independent integers in 0..520."""
    return rng.integers(0, 521, (k, n), dtype=np.int32)


def product(k: int, n: int, rng: np.random.Generator) -> Costs:
    """Sample weight times worker weight: every sample prefers the same workers, by a different margin."""
    return np.outer(rng.integers(0, 1000, k), rng.integers(0, 1000, n)).astype(np.int32)


def same(k: int, n: int, rng: np.random.Generator) -> Costs:
    """All samples prefer worker 0, then 1, ...: prices must rise in many small steps."""
    return (np.arange(n) * 100 + rng.integers(0, 100, (k, n))).astype(np.int32)


def ties(k: int, n: int, rng: np.random.Generator) -> Costs:
    """Integers in 0..2: huge sets of optimal assignments."""
    return rng.integers(0, 3, (k, n), dtype=np.int32)


def floats(k: int, n: int, rng: np.random.Generator) -> Costs:
    """Independent floats in [0, 1)."""
    return rng.random((k, n), dtype=np.float32)


def float_product(k: int, n: int, rng: np.random.Generator) -> Costs:
    """Makes the costs of `product` in floats."""
    return np.outer(rng.random(k), rng.random(n)).astype(np.float32)


FAMILIES: dict[str, Callable[[int, int, np.random.Generator], Costs]] = {
    "esd": esd,
    "cached": cached,
    "uniform": uniform,
    "product": product,
    "same": same,
    "ties": ties,
    "floats": floats,
    "float-product": float_product,
}
