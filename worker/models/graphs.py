"""Models of knowledge graphs: TransE, DistMult, ComplEx, SimplE and RotatE, trained with negatives that samples share.

A sample is a true triple of head, relation and tail. Its score is compared with the scores of triples whose head or
tail is replaced by each of the negatives of its chunk (the logistic loss of DGL-KE, Zheng et al., 2020):

    loss = (softplus(-score) + mean of softplus(corrupted score)) / 2

The mean is over the corrupted tails and the corrupted heads together. Negatives are not filtered: one may be true.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.inputs import ModelInputs
from esd.worker.models.model import Batch, Model

HEAD, RELATION, TAIL = "head", "relation", "tail"  # the features of a triple
_MARGIN = 12.0  # that a distance is taken from (gamma of DGL-KE and RotatE)


class TripleModel(Model):
    """A model that scores triples by comparing a query, made of two of their rows, with the third.

    It has no dense parameters. `hidden` is not used.

    Args:
        inputs: has the features head, relation and tail. Without negatives only true triples are scored.
        hidden: of other models.

    Raises:
        InvalidArgument: the samples are no triples, or rows have a dimension that the model cannot use.
    """

    halves: ClassVar[bool] = False  # whether a row of an entity consists of two halves
    relation_share: ClassVar[int] = 1  # how many times as many values an entity's row has as a relation's

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        if set(inputs.names) != {HEAD, RELATION, TAIL}:
            raise InvalidArgument(
                f"the features are {', '.join(inputs.names)}, a model of graphs needs head, relation and tail"
            )
        dimensions = {each.name: each.dimension for each in inputs.features}
        entity = dimensions[HEAD]
        drawn = entity if inputs.negatives is None else inputs.negatives.dimension
        if not entity == drawn == dimensions[TAIL] == dimensions[RELATION] * self.relation_share:
            raise InvalidArgument(
                f"rows of entities have {entity} values and rows of relations {dimensions[RELATION]}, an entity's must "
                f"have {self.relation_share} times as many as a relation's (--dim, and relation-dim of graph:PATH)"
            )
        if self.halves and entity % 2:
            raise InvalidArgument(f"rows of entities have {entity} values (--dim), it must be an even number")

    @abstractmethod
    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries [m, D] that `compare` compares with tails, given rows [m, D]."""

    @abstractmethod
    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries [m, D] that `compare` compares with heads, given rows [m, D]."""

    @abstractmethod
    def compare(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns the scores of queries [m, D] with entities [n, D]: float32 [m, n]."""

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:  # noqa: ARG002 - of all models
        """Returns the scores of m triples, float32 [m, 1 + 2T]: true, with corrupted tails, with corrupted heads."""
        head, relation, tail = (embeddings[name] for name in (HEAD, RELATION, TAIL))
        tails, heads = self.tail_query(head, relation), self.head_query(relation, tail)
        true = self.pairs(tails, tail)
        drawn = None if self.inputs.negatives is None else embeddings.get(self.inputs.negatives.name)
        if drawn is None:
            return true.unsqueeze(1)
        corrupted = [
            torch.cat((self.compare(of_tails, entities), self.compare(of_heads, entities)), dim=1)
            for of_tails, of_heads, entities in zip(
                torch.split(tails, drawn.counts), torch.split(heads, drawn.counts), drawn.values, strict=True
            )
        ]
        return torch.cat((true.unsqueeze(1), torch.cat(corrupted)), dim=1)

    def pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns the score of each query with one entity, float32 [m], given both as [m, D]."""
        return (queries * entities).sum(dim=1)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002 - of all models
        """Returns the logistic loss of each sample, float32 [m]; without negatives, the loss of true triples alone."""
        true = functional.softplus(-outputs[:, 0])
        if outputs.shape[1] == 1:
            return true
        return (true + functional.softplus(outputs[:, 1:]).mean(dim=1)) / 2

    def scores(self, outputs: Tensor) -> Tensor:
        """Returns how probable each triple is, float [m, 1]."""
        return outputs[:, :1].sigmoid()


class _Bilinear(TripleModel):
    """A model whose score is the scalar product of query and entity."""

    def compare(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns scores; see `TripleModel`."""
        return queries @ entities.T


class DistMult(_Bilinear):
    """DistMult (Yang et al., 2015): the sum over h r t."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries of tails."""
        return head * relation

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries of heads."""
        return relation * tail


class ComplEx(_Bilinear):
    """ComplEx (Trouillon et al., 2016): the real part of the sum over h r conj(t); halves are real and imaginary."""

    halves = True

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries of tails."""
        return _times(head, relation)

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries of heads."""
        return _times(_conjugate(relation), tail)


class SimplE(_Bilinear):
    """SimplE (Kazemi and Poole, 2018): the mean of two products; halves are an entity as head and as tail."""

    halves = True

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries of tails."""
        (as_head, as_tail), (forth, back) = head.chunk(2, dim=1), relation.chunk(2, dim=1)
        return torch.cat((as_tail * back, as_head * forth), dim=1) / 2

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries of heads."""
        (as_head, as_tail), (forth, back) = tail.chunk(2, dim=1), relation.chunk(2, dim=1)
        return torch.cat((as_tail * forth, as_head * back), dim=1) / 2


class _Distance(TripleModel):
    """A model whose score is a margin of 12, less the distance of query and entity."""

    def compare(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns scores; see `TripleModel`."""
        return _MARGIN - self.distance(queries.unsqueeze(1) - entities.unsqueeze(0))

    def pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns scores; see `TripleModel`."""
        return _MARGIN - self.distance(queries - entities)

    @abstractmethod
    def distance(self, differences: Tensor) -> Tensor:
        """Returns the lengths of differences [..., D], of shape [...]."""


class TransE(_Distance):
    """TransE (Bordes et al., 2013): the L1 distance of h + r and t."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries of tails."""
        return head + relation

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries of heads."""
        return tail - relation

    def compare(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Returns scores; see `TripleModel`."""
        return _MARGIN - torch.cdist(queries, entities, p=1)  # which makes no tensor [m, n, D]

    def distance(self, differences: Tensor) -> Tensor:
        """Returns lengths; see `_Distance`."""
        return differences.abs().sum(dim=-1)


class RotatE(_Distance):
    """RotatE (Sun et al., 2019): the distance of h, turned by the angles of r, and t; halves are real and imaginary.

    A relation has half as many values as an entity: the angles, in radians.
    """

    halves = True
    relation_share = 2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """Returns the queries of tails."""
        return _times(head, _turn(relation))

    def head_query(self, relation: Tensor, tail: Tensor) -> Tensor:
        """Returns the queries of heads."""
        return _times(_conjugate(_turn(relation)), tail)

    def distance(self, differences: Tensor) -> Tensor:
        """Returns lengths; see `_Distance`."""
        real, imaginary = differences.chunk(2, dim=-1)
        return (real.square() + imaginary.square() + _TINY).sqrt().sum(dim=-1)


_TINY = 1e-12  # keeps the gradient of a distance of 0 finite


def _times(left: Tensor, right: Tensor) -> Tensor:
    """Returns products of complex numbers, [m, D] with their real parts in the first half."""
    (a, b), (c, d) = left.chunk(2, dim=1), right.chunk(2, dim=1)
    return torch.cat((a * c - b * d, a * d + b * c), dim=1)


def _conjugate(values: Tensor) -> Tensor:
    real, imaginary = values.chunk(2, dim=1)
    return torch.cat((real, -imaginary), dim=1)


def _turn(angles: Tensor) -> Tensor:
    return torch.cat((angles.cos(), angles.sin()), dim=1)
