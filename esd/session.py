"""`esd.Session`: a training loop of one's own, in place of the built-in worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from esd.services.domain.dense_sums import Every
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.settings import load
from esd.worker.service.epoch import Training
from esd.worker.service.session import WorkerSession
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.dense import DenseParameters
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.optimizers import TorchOptimizer
from esd.worker.training.reducer import Alone, DenseReducer
from esd.worker.training.summed_gradients import SummedGradients, gradients_of


class Session(WorkerSession):
    """A worker's part in one job, for a training loop of one's own in torch.

        with esd.Session("head:50051", name="edge-1", link="10m", cache_rows=8000, model=net, optimizer=opt) as session:
            for step in session:
                outputs = net(step.embeddings, step.dense)
                losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
                step.backward(losses, scores=outputs.sigmoid())
                step.optimise()

    Iteration waits for a job, yields one `esd.Step` for each iteration, and ends with the sample stream. Plans, rows,
    recoveries, checkpoints, reports and heartbeats are carried out meanwhile, in a thread of the session. After a
    recovery the loop gets the iterations after the checkpoint once more; the parameters, the buffers and the state of
    the optimizer are then as they were, and so must be everything else that the loop keeps.

    An exception that leaves the loop ends the job, and every worker is told its text. A loop that is left with `break`,
    and a process that is killed, are a lost worker, which may come back under its name.

    A setting that is not given is read from the environment (ESD_WORKER_NAME and so on), as the built-in worker does.

    Args:
        dispatcher: `host:port` of the dispatcher.
        name: unique among the workers of the job.
        link: speed of the link, `10m` in bits per second; a number is one of bytes per second.
        cache_rows: embedding rows that the cache holds, on the device of the model.
        model: the dense part, on its device, with the same values on every worker at first: seed torch before it is
            built. Buffers are constants unless an attribute `buffer_rules` names them, as of an `esd.Model`.
        optimizer: of the model's parameters, equal on every worker.
        settings: any other setting of a worker by its name, such as `tls_ca`; `esd serve worker --help` lists them.

    Raises:
        InvalidArgument: a setting is missing or wrong, or the optimizer trains other parameters than the model's.

    Example:
        A job of one worker, with two samples and a parameter server, and a model of one layer:

        >>> def train(net, step):
        ...     outputs = net(torch.cat((*step.embeddings.values(), step.dense), dim=1))
        ...     losses = torch.nn.functional.binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
        ...     step.backward(losses, scores=outputs.sigmoid())
        ...     step.optimise()
        >>> job = replace(esd.load("model").job, parameter_servers=("127.0.0.1:50052",))
        >>> samples = esd.read("events.csv", esd.Schema("clicked", ids=("user", "item"), dense=("price",)))
        >>> net = torch.nn.Linear(2 * 4 + 1, 1)
        >>> worker = {"name": "edge-1", "link": "10m", "cache_rows": 100}
        >>> with esd.DispatcherClient("127.0.0.1:50051") as dispatcher:
        ...     is_new, submitted = dispatcher.create_job(job), dispatcher.submit(job.name, samples)
        >>> with esd.Session(
        ...     "127.0.0.1:50051", **worker, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1)
        ... ) as session:
        ...     for step in session:
        ...         train(net, step)
        >>> is_new, submitted, step.iteration
        (True, 2, 1)
    """

    def __init__(
        self,
        dispatcher: str | None = None,
        *,
        name: str | None = None,
        link: str | float | None = None,
        cache_rows: int | None = None,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        **settings: Any,
    ) -> None:
        own = OwnModel(model, optimizer)
        given = load(
            WorkerSettings,
            dispatcher=dispatcher,
            name=name,
            link=link,
            cache_rows=cache_rows,
            **settings,
        )
        super().__init__(given, Training(own.of_epoch, own.device))


class OwnModel:
    """A model that is trained through all epochs of a job, and is as it was at first where one begins anew.

    Args:
        model: on its device.
        optimizer: of its parameters.

    Attributes:
        device: of the model's parameters.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer
        self.device = next((each.device for each in model.parameters()), torch.device("cpu"))
        self._present = self._begin(Alone(), GradientBuckets)
        self._initial = self._present.save()

    def of_epoch(self, job: JobSpec, reducer: DenseReducer, device: torch.device) -> DenseParameters:  # noqa: ARG002
        """Returns the model for an epoch: with the values that it had at first."""
        if isinstance(job.dense_sum, Every):
            raise InvalidArgument(
                f"--dense {job.dense_sum} averages the state of the job's own optimizers, and this training loop has "
                "another: choose all-reduce, server or low-rank:R"
            )
        self._present.close()
        self._present = self._begin(reducer, gradients_of(job))
        self._present.load(self._initial)
        return self._present

    def _begin(
        self, reducer: DenseReducer, gradients: Callable[[Sequence[nn.Parameter], DenseReducer], SummedGradients]
    ) -> DenseParameters:
        return DenseParameters(self._model, reducer, partial(TorchOptimizer, optimizer=self._optimizer), gradients)
