"""MovieLens ratings: `ratings.csv` (20M, 25M, 32M, latest) or `ratings.dat` with `::` (1M, 10M).

Label: the rating is 4 stars or more. Two fields: user and movie. No dense features.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from services.data.records import Column, Kind, Records, TextFormat
from services.data.text_dataset import TextSource
from services.domain.batches import SampleBatch

_LIKED = 4.0
_COLUMNS = (
    Column("userId", Kind.ID),
    Column("movieId", Kind.ID),
    Column("rating", Kind.DECIMAL),
    Column("timestamp", Kind.SKIP),
)


def _to_samples(records: Records) -> SampleBatch:
    labels = (records.numbers[:, 0] >= _LIKED).astype(np.float32)
    return SampleBatch(records.ids, np.empty((len(labels), 0), np.float32), labels)


def movielens_source(path: Path) -> TextSource:
    """The format of a ratings file by its name: `.dat` and `.dat.gz` are separated by `::`, others are CSV."""
    if ".dat" in path.suffixes:
        text_format = TextFormat(_COLUMNS, delimiter="::")
    else:
        text_format = TextFormat(_COLUMNS, delimiter=",", header=True)
    return TextSource("movielens", text_format, text_format.names(Kind.ID), (), _to_samples)
