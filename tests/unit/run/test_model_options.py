"""The values that --hidden and --loss accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from esd.run.model import parse_hidden
from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature
from esd.services.domain.losses import Loss


@pytest.mark.parametrize(("text", "widths"), [("256,128", (256, 128)), ("64", (64,)), ("", ()), (" 8, 4 ", (8, 4))])
def test_widths_are_read(text: str, widths: tuple[int, ...]) -> None:
    assert parse_hidden(text) == widths
    job = RunOptions(hidden=text).job(features=(Feature("user"),), dense_features=(), parameter_servers=("any",))
    assert job.model.hidden == widths


@pytest.mark.parametrize("text", ["a", "8,,4", "8;4", "1.5"])
def test_what_are_no_widths_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--hidden .* is not a list of whole numbers: 256,128"):
        parse_hidden(text)


def test_layers_have_limits() -> None:
    with pytest.raises(InvalidArgument, match=r"a hidden layer has width 0, it must be in 1\.\."):
        RunOptions(hidden="0").job(features=(Feature("user"),), dense_features=(), parameter_servers=("any",))


def test_a_schema_whose_labels_the_loss_does_not_take_is_refused_before_anything_starts(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('label = "stars"\nlabel-range = [0, 5]\nids = ["user"]\n')
    shape = {"features": (Feature("user"),), "dense_features": (), "parameter_servers": ("any",)}
    with pytest.raises(InvalidArgument, match=r"labels in 0\.\.5 .* loss bce \(--loss\), which takes labels in 0\.\.1"):
        RunOptions(schema=schema).job(**shape)
    assert RunOptions(schema=schema, loss=Loss.MSE).job(**shape).model.loss is Loss.MSE


@pytest.mark.parametrize(
    ("file", "name"), [("clicks.toml", "clicks"), ("Shop Events_2.v1.toml", "shop-events_2-v1"), ("ß.toml", "files")]
)
def test_a_job_on_files_of_ones_own_has_the_name_of_its_schema(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).write_text('label = "y"\nids = ["user"]\n')
    job = RunOptions(schema=tmp_path / file).job(
        features=(Feature("user"),), dense_features=(), parameter_servers=("a:1",), stream="s", table=f"{name}-1"
    )
    assert job.name == name
