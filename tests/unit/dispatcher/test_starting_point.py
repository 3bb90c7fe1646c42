"""Where a new dispatcher resumes the stream of a job, given its sample log."""

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.service.checkpoint.resume import samples_after
from esd.dispatcher.service.state.manifest import Manifest, describe_job
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.wire.batches import encode_batch


def entry(position, count):
    """Samples whose id is their number."""
    if not count:
        return LogEntry(position, 0)
    ids = np.arange(position, position + count, dtype=np.uint64)[:, None]
    batch = SampleBatch.of_fields(ids, np.zeros((count, 0), np.float32), np.zeros(count, np.float32))
    return LogEntry(position, count, encode_batch(batch).SerializeToString())


def resumed(samples, entries):
    logged, closed = samples_after(Manifest({}, samples=samples), entries)
    return [number for batch in logged for number in batch.by_field[:, 0].tolist()], closed


@pytest.mark.parametrize("samples", range(4, 13))
@pytest.mark.parametrize("end", [False, True])
def test_every_sample_after_the_checkpoint_once(samples, end):
    entries = [entry(4, 3), entry(7, 5)] + [entry(12, 0)] * end
    assert resumed(samples, entries) == (list(range(samples, 12)), end)


def test_a_log_that_begins_after_the_checkpoint_is_of_no_use():
    assert resumed(3, [entry(4, 3), entry(7, 0)]) == ([], False)


def test_an_empty_log():
    assert resumed(3, []) == ([], False)


def test_the_limit_belongs_to_the_job_where_rows_are_forgotten(make_job):
    """Otherwise a job that has reached it goes on with a higher one."""
    job = replace(make_job(), max_rows=100)
    assert Manifest(describe_job(job)).differences(replace(job, max_rows=200, workers=2, workloads=(8, 8))) == []
    forgetting = replace(job, at_max_rows=RowLimitPolicy.FORGET)
    assert Manifest(describe_job(forgetting)).differences(replace(forgetting, max_rows=200)) == ["max_rows"]
    assert Manifest(describe_job(job)).differences(forgetting) == ["at_max_rows", "max_rows"]


def test_what_a_job_is_called_makes_no_other_model(make_job):
    job = make_job()
    assert Manifest(describe_job(job)).differences(replace(job, name=f"{job.name}-again")) == []
