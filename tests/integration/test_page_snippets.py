"""The programs that docs/models.md, docs/monitoring.md and docs/tracking.md show run as shown."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.running_model import RunningNorm

ROOT = Path(__file__).parents[2]

# What the pages leave to the reader: a model, files, and the names of both.
BEFORE = """
import numpy as np, optuna, pandas, esd
from net import Net

draw = np.random.default_rng(2)
visits = pandas.DataFrame({
    "user": draw.integers(0, 300, 2000), "item": draw.integers(0, 80, 2000), "hour": draw.uniform(0, 24, 2000),
    "clicked": draw.integers(0, 2, 2000),
    "at": pandas.Timestamp("2026-03-01") + pandas.to_timedelta(np.sort(draw.uniform(0, 4, 2000)), unit="D"),
})
visits.to_parquet("events/visits.parquet")
frame = visits
schema = esd.Schema(label="clicked", ids=["user", "item"], dense=["hour"], time="at")
train, test = esd.read("events/*.parquet", schema).split(last="1d")
"""


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events").mkdir()
    (tmp_path / "net.py").write_text(blocks("models.md")[0])
    (tmp_path / "events.toml").write_text('label = "clicked"\nids = ["user", "item"]\ndense = ["hour"]\ntime = "at"\n')
    return tmp_path


def run(folder: Path, *programs: str) -> str:
    program = folder / "program.py"
    program.write_text("\n".join([BEFORE, *programs]))
    own = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/runs.db"}
    ran = subprocess.run(
        [sys.executable, program], cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_page_of_models(folder: Path) -> None:
    _, _, fit, score = blocks("models.md")
    moved = "import os\nos.makedirs('out')\nos.rename('model', 'out/model')"
    scored = run(
        folder, fit, moved, score, "print(len(trained.predict(visits)), probabilities.shape, trained.module())"
    )
    assert re.match(r"2000 \(\d+, 1\) Net\(", scored)


def test_the_norm_of_the_page_of_models() -> None:
    torch.manual_seed(3)
    shown: dict[str, object] = {"Tensor": torch.Tensor}
    exec(blocks("models.md")[1], shown)
    norm, inputs = RunningNorm(5), torch.randn(7, 5)
    other = copy.deepcopy(norm)
    for _ in range(2):
        assert torch.equal(shown["forward"](other, inputs), norm(inputs))
    assert {name.removeprefix("norm.") for name in shown["buffer_rules"]} == dict(norm.named_buffers()).keys()
    for name, values in norm.named_buffers():
        assert torch.equal(other.get_buffer(name), values)


def test_the_page_of_trackers(folder: Path) -> None:
    follow, search = blocks("tracking.md")
    told = run(
        folder, follow, search.replace("n_trials=20", "n_trials=2"),
        "print(len(mlflow.MlflowClient().search_runs(['0'])), len(study.trials), study.best_value > 0)",
    )  # fmt: skip
    assert told.splitlines()[-1] == "1 2 True"


def test_the_page_of_monitoring(folder: Path) -> None:
    (lines,) = blocks("monitoring.md")
    options = "--data events/visits.parquet --schema events.toml --batch 20 --dim 4 --out out"
    train = (
        f"import subprocess; subprocess.run({[sys.executable, '-m', 'esd.cli', 'train', *options.split()]}, check=True)"
    )
    read = run(folder, train, lines, "print(len(points) > 1, 'auc' in points.columns, points.iterations.max())")
    assert read.splitlines()[-1] == "True True 25"
