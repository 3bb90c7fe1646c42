"""Samples whose batches and plans are longer than a message train the model that they train with long messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from esd.run.events import Checkpointed, Event
from esd.run.options import RunOptions
from esd.run.train import train
from esd.services.domain.errors import InvalidArgument
from tests.support.models import assert_same_model

SAMPLES, IDS, DENSE = 960, 1500, 4000
LIMIT = 2**16
SCHEMA = f"""
label = "label"
dense = [{", ".join(f'"d{at}"' for at in range(DENSE))}]

[[ids]]
column = "seen"
pool = "mean"
max = 2000
"""


@pytest.fixture
def wide(tmp_path: Path) -> RunOptions:
    rng = np.random.default_rng(3)
    columns = {f"d{at}": rng.normal(size=SAMPLES).astype(np.float32) for at in range(DENSE)}
    columns["label"] = rng.integers(0, 2, SAMPLES)
    columns["seen"] = [rng.integers(0, 3000, IDS) for _ in range(SAMPLES)]
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "wide.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return RunOptions(
        data=str(tmp_path / "wide.parquet"),
        schema=tmp_path / "schema.toml",
        workers=2,
        links="10g",
        batch=120,
        dim=4,
        hidden="8",
        cache_rows=3000,
    )


async def test_batches_plans_and_the_log_are_longer_than_a_message(
    wide: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iteration has 240 samples of 28 kB, 6.7 MB, of which a message holds two. A plan has more than 2 MiB."""
    every_second = replace(wide, checkpoint_every=2)
    await train(every_second, out=tmp_path / "expected", graphs=False)
    monkeypatch.setenv("ESD_DISPATCHER_MAX_MESSAGE_BYTES", str(2**21))
    monkeypatch.setenv("ESD_DISPATCHER_MAX_REQUEST_BYTES", str(LIMIT))
    monkeypatch.setenv("ESD_DISPATCHER_QUEUED_BYTES", "100000")
    events: list[Event] = []
    by_bytes = replace(wide, checkpoint_every=1000, checkpoint_bytes="10m")
    run = await train(by_bytes, events.append, out=tmp_path / "pieces", graphs=False)
    assert run.state.samples_submitted == SAMPLES
    assert 2 in [event.iteration for event in events if isinstance(event, Checkpointed)]
    assert_same_model(tmp_path / "pieces", tmp_path / "expected")


async def test_a_sample_that_is_longer_than_a_message_is_refused_by_its_number(
    wide: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wide.parquet"
    table = pyarrow.parquet.read_table(path)
    seen = table["seen"].to_pylist()
    seen[133] = list(range(7000))
    longer = table.set_column(table.schema.get_field_index("seen"), "seen", pa.array(seen))
    pyarrow.parquet.write_table(longer, path)
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("max = 2000", "max = 8000"))
    monkeypatch.setenv("ESD_DISPATCHER_MAX_REQUEST_BYTES", str(LIMIT))
    with pytest.raises(InvalidArgument, match=r"sample 133 of the stream has 7\d+ bytes \(7000 ids, 4000 dense"):
        await train(wide)
