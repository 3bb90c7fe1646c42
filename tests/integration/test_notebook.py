"""A notebook of 25 lines: reads tables, trains a model of its own, evaluates, exports and predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from testbed.auc import exact_auc

ROWS, DAYS = 12_000, 4
CATEGORIES, LISTS, NUMBERS, DIM = 12, 2, 4, 8

NOTEBOOK = """
import torch, esd
ids = [*(f"c{i}" for i in range(12)), esd.IdList("seen", max=4, table="c0"), esd.IdList("tags", max=4, pool="sum")]
schema = esd.Schema(label="clicked", ids=ids, dense=[f"x{i}" for i in range(4)], time="at")
train, test = esd.read("events.parquet", schema).split(last="1d")

class Net(esd.Model):
    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.norm, self.first = torch.nn.LayerNorm(inputs.width), torch.nn.Linear(inputs.width, hidden[0])
        self.dropout, self.last = torch.nn.Dropout(0.1), torch.nn.Linear(hidden[0], 1)

    def forward(self, embeddings, dense):
        x = self.norm(torch.cat((*embeddings.values(), dense), dim=1))
        return self.last(self.dropout(torch.relu(self.first(x))))

with esd.LocalCluster(workers=4, links=["1g", "1g", "100m", "100m"]) as cluster:
    run = cluster.fit(Net, train, dim=8, hidden=[16], epochs=3, batch=32, learning_rate=0.05, cache_rows=2000)
    figures, costs, history = run.evaluate(test), run.cost, run.history.to_pandas()
    run.export("model")
frame = __import__("pandas").read_parquet("events.parquet")
scores = esd.load("model").predict(frame)
"""


def events(seed: int = 3) -> pd.DataFrame:
    """Clicks that depend on three categories, a list and a number."""
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {
        f"c{i}": (rng.zipf(1.3, ROWS) % (50 + 30 * i)).astype(np.int64) for i in range(CATEGORIES)
    }
    columns |= {
        name: [rng.integers(0, 60, rng.integers(0, 5)).tolist() for _ in range(ROWS)] for name in ("seen", "tags")
    }
    columns |= {f"x{i}": rng.normal(size=ROWS) for i in range(NUMBERS)}
    effects = rng.normal(size=(4, 1000))
    logits = sum(effects[i][columns[f"c{i}"]] for i in range(3)) + columns["x0"]
    logits = logits + np.array([effects[3][tags].sum() for tags in columns["tags"]]) / 2 - 0.5
    columns["clicked"] = (rng.random(ROWS) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    start = pd.Timestamp("2026-03-01")
    columns["at"] = start + pd.to_timedelta(np.sort(rng.random(ROWS)) * DAYS, unit="D")
    return pd.DataFrame(columns)


def plain_auc(frame: pd.DataFrame, held_out: np.ndarray) -> float:
    """The AUC of the same model in torch alone, with a table of embeddings for each column."""
    torch.manual_seed(0)
    singles = [np.unique(frame[f"c{i}"], return_inverse=True)[1] for i in range(CATEGORIES)]
    lists = {name: [torch.tensor(each, dtype=torch.long) for each in frame[name]] for name in ("seen", "tags")}
    tables = [torch.nn.Embedding(int(codes.max()) + 1, DIM) for codes in singles]
    bags = {"seen": torch.nn.EmbeddingBag(60, DIM, mode="mean"), "tags": torch.nn.EmbeddingBag(60, DIM, mode="sum")}
    for table in (*tables, *bags.values()):
        torch.nn.init.uniform_(table.weight, -(DIM**-0.5), DIM**-0.5)
    width = DIM * (CATEGORIES + LISTS) + NUMBERS
    net = torch.nn.Sequential(
        torch.nn.LayerNorm(width), torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Linear(16, 1),
    )  # fmt: skip
    codes = torch.from_numpy(np.stack(singles, axis=1))
    dense = torch.from_numpy(np.array(frame[[f"x{i}" for i in range(NUMBERS)]], np.float32))
    labels = torch.from_numpy(np.array(frame["clicked"], np.float32))

    def outputs(rows: np.ndarray) -> torch.Tensor:
        found = [table(codes[rows, at]) for at, table in enumerate(tables)]
        for name, bag in bags.items():
            chosen = [lists[name][row] for row in rows]
            starts = torch.tensor([0, *np.cumsum([len(each) for each in chosen])[:-1]])
            found.append(bag(torch.cat(chosen), starts))
        return net(torch.cat((*found, dense[rows]), dim=1))[:, 0]

    modules = torch.nn.ModuleList([*tables, *bags.values(), net])
    optimizer = torch.optim.Adagrad(modules.parameters(), lr=0.05)
    trained = np.flatnonzero(~held_out)
    for _ in range(3):
        for rows in np.split(trained, range(128, len(trained), 128)):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(outputs(rows), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        net.eval()
        judged = np.flatnonzero(held_out)
        return exact_auc(outputs(judged).numpy(), labels[judged].numpy())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder in which the cells ran, and their results."""
    folder = tmp_path_factory.mktemp("notebook")
    events().to_parquet(folder / "events.parquet")
    assert len([line for line in NOTEBOOK.splitlines() if line.strip()]) <= 25
    shown = "import json\nprint(json.dumps([figures['auc'], costs, len(history), scores.shape, scores[:, 0].tolist()]))"
    finished = subprocess.run(
        [sys.executable, "-c", IN_A_LOOP, NOTEBOOK + shown], cwd=folder, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    auc, cost, points, shape, scores = json.loads(finished.stdout.splitlines()[-1])
    return folder, {"auc": auc, "cost": cost, "points": points, "shape": shape, "scores": scores}


# As a notebook runs its cells: in `__main__`, in a thread whose event loop is running.
IN_A_LOOP = """
import asyncio, sys
async def cell():
    exec(compile(sys.argv[1], "cell", "exec"), sys.modules["__main__"].__dict__)
asyncio.run(cell())
"""


def test_the_notebook_trains_as_plain_torch_does(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, found = ran
    frame = pd.read_parquet(folder / "events.parquet")
    assert found["shape"] == [ROWS, 1]
    held_out = (frame["at"] > frame["at"].max() - pd.Timedelta("1D")).to_numpy()
    auc = exact_auc(np.array(found["scores"])[held_out], frame["clicked"].to_numpy()[held_out])
    assert found["auc"] == pytest.approx(auc, abs=1e-3)
    assert auc > 0.65
    assert auc > plain_auc(frame, held_out) - 0.01
    assert found["cost"] > 0
    assert found["points"] > 0
