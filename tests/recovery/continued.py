"""Two runs, the second with the model of the first, beside one process that trains the samples of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from esd.run.options import RunOptions
from esd.run.stream import first_samples, global_batches
from esd.services.domain.tables import OptimizerKind
from tests.recovery.kills import OPTIONS
from tests.support.models import distance, model_arrays
from tests.support.reference import train_reference

BATCH = 60  # samples of an iteration, of both runs


def continued_runs(**rules: Any) -> tuple[RunOptions, RunOptions]:
    """Returns the options of a run with 2 workers, and of one with 4 that goes on with its model by the same rules."""
    first = replace(
        OPTIONS,
        data="synthetic:zipf?samples=1800&fields=3&keys=4000",
        optimizer=OptimizerKind.SGD,
        learning_rate=0.05,
        links="1g",
        batch=BATCH // 2,
        iterations=30,
        **rules,
    )
    return first, replace(first, workers=4, batch=BATCH // 4, iterations=20)


def assert_trained_as_by_one_process(runs: Sequence[RunOptions], path: Path) -> None:
    """Compares the rows of the model in a folder with the reference's, which trains the samples of all runs."""
    dataset = runs[0].open(1024)
    job = runs[0].job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    batches = [
        batch
        for options in runs
        for batch in global_batches(first_samples(options.open(1024), options.iterations * BATCH), BATCH)
    ]
    expected = train_reference(job, batches)
    model = model_arrays(path / "model")
    np.testing.assert_array_equal(model["ids"], expected.ids)
    np.testing.assert_array_equal(model["versions"], expected.versions)
    assert distance(model["rows"], expected.rows) < 1e-5
