"""FLEN (Chen et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from esd.worker.models.inputs import ModelInputs
from esd.worker.models.layers import draw_parameters, mlp, require_wide, split_wide
from esd.worker.models.model import Model


class FLEN(Model):
    """Field-wise bi-interaction pooling: pairs of features interact within their field, and fields with each other.

    Consecutive features whose names begin alike, up to the first `_` or `.`, form a field: `user_id` and `user_city`
        are in
    the field `user`. The first value of a row is the id's first-order weight. One output layer combines the result of
    the pooling and an MLP over all embeddings.
    """

    first: Tensor
    second: Tensor

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        width, labels = require_wide(inputs, "flen"), len(inputs.labels)
        self.fields = [len(list(features)) for _, features in groupby(map(_field_of, inputs.names))]
        fields = len(self.fields)
        pairs = torch.tril_indices(fields, fields, offset=-1)
        self.register_buffer("first", pairs[0], persistent=False)
        self.register_buffer("second", pairs[1], persistent=False)
        self.between = nn.Parameter(torch.empty(1, pairs.shape[1]))  # r_ij of the pairs of fields
        self.within = nn.Parameter(torch.empty(1, fields))  # r_mm of each field
        self.linear = nn.Parameter(torch.empty(labels, inputs.dense))  # without bias, which the output layer has
        inputs_of_deep = len(inputs.features) * width + inputs.dense
        self.deep = mlp(inputs_of_deep, hidden[:-1], hidden[-1]) if hidden else None
        self.output = nn.Linear(width + (hidden[-1] if hidden else inputs_of_deep), labels)
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        weights, vectors = split_wide(embeddings)
        first_order = weights.sum(dim=1, keepdim=True) + dense @ self.linear.T
        by_field = torch.split(vectors, self.fields, dim=1)
        sums = torch.stack([field.sum(dim=1) for field in by_field], dim=1)
        squares = torch.stack([field.square().sum(dim=1) for field in by_field], dim=1)
        inner = 0.5 * (sums.square() - squares)  # the sum of the products of all pairs of a field's features
        pairs = sums[:, self.first] * sums[:, self.second]
        pooled = (self.within.T * inner).sum(dim=1) + (self.between.T * pairs).sum(dim=1)
        deep = torch.cat((vectors.flatten(1), dense), dim=1)
        if self.deep is not None:
            deep = self.deep(deep).relu()
        outputs: Tensor = first_order + self.output(torch.cat((pooled, deep), dim=1))
        return outputs


def _field_of(feature: str) -> str:
    return feature.replace(".", "_").partition("_")[0]
