"""The engine encodes as the plain Python encoder does, byte for byte; columns take their fewest bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from esd.dispatcher.core.planner import Planner
from esd.native import wire
from esd.native.engine import Engine
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.wire.attend import decode_response
from tests.support.plan_messages import message_of, pack
from tests.support.simple_clients import job_with

UNPACK: dict[Any, Callable[..., NDArray[Any]]] = {
    np.uint64: wire.unpack_uint64,
    np.uint32: wire.unpack_uint32,
    np.int64: wire.unpack_int64,
}
RANGES = {np.uint64: (0, 2**64 - 1), np.uint32: (0, 2**32 - 1), np.int64: (-(2**63), 2**63 - 1)}


@given(st.data(), st.sampled_from(list(RANGES)))
def test_a_column_survives_in_its_fewest_bits(data: st.DataObject, dtype: Any) -> None:
    least, most = RANGES[dtype]
    center, spread = data.draw(st.integers(least, most)), data.draw(st.sampled_from([0, 1, 200, 2**17, 2**64]))
    elements = st.integers(max(least, center - spread), min(most, center + spread))
    column = np.array(data.draw(st.lists(elements, max_size=40)), dtype)
    packed = wire.pack(column)
    assert packed == pack(column)
    again = UNPACK[dtype](packed, len(column))
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, column)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_column_or_refused(data: bytes) -> None:
    for unpack in UNPACK.values():
        try:
            column = unpack(data)
        except ValueError:
            continue
        assert len(column) <= 8 * len(data)


def test_a_column_of_another_type_is_no_column() -> None:
    with pytest.raises(TypeError):
        wire.pack(np.zeros(2, np.float32))


@pytest.mark.parametrize("mechanism", ["random", "laia", "esd", "joint", "hash"])
def test_the_engine_encodes_what_its_columns_say(mechanism: str) -> None:
    """Over caches that overflow and a table that forgets, so that no list of the plan stays empty."""
    rng = np.random.default_rng(7)
    job = job_with(workers=3, fields=4, dense_features=2, batch_size=30, mechanism=mechanism, policy="emark")
    planner = Planner(job, [1e6, 1e7, 2e6], [40, 60, 50], epoch=3)
    sizes = np.zeros(5, int)
    for iteration in range(60):
        k = 30 if iteration % 7 else int(rng.integers(1, 30))
        ids = (rng.zipf(1.3, (k, 4)) % 200).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        batch = SampleBatch.of_fields(ids, rng.random((k, 2), np.float32), rng.integers(0, 2, k).astype(np.float32))
        decision = planner.plan(batch)
        assert list(decision.messages) == [message_of(plan, job.fields) for plan in decision.plans]
        for message, plan in zip(decision.messages, decision.plans, strict=True):
            assert message_of(decode_response(message).messages[0], job.fields) == message
            lists = (plan.update_rows, plan.update_gradients, plan.evict_rows, plan.evict_gradients, plan.drops)
            sizes += [len(each) for each in lists]
    assert (sizes > 0).all()


def test_plans_that_forget_are_encoded_alike() -> None:
    rng = random.Random(3)
    job = job_with(workers=2, fields=2, batch_size=6, max_rows=20, at_max_rows=RowLimitPolicy.FORGET)
    planner = Planner(job, [1e6, 1e6], [20, 20])
    discarded = 0
    for _ in range(30):
        ids = np.array([[rng.getrandbits(64) % 40 for _ in range(2)] for _ in range(6)], np.uint64)
        decision = planner.plan(SampleBatch.of_fields(ids, np.zeros((6, 1), np.float32), np.zeros(6, np.float32)))
        assert list(decision.messages) == [message_of(plan, job.fields) for plan in decision.plans]
        discarded += sum(len(plan.discards) for plan in decision.plans)
    assert discarded > 0


def test_samples_of_another_batch_are_refused() -> None:
    engine = Engine([10], "lru")
    engine.prepare(np.zeros((2, 1), np.uint64))
    columns = engine.commit(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="dense has 3 rows, the batch has 2 samples"):
        columns.messages(0, np.zeros((3, 0), np.float32), np.zeros((2, 1), np.float32))
