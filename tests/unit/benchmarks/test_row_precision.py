"""The count of pulls that could be of fewer bits: every pull and push is one of its kinds, and bytes follow."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.row_precision import measure, saved_bytes
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

TABLE = TableSpec("rows", 128, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD), seed=0, init_scale=0.01)
ROW, VALUES, GRADIENT = 4 * 129 + 16, 4 * 128 + 16, 4 * 128 + 32
INT8, BF16 = 128 + 4 + 16, 256 + 16


def test_every_pull_and_every_pushed_row_counts_once() -> None:
    chosen = RunOptions(
        data="synthetic:criteo?samples=2000", dim=8, batch=16, cache_rows=500, iterations=30, checkpoint_every=0
    )
    found, simulated = measure(chosen, warm_up=0), simulate_run(chosen)
    counts, operations = found["pulls and stays"], simulated["operations"]
    pulls = sum(counts[name] for name in ("split", "alone", "initial split", "initial alone"))
    assert pulls == pytest.approx(sum(operations["miss_pull"]) / 30, abs=0.2)
    moved = sum(map(sum, (simulated["bytes"]["pulled"], simulated["bytes"]["pushed"])))
    initial = sum(simulated["initial_pulls"])
    assert initial == pytest.approx(30 * (counts["initial split"] + counts["initial alone"]), abs=6)
    assert found["rows"] == pytest.approx((moved + 4 * 8 * initial) / 30, abs=1), "with the rows that workers make"
    dense = sum(map(sum, simulated["link_bytes"]["dense"].values()))
    assert simulated["dense_sum"] == "all-reduce"
    assert found["all"]["server"] - found["rows"] == pytest.approx(
        simulated["plan_bytes"] / 30 + dense / 30 / 1.5, rel=1e-3
    ), "a ring of four sends one and a half times as much"


@pytest.mark.parametrize(
    ("counted", "scheme", "rounded", "saved"),
    [
        ("split", "split", "int8", VALUES - INT8),
        ("initial split", "split", "bf16", VALUES - BF16),
        ("alone", "split", "int8", 0),
        ("alone", "returned", "int8", ROW - INT8),
        ("initial alone", "returned", "bf16", VALUES - BF16),
        ("once", "returned", "int8", ROW - GRADIENT),
        ("again", "returned", "int8", -ROW),  # the exact row is pulled after all
        ("again", "returned", "bf16", -(BF16 + 4)),  # its lower halves, and the optimizer's state
        ("initial alone", "initial", "f32", VALUES),
        ("split", "initial", "f32", 0),
    ],
)
def test_a_scheme_saves_what_it_does_not_send(counted: str, scheme: str, rounded: str, saved: int) -> None:
    assert saved_bytes(Counter({counted: 1}), TABLE)[scheme][rounded] == saved
