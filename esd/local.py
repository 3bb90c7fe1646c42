"""`esd.LocalCluster`: trains models on this machine, from a notebook or a program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from esd.fitted import Training
from esd.fitting import FittingCluster
from esd.run.own_code import model_path
from esd.run.train import train
from esd.run.worker_here import Here, Submit

if TYPE_CHECKING:
    from esd.worker.models.model import Model


class LocalCluster(FittingCluster):
    """Workers of this machine that train one model after the other. A `with` block cancels a run that still trains.

        train, test = esd.read("events/*.parquet", schema).split(last="1d")
        with esd.LocalCluster(workers=4, links=["100m", "100m", "10m", "10m"]) as cluster:
            run = cluster.fit(MyNet, train, dim=64, epochs=2)
            print(run.evaluate(test)["auc"])
            run.export("model")

    The services of a run are processes of this machine, which end with it. When this process is killed, they end, too,
    within a few seconds.

    Args:
        workers: number of workers. 0: one worker, which is a part of this process and trains in the thread that waits
            for the run, so that a debugger stops in the model's code; the model is the same as with `workers=1`.
        links: speed of every worker's link in bits per second, one for each, or one for all.
        shards: number of parameter-server processes.
        device: of the workers: `cpu`, `cuda`, `auto`, or one for each, `cuda:0,cuda:1`; None: ESD_WORKER_DEVICE, or
            `cpu`.

    Example:
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> with esd.LocalCluster(workers=1) as cluster:
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), batch=2, dim=4, epochs=2, progress=False)
        ...     scores = run.model.predict("events.csv")
        >>> run.result["iterations"], scores.shape
        (2, (2, 1))
    """

    def __init__(
        self, workers: int = 4, links: str | Sequence[str] = "500m", *, shards: int = 1, device: str | None = None
    ) -> None:
        super().__init__({"workers": max(1, workers), "links": links if isinstance(links, str) else ",".join(links)})
        self._here = workers == 0
        self._shards = shards
        self._device = device

    def _name_of(self, model: type[Model] | str, code: Path) -> str:
        return model_path(model, code)

    def _training(self, submit: Submit) -> Training:
        here = Here(import_module("esd.worker.here").WorkerHere, submit) if self._here else None
        return partial(train, shards=self._shards, device=self._device, here=here)
