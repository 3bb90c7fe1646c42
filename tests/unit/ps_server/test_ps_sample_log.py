"""The sample log joins without gaps, after any repetition and any failure of the store."""

import pytest

from esd.ps_server.core.history import CheckpointHistory
from esd.ps_server.core.sample_log import SampleLog
from esd.ps_server.stores.memory import MemoryLog, memory_table
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.tables import OptimizerSpec, TableSpec

SPEC = TableSpec("clicks", 2, OptimizerSpec(), seed=1, init_scale=0.1)
FIRST, SECOND, END = LogEntry(10, 3, b"abc"), LogEntry(13, 2, b"de"), LogEntry(15, 0)


def sample_log(store):
    return SampleLog(store, CheckpointHistory(memory_table(SPEC), "clicks"), "clicks")


@pytest.fixture
def log():
    return sample_log(MemoryLog())


def test_the_first_entry_may_be_anywhere_and_the_others_follow(log):
    for entry in (FIRST, FIRST, SECOND, SECOND, END, END):
        log.append(entry, 0)
    assert list(log.read(0)) == [FIRST, SECOND, END]


@pytest.mark.parametrize("entry", [LogEntry(12, 3, b"abc"), LogEntry(14, 1, b"e"), LogEntry(10, 2, b"ab")])
def test_gaps_and_overlaps_are_refused(log, entry):
    log.append(FIRST, 0)
    with pytest.raises(FailedPrecondition, match=r"'clicks' ends at 13, an entry of . samples at 1. does not follow"):
        log.append(entry, 0)
    log.append(SECOND, 0)


def test_nothing_follows_the_end(log):
    log.append(FIRST, 0)
    log.append(LogEntry(13, 0), 0)
    with pytest.raises(FailedPrecondition, match="was closed at 13"):
        log.append(SECOND, 0)


@pytest.mark.parametrize("entry", [LogEntry(0, 3), LogEntry(0, 0, b"abc"), LogEntry(2**63 - 1, 1, b"a")])
def test_impossible_entries_are_refused(log, entry):
    with pytest.raises(InvalidArgument):
        log.append(entry, 0)
    assert list(log.read(0)) == []


class BreaksOff(MemoryLog):
    """Stores the entry, but its answer is lost."""

    def append(self, entry):
        super().append(entry)
        if entry is SECOND and len(self._entries) == 2:
            raise Unavailable("lost")


def test_an_append_whose_answer_was_lost_may_be_repeated():
    log = sample_log(BreaksOff())
    log.append(FIRST, 0)
    with pytest.raises(Unavailable):
        log.append(SECOND, 0)
    log.append(SECOND, 0)
    log.append(END, 0)
    assert list(log.read(0)) == [FIRST, SECOND, END]
