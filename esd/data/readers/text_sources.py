"""The public data sets that are text files: Criteo's two logs, Avazu and MovieLens.

Each is a `TextSource`: the columns of the file, how it separates them, and one vectorised function that turns parsed
columns into samples. In all of them a blank or absent category is a value of its own.
"""

from __future__ import annotations

import numpy as np

from esd.data.hashing import derived_ids
from esd.data.reader import ReadRequest
from esd.data.records import Column, Kind, Records, TextFormat
from esd.data.text_dataset import TextDataset, TextSource
from esd.services.domain.batches import SampleBatch

# Criteo Display Advertising (Kaggle 2014, and the days of the Terabyte log): tab-separated, without a header. A line is
# the label (clicked: 1), 13 integer features and 26 categories of 8 hexadecimal digits; any feature may be blank.

_CRITEO_FORMAT = TextFormat(
    columns=(
        Column("label", Kind.FLAG),
        *(Column(f"I{i}", Kind.INTEGER, optional=True) for i in range(1, 14)),
        *(Column(f"C{i}", Kind.ID) for i in range(1, 27)),
    ),
    delimiter="\t",
)


def _criteo_samples(records: Records) -> SampleBatch:
    labels, counts = records.numbers[:, 0], records.numbers[:, 1:]
    # ln(1 + x), the field's usual transform (DLRM); blank and negative counts become 0.
    dense = np.log1p(np.fmax(counts, 0.0))
    return SampleBatch.of_fields(records.ids, dense.astype(np.float32), labels.astype(np.float32))


CRITEO = TextSource(
    name="criteo",
    text_format=_CRITEO_FORMAT,
    fields=_CRITEO_FORMAT.names(Kind.ID),
    dense_features=_CRITEO_FORMAT.names(Kind.INTEGER),
    to_samples=_criteo_samples,
)

# Criteo Sponsored Search conversion log (2018): tab-separated, 23 columns, without a header; an absent value is -1. The
# label is Sale: the click led to a sale. Three columns are left out because they tell the label: SalesAmountInEuro and
# time_delay_for_conversion are known only after a sale, and the log fills in product_price for sales only.

_DAY_SECONDS = 86_400
_SEARCH_CATEGORIES = (
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
_SEARCH_FORMAT = TextFormat(
    columns=(
        Column("Sale", Kind.FLAG),
        Column("SalesAmountInEuro", Kind.SKIP),
        Column("time_delay_for_conversion", Kind.SKIP),
        Column("click_timestamp", Kind.INTEGER),  # seconds since 1970
        Column("nb_clicks_1week", Kind.INTEGER, optional=True),
        Column("product_price", Kind.SKIP),
        *(Column(name, Kind.ID) for name in _SEARCH_CATEGORIES),
    ),
    delimiter="\t",
)


def _search_samples(records: Records) -> SampleBatch:
    """The dense features are the clicks on the product in the last week, and the time of day as a point on a circle."""
    labels, timestamp, clicks = records.numbers.T
    angle = timestamp % _DAY_SECONDS / _DAY_SECONDS * 2 * np.pi
    # ln(1 + x); absent (-1 or blank) becomes 0.
    dense = np.column_stack([np.log1p(np.fmax(clicks, 0.0)), np.sin(angle), np.cos(angle)])
    return SampleBatch.of_fields(records.ids, dense.astype(np.float32), labels.astype(np.float32))


CRITEO_SEARCH = TextSource(
    name="criteo-search",
    text_format=_SEARCH_FORMAT,
    fields=_SEARCH_CATEGORIES,
    dense_features=("nb_clicks_1week", "time of day, sine", "time of day, cosine"),
    to_samples=_search_samples,
)

# Avazu click-through rate (Kaggle 2014): train.csv or train.gz, comma-separated with a header. The label is the click.
# The 22 fields are the hour of the day and 21 categories; the ad's id is unique and left out. No dense features.

_HOUR = "hour of the day"
_AVAZU_CATEGORIES = (
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


def _avazu_samples(records: Records) -> SampleBatch:
    labels, hour = records.numbers.T
    ids = np.column_stack([derived_ids(_HOUR, hour.astype(np.int64) % 100), records.ids])
    return SampleBatch.of_fields(ids, np.empty((len(ids), 0), np.float32), labels.astype(np.float32))


AVAZU = TextSource(
    name="avazu",
    text_format=TextFormat(
        columns=(
            Column("id", Kind.SKIP),
            Column("click", Kind.FLAG),
            Column("hour", Kind.INTEGER),  # YYMMDDHH
            *(Column(name, Kind.ID) for name in _AVAZU_CATEGORIES),
        ),
        delimiter=",",
        header=True,
        quoted=True,
    ),
    fields=(_HOUR, *_AVAZU_CATEGORIES),
    dense_features=(),
    to_samples=_avazu_samples,
)

# MovieLens ratings: `ratings.csv` (20M, 25M, 32M, latest) or `ratings.dat` with `::` (1M, 10M). The label is a rating
# of 4 stars or more. The two fields are the user and the movie. No dense features.

_LIKED = 4.0
_RATING_COLUMNS = (
    Column("userId", Kind.ID),
    Column("movieId", Kind.ID),
    Column("rating", Kind.DECIMAL),
    Column("timestamp", Kind.SKIP),
)


def _movielens_samples(records: Records) -> SampleBatch:
    labels = (records.numbers[:, 0] >= _LIKED).astype(np.float32)
    return SampleBatch.of_fields(records.ids, np.empty((len(labels), 0), np.float32), labels)


def movielens(request: ReadRequest) -> TextDataset:
    """Tells the format by the first file's name: `.dat` and `.dat.gz` are separated by `::`, others are CSV."""
    files = request.files()
    if ".dat" in files[0].suffixes:
        text_format = TextFormat(_RATING_COLUMNS, delimiter="::")
    else:
        text_format = TextFormat(_RATING_COLUMNS, delimiter=",", header=True)
    source = TextSource("movielens", text_format, text_format.names(Kind.ID), (), _movielens_samples)
    return TextDataset(source, files, request.batch_size, request.skip_bad)
