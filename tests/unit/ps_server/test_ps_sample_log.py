"""The sample log joins without gaps, whatever is repeated and wherever the store breaks off."""

import pytest

from ps_server.core.sample_log import LogEntry, SampleLog
from ps_server.stores.sample_logs import MemoryLog
from services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

FIRST, SECOND, END = LogEntry(10, 3, b"abc"), LogEntry(13, 2, b"de"), LogEntry(15, 0)


@pytest.fixture
def log():
    return SampleLog(MemoryLog(), "clicks")


def test_the_first_entry_may_be_anywhere_and_the_others_follow(log):
    for entry in (FIRST, FIRST, SECOND, SECOND, END, END):
        log.append(entry)
    assert list(log.read()) == [FIRST, SECOND, END]


@pytest.mark.parametrize("entry", [LogEntry(12, 3, b"abc"), LogEntry(14, 1, b"e"), LogEntry(10, 2, b"ab")])
def test_gaps_and_overlaps_are_refused(log, entry):
    log.append(FIRST)
    with pytest.raises(FailedPrecondition, match=r"'clicks' ends at 13, an entry of . samples at 1. does not follow"):
        log.append(entry)
    log.append(SECOND)


def test_nothing_follows_the_end(log):
    log.append(FIRST)
    log.append(LogEntry(13, 0))
    with pytest.raises(FailedPrecondition, match="was closed at 13"):
        log.append(SECOND)


@pytest.mark.parametrize("entry", [LogEntry(0, 3), LogEntry(0, 0, b"abc"), LogEntry(2**63 - 1, 1, b"a")])
def test_impossible_entries_are_refused(log, entry):
    with pytest.raises(InvalidArgument):
        log.append(entry)
    assert list(log.read()) == []


class BreaksOff(MemoryLog):
    """Stores the entry, but its answer is lost."""

    def append(self, entry):
        super().append(entry)
        if entry is SECOND and len(self._entries) == 2:
            raise Unavailable("lost")


def test_an_append_whose_answer_was_lost_may_be_repeated():
    log = SampleLog(BreaksOff(), "clicks")
    log.append(FIRST)
    with pytest.raises(Unavailable):
        log.append(SECOND)
    log.append(SECOND)
    log.append(END)
    assert list(log.read()) == [FIRST, SECOND, END]
