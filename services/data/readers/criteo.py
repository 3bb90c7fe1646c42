"""Criteo Display Advertising (Kaggle 2014, and the days of the Terabyte log): tab-separated, no header.

A line is the label (clicked: 1), 13 integer features I1..I13 and 26 categorical features C1..C26 (8 hex digits);
any feature may be blank. A blank category is a value of its own.
"""

from __future__ import annotations

import numpy as np

from services.data.records import Column, Kind, Records, TextFormat
from services.data.text_dataset import TextSource
from services.domain.batches import SampleBatch

_FORMAT = TextFormat(
    columns=(
        Column("label", Kind.FLAG),
        *(Column(f"I{i}", Kind.INTEGER, optional=True) for i in range(1, 14)),
        *(Column(f"C{i}", Kind.ID) for i in range(1, 27)),
    ),
    delimiter="\t",
)


def _to_samples(records: Records) -> SampleBatch:
    labels, counts = records.numbers[:, 0], records.numbers[:, 1:]
    # ln(1 + x), the field's usual transform (DLRM); blank and negative counts become 0.
    dense = np.log1p(np.fmax(counts, 0.0))
    return SampleBatch(records.ids, dense.astype(np.float32), labels.astype(np.float32))


CRITEO = TextSource(
    name="criteo",
    text_format=_FORMAT,
    fields=_FORMAT.names(Kind.ID),
    dense_features=_FORMAT.names(Kind.INTEGER),
    to_samples=_to_samples,
)
