"""`esd.connect`: trains models on services that run already, from a notebook or a program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from esd.fitted import Training
from esd.fitting import FittingCluster
from esd.run.own_code import importable_path
from esd.run.train import train_attached
from esd.run.worker_here import Submit
from esd.services.runtime.security import PLAINTEXT, Credentials

if TYPE_CHECKING:
    from esd.worker.models.model import Model


class ConnectedCluster(FittingCluster):
    """A cluster whose services run already, with its workers, links and caches. Nothing of it is started or stopped.

    Args:
        workers: number of workers that a job waits for.
        dispatcher: `host:port`, reached from here.
        parameter_servers: `host:port` of every shard, in shard order, as the workers reach them.
        credentials: certificates and token.
    """

    def __init__(
        self, workers: int, dispatcher: str, parameter_servers: Sequence[str], credentials: Credentials
    ) -> None:
        super().__init__({"workers": workers})
        self._dispatcher = dispatcher
        self._parameter_servers = ",".join(parameter_servers)
        self._credentials = credentials

    def _name_of(self, model: type[Model] | str, code: Path) -> str:  # noqa: ARG002
        return importable_path(model)

    def _training(self, submit: Submit) -> Training:  # noqa: ARG002
        return partial(
            train_attached,
            dispatcher=self._dispatcher,
            parameter_servers=self._parameter_servers,
            credentials=self._credentials,
        )


def connect(
    dispatcher: str,
    *,
    parameter_servers: str | Sequence[str],
    workers: int,
    credentials: Credentials = PLAINTEXT,
) -> ConnectedCluster:
    """Returns a cluster whose services run already, for `fit`, which is called as on an `esd.LocalCluster`.

        with esd.connect("head:50051", parameter_servers="head:50052", workers=4) as cluster:
            run = cluster.fit("wdl", esd.read("events/*.parquet", schema), dim=64, epochs=2)

    Each run trains a table of its own. A model of one's own is a class of a module that the workers can import, too
    (`ESD_WORKER_CODE`). Nothing is reached before a model is fitted.

    Args:
        dispatcher: `host:port`, reached from here.
        parameter_servers: `host:port` of the server, or of every shard in shard order, as the workers reach them; from
            here they are reached to fetch the model.
        workers: number of workers, for which a job waits.
        credentials: certificates and token, for the dispatcher and the parameter servers.

    Example:
        This dispatcher has no workers, so the run waits until it is cancelled:

        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",))
        >>> with esd.connect("127.0.0.1:50051", parameter_servers="127.0.0.1:50052", workers=2) as cluster:
        ...     run = cluster.fit("wdl", esd.read("events.csv", schema), batch=2, dim=4, progress=False, wait=False)
        ...     waits = not run.ended
        >>> waits, run.ended
        (True, True)
    """
    servers = [parameter_servers] if isinstance(parameter_servers, str) else list(parameter_servers)
    return ConnectedCluster(workers, dispatcher, servers, credentials)
