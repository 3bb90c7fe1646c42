"""ESD on services that run already, with the lines of a rival: `python -m benchmarks.rivals.ours FOLDER OPTIONS ...`.

OPTIONS is a JSON object of the options that `esd plan` proposes; addresses of dispatcher and parameter server follow.
The model is judged elsewhere (`figures`): to evaluate it, its rows would have to be pushed over the links.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks.quality import cluster
from benchmarks.quality.dense import OPTIONS
from benchmarks.quality.samples import load
from benchmarks.rivals.course import ready, tell
from benchmarks.rivals.task import Task
from esd.run.driver import drive
from esd.run.events import Event, Progressed
from esd.run.options import RunOptions, option_name
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.dense_sums import Every, LowRank, parse_dense_sum


def chosen_of(proposed: Mapping[str, Any]) -> RunOptions:
    """Returns the options of a run, from those that `esd plan` proposes."""
    names = {field.name: option_name(field.name).removeprefix("--") for field in fields(RunOptions)}
    given = {field: proposed[option] for field, option in names.items() if option in proposed}
    return replace(OPTIONS.under(RunOptions().mechanism), **given)


def judged_by(proposed: Mapping[str, Any], batch: int) -> RunOptions:
    """Returns the options of a run on this machine that trains the same model as a run with the proposed options.

    The model of a single machine is trained by two workers, and by one of the exact ways for all. Another model depends
    on its cluster, and takes as many workers, with the links by which samples are sent to them.

    Args:
        proposed: by `esd plan`.
        batch: samples of an iteration, of all machines.
    """
    chosen = chosen_of(proposed)
    way = parse_dense_sum(chosen.dense_sum)
    if isinstance(way, Every):
        return chosen
    dense = chosen.dense_sum if isinstance(way, LowRank) else "server"
    return replace(OPTIONS, data=chosen.data, batch=batch // OPTIONS.workers, dense_sum=dense)


def figures(chosen: RunOptions, batch: int, iterations: int, every: int) -> dict[int, dict[str, float]]:
    """Returns AUC and normalised entropy by iteration, of a run with options of `judged_by`."""
    found: dict[int, dict[str, float]] = {}

    def keep(_: int, evaluations: cluster.Evaluations) -> None:
        for each in evaluations:
            quality = each.quality
            found[each.iteration] = {"auc": quality.auc, "normalised_entropy": quality.normalised_entropy}

    samples = load(chosen.data, batch, iterations)
    cluster.train(samples, replace(chosen, evaluate_every=every), [OPTIONS.seed], keep)
    return found


class Lines:
    """Tells when the marks are passed: between two states of the job at a steady speed.

    Args:
        marks: the iterations.
    """

    def __init__(self, marks: tuple[int, ...]) -> None:
        self._left = list(marks)
        self._before = (0, 0.0)

    def __call__(self, event: Event) -> None:
        """Sees an event of the run."""
        if not isinstance(event, Progressed):
            return
        (first, began), now = self._before, (event.state.iterations_confirmed, event.state.training_seconds)
        if now[0] == first:
            return
        while self._left and self._left[0] <= now[0]:
            mark = self._left.pop(0)
            tell(mark, began + (mark - first) / (now[0] - first) * (now[1] - began))
        self._before = now


async def train(task: Task, chosen: RunOptions, dispatcher: str, server: str) -> None:
    """Trains the samples of a task."""
    samples = load(chosen.data, task.batch, task.iterations)
    job = chosen.job(
        features=samples.features, dense_features=samples.dense_features, parameter_servers=(server,), table="rivals"
    )
    ready()
    async with AsyncDispatcherClient(dispatcher) as client:
        await drive(client, job, samples.batches(), Lines(task.marks))


def main() -> None:
    """Trains the task of a folder."""
    folder, proposed, dispatcher, server = sys.argv[1:]
    asyncio.run(train(Task.read(Path(folder)), chosen_of(json.loads(proposed)), dispatcher, server))


if __name__ == "__main__":
    main()
