"""The bytes that rows of fewer bits would save: `python -m benchmarks.row_precision`.

Plans a run, and counts pulls by the trainings that follow. A worker could read a rounded row, as long as the machine
that applies the optimizer has the exact one. Prints a line of JSON for each data set, in bytes per iteration of all
workers:

- `rows`: of rows and their gradients; `all`: by way to sum dense gradients, with plans, samples and dense sums.
- `saved`: by scheme and format.
    - `split`: rows that several workers train come rounded, since each sends an exact gradient back anyway.
    - `returned`: every row comes rounded. A worker that trains it alone keeps the gradient. If it trains the row again
      next, it pulls the exact one first; if not, it sends the gradient in place of the row.
    - `initial`: rows that were never trained are not sent, because a worker can make them of seed and id, exactly.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.run.dense_shapes import dense_shapes
from esd.run.options import RunOptions
from esd.run.stream import simulated_stream
from esd.services.domain.dense_sums import parse_dense_sum
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.tables import ROW_KEY_BYTES, TableSpec
from esd.services.domain.worker_set import several

WAYS = ("server", "low-rank:4", "every:64")
SCALE_BYTES = 4  # of a row in int8


class CountingPlanner(Planner):
    """Counts pulls and stays of rows, after a number of first iterations.

    Attributes:
        counts: of pulls: `split`, `alone`, `initial split` and `initial alone`, where the first two do not have initial
            rows; of stays, from the pull by a worker that trains the row alone until its push: `once`, those that end
            after a single training, and `again`, those that come to a second one.
    """

    def __init__(self, *args: Any, warm_up: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counts: Counter[str] = Counter()
        self._left = warm_up
        self._trainings: dict[int, int] = {}  # of rows that one worker alone has trained since it pulled them

    def plan(self, *args: Any, **options: Any) -> Decision:
        """See Planner."""
        decision = super().plan(*args, **options)
        for plan in decision.plans:
            for pushed in (*plan.update_rows.ids.tolist(), *plan.evict_rows.ids.tolist()):
                if self._trainings.pop(pushed) == 1:
                    self._count("once")
        for plan in decision.plans:
            self._train(plan)
        self._left = max(0, self._left - 1)
        return decision

    def _train(self, plan: IterationPlan) -> None:
        pulled = set(plan.pulls.ids.tolist())
        columns = plan.unique_ids.tolist(), several(plan.unique_contributors).tolist(), plan.unique_versions.tolist()
        for row, split, version in zip(*columns, strict=True):
            if row in pulled:
                self._count(("" if version else "initial ") + ("split" if split else "alone"))
            if not split:
                trainings = self._trainings[row] = 1 if row in pulled else self._trainings[row] + 1
                if trainings == 2:
                    self._count("again")

    def _count(self, name: str) -> None:
        if not self._left:
            self.counts[name] += 1


def saved_bytes(counts: Counter[str], table: TableSpec) -> dict[str, dict[str, float]]:
    """Returns the bytes that each scheme saves, by the format of rounded rows."""
    sizes = {"int8": table.dimension + SCALE_BYTES + ROW_KEY_BYTES, "bf16": 2 * table.dimension + ROW_KEY_BYTES}
    values, row = table.value_transfer_bytes, table.row_transfer_bytes
    state = row - values
    found: dict[str, dict[str, float]] = {"split": {}, "returned": {}}
    for name, rounded in sizes.items():
        split = (counts["split"] + counts["initial split"]) * (values - rounded)
        first = counts["alone"] * (row - rounded) + counts["initial alone"] * (values - rounded)
        exact = rounded if name == "bf16" else values  # of bf16 the lower halves are enough
        again = counts["again"] * (exact + state)
        found["split"][name] = split
        found["returned"][name] = split + first - again - counts["once"] * (table.gradient_transfer_bytes - row)
    found["initial"] = {"f32": (counts["initial split"] + counts["initial alone"]) * values}
    return found


def measure(chosen: RunOptions, warm_up: int) -> dict[str, Any]:
    """Plans a run, and returns its figures per iteration."""
    stream = simulated_stream(chosen, None)
    job = chosen.job(
        features=stream.features,
        dense_features=stream.dense_features,
        parameter_servers=("none",),
        labels=stream.labels,
    )
    planner = CountingPlanner(job, chosen.bandwidths(), [stream.cache_rows] * job.workers, warm_up=warm_up)
    totals = simulate(planner, stream.batches(), warm_up=warm_up)
    iterations = totals.iterations
    rows = int(totals.moved_bytes.total.sum()) / iterations
    saved = saved_bytes(planner.counts, job.table)
    return {
        "data": chosen.data,
        "rows": round(rows),
        "all": {way: round(rows + totals.plan_bytes / iterations + dense_bytes(job, way)) for way in WAYS},
        "saved": {
            scheme: {name: round(each / iterations) for name, each in of.items()} for scheme, of in saved.items()
        },
        "pulls and stays": {name: round(count / iterations, 1) for name, count in sorted(planner.counts.items())},
    }


def dense_bytes(job: JobSpec, name: str) -> float:
    """Returns the bytes of an iteration's sums on the links of all workers, up and down."""
    way, shapes = parse_dense_sum(name), dense_shapes(job)
    if shapes is None:
        raise SystemExit("dense parameters are counted with torch: pip install '.[train]'")
    floats = way.dense_floats(shapes, job.model.dense_optimizer.values_per_parameter)
    return 2 * job.workers * way.sent_bytes(floats, job.workers)


def main() -> None:
    """Measures every data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=["flights", "journey"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--links", default="100m,100m,10m,10m")
    parser.add_argument("--iterations", type=int, default=1200)
    parser.add_argument("--warm-up", type=int, default=200, help="first iterations that do not count")
    options = parser.parse_args()
    chosen = RunOptions(dim=options.dim, links=options.links, iterations=options.iterations, checkpoint_every=0)
    for data in options.data:
        print(json.dumps(measure(replace(chosen, data=data), options.warm_up)), flush=True)


if __name__ == "__main__":
    main()
