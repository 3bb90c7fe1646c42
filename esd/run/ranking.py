"""Link prediction: the ranks of held-out triples among all entities, with the rows that the parameter servers hold."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.tables import TableClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import distinct_values
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import Ranking

Within = Callable[..., Coroutine[Any, Any, Any]]


class LinkPrediction:
    """The ranks of one evaluation.

    Args:
        job: of a model of graphs.
        known: uint64 [n, 3], the ids of all true triples, whose entities and relations are all that there are.
        within: makes a call in the thread of torch: a limit in seconds, words for it, the function, its arguments.
        seconds: limit of a call.
    """

    def __init__(self, job: JobSpec, known: NDArray[np.uint64], within: Within, seconds: float) -> None:
        self._job = job
        self._within = within
        self._seconds = seconds
        self._known = known
        self._entities = distinct_values(known[:, ::2])
        self._relations = distinct_values(known[:, 1])
        self._features = _module().features_of_triples(job)
        self._ranker: Any = None
        self._ranks: list[NDArray[np.float64]] = []

    async def load(self, tables: Sequence[TableClient], checkpoint: int) -> None:
        """Reads the rows of all entities and relations as they were at a checkpoint, or are at the end (0)."""
        head, relation, _ = (self._job.features[at].table for at in self._features)
        (_, entities), (_, relations) = [
            await tables[table].look_up(ids, checkpoint=checkpoint)
            for table, ids in ((head, self._entities), (relation, self._relations))
        ]
        words, known = "a model of graphs is being built", self._places(self._known)
        make = _module().Ranker
        self._ranker = await self._within(self._seconds, words, make, self._job, entities, relations, known)

    async def add(self, batch: SampleBatch) -> None:
        """Ranks held-out triples."""
        triples = self._places(batch.by_field[:, self._features])
        words = f"{len(batch)} held-out triples are being ranked"
        self._ranks.append(await self._within(self._seconds, words, self._ranker.ranks, triples))

    def ranking(self) -> Ranking:
        """Returns the figures over all held-out triples, of tails and heads together."""
        return Ranking.of(np.concatenate(self._ranks))

    def _places(self, triples: NDArray[np.uint64]) -> NDArray[np.int64]:
        columns = [
            np.searchsorted(ids, triples[:, at])
            for at, ids in enumerate((self._entities, self._relations, self._entities))
        ]
        return np.column_stack(columns).astype(np.int64)


def ranks_links(job: JobSpec) -> bool:
    """Returns whether a job's model is one of graphs; to be called in the thread of torch."""
    ranks: bool = _module().ranks_links(job)
    return ranks


def _module() -> Any:
    return import_module("esd.worker.training.ranking")
