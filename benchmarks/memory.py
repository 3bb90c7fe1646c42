"""Memory of a long simulation: `python -m benchmarks.memory`.

Plans iteration after iteration and prints the resident memory on the way, and the processor time of a decision, of
all threads together. The ids are a bounded number: once all have been seen, memory has to stay where it is, but for 8
bytes per iteration, its decision time. With `--new-ids` none comes twice: then memory and time must not depend on how
many there have been. With `--admit-after 2` no such id is trained, but for the few that the admission's fixed memory
cannot keep out.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

import numpy as np

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.tables import OptimizerSpec, TableSpec

WORKERS, FIELDS, IDS = 4, 8, 50_000
_POINTS = 10
_DRAWN = 10_000  # samples drawn at a time


@dataclass
class Seen:
    """The course of a simulation, by iteration.

    Attributes:
        bytes: resident memory.
        milliseconds: processor time of an iteration since the point before, most of which is the decision.
    """

    bytes: dict[int, int] = field(default_factory=dict)
    milliseconds: dict[int, float] = field(default_factory=dict)
    _last: tuple[int, float] = field(default_factory=lambda: (0, process_time()))

    def note(self, iteration: int) -> None:
        """Prints a point and keeps it."""
        (before, then), now = self._last, process_time()
        self._last = iteration, now
        self.bytes[iteration] = resident_bytes()
        self.milliseconds[iteration] = 1000 * (now - then) / max(1, iteration - before)
        print(
            f"{iteration:>8,} iterations: {self.bytes[iteration] / 2**20:7.1f} MiB, "
            f"{self.milliseconds[iteration]:.2f} ms each",
            flush=True,
        )


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def batches(iterations: int, samples: int, seen: Seen, *, new_ids: bool) -> Iterator[SampleBatch]:
    """Skewed ids of a fixed set, or ids that never come twice; notes evenly spaced iterations."""
    rng = np.random.default_rng(0)
    every = max(1, iterations // _POINTS)
    drawn_at_once = max(1, _DRAWN // samples)
    dense, labels = np.empty((samples, 0), np.float32), np.zeros(samples, np.float32)
    for start in range(0, iterations, drawn_at_once):
        shape = (drawn_at_once, samples, FIELDS)
        if new_ids:
            first = start * samples * FIELDS
            drawn = np.arange(first, first + np.prod(shape), dtype=np.uint64).reshape(shape)
        else:
            drawn = (IDS * rng.random(shape) ** 3).astype(np.uint64)
        for t, ids in enumerate(drawn[: iterations - start], start):
            if t and t % every == 0:
                seen.note(t)
            yield SampleBatch.of_fields(ids, dense, labels)


def measure(arguments: argparse.Namespace) -> Seen:
    """Simulates, and returns the course of it."""
    optimizer = OptimizerSpec()
    job = JobSpec(
        name="memory",
        workers=WORKERS,
        features=numbered_ids(FIELDS),
        dense_features=0,
        batch_size=arguments.samples,
        workloads=equal_workloads(arguments.samples, WORKERS),
        mechanism=arguments.mechanism,
        policy=arguments.policy,
        seed=0,
        window=4,
        tables=(TableSpec("embeddings", 64, optimizer, 0, init_scale=0.01),),
        admit_afters=(arguments.admit_after,) if arguments.admit_after > 1 else (),
        model=ModelSpec("wdl", (), optimizer),
        parameter_servers=("simulated",),
    )
    planner = Planner(job, [625e6, 625e6, 62.5e6, 62.5e6], [arguments.cache_rows] * WORKERS)
    seen = Seen()
    simulate(planner, batches(arguments.iterations, arguments.samples, seen, new_ids=arguments.new_ids))
    seen.note(arguments.iterations)
    if arguments.admit_after > 1:
        print(f"{planner.rows:,} rows are known")
    return seen


def main() -> None:
    """Measures and prints; one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=32, help="of a batch")
    parser.add_argument("--cache-rows", type=int, default=2_000, help="of each worker")
    parser.add_argument("--new-ids", action="store_true", help="no id comes twice")
    parser.add_argument("--admit-after", type=int, default=1, help="iterations with an id before it is trained")
    parser.add_argument("--mechanism", default="esd")
    parser.add_argument("--policy", default="emark")
    arguments = parser.parse_args()
    ids = "new ids" if arguments.new_ids else f"{IDS:,} ids"
    print(
        f"{arguments.mechanism}, {arguments.policy}: {WORKERS} workers, {ids}, {arguments.samples} x {FIELDS} a batch"
    )
    seen = measure(arguments)
    print(json.dumps({"bytes": seen.bytes, "milliseconds": seen.milliseconds}))


if __name__ == "__main__":
    main()
