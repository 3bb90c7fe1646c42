"""Makes the embeddings of a model from the rows of all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.jobs import JobSpec
from esd.worker.models.inputs import Jagged, SharedLists
from esd.worker.training.pooling import embed


class Embedder:
    """Makes a model's embeddings from the rows of a job's tables; several features may share a table.

    Args:
        job: has the features and the tables.
    """

    def __init__(self, job: JobSpec) -> None:
        self._features = job.features
        self._negatives = job.negatives
        numbered = list(enumerate(job.features))
        self._numbers = [[at for at, each in numbered if each.table == table] for table in range(len(job.tables))]

    def with_negatives(
        self,
        rows: Sequence[Tensor],
        lengths: NDArray[np.uint32] | None,
        positions: NDArray[np.uint32],
        chunks: NDArray[np.uint32],
    ) -> Mapping[str, Tensor | Jagged | SharedLists]:
        """Returns the embeddings of the m samples of an iteration, and of their negatives if the job has any.

        Args:
            rows: by table, float32 [N_t, D_t], as in `IterationPlan.inverse`: the rows of the lists follow the others.
            lengths: of the samples' ids.
            positions: uint32 [m], the place of each sample in the global batch.
            chunks: uint32 [c], of the lists.
        """
        negatives = self._negatives
        if negatives is None:
            return self(rows, lengths)
        of_table = rows[negatives.table]
        end = len(of_table) - len(chunks) * negatives.count
        lists = of_table[end:].view(len(chunks), negatives.count, of_table.shape[1])
        which = torch.from_numpy(np.searchsorted(chunks, negatives.chunks_of(positions))).to(lists.device)
        own = [each[:end] if table == negatives.table else each for table, each in enumerate(rows)]
        return {**self(own, lengths), negatives.name: SharedLists(lists, which)}

    def __call__(self, rows: Sequence[Tensor], lengths: NDArray[np.uint32] | None) -> Mapping[str, Tensor | Jagged]:
        """Returns the embeddings of m samples by the name of the feature, in the order of the features.

        Args:
            rows: by table, float32 [N_t, D_t], the rows of all ids of its features: by sample, and within a sample by
                feature.
            lengths: uint32 [m, F], number of ids of each feature in each sample; None: exactly one of each.
        """
        if len(rows) == 1:
            return embed(rows[0], lengths, self._features)
        found: dict[str, Tensor | Jagged] = {}
        for of_table, numbers in zip(rows, self._numbers, strict=True):
            part = None if lengths is None else lengths[:, numbers]
            found |= embed(of_table, part, [self._features[at] for at in numbers])
        return {feature.name: found[feature.name] for feature in self._features}
