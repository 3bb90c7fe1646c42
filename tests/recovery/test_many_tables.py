"""kill -9 of a process of a job with as many tables of unequal rows as DLRM has: all of them go back together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from esd.run.options import RunOptions
from tests.recovery.kills import Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.models import model_arrays

TABLES = 26
ITERATIONS = 60
WORKERS, BATCH = 2, 30
DIMENSIONS = range(1, TABLES + 1)  # of the tables


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    """Samples in a file with a column for each table, and a schema with the tables' dimensions and optimizers."""
    folder = tmp_path_factory.mktemp("columns")
    rng = np.random.default_rng(7)
    ids = (40 * rng.random((WORKERS * BATCH * ITERATIONS, TABLES)) ** 2).astype(int)
    labels = (ids[:, 0] + ids[:, 25] + rng.integers(0, 20, len(ids)) > 36).astype(int)
    lines = (",".join(map(str, (label, *row))) for label, row in zip(labels.tolist(), ids.tolist(), strict=True))
    header = ",".join(["y", *(f"c{at}" for at in range(TABLES))])
    (folder / "samples.csv").write_text("\n".join([header, *lines]) + "\n")
    columns = ", ".join(f'{{ column = "c{at}", table = "t{at}" }}' for at in range(TABLES))
    optimizers = ("adam", "adagrad", "sgd")
    tables = "".join(
        f'[tables.t{at}]\ndim = {dimension}\noptimizer = "{optimizers[at % 3]}"\n'
        for at, dimension in enumerate(DIMENSIONS)
    )
    (folder / "schema.toml").write_text(f'label = "y"\nids = [{columns}]\n{tables}')
    return RunOptions(
        data=str(folder / "samples.csv"),
        schema=folder / "schema.toml",
        workers=WORKERS,
        links="20m,10m",  # slow enough that a kill between two checkpoints hits the time between them
        batch=BATCH,
        cache_rows=3500,  # of the first table, whose rows have one value: about 800 of the others, too few for all
        model="dcn",
        hidden="8",
        iterations=ITERATIONS,
        seed=3,
        checkpoint_every=25,
    )


@pytest.fixture(scope="module")
def undisturbed(options: RunOptions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    result = training.run(options, store="memory", shards=2, out=path)
    model = model_arrays(path / "model")
    widths = [model[name].shape[1] for name in sorted(model) if name.endswith("/rows")]
    assert sorted(widths) == list(DIMENSIONS)
    return path, result


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_26_unequal_tables_at_one_checkpoint(options, undisturbed, tmp_path, victim):
    kill = Killer(victim)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed
    assert_same_run(result, tmp_path, undisturbed)
