"""NCF, in its form NeuMF (He et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.inputs import ModelInputs, stack
from esd.worker.models.layers import draw_parameters, mlp
from esd.worker.models.model import Model


class NeuMF(Model):
    """Generalised matrix factorisation of user and item, in parallel with an MLP; one output layer weighs both.

    The first feature is the user and the second the item. Further features are the context, inputs of the MLP only. The
    two halves have separate embeddings: the first D / 2 values of a row belong to the factorisation.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        dimension = inputs.dimension("ncf")
        if len(inputs.features) < 2 or dimension < 2:
            raise InvalidArgument(
                f"there are {len(inputs.features)} features of {dimension} values; ncf needs at least 2 features, the "
                "user first and the item second, and 2 values: one for the factorisation and one for the MLP"
            )
        self.factors = dimension // 2
        width = len(inputs.features) * (dimension - self.factors) + inputs.dense
        self.deep = mlp(width, hidden[:-1], hidden[-1]) if hidden else None
        self.output = nn.Linear(self.factors + (hidden[-1] if hidden else width), len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward; the terms follow He et al., eq. 12."""
        rows = stack(embeddings)
        factors, others = rows[:, :2, : self.factors], rows[:, :, self.factors :]
        factorised = factors[:, 0] * factors[:, 1]
        deep = torch.cat((others.flatten(1), dense), dim=1)
        if self.deep is not None:
            deep = self.deep(deep).relu()
        outputs: Tensor = self.output(torch.cat((factorised, deep), dim=1))
        return outputs
