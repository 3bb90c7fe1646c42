"""A model of two labels that reads a list of ids one by one, and everything else pooled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import esd
from esd.worker.models.inputs import Jagged


class Net(esd.Model):
    """Combines a list's embeddings, one after the other, with the sample's other features and sums the results."""

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        pooled = sum(each.dimension for each in inputs.features if not each.longest) + inputs.dense
        listed = sum(each.dimension for each in inputs.features if each.longest)
        self.query = nn.Linear(pooled, listed)
        self.output = nn.Linear(pooled + listed, len(inputs.labels))

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See esd.Model."""
        pooled = [each for each in embeddings.values() if not isinstance(each, Jagged)]
        inputs = torch.cat((*pooled, dense), dim=1)
        (listed,) = (each for each in embeddings.values() if isinstance(each, Jagged))
        scores = (listed.values * self.query(inputs).unsqueeze(1)).sum(dim=2).sigmoid() * listed.mask
        read = (scores.unsqueeze(2) * listed.values).sum(dim=1)
        outputs: Tensor = self.output(torch.cat((inputs, read), dim=1))
        return outputs
