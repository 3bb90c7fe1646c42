"""Parts of data sets: what is trained, and what is held out."""

from __future__ import annotations

import numpy as np
import pytest

from services.data import open_data
from services.data.parts import Part, hold_out
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument
from services.domain.features import single_ids

URI = "synthetic:zipf?samples=1000"


def ids(batches) -> np.ndarray:
    return np.concatenate([batch.by_field for batch in batches])


@pytest.mark.parametrize("batch_size", [7, 300, 5000])
def test_both_parts_together_are_the_data_set(batch_size: int) -> None:
    everything = open_data(URI, batch_size, seed=1)
    trained, held_out = hold_out(everything, 0.23)
    assert (trained.samples, held_out.samples) == (770, 230)
    np.testing.assert_array_equal(np.concatenate([ids(trained), ids(held_out)]), ids(everything))
    assert len({everything.fingerprint, trained.fingerprint, held_out.fingerprint}) == 3


def test_nothing_behind_a_part_is_read() -> None:
    class Broken:
        name, features, labels, dense_features = "x", single_ids("a"), ("label",), ()
        samples, endless, skipped, fingerprint = 9, False, 0, "x"

        def __iter__(self):
            for _ in range(3):
                yield SampleBatch(np.zeros((3, 1), np.uint64), np.zeros((3, 0), np.float32), np.zeros(3, np.float32))
            raise InvalidArgument("a broken line")

    assert [len(batch) for batch in Part(Broken(), 2, 9)] == [1, 3, 3]


@pytest.mark.parametrize(("uri", "share"), [("synthetic:zipf", 0.1), (URI, 0.0001), (URI, 1.0)])
def test_what_cannot_be_held_out_is_refused(uri: str, share: float) -> None:
    with pytest.raises(InvalidArgument, match="--holdout"):
        hold_out(open_data(uri, 100, seed=1), share)
