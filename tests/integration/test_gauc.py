"""GAUC by a column of a user's own file: through reader, plans and reports, and of held-out samples."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from esd.dispatcher.core.grouped_auc import grouped_auc
from esd.run.options import RunOptions
from esd.run.stream import global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.reports import SCORE_BINS
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.reference import train_reference

SCHEMA = """
label = "clicked"
ids = ["item", "site"]
group = "user"
dense = ["price"]
"""


def write_events(folder: Path) -> RunOptions:
    """Writes 2,500 events of 60 users with different preferences."""
    rng = np.random.default_rng(4)
    users, items = rng.integers(0, 60, 2500), rng.integers(0, 40, 2500)
    clicked = (rng.random(2500) < np.where((users + items) % 3 == 0, 0.7, 0.2)).astype(np.int64)
    columns = {"user": users, "item": items, "site": rng.integers(0, 9, 2500), "price": rng.random(2500)}
    parquet.write_table(pa.table(columns | {"clicked": clicked}), folder / "events.parquet")
    (folder / "schema.toml").write_text(SCHEMA)
    return RunOptions(
        data=str(folder / "events.parquet"),
        schema=folder / "schema.toml",
        holdout="0.2",
        workers=2,
        links="1g",
        batch=32,
        dim=4,
        cache_rows=200,
        optimizer=OptimizerKind.SGD,
        learning_rate=0.1,
        checkpoint_every=10,
    )


def test_gauc_is_that_of_one_process(tmp_path: Path) -> None:
    options = write_events(tmp_path)
    pages = []

    def watch(cluster, state) -> None:
        if state.iterations_confirmed and not pages:
            with urllib.request.urlopen(f"http://{cluster.dispatcher.page}/state.json", timeout=60) as page:
                pages.append(json.load(page))

    result = training.run(options, store="memory", shards=1, out=None, watch=watch)

    dataset = options.open(1024)
    job = options.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    batches = list(global_batches(dataset, 64))
    trained = SampleBatch.concatenate(batches)
    assert trained.groups is not None
    bins = (train_reference(job, batches).scores.reshape(len(trained), -1)[:, 0] * SCORE_BINS).astype(np.uint16)
    won, samples = grouped_auc(trained.groups, bins, trained.labels[:, 0].astype(np.uint8))
    assert result["gauc"] == pytest.approx(won / samples, abs=2e-3)
    assert result["recent"]["gauc"] == result["gauc"]  # all samples are in one window
    assert 0 < result["held_out"]["gauc"] < 1
    assert result["gauc"] != result["auc"]
    assert 0 <= pages[0]["quality"]["gauc"] <= 1
