"""Measures the bytes of samples and plans with labels and dense features in them, and with references to them.

    python -m benchmarks.site_values

Batches of 256 samples go to two sites of two workers each. The bytes are of the messages as they travel, so the machine
does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.sites import SITES
from esd.data import open_data
from esd.dispatcher.core.planner import Planner
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.references import references_to
from esd.services.domain.sites import site_key
from esd.services.wire.batches import encode_batch

BATCH, ITERATIONS = 256, 50
STREAMS = ("synthetic:criteo", "synthetic:avazu", "flights")


def batches(data: str) -> Iterator[SampleBatch]:
    """Yields batches of samples whose sites are drawn evenly."""
    rng = np.random.default_rng(0)
    stream = iter(open_data(data, BATCH, seed=0))
    keys = np.array([site_key(name) for name in dict.fromkeys(SITES)], np.uint64)
    for _ in range(ITERATIONS):
        yield replace(next(stream), sites=keys[rng.integers(0, len(keys), BATCH)], source=None)


def referring(batch: SampleBatch, first: int) -> SampleBatch:
    """Returns the same samples with references to rows from `first` on, of values with any key."""
    nothing = np.empty((len(batch), 0), np.float32)
    rows = np.arange(first, first + len(batch))
    return replace(batch, labels=nothing, dense=nothing, references=references_to(0xABCDEF, rows))


def measured(data: str, *, by_reference: bool) -> tuple[float, float]:
    """Returns the bytes per sample of the messages to the dispatcher, and of the plans with all else that they have."""
    dataset = open_data(data, BATCH, seed=0)
    options = RunOptions(data=data, workers=4, batch=BATCH // 4, sites=",".join(SITES))
    job = options.job(
        features=dataset.features,
        labels=dataset.labels,
        dense_features=dataset.dense_features,
        parameter_servers=("simulated",),
    )
    planner = Planner(replace(job, by_reference=by_reference), options.bandwidths(), [50_000] * 4)
    samples = plans = 0
    for number, batch in enumerate(batches(data)):
        sent = referring(batch, number * BATCH) if by_reference else batch
        samples += len(encode_batch(sent).SerializeToString())
        plans += planner.plan(sent).plan_bytes
    return samples / (BATCH * ITERATIONS), plans / (BATCH * ITERATIONS)


def main() -> None:
    """Prints a line for each stream."""
    print("stream            bytes of a sample, by reference  bytes of plans per sample, by reference")
    for data in STREAMS:
        (sample, plan), (referred, with_it) = (measured(data, by_reference=each) for each in (False, True))
        print(f"{data:<16}  {sample:>17.0f}  {referred:>12.0f}  {plan:>25.0f}  {with_it:>12.0f}")


if __name__ == "__main__":
    main()
