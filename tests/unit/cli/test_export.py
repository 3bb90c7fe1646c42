"""The file of a trained model is whole, whatever ends its writing."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from esd.cli.export import write_whole


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out/model.npz"
    write_whole(file, {"ids": np.arange(3)})
    with pytest.raises((AttributeError, pickle.PicklingError)):
        write_whole(file, {"ids": np.arange(4), "rows": np.array([lambda: 0], object)})
    with np.load(file) as arrays:
        np.testing.assert_array_equal(arrays["ids"], np.arange(3))
    assert [each.name for each in file.parent.iterdir()] == ["model.npz"]
