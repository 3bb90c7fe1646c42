"""Trained models as `--out` writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from esd.worker.models import MODELS
from tests.support.reference import TrainedModel

GRAPHS = ("transe", "distmult", "complex", "simple", "rotate")  # the models of triples
POOLED = tuple(name for name in MODELS if name not in ("tbsm", *GRAPHS))  # those that take one embedding per feature


def assert_same_model(path: Path, expected: Path) -> None:
    """The `model.npz` of two directories, bit by bit."""
    with np.load(path / "model.npz") as model, np.load(expected / "model.npz") as other:
        assert set(model.files) == set(other.files)
        for name in model.files:
            np.testing.assert_array_equal(model[name], other[name], err_msg=name)


def assert_trained(path: Path, expected: TrainedModel, tolerance: float = 1e-4) -> None:
    """A `model.npz` beside a model that one process has trained: ids and versions exactly, numbers in norm."""
    with np.load(path) as model:
        for name, table in expected.tables.items():
            prefix = f"{name}/" if len(expected.tables) > 1 else ""
            np.testing.assert_array_equal(model[f"{prefix}ids"], table.ids)
            np.testing.assert_array_equal(model[f"{prefix}versions"], table.versions)
            assert distance(model[f"{prefix}rows"], table.rows) < tolerance, name
        for name, values in expected.dense.items():
            assert distance(model[f"dense/{name}"], values) < tolerance, name


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the distance of two arrays, relative to the norm of the second."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
