"""The models that come with ESD, written anew with nothing but torch, for a single label.

Nothing of worker/models is used. A model is a module that makes logits [m] of the rows [m, F, D] of the features with
one id, the dense features [m, d], and the rows [m, T, D] of the history with their mask [m, T], which only TBSM uses.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with a ReLU between them."""
    layers: list[nn.Module] = []
    for at in range(len(widths) - 1):
        layers += [nn.Linear(widths[at], widths[at + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class PlainModel(nn.Module):
    """The common part of the plain models.

    Args:
        names: names of the F features with one id.
        dimension: D.
        dense: d.
        hidden: widths of the hidden layers, at least two.
    """

    def __init__(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self._build(names, dimension, dense, hidden)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim == 1:
                    parameter.zero_()
                else:
                    bound = 1 / math.sqrt(parameter.shape[-1])
                    parameter.uniform_(-bound, bound)

    def forward(self, rows: Tensor, dense: Tensor, history: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Returns logits [m]."""
        logits: Tensor = self._logits(rows, dense, history, mask)
        return logits

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        raise NotImplementedError

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        raise NotImplementedError


class PlainWideDeep(PlainModel):
    """Wide & Deep."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        self.wide = nn.Linear(dense, 1, bias=False)
        self.deep = mlp(len(names) * (dimension - 1) + dense, *hidden, 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        deep = self.deep(torch.cat((rows[:, :, 1:].flatten(1), dense), 1))
        return (rows[:, :, 0].sum(1, keepdim=True) + self.wide(dense) + deep).squeeze(1)


class PlainDeepFM(PlainWideDeep):
    """DeepFM: pairs of vectors, one by one."""

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        left, right = torch.triu_indices(rows.shape[1], rows.shape[1], 1)
        pairs = (rows[:, left, 1:] * rows[:, right, 1:]).sum((1, 2))
        return super()._logits(rows, dense) + pairs


class PlainDeepCross(PlainModel):
    """Deep & Cross."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        width = len(names) * dimension + dense
        self.weights = nn.ParameterList(torch.empty(1, width) for _ in range(3))
        self.biases = nn.ParameterList(torch.empty(width) for _ in range(3))
        self.deep = mlp(width, *hidden)
        self.output = nn.Linear(width + hidden[-1], 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        first = crossed = torch.cat((rows.flatten(1), dense), 1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            crossed = first * (crossed * weight).sum(1, keepdim=True) + bias + crossed
        return self.output(torch.cat((crossed, self.deep(first).relu()), 1)).squeeze(1)


class PlainDLRM(PlainModel):
    """DLRM."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        self.bottom = mlp(dense, hidden[-1], dimension)
        self.top = mlp(len(names) * (len(names) + 1) // 2 + dimension, *hidden, 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        bottom = self.bottom(dense).relu()
        return self.top(torch.cat((bottom, products(torch.cat((rows, bottom.unsqueeze(1)), 1))), 1)).squeeze(1)


class PlainNeuMF(PlainModel):
    """NCF as NeuMF."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        self.factors = dimension // 2
        self.deep = mlp(len(names) * (dimension - self.factors) + dense, *hidden)
        self.output = nn.Linear(self.factors + hidden[-1], 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        user, item = rows[:, 0, : self.factors], rows[:, 1, : self.factors]
        deep = self.deep(torch.cat((rows[:, :, self.factors :].flatten(1), dense), 1)).relu()
        return self.output(torch.cat((user * item, deep), 1)).squeeze(1)


class PlainFLEN(PlainModel):
    """FLEN: pairs within and between fields, one by one."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        heads = [name.replace(".", "_").split("_")[0] for name in names]
        starts = [at for at, head in enumerate(heads) if at == 0 or head != heads[at - 1]]
        self.fields = [range(a, b) for a, b in zip(starts, [*starts[1:], len(heads)], strict=True)]
        self.between = nn.Parameter(torch.empty(1, len(self.fields) * (len(self.fields) - 1) // 2))
        self.within = nn.Parameter(torch.empty(1, len(self.fields)))
        self.linear = nn.Linear(dense, 1, bias=False)
        self.deep = mlp(len(names) * (dimension - 1) + dense, *hidden)
        self.output = nn.Linear(dimension - 1 + hidden[-1], 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        vectors = rows[:, :, 1:]
        pooled = torch.zeros_like(vectors[:, 0])
        for field, share in zip(self.fields, self.within[0], strict=True):
            for a, b in combinations(field, 2):
                pooled = pooled + share * vectors[:, a] * vectors[:, b]
        sums = [vectors[:, list(field)].sum(1) for field in self.fields]
        for (a, b), share in zip(combinations(range(len(sums)), 2), self.between[0], strict=True):
            pooled = pooled + share * sums[a] * sums[b]
        deep = self.deep(torch.cat((vectors.flatten(1), dense), 1)).relu()
        logits = self.output(torch.cat((pooled, deep), 1)) + self.linear(dense)
        return logits.squeeze(1) + rows[:, :, 0].sum(1)


class PlainMMoE(PlainModel):
    """Multi-gate mixture of four experts."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        width = len(names) * dimension + dense
        self.experts = nn.ModuleList(mlp(width, *hidden) for _ in range(4))
        self.gate = nn.Linear(width, 4, bias=False)
        self.tower = mlp(hidden[-1], hidden[-1], 1)

    def _logits(self, rows: Tensor, dense: Tensor, *_: Any) -> Any:
        shared = torch.cat((rows.flatten(1), dense), 1)
        shares = self.gate(shared).softmax(1)
        mixed = sum(shares[:, at, None] * expert(shared).relu() for at, expert in enumerate(self.experts))
        return self.tower(mixed).squeeze(1)


class PlainTBSM(PlainModel):
    """TBSM: attention of the first feature to the history."""

    def _build(self, names: tuple[str, ...], dimension: int, dense: int, hidden: tuple[int, ...]) -> None:
        self.attention = nn.Linear(dimension, dimension, bias=False)
        self.bottom = mlp(dense, hidden[-1], dimension)
        vectors = len(names) + 2
        self.top = mlp(vectors * dimension + vectors * (vectors - 1) // 2, *hidden, 1)

    def _logits(self, rows: Tensor, dense: Tensor, history: Any, mask: Any) -> Any:
        weights = torch.einsum("mtd,md->mt", history, self.attention(rows[:, 0])) / math.sqrt(rows.shape[2])
        weights = torch.exp(weights - weights.max(1, keepdim=True).values) * mask
        seen = torch.einsum("mt,mtd->md", weights / weights.sum(1, keepdim=True).clamp(min=1e-30), history)
        vectors = torch.cat((rows, seen.unsqueeze(1), self.bottom(dense).relu().unsqueeze(1)), 1)
        return self.top(torch.cat((vectors.flatten(1), products(vectors)), 1)).squeeze(1)


def products(vectors: Tensor) -> Tensor:
    """The dot products of all pairs of vectors [m, V, D], [m, V (V - 1) / 2]."""
    left, right = torch.triu_indices(vectors.shape[1], vectors.shape[1], 1)
    return torch.einsum("mvd,mwd->mvw", vectors, vectors)[:, left, right]


PLAIN_MODELS: dict[str, type[PlainModel]] = {
    "wdl": PlainWideDeep,
    "dfm": PlainDeepFM,
    "dcn": PlainDeepCross,
    "dlrm": PlainDLRM,
    "ncf": PlainNeuMF,
    "flen": PlainFLEN,
    "mmoe": PlainMMoE,
    "tbsm": PlainTBSM,
}
