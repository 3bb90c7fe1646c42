"""Negatives: ids that stand in for a sample's own ones, drawn once for all samples of a chunk of the global batch.

Models of graphs are trained by comparing a true triple with corrupted ones, whose entities are drawn (TransE, Bordes et
al., 2013); samples of a chunk share them (DGL-KE, Zheng et al., 2020, §3.3). The dispatcher draws them when it plans
an iteration, so no submitter sends any, and a worker's plan has one list for each chunk of which it has samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import MAX_LENGTH, Feature
from esd.services.domain.ids import GOLDEN, in_table, mix64

MAX_IDS = 2**40  # among which a remainder of 64 random bits is even to 1e-7
_KEY = 0x6E65676174697665  # keeps the draws apart from other draws by the same seed


@dataclass(frozen=True, slots=True)
class Negatives:
    """A feature with one list of ids per chunk of the global batch.

    Attributes:
        name: of the feature, by which a model gets the rows; 1..256 characters.
        ids: the ids are drawn uniformly from 0 to `ids` - 1 of the table, with replacement; 1..2^40.
        count: ids of a list, 1..1,048,576.
        table: number of the table.
        chunk: samples that share a list: the positions 0 to `chunk` - 1 of the global batch have the first one; 0: all
            samples of the batch share one.

    Example:
        >>> negatives = esd.Negatives("negative", ids=40_943, count=4, chunk=600)
        >>> negatives.chunks(1200), negatives.drawn(seed=0, iteration=7, chunks=2).shape
        (2, (2, 4))
    """

    name: str
    ids: int
    count: int
    table: int = 0
    chunk: int = 0

    def __post_init__(self) -> None:
        Feature(self.name, self.table)  # which checks both
        for what, value, least, most in (
            ("ids", self.ids, 1, MAX_IDS),
            ("count", self.count, 1, MAX_LENGTH),
            ("chunk", self.chunk, 0, 2**32 - 1),
        ):
            if not least <= value <= most:
                raise InvalidArgument(f"{what} of the negatives is {value}, it must be in {least}..{most}")

    def chunks(self, samples: int) -> int:
        """Returns the number of chunks of a global batch of `samples` samples."""
        return -(-samples // self.chunk) if self.chunk else min(samples, 1)

    def most_rows(self, samples: int) -> int:
        """Returns how many rows the lists of a global batch of `samples` samples have at most."""
        return min(self.ids, self.chunks(samples) * self.count)

    def chunks_of(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the chunk of each sample, int64 [m], given its position in the global batch, [m]."""
        of_samples = positions.astype(np.int64)
        return of_samples // self.chunk if self.chunk else np.zeros_like(of_samples)

    def drawn(self, seed: int, iteration: int, chunks: int) -> NDArray[np.uint64]:
        """Returns the ids of the first `chunks` chunks, uint64 [chunks, count].

        They are a pure function of the seed, the iteration, the chunk and the place in the list.
        """
        start = mix64(np.array([seed ^ _KEY], np.uint64))
        of_chunks = mix64(mix64(start ^ np.uint64(iteration)) ^ np.arange(chunks, dtype=np.uint64))
        places = np.arange(self.count, dtype=np.uint64) * np.uint64(GOLDEN)
        return in_table(mix64(of_chunks[:, None] + places) % np.uint64(self.ids), self.table)

    def with_lists(
        self, batch: SampleBatch, assignment: NDArray[np.int32], seed: int, iteration: int
    ) -> SamplesWithLists:
        """Appends the lists that the workers of an assignment need to the samples of a global batch.

        Args:
            batch: the k samples.
            assignment: int32 [k], the worker of each.
            seed: of the job.
            iteration: of the batch.
        """
        samples, chunks = len(batch), self.chunks(len(batch))
        needed = np.unique(assignment.astype(np.int64) * chunks + self.chunks_of(np.arange(samples)))
        workers, of_lists = np.divmod(needed, chunks)
        return SamplesWithLists(
            samples=self._appended(batch, self.drawn(seed, iteration, chunks)[of_lists]),
            assignment=np.concatenate((assignment, workers.astype(np.int32))),
            chunks=of_lists.astype(np.uint32),
        )

    def _appended(self, batch: SampleBatch, lists: NDArray[np.uint64]) -> SampleBatch:
        """Returns the samples with one feature more, of which they have no id, and after them the lists, [c, count]."""
        samples, fields, count = len(batch), batch.fields, len(lists)
        lengths = np.zeros((samples + count, fields + 1), np.uint32)
        lengths[:samples, :fields] = 1 if batch.lengths is None else batch.lengths
        lengths[samples:, fields] = self.count

        def padded(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate((column, np.zeros((count, *column.shape[1:]), column.dtype)))

        return SampleBatch(
            ids=np.concatenate((batch.ids, lists.reshape(-1))),
            dense=padded(batch.dense),
            labels=padded(batch.labels),
            lengths=lengths,
            weights=None if batch.weights is None else padded(batch.weights),
            groups=None if batch.groups is None else padded(batch.groups),
            references=None if batch.references is None else padded(batch.references),
        )


@dataclass(frozen=True, slots=True)
class SamplesWithLists:
    """The samples of a global batch, and after them a list of negatives for each worker and chunk that needs it.

    For the engine a list is a sample like any other, which one worker trains: so its rows are pulled, cached, shared
    and pushed as all rows are.

    Attributes:
        samples: k + c samples of F + 1 features; the last feature is the negatives.
        assignment: int32 [k + c], the worker of each.
        chunks: uint32 [c], the chunk of each list: by worker, and of a worker ascending.
    """

    samples: SampleBatch
    assignment: NDArray[np.int32]
    chunks: NDArray[np.uint32]


def without_lists(columns: dict[str, Any], lists: int) -> dict[str, Any]:
    """Returns the columns of an IterationPlan whose last `lists` samples are lists of negatives, with these apart.

    `positions` of a list is the number of its chunk. The ids of the lists stay at the end of `inverse`.
    """
    if not lists:
        return columns
    lengths = columns["lengths"][:-lists, :-1]
    names = ("positions", "dense", "labels", "weights", "groups", "references")
    rest = {name: columns[name][:-lists] for name in names if columns.get(name) is not None}
    rest["lengths"] = None if (lengths == 1).all() else np.ascontiguousarray(lengths)
    return columns | rest | {"chunks": columns["positions"][-lists:]}
