"""A user's model is found by its import path, or refused with the reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from esd.services.domain.errors import InvalidArgument
from esd.worker.models import build_model

ROOT = Path(__file__).parents[3]
NETS = '''
import esd
import torch
from torch import nn


class Net(esd.Model):
    """Two features by name, and a layer norm."""

    def __init__(self, inputs: esd.ModelInputs, hidden):
        super().__init__(inputs, hidden)
        first, second, *_ = inputs.features
        self.norm = nn.LayerNorm(first.dimension + second.dimension)
        self.out = nn.Linear(first.dimension + second.dimension, 1)

    def forward(self, embeddings, dense):
        return self.out(self.norm(torch.cat((embeddings["0"], embeddings["1"]), dim=1)))


class Broken(Net):
    def __init__(self, inputs, hidden):
        raise KeyError("tags")


plain = nn.Linear
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path, with a package of models."""
    package = tmp_path / "shop_models"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "net.py").write_text(NETS)
    (package / "syntax.py").write_text("class Net(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_models"]:
        del sys.modules[name]


def test_a_model_is_built_by_its_path(folder, make_job):
    model = build_model(make_job(model="shop_models.net:Net"))
    assert torch.equal(model.norm.weight, torch.ones(10))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "shop_models.nets:Net",
            "cannot be imported: ModuleNotFoundError: No module named 'shop_models.nets'.*ESD_WOR",
        ),
        ("shop_models.syntax:Net", "cannot be imported: SyntaxError"),
        ("shop_models.net:Nett", r"module shop_models.net \(.*net.py\) has no Nett"),
        ("shop_models.net:plain", "it must be a subclass of esd.Model"),
        ("shop_models.net:Broken", "cannot be built: KeyError: 'tags'"),
        ("shop-models:Net", "is not an import path"),
        (":Net", "is not an import path"),
    ],
)
def test_what_is_wrong_is_said(folder, make_job, path, message):
    with pytest.raises(InvalidArgument, match=message):
        build_model(make_job(model=path))


def test_the_page_of_models_shows_the_example_which_is_a_model(make_job):
    shown, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    assert shown in (ROOT / "examples" / "visits" / "net.py").read_text()
    assert build_model(make_job(model="examples.visits.net:Net")).layers[1].out_features == 64
