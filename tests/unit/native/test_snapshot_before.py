"""Snapshots of the format before, ESDENG06, which had every row that was ever seen, are read."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from esd.native.engine import Engine

SNAPSHOT = Path(__file__).with_name("engine_06.snapshot").read_bytes()  # after 20 iterations of `stream`
WENT_ON = "da90b440826cc935b8f025286789be20fc5e8397fb52ba90237a5005e6e60f66"  # with iterations 20 to 39, there
MOVES = ("update_rows", "update_gradients", "evict_rows", "evict_gradients", "drops", "pulls")


def stream() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ids and the assignment of 40 batches."""
    rng = np.random.default_rng(6)
    names = rng.integers(0, 2**64, 60, np.uint64)
    ids = [names[(60 * rng.random((8, 2)) ** 2).astype(int)] for _ in range(40)]
    return zip(ids, [rng.integers(0, 2, 8).astype(np.int32) for _ in range(40)], strict=True)


def go_on(engine: Engine) -> str:
    digest = sha256()
    for ids, assignment in list(stream())[20:]:
        engine.prepare(ids)
        for plan in engine.commit(assignment):
            for name in MOVES:
                for column in ("ids", "slots", "versions"):
                    digest.update(plan[name][column].tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("options", [{}, {"window": 1, "spare_rows": 1000}, {"max_rows": 1000}])
def test_an_engine_goes_on_with_the_same_plans(options: dict[str, int]) -> None:
    engine = Engine([18, 18], "reuse", **options)
    engine.restore(SNAPSHOT)
    assert engine.iteration == 20
    assert go_on(engine) == WENT_ON


@pytest.mark.parametrize("warm", [True, False])
def test_rows_that_nobody_caches_are_released(warm: bool) -> None:
    engine = Engine([18, 18], "reuse", window=1)
    engine.restore(SNAPSHOT, warm)
    many = engine.stats()["ids"]
    go_on(engine)
    assert engine.stats()["ids"] <= 36 < many


def test_a_damaged_one_is_refused() -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[2000] ^= 1
    with pytest.raises(ValueError, match="checksum differs"):
        Engine([18, 18], "reuse").restore(bytes(damaged))
