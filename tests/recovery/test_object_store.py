"""Runs whose checkpoints are in an object store: a killed server goes on from there, and so does another machine."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.recovery.kills import OPTIONS, Interruption, Killer, interrupted_run
from tests.recovery.test_esd_checkpoint import OPTIONS as KEPT
from tests.recovery.test_esd_checkpoint import Place, refused_while_live, restore
from tests.support import training
from tests.support.models import assert_same_model


class SwitchedOff(Exception):
    """The first machine is gone."""


def switch_off(_cluster):
    raise SwitchedOff


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    training.run(OPTIONS, store="memory", shards=2, out=out)
    return out


def test_a_killed_parameter_server_goes_back_to_its_objects(undisturbed, tmp_path, s3_url):
    kill = Killer(lambda cluster: cluster.parameter_servers[1])
    result = interrupted_run(OPTIONS, kill, store="memory", shards=2, checkpoint_dir=s3_url, out=tmp_path)
    assert kill.killed == "ps-1"
    assert [each["iterations_redone"] >= 10 for each in result["recoveries"]] == [True]
    assert_same_model(tmp_path, undisturbed)


def test_a_run_goes_on_from_the_url_alone(undisturbed, tmp_path, s3_url):
    with pytest.raises(SwitchedOff):
        interrupted_run(OPTIONS, Interruption(switch_off), store="memory", shards=2, checkpoint_dir=s3_url)
    result = training.run(OPTIONS, store="memory", shards=2, checkpoint_dir=s3_url, out=tmp_path)
    assert result["iterations"] == OPTIONS.iterations
    assert_same_model(tmp_path, undisturbed)


@pytest.mark.parametrize("seconds", [8, 45])
def test_a_store_that_does_not_answer_for_a_while_costs_nothing(undisturbed, tmp_path, s3_url, shared_s3, seconds):
    """For 8 s requests wait; after 45 s all of them have been given up, checkpoints and samples for the log as well."""
    again = threading.Timer(seconds, shared_s3.resume)

    def go_out_of_reach(_cluster):
        shared_s3.pause()
        again.start()

    outage = Interruption(go_out_of_reach)
    try:
        result = interrupted_run(OPTIONS, outage, store="memory", shards=2, checkpoint_dir=s3_url, out=tmp_path)
    finally:
        again.join()
    assert outage.over.is_set()
    assert result["iterations"] == OPTIONS.iterations
    assert_same_model(tmp_path, undisturbed)


def test_another_job_continues_the_model_as_from_a_directory(tmp_path, s3_url):
    models = []
    for place in (tmp_path / "kept", s3_url):
        out = tmp_path / f"model-{len(models)}"
        where = {"store": "memory", "shards": 1, "checkpoint_dir": place}
        training.run(replace(OPTIONS, iterations=30), out=None, table="first", **where)
        training.run(replace(OPTIONS, iterations=30, learning_rate=0.001), out=out, continue_from="first", **where)
        models.append(out)
    assert_same_model(*models)


def test_esd_checkpoint_lists_verifies_and_goes_back(tmp_path, s3_url):
    place = Place("memory", s3_url, workers=1)
    whole = place.train(KEPT, tmp_path / "whole", shards=2, watch=refused_while_live(place))
    assert place.checkpoints() == [48, 64, 72]
    assert all(not each["damage"] for each in place.json("verify")["checkpoints"])
    restore(place, 48)
    assert place.checkpoints() == [48]
    same = place.train(KEPT, tmp_path / "same", shards=2)
    for name, values in whole.items():
        np.testing.assert_array_equal(same[name], values, err_msg=name)
