"""`esd plan`: its recommendation, and that the printed command trains so."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from esd.advice import sizing
from esd.cli.main import app
from esd.data import open_data
from esd.run.stream import first_samples
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from testbed.redis_server import redis_server
from tests.support.graphs import write_sparse_graph

DATA = "synthetic:zipf?keys=20000&fields=5"
RUN = ("--data", DATA, "--dim", "32", "--workers", "2", "--links", "200m,50m", "--mechanism", "laia")
RUN = (*RUN, "--count", "8000")


def invoke(command: str, *arguments: str) -> str:
    finished = CliRunner().invoke(app, [command, *arguments], catch_exceptions=False)
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.fixture(scope="module", autouse=True)
def warm_measurements() -> Iterator[None]:
    """Models are measured in forks of one process that has imported torch; each is still a process of its own."""
    warm = get_context("forkserver")
    warm.set_forkserver_preload(["esd.worker.training.footprint"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "get_context", lambda _: warm)
        yield


@pytest.fixture(scope="module")
def advice() -> dict:
    return json.loads(invoke("plan", *RUN, "--samples", "8000", "--batch-limits", "16,128", "--json"))


def test_the_profile_and_the_footprint_are_those_of_the_run(advice: dict) -> None:
    profile, footprint = advice["profile"], advice["footprint"]
    assert profile["samples"] == 8000
    assert profile["lookups_per_sample"] == 5
    assert 0 < profile["rows_for_share"]["0.5"] < profile["rows_for_share"]["0.99"] <= profile["rows"] <= 20000
    assert profile["shapes"][0]["name"] == "zipf"
    assert 33 * 4 <= footprint["row_bytes"] < 400  # 32 values and Adagrad's sum, and what is kept of them
    assert 2 * 5 * 32 * 4 <= footprint["sample_bytes"] < 100e3  # a sample's rows and their gradients, at least
    assert 30e6 < footprint["fixed_bytes"] < 3e9
    assert 0 < footprint["sample_seconds"] < 0.05
    assert footprint["dense_bytes"] > 4 * 256 * 128
    assert 1e-4 < footprint["message_seconds"] < 1.0  # plans, rows and sums of two workers that were started for it


def test_what_is_recommended_is_the_best_of_the_trials(advice: dict) -> None:
    best = advice["recommended"]
    assert best["batch"] in (16, 32, 64, 128)
    assert best["seconds"] <= 1.02 * min(trial["seconds"] for trial in advice["trials"])
    same_batch = [trial for trial in advice["trials"] if trial["batch"] == best["batch"]]
    assert best["cost_seconds"] <= 1.05 * min(trial["cost_seconds"] for trial in same_batch)
    assert set(advice["policies"]) == {"emark", "reuse", "lru", "lfu", "static"}
    assert next(iter(advice["ways"])) == "on-demand"
    assert sum(way.startswith("replicated:") for way in advice["ways"]) > 1
    assert advice["ways"]["on-demand"] in advice["policies"].values()


def test_the_command_is_one_that_the_simulator_takes(advice: dict) -> None:
    """The simulator runs every printed command and counts the recommended cost, on a stream from its beginning."""
    program, train, *arguments = shlex.split(advice["command"])
    assert (program, train) == ("esd", "train")
    best = advice["recommended"]
    assert arguments[arguments.index("--cache-rows") + 1] == str(best["cache_rows"])
    assert arguments[arguments.index("--batch") + 1] == str(best["batch"])
    counted = json.loads(invoke("simulate", *arguments, "--iterations", str(8000 // (2 * best["batch"])), "--json"))
    assert counted["cost_seconds"] / counted["samples"] == pytest.approx(best["cost_seconds"], rel=0.3)


def test_rows_and_needs_of_the_services_are_those_of_the_run(advice: dict) -> None:
    rows, needs = advice["rows"], {need["service"]: need for need in advice["needs"]}
    samples = SampleBatch.concatenate(list(first_samples(open_data(DATA, 1000, seed=0), 8000)))
    assert (rows["samples"], rows["whole"], rows["error"]) == (8000, False, 0)
    assert [table["rows"] for table in rows["tables"]] == [len(np.unique(samples.ids))]
    assert list(needs) == ["parameter server", "dispatcher", "worker", "command"]
    assert needs["parameter server"]["memory"]["rows"] == rows["rows"] * (33 * 4 + 30)
    assert needs["worker"]["processes"] == 2
    assert advice["local_memory"] == sum(need["processes"] * need["memory_of_each"] for need in needs.values())
    assert all("as processes of this machine" in limit for limit in advice["limits"]), "a full machine has others"


def test_the_fastest_team_is_the_best_that_was_compared_and_trains_by_its_plan(advice: dict, tmp_path: Path) -> None:
    """How long computation takes, and so which team is fastest, depends on the machine."""
    fastest, best = advice["fastest"], advice["recommended"]
    assert [team["machines"] for team in fastest["teams"]] == [[0, 1], [0]]
    exact = [team["seconds"][way] for team in fastest["teams"] for way in ("all-reduce", "server")]
    assert min(exact) <= fastest["seconds"] <= min(exact) / 0.99
    assert sorted(fastest["machines"] + fastest["left_out"]) == [0, 1]
    workers = len(fastest["machines"])
    assert fastest["options"]["links"] == {1: "200m", 2: "200m,50m"}[workers]
    assert workers * fastest["options"]["batch"] == 2 * best["batch"], "another global batch is another model"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(advice))
    trained = json.loads(invoke("train", "--plan", str(plan), "--iterations", "3", "--json").splitlines()[-1])
    assert trained["iterations"] == 3
    assert trained["samples"] == 3 * 2 * best["batch"]


def test_rules_of_rows_are_simulated_and_limits_are_told(tmp_path: Path) -> None:
    """A Redis that is too small, and more rows than the run may have, of the ids that are admitted."""
    with redis_server(tmp_path, "--maxmemory", "1mb") as redis:
        options = ("--admit-after", "2", "--max-rows", "3000", "--batch", "32", "--store", redis.url)
        arguments = ("--samples", "4000", *options)
        advice = json.loads(invoke("plan", *RUN, *arguments, "--json"))
        (table,) = advice["rows"]["tables"]
        assert 3000 < table["rows"] < 0.8 * table["ids"]
        full, refused = sorted(limit for limit in advice["limits"] if "as processes of this machine" not in limit)
        assert full.startswith("Redis at 127.0.0.1")
        assert f"will have {table['rows']:,} rows, and --max-rows allows 3,000" in refused
        _, _, *printed = shlex.split(advice["command"])
        for option, value in zip(options[::2], options[1::2], strict=True):
            assert printed[printed.index(option) + 1] == value
        assert f"limit: {refused}" in " ".join(invoke("plan", *RUN, *arguments).split())


def test_rows_are_replicated_where_that_is_faster_and_as_many_as_are_best() -> None:
    """Small rows, few of which make up most lookups, on links that bind: the command trains so."""
    stream = ("--data", "synthetic:avazu?skew=1.8", "--dim", "8", "--hidden", "8", "--links", "5m", "--workers", "4")
    ring = ("--dense", "all-reduce")
    options = (*stream, *ring, "--mechanism", "random", "--samples", "20000", "--batch", "32", "--count", "20000")
    advice = json.loads(invoke("plan", *options, "--json"))
    assert not advice["fastest"]["pays"], "one machine without services would move no rows"
    ways, sync = advice["ways"], advice["recommended"]["sync"]
    assert sync.startswith("replicated:")
    assert ways[sync] == min(ways.values()) < 0.95 * ways["on-demand"]
    tried = [int(way.partition(":")[2]) for way in ways if way != "on-demand"]
    assert min(tried) < int(sync.partition(":")[2]) < max(tried)  # fewer relieve links less, and the ring costs time
    _, _, *arguments = shlex.split(advice["command"])
    assert arguments[arguments.index("--sync") + 1] == sync
    counted = json.loads(invoke("simulate", *arguments, "--iterations", "150", "--json"))
    assert any(counted["bytes"]["reduced"])
    asked = json.loads(invoke("plan", *options, "--sync", "bounded:2,2", "--json"))
    assert list(asked["ways"]) == ["bounded:2,2"]  # it trains another model, which nobody trades for speed unasked


def test_a_graph_is_planned_with_the_rows_of_its_negatives(tmp_path: Path) -> None:
    """An iteration has more rows than all samples together, and the printed command names the graph for a shell."""
    data = f"graph:{write_sparse_graph(tmp_path)}?negatives=90"
    model = ("--model", "complex", "--loss", "own", "--dim", "8", "--batch", "16", "--workers", "2", "--links", "10m")
    advice = json.loads(invoke("plan", "--data", data, *model, "--epochs", "2", "--json"))
    entities, relations = (table["rows"] for table in advice["rows"]["tables"])
    assert (entities, relations) == (600, 3)
    assert advice["recommended"]["cache_rows"] > 90 > advice["profile"]["rows"]
    _, _, *arguments = shlex.split(advice["command"])
    assert arguments[arguments.index("--data") + 1] == data
    counted = json.loads(invoke("simulate", *arguments, "--json"))
    assert counted["samples"] == 2400


@pytest.mark.parametrize(
    ("model", "message"),
    [("wdl", "3 features of 32 values, lists of negatives (negative)"), ("rotate", "relation-dim of graph:PATH")],
)
def test_a_model_that_does_not_fit_a_graph_is_refused_by_its_rows(model: str, message: str, tmp_path: Path) -> None:
    data = f"graph:{write_sparse_graph(tmp_path)}"
    loss = () if model == "wdl" else ("--loss", "own")
    arguments = ("plan", "--data", data, "--model", model, *loss, "--dim", "32", "--batch", "16")
    refused = CliRunner().invoke(app, [*arguments, "--links", "1g"]).exception
    assert isinstance(refused, EsdError)
    assert message in str(refused)


def test_a_batch_that_is_given_stays_and_little_memory_makes_a_small_cache(advice: dict, tmp_path: Path) -> None:
    tight = advice["footprint"]["fixed_bytes"] * 1.5 + 64 * advice["footprint"]["sample_bytes"]
    plot = tmp_path / "curve.svg"
    shown = invoke("plan", *RUN, "--samples", "8000", "--batch", "50", "--memory", f"{tight:.0f}", "--plot", str(plot))
    assert "--batch 50 " in shown.replace("\n", " ")
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache-rows", "9"], "--cache-rows and --cache-ratio are what esd plan finds"),
        (["--workloads", "3,5"], "--workloads is equal or balanced"),
        (["--hot-batches", "9"], "leave out --hot-batches"),
        (["--submitters", "2"], "leave out --submitters"),
        (["--count", "many"], "--count is 'many', it must be all or a number of samples"),
        (["--store", "mysql://host"], "is neither memory nor a URL of"),
        (
            ["--store", "redis://127.0.0.1:1", "--checkpoint-dir", "kept"],
            "a checkpoint directory is for the memory store",
        ),
        (["--shadows", "fastest"], "--shadows: "),
        (["--store", "redis://127.0.0.1:1"], "Redis at 127.0.0.1:1 is out of reach"),
        (["--memory", "plenty"], "'plenty' is not a positive number of bytes"),
        (["--memory", "1m", "--batch", "8"], "beside its samples and rows, and is given 1 MB"),
        (["--links", "200m,fast"], "link speed 'fast' is not a positive number"),
        (["--plot", "curve.xyz"], "--plot curve.xyz: the ending is none of"),
        (["--plot", "absent/curve.svg"], "there is no folder absent"),
        (["--batch-limits", "64"], "is not two whole numbers"),
        (["--batch-limits", "64,16"], "the least first"),
        (["--batch", "5000"], "are fewer than 12 iterations of 5000 samples"),
        (["--model", "wdlx"], "model 'wdlx' is unknown"),
        (["--device", "cuda:9"], "torch can use no GPU here"),
        (["--device", "gpu"], "--device is 'gpu', it must be cpu, auto, cuda or cuda:N"),
    ],
)
def test_a_mistake_is_refused_and_named(arguments: list[str], message: str) -> None:
    refused = CliRunner().invoke(app, ["plan", *RUN, "--samples", "2000", *arguments]).exception
    assert isinstance(refused, EsdError)
    assert message in str(refused)


def test_a_model_of_one_s_own_is_found_where_the_command_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_net.py").write_text(
        "import esd\nimport torch\nfrom torch import nn\n\n\nclass Net(esd.Model):\n"
        "    def __init__(self, inputs, hidden):\n        super().__init__(inputs, hidden)\n"
        "        self.layer = nn.Linear(inputs.width, 1)\n\n    def forward(self, embeddings, dense):\n"
        "        return self.layer(torch.cat((*embeddings.values(), dense), dim=1))\n"
    )
    monkeypatch.chdir(tmp_path)
    run = ("--model", "shop_net:Net", *RUN, "--samples", "2000", "--batch-limits", "16,32", "--json")
    assert "shop_net:Net" in json.loads(invoke("plan", *run))["command"]


def test_tables_of_several_dimensions_share_a_cache(tmp_path: Path) -> None:
    """Rows are counted in units of the first table's rows; the recommended cache holds the rows of an iteration."""
    rng = np.random.default_rng(2)
    columns = {name: (size * rng.random(4000) ** 3).astype(int) for name, size in (("user", 900), ("item", 3000))}
    lists = [(3000 * rng.random(count) ** 3).astype(int).tolist() for count in rng.integers(0, 4, 4000)]
    table = pa.table({**columns, "seen": lists, "clicked": rng.integers(0, 2, 4000)})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    (tmp_path / "s.toml").write_text(
        'label = "clicked"\nids = ["user", { column = "item", table = "items" },\n'
        '    { column = "seen", table = "items", max = 4 }]\n[tables.items]\ndim = 8\noptimizer = "adam"\n'
    )
    run = ("--data", str(tmp_path / "e.parquet"), "--schema", str(tmp_path / "s.toml"), "--model", "dcn", *RUN[2:])
    advice = json.loads(invoke("plan", *run, "--samples", "4000", "--batch-limits", "16,64", "--json"))
    distinct = {name: len(np.unique(values)) for name, values in columns.items()}
    distinct["item"] = len(np.unique(np.concatenate([columns["item"], *map(np.array, lists)]).astype(int)))
    assert advice["profile"]["rows"] == distinct["user"] + distinct["item"]
    first, second = ((32 + 1) * 4 + 16, (8 + 16) * 4 + 16)  # bytes that a row moves, with optimizer state and key
    room = distinct["user"] + distinct["item"] * second / first
    assert max(trial["cache_rows"] for trial in advice["trials"] if trial) <= math.ceil(room)
    assert advice["recommended"]["cache_rows"] < advice["profile"]["rows"]
    assert advice["footprint"]["row_bytes"] >= 33 * 4
    _, _, *arguments = shlex.split(advice["command"])
    best = advice["recommended"]
    counted = json.loads(invoke("simulate", *arguments, "--iterations", str(4000 // (2 * best["batch"])), "--json"))
    assert counted["cost_seconds"] / counted["samples"] == pytest.approx(best["cost_seconds"], rel=0.3)


def test_pushing_ahead_is_simulated_on_request_and_not_recommended() -> None:
    arguments = ("--samples", "4000", "--batch", "32", "--sync", "proactive")
    advice = json.loads(invoke("plan", *RUN, *arguments, "--json"))
    assert list(advice["ways"])[:2] == ["proactive", "on-demand"]
    assert advice["recommended"]["sync"] != "proactive"
    assert "waits longer than on-demand" in invoke("plan", *RUN, *arguments)
