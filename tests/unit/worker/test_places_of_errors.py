"""An error in a user's own model has file, line and text of the user's own frame."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.runtime.users_code import place_of
from esd.worker.models import build_model
from esd.worker.models.own import failures_named

TYPO = """
import esd
import torch
from torch import nn


class Typo(esd.Model):
    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.out = nn.Linear(10, 1)

    def forward(self, embeddings, dense):
        return self.out(torch.cat((*embeddings.values(), dense), dim=1))


class Unbuilt(Typo):
    def __init__(self, inputs, hidden):
        self.out = inputs.features["user"]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "typos.py").write_text(TYPO)
    (tmp_path / "unread.py").write_text("import esd\nclass Net(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("typos", "unread"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("typos:Typo", r"typos\.py:13, in forward: return self\.out\(torch\.cat"),
        ("typos:Unbuilt", r"typos\.py:18, in __init__: self\.out = inputs\.features"),
        ("unread:Net", r"unread\.py:2: class Net\(:"),
    ],
)
def test_the_place_is_the_user_s_own(module: Path, make_job, model: str, place: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"\({module}/{place}"):
        build_model(make_job(model=model))


def test_an_error_without_a_user_s_frame_has_no_place() -> None:
    with pytest.raises(ValueError, match="null") as raised:
        Path("\0").stat()
    assert place_of(raised.value.with_traceback(raised.tb.tb_next)) == ""


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit("x"), KeyboardInterrupt("x")], ids=repr)
def test_an_error_while_training_has_its_place(error: BaseException) -> None:
    """A worker trains in a thread, where no Ctrl-C raises KeyboardInterrupt."""
    refused = rf"'net' fails in iteration 7: {type(error).__name__}: '?x'? \(.*test_places.*\.py:\d+, in fail"

    def fail() -> None:
        with failures_named("net", "in iteration 7"):
            raise error

    with ThreadPoolExecutor(1) as thread, pytest.raises(FailedPrecondition, match=refused):
        thread.submit(fail).result()


def test_ctrl_c_is_no_error_of_a_model() -> None:
    with pytest.raises(KeyboardInterrupt), failures_named("net", "in iteration 7"):
        raise KeyboardInterrupt
