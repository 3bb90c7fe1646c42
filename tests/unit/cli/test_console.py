"""Outputs print every text, in every environment."""

from __future__ import annotations

import io
import os
import sys

import pytest

from esd.cli.console import prepare_output
from tests.support.command import esd_here


def test_a_character_that_an_output_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    prepare_output()
    for stream in (sys.stdout, sys.stderr):
        print("größe \udcff", file=stream, flush=True)
        assert isinstance(stream, io.TextIOWrapper)
        assert isinstance(stream.buffer, io.BytesIO)
        assert stream.buffer.getvalue() == b"gr\\u00f6\\u00dfe \\udcff\n"


def test_outputs_that_are_closed_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    prepare_output()


@pytest.mark.parametrize(("given", "left"), [("0", None), ("000", None), ("", None), ("80", "80"), ("abc", "abc")])
def test_a_width_of_no_columns_counts_as_not_given(
    given: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    prepare_output()
    assert os.environ.get("COLUMNS") == left


def test_an_error_has_its_traceback_where_it_is_asked_for() -> None:
    command = ("simulate", "--trace", "/nowhere.npy", "--cache-rows", "1")
    short, long = esd_here(*command), esd_here("--traceback", *command)
    assert (short.returncode, long.returncode) == (2, 2)
    assert len(short.stderr.splitlines()) == 1
    assert long.stderr.startswith("Traceback (most recent call last):")
    assert long.stderr.endswith(short.stderr)
