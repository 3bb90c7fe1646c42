"""ComplEx by PyKEEN: its model, its training loop and its evaluator, with ESD's loss, negatives and optimizer.

PyKEEN has none of these three: its losses weigh a negative as much as a triple, its samplers draw negatives for each
triple alone, and Adagrad of whole rows is not in torch. Rows are uniform in +-1/sqrt(D) at first, like ESD's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ComplEx
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory
from torch import Tensor
from torch.nn import functional, init

from benchmarks.graphs.settings import BATCH, Settings

_METRICS = {
    "mrr": "inverse_harmonic_mean_rank",
    "hits_at_1": "hits_at_1",
    "hits_at_3": "hits_at_3",
    "hits_at_10": "hits_at_10",
}


class Reference:
    """PyKEEN on the triples of a graph, whose numbers are ESD's."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)
        triples = settings.dataset.triples
        self._parts = {name: torch.from_numpy(part.astype(np.int64)) for name, part in triples.parts.items()}
        self._settings = settings
        self._factory = CoreTriplesFactory(self._parts["train"], len(triples.entities), len(triples.relations))

    def train(self, seed: int) -> dict[str, float]:
        """Trains a model, and returns the figures of the triples of `test`."""
        torch.manual_seed(seed)
        model = self._model(seed)
        loop = _SharedNegatives(
            count=self._settings.negatives,
            model=model,
            triples_factory=self._factory,
            optimizer=RowwiseAdagrad(model.get_grad_params(), self._settings.learning_rate),
        )
        quiet = {"use_tqdm": False, "use_tqdm_batch": False}
        loop.train(self._factory, self._settings.epochs, BATCH, drop_last=True, **quiet)
        return self._figures(model)

    def judge(self, entities: NDArray[np.float32], relations: NDArray[np.float32]) -> dict[str, float]:
        """Returns the figures of a trained model by its rows [E, D] and [R, D], in the order of their numbers."""
        model = self._model(seed=0)
        for representations, rows in (
            (model.entity_representations, entities),
            (model.relation_representations, relations),
        ):
            real, imaginary = np.split(rows, 2, axis=1)
            weight = representations[0]._embeddings.weight  # noqa: SLF001 - there is no other way to rows of one's own
            weight.data = torch.from_numpy(np.stack((real, imaginary), axis=2).reshape(rows.shape))
        return self._figures(model)

    def _model(self, seed: int) -> Any:
        bound = self._settings.dim**-0.5
        uniform: Callable[[Tensor], Tensor] = partial(init.uniform_, a=-bound, b=bound)
        return ComplEx(
            triples_factory=self._factory,
            embedding_dim=self._settings.dim // 2,  # complex numbers
            entity_initializer=uniform,
            relation_initializer=uniform,
            regularizer=None,
            random_seed=seed,
        )

    def _figures(self, model: Any) -> dict[str, float]:
        result = RankBasedEvaluator(filtered=True).evaluate(
            model,
            self._parts["test"],
            batch_size=64,
            use_tqdm=False,
            additional_filter_triples=[self._parts["train"], self._parts["valid"]],
        )
        return {name: float(result.get_metric(f"both.realistic.{metric}")) for name, metric in _METRICS.items()}


class _SharedNegatives(SLCWATrainingLoop):  # type: ignore[misc] # PyKEEN may be absent
    """PyKEEN's loop, in which all triples of a batch share `count` negatives, as heads and as tails."""

    def __init__(self, *, count: int, **of_loop: Any) -> None:
        super().__init__(**of_loop)
        self._count = count

    def _process_batch(self, batch: Any, start: int, stop: int, *_: Any, **__: Any) -> Tensor:
        triples = batch["positives"][start:stop]
        drawn = torch.randint(self.model.num_entities, (self._count,))
        corrupted = torch.cat(
            (self.model.score_t(triples[:, :2], tails=drawn), self.model.score_h(triples[:, 1:], heads=drawn)), dim=1
        )
        true = functional.softplus(-self.model.score_hrt(triples).squeeze(1))
        return ((true + functional.softplus(corrupted).mean(dim=1)) / 2).mean()


class RowwiseAdagrad(torch.optim.Optimizer):
    """Adagrad with one sum of squares per row: s += mean(g^2); w -= lr g / (sqrt(s) + 1e-8)."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # without a closure
        """Updates all rows; those without a gradient stay as they are."""
        for group in self.param_groups:
            for table in group["params"]:
                sums = self.state[table].setdefault("sums", torch.zeros(len(table), 1))
                sums += table.grad.square().mean(dim=1, keepdim=True)
                table -= group["lr"] * table.grad / (sums.sqrt() + 1e-8)  # noqa: PLW2901 - in its place
