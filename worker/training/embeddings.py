"""Makes the embeddings of a model from the rows of all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.features import Feature
from esd.worker.models.inputs import Jagged
from esd.worker.training.pooling import embed


class Embedder:
    """Makes a model's embeddings from the rows of a job's tables; several features may share a table.

    Args:
        features: features of the job.
        tables: number of its tables.
    """

    def __init__(self, features: Sequence[Feature], tables: int) -> None:
        self._features = features
        numbered = list(enumerate(features))
        self._numbers = [[at for at, feature in numbered if feature.table == table] for table in range(tables)]

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
