"""The example with data and a model of one's own, as docs/models.md shows it, is the model of one process."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import esd
from esd.cli import train
from esd.cli.options import RunOptions
from esd.cli.stream import global_batches, held_out_samples
from examples.visits.make_data import make
from services.domain.batches import SampleBatch
from tests.support.auc import exact_auc
from tests.support.reference import train_reference

EXAMPLE = Path(__file__).parents[2] / "examples" / "visits"


def options_of(folder: Path) -> RunOptions:
    """What job.toml says, with the data in a folder, and fewer of them."""
    said = tomllib.loads((EXAMPLE / "job.toml").read_text())
    return RunOptions(
        data=str(folder / "day-[123].parquet"),
        evaluate=str(folder / "day-4.parquet"),
        schema=EXAMPLE / "schema.toml",
        model=said["model"],
        epochs=said["epochs"],
        shuffle=300,
        learning_rate=said["lr"],
        lr_schedule=said["lr-schedule"],
        workers=said["workers"],
        links=",".join(said["links"]),
        batch=16,
        dim=8,
        cache_rows=900,
    )


def relative_distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_the_example_is_the_model_of_one_process(tmp_path: Path, store: str, redis_url: str) -> None:
    make(tmp_path, 200)
    options = options_of(tmp_path)
    result = train.run(options, store=redis_url if store == "redis" else store, shards=2, out=tmp_path / "out")
    assert (result["samples"], result["iterations"]) == (1800, 29)

    dataset = options.open(1024)
    job = options.job(
        features=dataset.features,
        dense_features=len(dataset.dense_features),
        parameter_servers=("none",),
        labels=dataset.labels,
        iterations=29,
    )
    batches = list(global_batches(dataset, 64))
    expected = train_reference(job, batches)
    with np.load(tmp_path / "out" / "model.npz") as model:
        np.testing.assert_array_equal(model["ids"], expected.ids)
        np.testing.assert_array_equal(model["versions"], expected.versions)
        assert relative_distance(model["rows"], expected.rows) < 1e-4
        for name, values in expected.dense.items():
            assert relative_distance(model[f"dense/{name}"], values) < 1e-4, name
    labels = np.concatenate([batch.labels[:, 0] for batch in batches])
    assert result["auc"] == pytest.approx(exact_auc(expected.scores, labels), abs=1e-3)
    held_out = held_out_samples(options)
    assert held_out is not None
    judged = SampleBatch.concatenate(list(held_out))
    scores = esd.TrainedModel.load(tmp_path / "out" / "model.npz").scores(judged)
    assert scores.shape == (200, 1)
    assert result["held_out"]["auc"] == pytest.approx(exact_auc(scores[:, 0], judged.labels[:, 0]), abs=1e-3)
    assert 0.5 < result["held_out"]["auc"] < 1
