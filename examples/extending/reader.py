"""A reader of one's own: the clicks of a shop, `clicked,price,user,item,shop` in each line."""

from __future__ import annotations

import numpy as np

from esd.data.records import Column, Kind, Records, TextFormat
from esd.data.text_dataset import TextSource
from esd.services.domain.batches import SampleBatch

_FORMAT = TextFormat(
    columns=(
        Column("clicked", Kind.FLAG),
        Column("price", Kind.DECIMAL, optional=True),
        *(Column(name, Kind.ID) for name in ("user", "item", "shop")),
    ),
    delimiter=",",
    header=True,
)


def _samples(records: Records) -> SampleBatch:
    """The dense feature is ln(1 + price), 0 where there is no price."""
    clicked, price = records.numbers.T
    dense = np.log1p(np.fmax(price, 0.0))[:, np.newaxis]
    return SampleBatch.of_fields(records.ids, dense.astype(np.float32), clicked.astype(np.float32))


SHOP = TextSource("shop", _FORMAT, fields=("user", "item", "shop"), dense_features=("price",), to_samples=_samples)
