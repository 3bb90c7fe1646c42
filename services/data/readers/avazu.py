"""Avazu click-through rate (Kaggle 2014): train.csv or train.gz, comma-separated with a header.

Label: click. 22 fields: the hour of the day and 21 categorical columns; the ad's id is unique and left out.
No dense features.
"""

from __future__ import annotations

import numpy as np

from services.data.hashing import derived_ids
from services.data.records import Column, Kind, Records, TextFormat
from services.data.text_dataset import TextSource
from services.domain.batches import SampleBatch

_HOUR = "hour of the day"
_CATEGORIES = (
    "C1",
    "banner_pos",
    "site_id",
    "site_domain",
    "site_category",
    "app_id",
    "app_domain",
    "app_category",
    "device_id",
    "device_ip",
    "device_model",
    "device_type",
    "device_conn_type",
    *(f"C{i}" for i in range(14, 22)),
)
_FORMAT = TextFormat(
    columns=(
        Column("id", Kind.SKIP),
        Column("click", Kind.FLAG),
        Column("hour", Kind.INTEGER),  # YYMMDDHH
        *(Column(name, Kind.ID) for name in _CATEGORIES),
    ),
    delimiter=",",
    header=True,
    quoted=True,
)


def _to_samples(records: Records) -> SampleBatch:
    labels, hour = records.numbers.T
    ids = np.column_stack([derived_ids(_HOUR, hour.astype(np.int64) % 100), records.ids])
    return SampleBatch(ids, np.empty((len(ids), 0), np.float32), labels.astype(np.float32))


AVAZU = TextSource(
    name="avazu", text_format=_FORMAT, fields=(_HOUR, *_CATEGORIES), dense_features=(), to_samples=_to_samples
)
