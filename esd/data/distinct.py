"""The number of distinct ids of a data set, counted once and remembered."""

from __future__ import annotations

from pathlib import Path

from esd.data.dataset import Dataset
from esd.data.memory import recall, remember
from esd.data.opening import open_data
from esd.native import text as native
from esd.services.domain.errors import InvalidArgument

_KIND = "distinct"
_BATCH = 4096


def count_distinct(
    uri: str, *, seed: int = 0, skip_bad: int = 0, data_dir: Path | None = None, schema: Path | None = None
) -> int:
    """Counts the distinct ids of the whole data set, exactly. The first call takes as long as reading the data once.

    The answer is kept below the user's cache directory (XDG_CACHE_HOME), under the data set's fingerprint: a file of
    other content, or another reader version, is counted anew.

    Raises:
        InvalidArgument: the stream is endless, or has a malformed record.
        NotFound: see open_data.
    """
    dataset = open_data(uri, _BATCH, seed=seed, skip_bad=skip_bad, data_dir=data_dir, schema=schema)
    if dataset.endless:
        raise InvalidArgument(f"data {uri!r} is endless: give --cache-rows instead of --cache-ratio, or ?samples=N")
    return distinct_ids_of(dataset)


def distinct_ids_of(dataset: Dataset, enough: int | None = None) -> int:
    """Counts the distinct ids of a data set that is open and has an end, or recalls their number.

    Args:
        dataset: the data set.
        enough: a number of ids at which counting may stop. The result is then this number or a larger one, neither
            time nor memory grows with the rest of the data, and nothing is remembered.
    """
    count = recall(_KIND, dataset.fingerprint)
    if isinstance(count, int):
        return count
    distinct = native.DistinctIds()
    for batch in dataset:
        distinct.add(batch.ids.reshape(-1))
        if enough is not None and len(distinct) >= enough:
            return len(distinct)
    remember(_KIND, dataset.fingerprint, len(distinct))
    return len(distinct)
