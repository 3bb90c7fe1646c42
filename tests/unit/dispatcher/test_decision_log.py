"""The contents of a decision log, and the error of a damaged one."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from esd.dispatcher.core.decision_log import (
    CheckpointPlanned,
    DecisionLog,
    EpochBegan,
    IterationPlanned,
    JobOpened,
    Observed,
    StreamEnded,
    read_decisions,
)
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

JOB = {"name": "flights", "seed": "7"}
RECORDS = [
    EpochBegan(2, 40, [16, 0], [1, 31], [1e6, 2.5e6], [100, 200]),
    Observed([0.1 + 0.2, 1e-9], [0.0, 123456789.123], 0.5, [0.1, 0.0]),
    CheckpointPlanned(50),
    IterationPlanned(50, "00ff"),
    StreamEnded(51),
]


def test_records_come_back_as_they_were(tmp_path):
    log = DecisionLog(tmp_path / "log", JOB, resume=False)
    for record in RECORDS:
        log.add(record)
    assert list(read_decisions(tmp_path / "log")) == [JobOpened(JOB), *RECORDS], "before it is closed, too"
    log.close()


def test_a_new_job_begins_the_file_anew_and_a_resumed_one_goes_on(tmp_path):
    path = tmp_path / "log"
    for resume, expected in ((False, [RECORDS[0]]), (True, [RECORDS[0]] * 2), (False, [RECORDS[0]])):
        log = DecisionLog(path, JOB, resume=resume)
        log.add(RECORDS[0])
        log.close()
        assert list(read_decisions(path)) == [JobOpened(JOB), *expected]


def test_a_record_that_was_cut_short_is_dropped(tmp_path):
    path = tmp_path / "log"
    log = DecisionLog(path, JOB, resume=False)
    for record in RECORDS[:2]:
        log.add(record)
    log.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read_decisions(path)) == [JobOpened(JOB), RECORDS[0]]
    log = DecisionLog(path, JOB, resume=True)
    log.add(RECORDS[4])
    log.close()
    assert list(read_decisions(path)) == [JobOpened(JOB), RECORDS[0], RECORDS[4]]


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_log_that_can_be_written_no_more_says_so_once(tmp_path):
    """To close it is a part of a job's end, behind which there is more to be closed."""
    path = tmp_path / "log"
    log = DecisionLog(path, JOB, resume=False)
    with no_file_beyond(path.stat().st_size + 1):
        with pytest.raises(FailedPrecondition, match="log cannot be written: File too large"):
            log.add(RECORDS[0])
        log.close()
    assert list(read_decisions(path)) == [JobOpened(JOB)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"kind": "job", "job": {}}\n{"kind": "tea"}\n', "line 2: this is no record"),
        (b'{"kind": "job", "job": {}}\n[1]\n', "line 2: this is no record"),
        (b'{"kind": "job", "job": {}}\n{"kind": "end", "at": 3}\n', "line 2: this is no record"),
        (b'{"kind": "end", "iteration": 3}\n', "line 1: the job must be the first"),
        (b'{"kind": "job", "job": {}}\n' * 2, "line 2: the job must be the first"),
    ],
)
def test_what_is_no_decision_log_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        list(read_decisions(path))


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="/nowhere/log cannot be read: No such file"):
        list(read_decisions(tmp_path / "nowhere/log"))
    with pytest.raises(FailedPrecondition, match="/nowhere/log cannot be written: No such file"):
        DecisionLog(tmp_path / "nowhere/log", JOB, resume=False)
