"""Rows in the cache of a GPU are trained as on the processor, and read by another thread while they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from esd.services.domain.plans import UsedRows
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.worker.training.device import prepare_device
from esd.worker.training.rows import RowCache

pytestmark = pytest.mark.gpu

SLOTS, DIMENSION, USED, IDS, STEPS = 500, 16, 200, 3000, 6
REPLICATED, OWNED, SPLIT = 0, 0b1, 0b101


def used_rows(rng: np.random.Generator, *kinds: int) -> UsedRows:
    """Rows in any slots, of which every one is used by some of 3,000 ids."""
    inverse = np.concatenate([np.arange(USED), rng.integers(0, USED, IDS - USED)]).astype(np.uint32)
    slots = rng.choice(SLOTS, USED, replace=False).astype(np.uint32)
    return UsedRows(slots, rng.choice(kinds, USED).astype(np.uint64), rng.permutation(inverse))


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("max_norm", [0.0, 0.5])
@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
def test_rows_are_trained_as_on_the_processor(kind: OptimizerKind, max_norm: float, gathers: bool) -> None:
    optimizer = OptimizerSpec(kind, learning_rate=0.1, epsilon=1e-6, max_norm=max_norm)
    width = TableSpec("rows", DIMENSION, optimizer, seed=1, init_scale=0.1).row_width
    rng = np.random.default_rng(4)
    steps = [used_rows(rng, *([OWNED] if gathers else [REPLICATED, OWNED, SPLIT])) for _ in range(STEPS)]
    values, results = rng.normal(size=(SLOTS, width)).astype(np.float32), []
    gradients = torch.from_numpy(rng.normal(size=(STEPS, IDS, DIMENSION)).astype(np.float32))
    every = np.arange(SLOTS, dtype=np.uint32)
    for name in ("cpu", "cuda:0"):
        device = prepare_device(name, 1)
        cache = RowCache(SLOTS, width, device, gathers=DIMENSION if gathers else 0)
        cache.write(every, np.abs(values))
        found = []
        for step, used in enumerate(steps):
            shared = torch.zeros(int((used.contributors == REPLICATED).sum()), DIMENSION, device=device)
            found.append(cache.look_up(used, DIMENSION).cpu())
            cache.train(used, gradients[step].to(device), shared, optimizer, 0.1, step + 1)
            found.append(shared.cpu())
            if len(shared):
                cache.train_replicated(used, shared, optimizer, 0.1, step + 1)
        found.append(torch.from_numpy(cache.read(every, width)))
        if gathers:
            found.append(torch.from_numpy(cache.read(every, DIMENSION, gradients=True)))
        results.append(found)
    for on_processor, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu, on_processor, rtol=1e-4, atol=1e-5)


def test_another_thread_reads_rows_while_others_are_trained() -> None:
    """A read waits for the writes before it, and none of its rows is of the training that is queued meanwhile."""
    device, width, count = prepare_device("cuda:0", 1), 64, 4000
    cache = RowCache(2 * count, width, device)
    mine, trained = np.arange(count, dtype=np.uint32), np.arange(count, 2 * count, dtype=np.uint32)
    busy = torch.randn(4096, 4096, device=device)
    with ThreadPoolExecutor(1) as reader:
        for turn in range(30):
            rows = cache.staging(count)
            rows[:] = turn
            cache.write(mine, rows)
            read = reader.submit(cache.read, mine, width)
            for _ in range(3):
                busy @ busy
            cache.write(trained, np.full((count, width), -1, np.float32))
            assert (read.result() == turn).all()
