"""Where a new dispatcher resumes the stream of a job, given its sample log."""

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.service.checkpoint.continuation import first_place, goes_on_from, rules_changed
from esd.dispatcher.service.checkpoint.resume import samples_after
from esd.dispatcher.service.state.manifest import Manifest, describe_job
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.sources import SourcePosition
from esd.services.domain.stream_parts import StreamPart, StreamPlace
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
    return [number for each in logged for number in each.batch.by_field[:, 0].tolist()], closed


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


def test_the_time_to_live_belongs_to_the_job_and_may_only_become_longer(make_job):
    """Otherwise the first plan would name all rows that have become too old."""
    first = replace(make_job(), row_ttls=(20,), checkpoint_every=5)
    stored = Manifest(describe_job(first), iteration=10)
    later = replace(first, first_iteration=10, seed=99)
    assert stored.differences(replace(first, row_ttls=())) == ["row_ttls"]
    for longer in ((20,), (21,), (0,), ()):
        assert goes_on_from(replace(later, row_ttls=longer), stored)
    with pytest.raises(FailedPrecondition, match=r"live 19 iterations .*\(--row-ttl\), and 20 in the run .*: give at"):
        goes_on_from(replace(later, row_ttls=(19,)), stored)
    with pytest.raises(InvalidArgument, match="row_ttls has 2 entries for 1 tables"):
        replace(first, row_ttls=(20, 20))
    with pytest.raises(InvalidArgument, match=r"\(--row-ttl\) is -1, it must be in 0\.\."):
        replace(first, row_ttls=(-1,))


def test_another_job_admits_ids_in_the_same_iteration_or_at_once(make_job):
    """There are no counts for another iteration, and rows that are trained would be read no more."""
    first = replace(make_job(), admit_afters=(3,), checkpoint_every=5)
    stored = Manifest(describe_job(first), iteration=10)
    later = replace(first, first_iteration=10, seed=99)
    assert stored.differences(replace(first, admit_afters=())) == ["admit_afters"]
    for after in ((3,), ()):
        assert goes_on_from(replace(later, admit_afters=after), stored)
    with pytest.raises(FailedPrecondition, match=r"admits ids in iteration 3 \(--admit-after.*: give the same, or 1"):
        goes_on_from(replace(later, admit_afters=(2,)), stored)
    at_once = Manifest(describe_job(replace(first, admit_afters=())), iteration=10)
    with pytest.raises(FailedPrecondition, match="admits ids in iteration 1 "):
        goes_on_from(later, at_once)
    for afters, message in [((3, 3), "has 2 entries for 1"), ((256,), r"is 256, it must be in 1\.\."), ((1,), "all 1")]:
        with pytest.raises(InvalidArgument, match=message):
            replace(first, admit_afters=afters)


def test_another_job_continues_with_the_same_dense_columns_only(make_job):
    first = replace(make_job(), dense_names=("price", "age"), rules=(("label", "0 or 1"),), checkpoint_every=5)
    stored = Manifest(describe_job(first), iteration=10)
    later = replace(first, first_iteration=10)
    for names in (("age", "price"), ("ln(1 + price)", "age"), ("price", "w")):
        with pytest.raises(FailedPrecondition, match="differs in dense_names"):
            goes_on_from(replace(later, dense_names=names, seed=99), stored)
    relabelled = replace(later, rules=(("label", "1 from 4 on"), ("weight", "w")))
    assert goes_on_from(relabelled, stored)
    assert rules_changed(relabelled, stored.encode()) == [
        "label was 0 or 1 and is now 1 from 4 on",
        "weight was not given and is now w",
    ]
    keyed = tuple(replace(each, key="things") for each in first.features)
    with pytest.raises(FailedPrecondition, match="differs in features"):
        goes_on_from(replace(later, features=keyed), stored)


def test_another_job_continues_with_the_same_limit_of_norms_only(make_job):
    """Rows would be longer than the job allows, or trained otherwise."""
    first = replace(make_job(), checkpoint_every=5)
    limited = replace(first, tables=(replace(first.table, optimizer=replace(first.table.optimizer, max_norm=1.0)),))
    for job, other in ((first, limited), (limited, first)):
        stored = Manifest(describe_job(job), iteration=10)
        assert goes_on_from(replace(job, first_iteration=10, seed=99), stored)
        with pytest.raises(FailedPrecondition, match="differs in tables"):
            goes_on_from(replace(other, first_iteration=10, seed=99), stored)
    assert "max_norm" not in describe_job(first)["tables"][0]["optimizer"]  # as in manifests of earlier versions


def test_a_manifest_of_an_earlier_version_knows_no_names(make_job):
    job = replace(make_job(), dense_names=("price", "age"), rules=(("label", "0 or 1"),))
    earlier = {name: value for name, value in describe_job(job).items() if name not in ("dense_names", "rules")}
    assert Manifest(earlier).differences(job) == []


def test_what_a_job_is_called_makes_no_other_model(make_job):
    job = make_job()
    assert Manifest(describe_job(job)).differences(replace(job, name=f"{job.name}-again")) == []


def place_of(*sources):
    return StreamPlace(tuple(StreamPart(4, 100, source) for source in sources), turn=len(sources) - 1)


def test_a_stream_goes_on_where_the_earlier_ones_parts_ended(make_job):
    """Its samples count anew, and its turns begin with the first part."""
    job = replace(
        make_job(), submitters=2, checkpoint_every=10, first_iteration=10, continues_stream=True,
    )  # fmt: skip
    north, south = SourcePosition("7-0:0", behind=3), SourcePosition("9-0:1")
    place = first_place(job, Manifest({}, 10, place=place_of(north, south)))
    assert place == StreamPlace(tuple(StreamPart(s, 0, p) for s, p in zip(job.shares, (north, south), strict=True)))
    assert first_place(replace(job, continues_stream=False), Manifest({}, 10, place=place_of(north, south))) is None
    with pytest.raises(FailedPrecondition, match=r"checkpoint 10 of table .* does not say where its samples ended"):
        first_place(job, Manifest({}, 10, place=place_of(north, None)))
    with pytest.raises(FailedPrecondition, match="does not say where its samples ended in their source"):
        first_place(job, Manifest({}, 10))
    with pytest.raises(FailedPrecondition, match=r"is of a stream of 1 parts, and the stream that .* has 2: give the"):
        first_place(job, Manifest({}, 10, place=place_of(north)))
    with pytest.raises(InvalidArgument, match="continues_stream is true of a job that goes on from no other"):
        replace(job, first_iteration=0)
