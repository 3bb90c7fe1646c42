"""Ranks of true triples among all corrupted ones: how well a model of a graph predicts links (Bordes et al., 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.jobs import JobSpec
from esd.worker.models import build_model, find_model
from esd.worker.models.graphs import HEAD, RELATION, TAIL, TripleModel

_AT_ONCE = 1 << 25  # values of a batch of queries times all entities


def ranks_links(job: JobSpec) -> bool:
    """Returns whether a job's model is one of graphs, whose triples can be ranked."""
    return issubclass(find_model(job.model.name), TripleModel)


class Ranker:
    """Ranks triples with the rows of all entities and relations. Must be used in the thread that made it.

    Ranks are filtered: corrupted triples that are known to be true do not count. Of equal scores half count as higher.

    Args:
        job: names the model.
        entities: float32 [E, D], the rows of all entities.
        relations: float32 [R, D'], the rows of all relations.
        known: int64 [n, 3], the true triples, as places of head, relation and tail among these rows.
    """

    def __init__(
        self, job: JobSpec, entities: NDArray[np.float32], relations: NDArray[np.float32], known: NDArray[np.int64]
    ) -> None:
        model = build_model(job)
        assert isinstance(model, TripleModel)  # noqa: S101 - `ranks_links` says so
        self._model = model.eval()
        self._entities = torch.from_numpy(entities)
        self._relations = torch.from_numpy(relations)
        self._tails = _Known(known[:, 0] * len(relations) + known[:, 1], known[:, 2])
        self._heads = _Known(known[:, 2] * len(relations) + known[:, 1], known[:, 0])

    @torch.inference_mode()
    def ranks(self, triples: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the rank of each triple's tail, and of its head, among all entities: float64 [m, 2], the best is 1.

        Args:
            triples: int64 [m, 3], as places among the rows.
        """
        at_once = max(1, _AT_ONCE // self._entities.numel())
        parts = [self._ranks(triples[start : start + at_once]) for start in range(0, len(triples), at_once)]
        return np.concatenate(parts) if parts else np.empty((0, 2))

    def _ranks(self, triples: NDArray[np.int64]) -> NDArray[np.float64]:
        head, relation, tail = (torch.from_numpy(column) for column in np.ascontiguousarray(triples.T))
        h, r, t = self._entities[head], self._relations[relation], self._entities[tail]
        keys = [triples[:, side] * len(self._relations) + triples[:, 1] for side in (0, 2)]
        tails = self._among_all(self._model.tail_query(h, r), tail, self._tails.of(keys[0]))
        heads = self._among_all(self._model.head_query(r, t), head, self._heads.of(keys[1]))
        return torch.stack((tails, heads), dim=1).numpy()

    def _among_all(self, queries: Tensor, true: Tensor, known: tuple[NDArray[Any], NDArray[Any]]) -> Tensor:
        scores = self._model.compare(queries, self._entities)
        own = scores.gather(1, true.unsqueeze(1))
        scores[torch.from_numpy(known[0]), torch.from_numpy(known[1])] = -torch.inf  # the true entity among them
        scores.scatter_(1, true.unsqueeze(1), -torch.inf)  # which is not known where other data judge
        return 1 + (scores > own).sum(dim=1) + (scores == own).sum(dim=1).double() / 2


class _Known:
    """The known entities of each query, given as a key for each of n true triples, int64 [n], and their entities."""

    def __init__(self, keys: NDArray[np.int64], entities: NDArray[np.int64]) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._entities = keys[order], entities[order]

    def of(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns pairs of a query, as its place among the keys, [m], and an entity that is known for it."""
        first, end = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        counts = end - first
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(np.arange(len(keys)), counts), self._entities[np.repeat(first, counts) + steps]


def features_of_triples(job: JobSpec) -> tuple[int, int, int]:
    """Returns the numbers of the features head, relation and tail."""
    names = [feature.name for feature in job.features]
    return names.index(HEAD), names.index(RELATION), names.index(TAIL)
