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


def chosen_of(proposed: Mapping[str, Any]) -> RunOptions:
    """Returns the options of a run, from those that `esd plan` proposes."""
    names = {field.name: option_name(field.name).removeprefix("--") for field in fields(RunOptions)}
    given = {field: proposed[option] for field, option in names.items() if option in proposed}
    return replace(OPTIONS.under(RunOptions().mechanism), **given)


def figures(data: str, dense: str, batch: int, iterations: int, every: int) -> dict[int, dict[str, float]]:
    """Returns AUC and normalised entropy by iteration, of a run on two workers of this machine without limits.

    They do not depend on workers, links and times.
    """
    found: dict[int, dict[str, float]] = {}

    def keep(_: int, evaluations: cluster.Evaluations) -> None:
        for each in evaluations:
            quality = each.quality
            found[each.iteration] = {"auc": quality.auc, "normalised_entropy": quality.normalised_entropy}

    chosen = replace(OPTIONS, data=data, batch=batch // OPTIONS.workers, dense_sum=dense, evaluate_every=every)
    cluster.train(load(data, batch, iterations), chosen, [OPTIONS.seed], keep)
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
