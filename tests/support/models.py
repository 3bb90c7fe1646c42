"""Trained models as `--out` writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from worker.models import MODELS

POOLED = tuple(name for name in MODELS if name != "tbsm")  # the models that take one embedding of each feature


def assert_same_model(path: Path, expected: Path) -> None:
    """The `model.npz` of two directories, bit by bit."""
    with np.load(path / "model.npz") as model, np.load(expected / "model.npz") as other:
        assert set(model.files) == set(other.files)
        for name in model.files:
            np.testing.assert_array_equal(model[name], other[name], err_msg=name)
