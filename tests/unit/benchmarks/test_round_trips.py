"""The plain server beside which training over links with latency is measured."""

from __future__ import annotations

import argparse
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.plain_server import SAMPLES, Parameters, PlainServer, Sent, gradients_of, samples_of, shapes_of, work
from benchmarks.round_trips import measure_pair

HIDDEN, ITERATIONS = "16", 12


def test_the_workers_of_a_plain_server_train_the_model_of_one_process():
    shapes = shapes_of(HIDDEN)
    trained, alone = Parameters(shapes), Parameters(shapes)
    first = alone.dense.copy()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(3) as threads:
        serving = threads.submit(PlainServer(2, trained).serve, listening)

        def worked(rank: int) -> list[float]:
            with socket.create_connection(listening.getsockname()) as server:
                return work(server, rank, 2, ITERATIONS, shapes)[1]

        losses = list(threads.map(worked, range(2)))
        serving.result(timeout=60)

    parts = [samples_of(rank, 2) for rank in range(2)]
    for iteration in range(ITERATIONS):
        sent = []
        for rank, samples in enumerate(map(next, parts)):
            loss, found = gradients_of(samples, alone.look_up(samples.ids), alone.dense, shapes, 2 * SAMPLES)
            assert losses[rank][iteration] == pytest.approx(loss / SAMPLES, rel=1e-4)
            sent.append(Sent(samples.ids, *found))
        joined = (np.concatenate([getattr(part, name) for part in sent]) for name in ("ids", "rows"))
        alone.train([Sent(*joined, sent[0].dense + sent[1].dense)])
    np.testing.assert_allclose(trained.dense, alone.dense, atol=1e-4)
    assert np.abs(trained.dense - first).max() > 0.01


@pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "tc", "qdisc"], check=False, capture_output=True).returncode != 0
    or not Path("/dev/net/tun").exists(),
    reason="cables with a delay need root, iproute2 and TAP devices",
)
def test_a_pair_has_the_speeds_of_both_over_the_same_cables(tmp_path: Path):
    options = argparse.Namespace(
        links="1g",
        workers=2,
        round_trip=100.0,
        lose_one_in=0,
        congestion="",
        lanes=0,
        dense="server",
        own_congestion="reno",
        mechanism="joint",
        data="flights",
        dim=16,
        hidden=HIDDEN,
        cache_rows=4000,
        iterations=ITERATIONS,
    )
    pair = measure_pair(options, tmp_path)
    assert 0 < pair.iterations_per_second < 10  # an iteration takes a round trip
    assert 0 < pair.plain < 10
    assert pair.ratio == pytest.approx(pair.iterations_per_second / pair.plain, abs=0.02)
