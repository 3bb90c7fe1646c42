import numpy as np
import pytest
import torch

from esd.services.domain.errors import ResourceExhausted
from esd.worker.training.rows import RowCache

CPU = torch.device("cpu")


def test_rows_are_read_from_the_slots_they_were_written_to(device):
    cache = RowCache(6, 3, device)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    cache.write(np.array([4, 1], np.uint32), rows)
    np.testing.assert_array_equal(cache.read(np.array([1, 4, 0], np.uint32), 3), [[3, 4, 5], [0, 1, 2], [0, 0, 0]])
    np.testing.assert_array_equal(cache.read(np.array([1], np.uint32), 2), [[3, 4]])


def test_what_was_read_does_not_follow_the_cache(device):
    cache = RowCache(2, 3, device)
    slot = np.array([1], np.uint32)
    before = cache.read(slot, 3)
    cache.write(slot, np.ones((1, 3), np.float32))
    assert not before.any()


def test_a_cache_beyond_the_memory_names_the_setting():
    with pytest.raises(ResourceExhausted, match=r"needs 17592186044416000 bytes on cpu.*ESD_WORKER_CACHE_ROWS"):
        RowCache(2**32, 1024000, CPU)


def test_a_cache_grows_as_its_slots_are_taken_into_use():
    cache = RowCache(40, 3, CPU, first=2)
    early = np.arange(6, dtype=np.float32).reshape(2, 3)
    cache.write(np.array([0, 1], np.uint32), early)
    reader = cache.host_rows  # of a push that is being read while the cache grows
    cache.write(np.array([4], np.uint32), np.full((1, 3), 9, np.float32))
    assert len(cache.rows) == 5
    np.testing.assert_array_equal(reader[:2], early)
    np.testing.assert_array_equal(cache.read(np.array([1, 4], np.uint32), 3), [[3, 4, 5], [9, 9, 9]])
    np.testing.assert_array_equal(cache.host_rows[4], [9, 9, 9])
    cache.write(np.array([39], np.uint32), np.ones((1, 3), np.float32))
    assert len(cache.rows) == 40
