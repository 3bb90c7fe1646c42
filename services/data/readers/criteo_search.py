"""Criteo Sponsored Search conversion log (2018): tab-separated, 23 columns, no header; absent values are -1.

Label: Sale, the click led to a sale. Left out because they tell the label: SalesAmountInEuro and
time_delay_for_conversion, known only after a sale, and product_price, which the log fills in for sales only.
17 fields; -1 is a value of its own. Dense: clicks on the product in the last week, and the time of day.
"""

from __future__ import annotations

import numpy as np

from services.data.records import Column, Kind, Records, TextFormat
from services.data.text_dataset import TextSource
from services.domain.batches import SampleBatch

_DAY_SECONDS = 86_400
_CATEGORIES = (
    "product_age_group",
    "device_type",
    "audience_id",
    "product_gender",
    "product_brand",
    *(f"product_category_{i}" for i in range(1, 8)),
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
    "user_id",
)
_FORMAT = TextFormat(
    columns=(
        Column("Sale", Kind.FLAG),
        Column("SalesAmountInEuro", Kind.SKIP),
        Column("time_delay_for_conversion", Kind.SKIP),
        Column("click_timestamp", Kind.INTEGER),  # seconds since 1970
        Column("nb_clicks_1week", Kind.INTEGER, optional=True),
        Column("product_price", Kind.SKIP),
        *(Column(name, Kind.ID) for name in _CATEGORIES),
    ),
    delimiter="\t",
)


def _to_samples(records: Records) -> SampleBatch:
    labels, timestamp, clicks = records.numbers.T
    angle = timestamp % _DAY_SECONDS / _DAY_SECONDS * 2 * np.pi
    # ln(1 + x); absent (-1 or blank) becomes 0.
    dense = np.column_stack([np.log1p(np.fmax(clicks, 0.0)), np.sin(angle), np.cos(angle)])
    return SampleBatch(records.ids, dense.astype(np.float32), labels.astype(np.float32))


CRITEO_SEARCH = TextSource(
    name="criteo-search",
    text_format=_FORMAT,
    fields=_CATEGORIES,
    dense_features=("nb_clicks_1week", "time of day, sine", "time of day, cosine"),
    to_samples=_to_samples,
)
