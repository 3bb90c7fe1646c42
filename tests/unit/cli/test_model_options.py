"""What --hidden may say."""

from __future__ import annotations

import pytest

from esd.cli.model import parse_hidden
from esd.cli.options import RunOptions
from services.domain.errors import InvalidArgument
from services.domain.features import Feature


@pytest.mark.parametrize(("text", "widths"), [("256,128", (256, 128)), ("64", (64,)), ("", ()), (" 8, 4 ", (8, 4))])
def test_widths_are_read(text: str, widths: tuple[int, ...]) -> None:
    assert parse_hidden(text) == widths
    job = RunOptions(hidden=text).job(features=(Feature("user"),), dense_features=0, parameter_servers=("any",))
    assert job.model.hidden == widths


@pytest.mark.parametrize("text", ["a", "8,,4", "8;4", "1.5"])
def test_what_are_no_widths_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--hidden .* is not a list of whole numbers: 256,128"):
        parse_hidden(text)


def test_layers_have_limits() -> None:
    with pytest.raises(InvalidArgument, match=r"a hidden layer has width 0, it must be in 1\.\."):
        RunOptions(hidden="0").job(features=(Feature("user"),), dense_features=0, parameter_servers=("any",))
