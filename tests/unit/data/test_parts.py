"""Parts of data sets, by the places of their samples."""

from __future__ import annotations

import numpy as np

from esd.data.parts import Part
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import single_ids


def test_nothing_behind_a_part_is_read() -> None:
    class Broken:
        name, features, labels, dense_features = "x", single_ids("a"), ("label",), ()
        samples, endless, skipped, fingerprint = 9, False, 0, "x"

        def __iter__(self):
            for _ in range(3):
                yield SampleBatch(np.zeros((3, 1), np.uint64), np.zeros((3, 0), np.float32), np.zeros(3, np.float32))
            raise InvalidArgument("a broken line")

    assert [len(batch) for batch in Part(Broken(), 2, 9)] == [1, 3, 3]
