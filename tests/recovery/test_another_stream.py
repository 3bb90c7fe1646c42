"""A store that holds a job goes on with that job's samples only, and a finished job says that it is finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from esd.run.options import RunOptions
from esd.run.services import ServiceFailed
from esd.services.domain.errors import FailedPrecondition
from tests.support import training
from tests.support.models import model_arrays

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=4&keys=2000&samples=2000",
    workers=1,
    links="10g",
    batch=32,
    dim=4,
    cache_rows=1000,
    iterations=20,
    checkpoint_every=8,
)


def model(options: RunOptions, out: Path, **more: Any) -> dict[str, np.ndarray]:
    training.run(options, shards=1, out=out, **more)
    return model_arrays(out / "model")


@pytest.fixture(params=["directory", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "redis":
        return {"store": request.getfixturevalue("redis_url")}
    return {"store": "memory", "checkpoint_dir": tmp_path / "kept"}


def test_other_data_a_smaller_run_and_a_finished_one(store, tmp_path, capsys):
    first = model(OPTIONS, tmp_path / "first", **store)
    assert "nothing was trained" not in capsys.readouterr().err

    again = model(OPTIONS, tmp_path / "again", **store)
    assert "finished at iteration 20: nothing was trained now" in " ".join(capsys.readouterr().err.split())
    for name, values in first.items():
        np.testing.assert_array_equal(again[name], values)

    other = replace(OPTIONS, data="synthetic:zipf?fields=4&keys=3000&samples=2000")
    with pytest.raises(FailedPrecondition, match=r"holds checkpoint 20 of other samples: they were synthetic:zipf \("):
        model(other, tmp_path / "other", **store)
    with pytest.raises(FailedPrecondition, match=r"has taken in 640 samples, this stream has only 320"):
        model(replace(OPTIONS, iterations=10), tmp_path / "smaller", **store)
    with pytest.raises(FailedPrecondition, match="has ended after 640 samples"):
        model(replace(OPTIONS, iterations=30), tmp_path / "larger", **store)
    assert not (tmp_path / "other" / "model").exists()

    beside = model(other, tmp_path / "beside", table="another", **store)
    assert not np.array_equal(beside["ids"], first["ids"])
    np.testing.assert_array_equal(model(OPTIONS, tmp_path / "still", **store)["rows"], first["rows"])


def test_rows_that_a_store_has_lost_are_not_exported_as_a_model(redis_url, tmp_path):
    model(OPTIONS, tmp_path / "first", store=redis_url)
    with redis.Redis.from_url(redis_url) as client:
        rows = [(key, field) for key in client.scan_iter("e:{embeddings.*") for field in client.hkeys(key)]
        assert len(rows) > 100
        for key, field in rows[:50]:
            client.hdel(key, field)
    with pytest.raises(ServiceFailed, match=r"Redis at .* has lost 50 rows or more"):
        model(OPTIONS, tmp_path / "again", store=redis_url)
    assert not (tmp_path / "again" / "model").exists()
