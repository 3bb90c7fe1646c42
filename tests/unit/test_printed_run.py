"""The output of `fit`: a bar in a terminal, lines in a pipe."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import pytest

from esd.printed_run import PrintedRun
from esd.run.events import Progressed, Resumed, Started
from esd.run.options import RunOptions
from tests.unit.cli.test_shown_run import STATE


def printed(reader: int, writer: int) -> str:
    """The text of a run of 94 iterations that trains two of them each half second, for 15 s."""
    seconds = 100.0
    with os.fdopen(writer, "w") as stream:
        shown = PrintedRun(stream, clock=lambda: seconds)
        shown(Started(RunOptions("flights"), "embeddings", 704, 94))
        for iterations in range(2, 62, 2):
            seconds += 0.5
            shown(Progressed(replace(STATE, iterations_confirmed=704 + iterations)))
        shown(Resumed("embeddings", 704))
        shown(Progressed(replace(STATE, iterations_confirmed=706)))
    return read_to_the_end(reader)


def read_to_the_end(reader: int) -> str:
    """All that was written to a terminal or a pipe whose writer is closed; one read may give a part of it."""
    text = b""
    with suppress(OSError), os.fdopen(reader, "rb", buffering=0) as stream:  # the end of a terminal is an error
        while piece := stream.read(1 << 16):
            text += piece
    return text.decode()


def test_a_terminal_shows_a_bar_in_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reader, writer = os.openpty()
    started, bars, resumed, again = printed(reader, writer).split("\r\n")[:4]
    assert started == "table embeddings"
    assert resumed == "goes on at iteration 704, the last checkpoint of table embeddings"
    drawn = bars.split("\r")[1:]
    assert len(drawn) == 30
    assert drawn[0].rstrip() == "[....................] 2 of 94 iterations, loss 0.5000, AUC 0.7500"
    assert drawn[-1].rstrip() == "[############........] 60 of 94 iterations, 4 per second, 0:00:09 left"
    assert again == ""


def test_a_pipe_gets_a_line_every_ten_seconds() -> None:
    reader, writer = os.pipe()
    started, *lines = printed(reader, writer).splitlines()
    assert started == "table embeddings"
    assert lines == [
        "running, 2 of 94 iterations, loss 0.5000, AUC 0.7500",
        "running, 42 of 94 iterations, 4 per second, 0:00:13 left, loss 0.5000, AUC 0.7500",
        "goes on at iteration 704, the last checkpoint of table embeddings",
    ]
