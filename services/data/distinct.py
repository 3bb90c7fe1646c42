"""The number of distinct ids of a data set, counted once and remembered."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path

from esd_native.text import DistinctIds
from services.data.dataset import Dataset, open_data
from services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)
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
    remembered = _cache_file(dataset)
    count = _recall(remembered, dataset)
    if count is None:
        count = _count(dataset)
        _remember(remembered, dataset, count)
    return count


def _count(dataset: Dataset) -> int:
    distinct = DistinctIds()
    for batch in dataset:
        distinct.add(batch.ids.reshape(-1))
    return len(distinct)


def _cache_file(dataset: Dataset) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "esd" / "distinct" / f"{hashlib.sha256(dataset.fingerprint.encode()).hexdigest()}.json"


def _recall(file: Path, dataset: Dataset) -> int | None:
    try:
        entry = json.loads(file.read_text())
    except (OSError, ValueError):  # absent, unreadable or damaged: count again
        return None
    if not isinstance(entry, dict) or entry.get("fingerprint") != dataset.fingerprint:
        return None
    count = entry.get("distinct")
    return count if isinstance(count, int) else None


def _remember(file: Path, dataset: Dataset, count: int) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as temporary:
            json.dump({"fingerprint": dataset.fingerprint, "distinct": count}, temporary)
        Path(temporary.name).replace(file)  # atomic: a reader sees all of it or nothing
    except OSError as error:
        _log.warning("the number of distinct ids cannot be remembered in %s: %s", file, error)
