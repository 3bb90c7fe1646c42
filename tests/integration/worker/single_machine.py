"""The model that one machine trains with plain PyTorch: what every cluster must arrive at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from services.domain.batches import SampleBatch
from services.domain.ids import mix64
from services.domain.jobs import JobSpec
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from tests.support.reference import by_feature
from worker.models import build_model


def initial_rows(ids: NDArray[np.uint64], table: TableSpec) -> NDArray[np.float32]:
    """The values with which rows are born: uniform in +-init_scale, a function of (seed, id, column)."""
    golden = 0x9E3779B97F4A7C15
    seed = mix64(np.array([(table.seed + golden) % 2**64], np.uint64))
    columns = np.arange(1, table.dimension + 1, dtype=np.uint64) * np.uint64(golden)
    hashed = mix64(mix64(ids ^ seed)[:, None] + columns)
    unit = (hashed >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return ((2 * unit - 1) * table.init_scale).astype(np.float32)


class RowwiseAdagrad(torch.optim.Optimizer):
    """One accumulated mean square per row of a sparse gradient."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], spec: OptimizerSpec) -> None:
        super().__init__(parameters, {})
        self.spec = spec
        self.total = torch.zeros(parameters[0].shape[0], 1)

    def step(self) -> None:  # type: ignore[override]
        (weight,) = self.param_groups[0]["params"]
        gradient = weight.grad.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        with torch.no_grad():
            self.total[rows] += values.square().mean(dim=1, keepdim=True)
            weight[rows] -= self.spec.learning_rate * values / (self.total[rows].sqrt() + self.spec.epsilon)


def train(job: JobSpec, batches: Sequence[SampleBatch]) -> tuple[dict[int, NDArray[np.float32]], dict[str, NDArray]]:
    """Rows by id and dense parameters by name after training the batches in order."""
    ids = np.unique(np.concatenate([batch.ids.ravel() for batch in batches]))
    table = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(initial_rows(ids, job.table)), freeze=False, sparse=True
    )
    model = build_model(job)
    optimizers = _optimizers(list(table.parameters()), list(model.parameters()), job.table.optimizer)
    for batch in batches:
        rows = table(torch.from_numpy(np.searchsorted(ids, batch.by_field)))
        logits = model(by_feature(job, rows), torch.tensor(batch.dense)).view(-1)
        for optimizer in optimizers:
            optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(logits, torch.tensor(batch.labels[:, 0])).backward()
        for optimizer in optimizers:
            optimizer.step()
    rows = dict(zip(ids.tolist(), table.weight.detach().numpy(), strict=True))
    return rows, {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def _optimizers(
    rows: list[torch.nn.Parameter], dense: list[torch.nn.Parameter], spec: OptimizerSpec
) -> list[torch.optim.Optimizer]:
    lr = spec.learning_rate
    match spec.kind:
        case OptimizerKind.SGD:
            return [torch.optim.SGD(rows, lr=lr), torch.optim.SGD(dense, lr=lr)]
        case OptimizerKind.ROWWISE_ADAGRAD:
            return [RowwiseAdagrad(rows, spec), torch.optim.Adagrad(dense, lr=lr, eps=spec.epsilon)]
        case OptimizerKind.ADAM:
            return [
                torch.optim.SparseAdam(rows, lr=lr, eps=spec.epsilon),
                torch.optim.Adam(dense, lr=lr, eps=spec.epsilon),
            ]
