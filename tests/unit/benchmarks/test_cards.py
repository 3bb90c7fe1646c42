"""The bytes that workers count on their links are those that the kernel counts at their network cards."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from benchmarks.cards import KERNEL, measure

pytestmark = pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "tc", "qdisc"], check=False, capture_output=True).returncode != 0,
    reason="network namespaces need root, and iproute2",
)


@pytest.mark.parametrize(("dense", "dim"), [("all-reduce", 16), ("low-rank:4", 128)])
def test_the_sum_of_all_counters_is_what_the_cards_have_carried(tmp_path, dense, dim):
    options = argparse.Namespace(
        links="100m",
        workers=2,
        round_trip=0.0,
        lose_one_in=0,
        congestion="",
        lanes=0,
        own_congestion="",
        mechanism="joint",
        data="flights",
        dim=dim,
        hidden="256,128",
        cache_rows=4000,
        iterations=20,
    )
    found = measure(options, dense, KERNEL, tmp_path)
    for carried, counted in ((found.sent, found.counted_sent), (found.received, found.counted_received)):
        for slot, size in enumerate(carried):
            assert sum(counts[slot] for counts in counted.values()) == pytest.approx(size, rel=0.03)
    assert found.counted_share == pytest.approx(1, abs=0.03)
