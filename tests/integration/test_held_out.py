"""Held-out samples are scored with the model of one process, at every evaluation, and stop a run where they should."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from esd import load
from esd.run.held_out import watched
from esd.run.options import RunOptions
from esd.run.stream import global_batches, held_out_samples, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import OptimizerKind
from esd.worker.models import build_model
from testbed.auc import exact_auc
from tests.support import training
from tests.support.models import assert_same_model
from tests.support.reference import TrainedModel, by_feature, initial_rows, train_reference

OPTIONS = RunOptions(
    data="synthetic:criteo?samples=4000",
    holdout="0.2",
    workers=2,
    links="1g",
    batch=32,
    dim=8,
    cache_rows=2500,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.01,
    seed=3,
)


def held_out_figures(job: JobSpec, trained: TrainedModel, batch: SampleBatch) -> tuple[float, float]:
    """Loss and AUC of a reference model on samples whose ids it may never have seen."""
    ids, inverse = np.unique(batch.ids, return_inverse=True)
    rows = initial_rows(job.table, ids)
    _, here, there = np.intersect1d(ids, trained.ids, return_indices=True)
    rows[here] = trained.rows[there]
    model = build_model(job)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in trained.dense.items()})
    embedded = torch.from_numpy(rows[inverse.reshape(len(batch), -1)])
    with torch.no_grad():
        logits = model(by_feature(job, embedded), torch.from_numpy(batch.dense)).double().view(-1)
    loss = functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels[:, 0]).double())
    return loss.item(), exact_auc(logits.sigmoid().numpy(), batch.labels[:, 0])


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_each_evaluation_is_that_of_one_process(store: str, redis_url: str) -> None:
    options = replace(OPTIONS, evaluate_every=20)
    result = training.run(options, store=redis_url if store == "redis" else store, shards=2, out=None)
    assert [each["iteration"] for each in result["evaluations"]] == [20, 40, 50]

    stream = training_stream(options)
    dataset, held_out = stream.dataset, held_out_samples(options, stream)
    assert held_out is not None
    job = options.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    batches = list(global_batches(dataset, 64))
    judged = SampleBatch.concatenate(list(held_out))
    assert (len(judged), len(batches)) == (800, 50)
    for found in result["evaluations"]:
        reference = train_reference(job, batches[: found["iteration"]])
        loss, auc = held_out_figures(job, reference, judged)
        assert found["loss"] == pytest.approx(loss, abs=1e-4)
        assert found["auc"] == pytest.approx(auc, abs=1e-3)
    assert result["held_out"]["loss"] == found["loss"]
    assert result["samples"] == 3200


def test_evaluations_do_not_change_the_model(tmp_path: Path) -> None:
    for name, every in (("with", 10), ("without", 0)):
        options = replace(OPTIONS, evaluate_every=every, checkpoint_every=10, iterations=25)
        training.run(options, store="memory", shards=1, out=tmp_path / name)
    assert_same_model(tmp_path / "with", tmp_path / "without")


def test_a_run_that_does_not_get_better_stops_at_the_same_place(tmp_path: Path) -> None:
    """At a rate of nothing no evaluation is better than the first; the stream ends where the fourth would wait."""
    options = replace(OPTIONS, learning_rate=1e-30, evaluate_every=5, early_stop="auc:2", epochs=50)
    result = training.run(options, store="memory", shards=1, out=tmp_path)
    stopped_at = 10 + 2 * 5 + options.horizon
    assert [each["iteration"] for each in result["evaluations"]][:3] == [5, 10, 15]
    assert result["iterations"] == stopped_at


def test_a_model_that_cannot_be_scored_here_is_refused_before_it_is_trained() -> None:
    """With services that run already, their workers may have a model that this machine lacks."""
    trained: list[int] = []
    options = replace(OPTIONS, model="nowhere.net:Net")
    job = options.job(features=numbered_ids(26), dense_features=tuple(map(str, range(13))), parameter_servers=("none",))

    async def train_it() -> None:
        async with (
            AsyncDispatcherClient("127.0.0.1:1") as client,
            watched(options, job, held_out_samples(OPTIONS, training_stream(OPTIONS)), client),
        ):
            trained.append(1)

    with pytest.raises(InvalidArgument, match=r"module nowhere\.net cannot be imported"):
        asyncio.run(train_it())
    assert not trained


def test_figures_are_given_by_label(tmp_path: Path) -> None:
    """A job with two labels is judged on held-out samples by a model of the trained parameters."""
    rng = np.random.default_rng(5)
    for name, count in (("trained", 1500), ("judged", 400)):
        items, likes = rng.integers(0, 60, count), rng.random(count)
        clicked, bought = likes < 0.2 + items / 120, likes < items / 300
        lines = (f"{item},{item % 7},{int(c)},{int(b)}" for item, c, b in zip(items, clicked, bought, strict=True))
        (tmp_path / f"{name}.csv").write_text("\n".join(("item,kind,clicked,bought", *lines)) + "\n")
    schema = tmp_path / "schema.toml"
    schema.write_text('label = ["clicked", "bought"]\nids = ["item", "kind"]\n')
    options = replace(
        OPTIONS, data=str(tmp_path / "trained.csv"), evaluate=str(tmp_path / "judged.csv"), holdout=0.0, schema=schema,
        model="mmoe", hidden="8", cache_rows=200,
    )  # fmt: skip
    result = training.run(options, store="memory", shards=1, out=tmp_path)
    held_out = held_out_samples(options, training_stream(options))
    assert held_out is not None
    judged = SampleBatch.concatenate(list(held_out))
    scores = load(tmp_path / "model").scores(judged).astype(np.float64)
    found = result["held_out"]["labels"]
    assert list(found) == ["clicked", "bought"]
    for at, name in enumerate(found):
        labels, guesses = judged.labels[:, at].astype(np.float64), scores[:, at]
        loss = -np.mean(labels * np.log(guesses) + (1 - labels) * np.log(1 - guesses))
        share = labels.mean()
        entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
        assert found[name]["loss"] == pytest.approx(loss, abs=1e-5)
        assert found[name]["auc"] == pytest.approx(exact_auc(guesses, labels), abs=1e-3)
        assert found[name]["normalised_entropy"] == pytest.approx(loss / entropy, abs=1e-4)
        assert found[name]["calibration"] == pytest.approx(guesses.mean() / share, abs=1e-3)
    assert result["held_out"]["loss"] == pytest.approx((found["clicked"]["loss"] + found["bought"]["loss"]) / 2)
    assert result["held_out"]["auc"] == found["clicked"]["auc"]

    trained = np.concatenate([batch.labels for batch in training_stream(options)]).astype(np.float64)
    for at, (name, scored) in enumerate(result["labels"].items()):  # before they are trained
        assert name == ("clicked", "bought")[at]
        share = trained[:, at].mean()
        entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
        assert scored["normalised_entropy"] == pytest.approx(scored["loss"] / entropy)
    assert result["loss"] == pytest.approx(np.mean([scored["loss"] for scored in result["labels"].values()]))
    assert result["normalised_entropy"] == result["labels"]["clicked"]["normalised_entropy"]


def test_held_out_samples_that_cannot_be_read_do_not_cost_the_model(tmp_path: Path) -> None:
    """They are read when all is trained, if they are judged by in the end only."""
    lines = [f"{row % 30},{row % 2}" for row in range(200)]
    for name, last in (("trained", "7,1"), ("judged", "7,perhaps")):
        (tmp_path / f"{name}.csv").write_text("\n".join(("item,clicked", *lines, last)) + "\n")
    schema = tmp_path / "schema.toml"
    schema.write_text('label = "clicked"\nids = ["item"]\n')
    options = replace(
        OPTIONS, data=str(tmp_path / "trained.csv"), evaluate=str(tmp_path / "judged.csv"), holdout="", schema=schema,
        cache_rows=100,
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match=r"judged\.csv.*perhaps"):
        training.run(options, store="memory", shards=1, out=tmp_path)
    trained = SampleBatch.concatenate(list(training_stream(options)))
    assert np.isfinite(load(tmp_path / "model").scores(trained)).all()


def test_options_that_do_not_fit_are_refused() -> None:
    for changes, message in [
        ({"evaluate": "flights"}, "exclude each other"),
        ({"evaluate": "flights", "holdout": ""}, "other columns"),
        ({"evaluate": "synthetic:criteo", "holdout": ""}, "an evaluation would not end"),
        ({"holdout": "", "evaluate_every": 5}, "need --evaluate DATA or --holdout LAST"),
        ({"early_stop": "auc:2"}, "needs --evaluate-every"),
        ({"early_stop": "precision:2", "evaluate_every": 5}, "is not METRIC:PATIENCE"),
        ({"early_stop": "auc:128", "evaluate_every": 5}, "the patience from 1 to 127"),
        ({"evaluate_every": 5, "checkpoint_seconds": 3.0}, "leave out --checkpoint-seconds"),
        ({"holdout": "1.0"}, "neither a share"),
        ({"data": "synthetic:criteo"}, "needs to know how many samples"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            training.run(replace(OPTIONS, **changes), store="memory", shards=1, out=None)
