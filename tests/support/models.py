"""Trained models as `--out` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from esd.data.schema import Schema
from esd.model.files import CONFIG, FORMAT, SCHEMA, FolderWriter, new_folder
from esd.model.schema_text import schema_text
from esd.model.sorted_rows import SortedRows
from esd.model.table import write_table
from esd.model.trained import load
from esd.services.domain.jobs import JobSpec
from esd.services.domain.rows import RowBlock
from esd.services.wire.trained_models import PARAMETERS, describe_model
from esd.worker.models import MODELS
from tests.support.reference import TrainedModel

GRAPHS = ("transe", "distmult", "complex", "simple", "rotate")  # the models of triples
POOLED = tuple(name for name in MODELS if name not in ("tbsm", *GRAPHS))  # those that take one embedding per feature


def model_arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a model's folder: `ids`, `rows` and `versions`, of several tables `TABLE/ids` and so on, parameters
    and buffers as `dense/NAME`, and the description as `model`."""
    trained = load(folder)
    found: dict[str, np.ndarray] = {"model": np.array(trained.config["model"])}
    for number, table in enumerate(trained.job.tables):
        prefix = f"{table.name}/" if len(trained.job.tables) > 1 else ""
        stored = trained.table(number)
        for name in ("ids", "rows", "versions"):
            found[prefix + name] = np.array(getattr(stored, name))
    return found | {f"dense/{name}": values for name, values in load_file(folder / PARAMETERS).items()}


def save_model(
    folder: Path,
    job: JobSpec,
    dense: dict[str, np.ndarray],
    schema: Schema | None = None,
    **tables: tuple[np.ndarray, ...],
) -> None:
    """Writes a model's folder without graphs; `tables` has ids, rows and versions by the name of the table."""
    with new_folder(folder) as writer:
        for table in job.tables:
            with SortedRows(table.dimension, writer.path) as rows:
                if table.name in tables:
                    ids, values, versions = tables[table.name]
                    rows.add(RowBlock(ids, versions, values))
                write_table(writer, table, rows)
        _save_dense(writer, dense)
        config: dict[str, Any] = {"format": FORMAT, "model": describe_model(job)}
        if schema is not None:
            writer.write(SCHEMA, schema_text(schema).encode())
        writer.write(CONFIG, json.dumps(config).encode())


def _save_dense(writer: FolderWriter, dense: dict[str, np.ndarray]) -> None:
    save_file(dense, writer.path / PARAMETERS)
    writer.add(PARAMETERS)


def assert_same_model(path: Path, expected: Path) -> None:
    """The models of the runs of two directories, bit by bit."""
    model, other = model_arrays(path / "model"), model_arrays(expected / "model")
    assert set(model) == set(other)
    for name in model:
        np.testing.assert_array_equal(model[name], other[name], err_msg=name)


def assert_trained(
    path: Path,
    expected: TrainedModel,
    tolerance: float = 1e-4,
    in_other_orders: Callable[[], Iterable[TrainedModel]] = tuple,
) -> None:
    """A model's folder beside a model that one process has trained: ids and versions exactly, numbers in norm.

    Numbers may be further apart than the tolerance, at most twice as far as the numbers of one process are from the
    numbers that it has when its sums have another order.
    """
    model, apart = model_arrays(path), dict[str, float]()
    for name, table in expected.tables.items():
        prefix = f"{name}/" if len(expected.tables) > 1 else ""
        np.testing.assert_array_equal(model[f"{prefix}ids"], table.ids)
        np.testing.assert_array_equal(model[f"{prefix}versions"], table.versions)
        apart[name] = distance(model[f"{prefix}rows"], table.rows)
    for name, values in expected.dense.items():
        apart[f"dense/{name}"] = distance(model[f"dense/{name}"], values)
    if all(each < tolerance for each in apart.values()):
        return
    own = [distances(other, expected) for other in in_other_orders()]
    for name, each in apart.items():
        assert each < max([tolerance, *(2 * other[name] for other in own)]), name


def distances(found: TrainedModel, expected: TrainedModel) -> dict[str, float]:
    """Returns the distances of two models that one process has trained, by table and dense parameter."""
    tables = {name: distance(found.tables[name].rows, table.rows) for name, table in expected.tables.items()}
    return tables | {f"dense/{name}": distance(found.dense[name], each) for name, each in expected.dense.items()}


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the distance of two arrays, relative to the norm of the second."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
