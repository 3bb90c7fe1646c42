"""AUC by seconds and by bytes of ESD and of other ways to train: `python -m benchmarks.rivals` (root).

Four machines, each with a quarter of a processor and one network card, which the kernel holds to its speed, train the
same model on the same samples with the same first values. Rivals are plain programs of torch: one machine alone,
DistributedDataParallel, a parameter server without caches, local SGD. ESD takes the proposals of `esd plan` on such a
machine: for the model of one machine, and with averages of dense parameters, as inexact as the averages of local SGD.
The model is judged at the same iterations, while the clock of the run stands still.

The target is the AUC of the machine alone after the last iteration, less a tolerance for the order of sums. A rival's
run ends at the target, and any run when it has taken longer than the fastest one, of the machine alone and ESD, to the
target, by a factor, or would take three times that. Prints a line of JSON for each run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.rivals import ours
from benchmarks.rivals.plans import OURS, Plan, plans
from benchmarks.rivals.processes import Bound, Line
from benchmarks.rivals.runs import ALONE, DDP, LOCAL, PLAIN, RIVALS, Place, run_alone, run_ours, run_rival
from benchmarks.rivals.task import Task
from benchmarks.rivals.topologies import HUB_SHARE, MACHINES, SHARE, TOPOLOGIES
from testbed.processor_shares import processor_shares

_TOLERANCE = 0.001  # of AUC below the target that count as having reached it


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        data: that was trained.
        topology: the name of its machines and links; empty for the machine alone, which has none.
        rival: its name.
        lines: how far it was when.
        reached_seconds: to the first mark with the target; None: it has not reached it.
        reached_megabytes: likewise, of all cards, sent and received.
        load: of the machine on which all run, when it ended.
    """

    data: str
    topology: str
    rival: str
    lines: list[Line]
    reached_seconds: float | None
    reached_megabytes: float | None
    load: float


class Comparison:
    """The runs on one data set.

    Args:
        data: its name.
        options: of the command line.
        folder: where the programs find their task, and leave their logs.
    """

    def __init__(self, data: str, options: argparse.Namespace, folder: Path) -> None:
        self._data, self._options, self._folder = data, options, folder
        Task.of(data, options.batch, options.iterations, options.every).write(folder)
        self._target = math.inf
        self._figures = cache(lambda chosen: ours.figures(chosen, options.batch, options.iterations, options.every))

    def compare(self) -> None:
        """Trains alone, and then on each topology by all ways."""
        with processor_shares(HUB_SHARE, *[SHARE] * MACHINES) as (hub, *shares):
            place = Place(self._folder, hub, shares)
            lines = run_alone(place)
            self._target = lines[-1].figures["auc"] - _TOLERANCE
            alone = self._tell("", ALONE, lines)
            chosen = {name: TOPOLOGIES[name] for name in self._options.topologies}
            found = {
                way: plans(self._data, way, self._options.batch, chosen, MACHINES, shares) for way in self._options.ours
            }
            for name, topology in chosen.items():
                bound = Bound(self._options.patience * alone, self._target, self._options.iterations)
                took = alone
                for way, proposed in found.items():
                    plan = proposed[name]
                    planned = {"data": self._data, "topology": name, "rival": way, "plan": asdict(plan)}
                    print(json.dumps(planned), flush=True)
                    lines = run_ours(replace(place, bound=bound), topology, plan)
                    took = min(took, self._tell(name, way, self._judged(plan, lines)))
                bound = replace(bound, seconds=self._options.patience * took)
                for rival in self._options.rivals:
                    self._tell(name, rival, run_rival(replace(place, bound=bound), topology, rival))

    def _judged(self, plan: Plan, lines: list[Line]) -> list[Line]:
        """Returns ESD's lines with the figures of its model."""
        figures = self._figures(ours.judged_by(plan.options, self._options.batch))
        return [replace(line, figures=figures.get(line.iteration, {})) for line in lines]

    def _tell(self, topology: str, rival: str, lines: list[Line]) -> float:
        """Prints a result, and returns its seconds to the target; infinite: it has not reached it."""
        reached = next((line for line in lines if line.figures.get("auc", -math.inf) >= self._target), None)
        seconds = None if reached is None else reached.seconds
        sent = None if reached is None else reached.megabytes
        result = Result(self._data, topology, rival, lines, seconds, sent, os.getloadavg()[0])
        print(json.dumps(asdict(result)), flush=True)
        return math.inf if seconds is None else seconds


def main() -> None:
    """Compares on each data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=["journey", "flights", "synthetic:criteo"])
    parser.add_argument("--topologies", nargs="+", choices=TOPOLOGIES, default=list(TOPOLOGIES))
    parser.add_argument("--ours", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), help=f"{DDP}, {PLAIN}, {LOCAL}:ITERATIONS")
    parser.add_argument("--batch", type=int, default=256, help="samples of an iteration, of all machines")
    parser.add_argument("--iterations", type=int, default=1200)
    parser.add_argument("--every", type=int, default=192, help="iterations between marks, at which models are judged")
    parser.add_argument("--patience", type=float, default=1.1, help="times the fastest run to the target")
    options = parser.parse_args()
    for data in options.data:
        with tempfile.TemporaryDirectory(prefix="esd-rivals-") as folder:
            Comparison(data, options, Path(folder)).compare()


if __name__ == "__main__":
    main()
