"""Cables with latency that lose packets: bytes arrive whole, and a job ends without a recovery."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cards import KERNEL, measure
from testbed.cards import Cable, machines

pytestmark = pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "tc", "qdisc"], check=False, capture_output=True).returncode != 0
    or not Path("/dev/net/tun").exists(),
    reason="cables with a delay need root, iproute2 and TAP devices",
)

RECEIVER = """
import hashlib, socket
with socket.create_server(("", 5000)) as listening:
    print("listening", flush=True)
    connection = listening.accept()[0]
    data = hashlib.sha256()
    while part := connection.recv(1 << 20):
        data.update(part)
    connection.sendall(data.digest())
"""

SENDER = """
import hashlib, random, socket, sys
data = random.Random(1).randbytes(4 << 20)
with socket.create_connection((sys.argv[1], 5000)) as connection:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(32) == hashlib.sha256(data).digest()
"""


def counted(shown: str, name: str) -> int:
    """A counter of TCP in the text of /proc/net/snmp."""
    names, values = (line.split() for line in shown.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index(name)])


def test_a_cable_loses_single_packets_of_long_frames_and_damages_none():
    """Some 60 of 2,900 packets of 1,448 bytes are lost, and nothing else is sent again."""
    with machines([125e6], Cable(0.002, 50)) as (hub, (machine,)):
        receiver = subprocess.Popen(hub.command(sys.executable, "-c", RECEIVER), stdout=subprocess.PIPE, text=True)
        with receiver:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "listening\n"
            subprocess.run(machine.command(sys.executable, "-c", SENDER, hub.address), check=True, timeout=60)
            sent, received = (
                subprocess.run(end.command("cat", "/proc/net/snmp"), check=True, capture_output=True, text=True).stdout
                for end in (machine, hub)
            )
    assert counted(sent, "OutSegs") > 2900
    assert 20 < counted(sent, "RetransSegs") < 200
    assert counted(received, "InErrs") == counted(received, "InCsumErrors") == 0


def options_at(round_trip):
    """A short job on two workers, whose cables lose one frame in 50."""
    return argparse.Namespace(
        links="1g",
        workers=2,
        round_trip=round_trip,
        lose_one_in=50,
        congestion="",
        lanes=0,
        own_congestion="",
        mechanism="joint",
        data="flights",
        dim=16,
        hidden="16",
        cache_rows=4000,
        iterations=12,
    )


def test_a_job_over_lanes_trains_the_same_model_while_packets_are_lost(tmp_path):
    options = options_at(20.0)
    plain = measure(options, "server", KERNEL, tmp_path)
    options.lanes = 6
    over_lanes = measure(options, "server", KERNEL, tmp_path)
    assert (over_lanes.auc, over_lanes.loss) == (plain.auc, plain.loss)
    assert min(over_lanes.sent) > min(plain.sent)  # with parities


def test_a_job_ends_without_a_recovery_at_300_ms_and_2_percent_loss(tmp_path):
    """The job takes no checkpoints, so `esd train` fails if it has to recover."""
    options = options_at(300.0)
    found = measure(options, "server", KERNEL, tmp_path)
    assert found.round_trips > 0.5  # the cables delayed the frames
    assert all(size > 0 for size in found.counted_sent["dense"])
