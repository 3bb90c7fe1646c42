"""Memory of a long simulation: `python -m benchmarks.memory`.

Plans iteration after iteration at a bounded number of ids and prints the resident memory on the way. Once all ids have
been seen it has to stay where it is, but for 8 bytes per iteration, its decision time.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.tables import OptimizerSpec, TableSpec

WORKERS, FIELDS, SAMPLES, IDS, CACHE_ROWS = 4, 8, 32, 50_000, 2_000
_POINTS = 10
_DRAWN = 1_000  # batches drawn at a time


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def batches(iterations: int, seen: dict[int, int]) -> Iterator[SampleBatch]:
    """Skewed ids of a fixed set; notes the resident memory at evenly spaced iterations."""
    rng = np.random.default_rng(0)
    every = max(1, iterations // _POINTS)
    dense, labels = np.empty((SAMPLES, 0), np.float32), np.zeros(SAMPLES, np.float32)
    for start in range(0, iterations, _DRAWN):
        drawn = (IDS * rng.random((_DRAWN, SAMPLES, FIELDS)) ** 3).astype(np.uint64)
        for t, ids in enumerate(drawn[: iterations - start], start):
            if t and t % every == 0:
                note(t, seen)
            yield SampleBatch.of_fields(ids, dense, labels)


def note(iteration: int, seen: dict[int, int]) -> None:
    """Prints the resident memory and appends it to the results."""
    seen[iteration] = resident_bytes()
    print(f"{iteration:>8,} iterations: {seen[iteration] / 2**20:7.1f} MiB", flush=True)


def measure(mechanism: str, policy: str, iterations: int) -> dict[int, int]:
    """Resident bytes by iteration of one simulation."""
    optimizer = OptimizerSpec()
    job = JobSpec(
        name="memory",
        workers=WORKERS,
        features=numbered_ids(FIELDS),
        dense_features=0,
        batch_size=SAMPLES,
        workloads=equal_workloads(SAMPLES, WORKERS),
        mechanism=mechanism,
        policy=policy,
        seed=0,
        window=4,
        tables=(TableSpec("embeddings", 64, optimizer, 0, init_scale=0.01),),
        model=ModelSpec("wdl", (), optimizer),
        parameter_servers=("simulated",),
    )
    seen: dict[int, int] = {}
    simulate(Planner(job, [625e6, 625e6, 62.5e6, 62.5e6], [CACHE_ROWS] * WORKERS), batches(iterations, seen))
    note(iterations, seen)
    return seen


def main() -> None:
    """Measures and prints; one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--mechanism", default="esd")
    parser.add_argument("--policy", default="emark")
    arguments = parser.parse_args()
    shape = f"{WORKERS} workers, {IDS:,} ids, {SAMPLES} x {FIELDS} a batch"
    print(f"{arguments.mechanism}, {arguments.policy}: {shape}")
    print(json.dumps(measure(arguments.mechanism, arguments.policy, arguments.iterations)))


if __name__ == "__main__":
    main()
