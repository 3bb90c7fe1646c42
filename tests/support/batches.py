"""Batches for tests that look at ids only."""

from __future__ import annotations

from typing import Any

import numpy as np

from esd.services.domain.batches import SampleBatch


def ids_only(ids: Any) -> SampleBatch:
    """Samples with these ids, [k, F], one of each feature, without dense features, all labels 0."""
    columns = np.asarray(ids, np.uint64)
    return SampleBatch.of_fields(columns, np.zeros((len(columns), 0), np.float32), np.zeros(len(columns), np.float32))
