"""The inputs of a model: the shape of a sample, known when it is built, and the embeddings of m samples per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from esd.services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class InputFeature:
    """A feature of a sample.

    Attributes:
        name: its name in the data.
        dimension: D, values of its embedding.
        longest: the most embeddings of a sample, if the feature is a list (`Jagged`); 0: the feature has one embedding
            per sample, float32 [m, D], of its only id or pooled.
        table: number of the table of its rows.
    """

    name: str
    dimension: int
    longest: int = 0
    table: int = 0


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """The shape of a sample.

    Attributes:
        features: the features with an embedding, in the order of the data.
        dense: d, the number of dense features.
        labels: the names of the L labels.
        negatives: the feature whose ids are drawn and shared by samples (`SharedLists`), `longest` to a list; None:
            there is none.

    Example:
        >>> inputs = esd.load("model").module().inputs
        >>> inputs.names, inputs.width, inputs.labels
        (('user', 'item'), 9, ('clicked',))
    """

    features: tuple[InputFeature, ...]
    dense: int
    labels: tuple[str, ...]
    negatives: InputFeature | None = None

    def __str__(self) -> str:
        dimensions = sorted({feature.dimension for feature in self.features})
        values = " and ".join(map(str, dimensions))
        lists = "" if self.negatives is None else f", lists of negatives ({self.negatives.name})"
        return (
            f"{len(self.features)} features of {values} values{lists}, {self.dense} dense features, "
            f"{len(self.labels)} labels"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(feature.name for feature in self.features)

    @property
    def width(self) -> int:
        """Number of columns of `join`: the values of all embeddings, and the dense features."""
        return sum(feature.dimension for feature in self.features) + self.dense

    def dimension(self, model: str) -> int:
        """Returns D, if all embeddings have the same; otherwise raises InvalidArgument."""
        dimensions = {feature.dimension for feature in self.features}
        if len(dimensions) > 1:
            raise InvalidArgument(
                f"the embeddings have {sorted(dimensions)} values, {model} needs the same number in all of them"
            )
        return dimensions.pop()


@dataclass(frozen=True, slots=True)
class Jagged:
    """The embeddings of a list feature of m samples: a sequence for each sample.

    Attributes:
        values: float32 [m, T, D], T the longest sequence of these samples, at least 1; zeros after a sequence's end.
        lengths: int64 [m], of the sequences; 0 for an empty one.

    Example:
        >>> sequences = esd.Jagged(torch.zeros(2, 3, 4), lengths=torch.tensor([3, 1]))
        >>> sequences.mask.tolist()
        [[True, True, True], [True, False, False]]
    """

    values: Tensor
    lengths: Tensor

    def __getitem__(self, samples: slice) -> Jagged:
        lengths = self.lengths[samples]
        return Jagged(self.values[samples, : max(1, int(lengths.max()))], lengths)

    @property
    def mask(self) -> Tensor:
        """True at the positions within a sequence, bool [m, T]."""
        places = torch.arange(self.values.shape[1], device=self.lengths.device)
        return places < self.lengths.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class SharedLists:
    """The embeddings of negatives: lists of which each belongs to several samples (esd.services.domain.negatives).

    Attributes:
        values: float32 [c, T, D], c lists of T rows.
        lists: int64 [m], the list of each sample, ascending.

    Example:
        >>> negatives = esd.SharedLists(torch.zeros(2, 5, 4), lists=torch.tensor([0, 0, 1]))
        >>> negatives.counts, negatives[:2].lists.tolist()
        ([2, 1], [0, 0])
    """

    values: Tensor
    lists: Tensor

    def __getitem__(self, samples: slice) -> SharedLists:
        return SharedLists(self.values, self.lists[samples])

    @property
    def counts(self) -> list[int]:
        """The number of samples of each list, which follow each other."""
        counts: list[int] = torch.bincount(self.lists, minlength=len(self.values)).tolist()
        return counts


class StackedEmbeddings(Mapping[str, Any]):
    """The embeddings of m samples by the name of the feature, each float32 [m, D], as views of one tensor.

    Args:
        names: names of the F features.
        rows: float32 [m, F, D], the result of one lookup.
    """

    def __init__(self, names: tuple[str, ...], rows: Tensor) -> None:
        self.names = names
        self.rows = rows

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _views(self) -> dict[str, Tensor]:
        # The gradient of `unbind` is one stack; the gradient of indexing would be a tensor of zeros per feature.
        return dict(zip(self.names, self.rows.unbind(1), strict=True))


def stack(embeddings: Mapping[str, Any]) -> Tensor:
    """Returns embeddings [m, D] of one dimension as one tensor [m, F, D]; without a copy if they are views of one."""
    if isinstance(embeddings, StackedEmbeddings):
        return embeddings.rows
    return torch.stack(_pooled(embeddings), dim=1)


def join(embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
    """Returns float32 [m, `ModelInputs.width`]: the embeddings of each sample, then its dense features."""
    if isinstance(embeddings, StackedEmbeddings):
        return torch.cat((embeddings.rows.flatten(1), dense), dim=1)
    return torch.cat((*_pooled(embeddings), dense), dim=1)


def _pooled(embeddings: Mapping[str, Any]) -> tuple[Tensor, ...]:
    for name, embedding in embeddings.items():
        if isinstance(embedding, Jagged):
            raise InvalidArgument(f"feature {name!r} is a list, for a sequence model only: use the pooling sum or mean")
    return tuple(embeddings.values())
