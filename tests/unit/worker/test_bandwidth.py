import numpy as np
import pytest

from esd.worker.core.bandwidth import LinkMeter, TokenBucket
from esd.worker.service.link import Link, TrafficBeside


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_bytes_beyond_the_burst_wait_at_the_link_rate():
    bucket = TokenBucket(rate=1000, burst_seconds=0.5, clock=Clock())
    assert bucket.reserve(500) == 0
    assert bucket.reserve(1000) == pytest.approx(1.0)
    assert bucket.reserve(2000) == pytest.approx(3.0)


def test_waiting_pays_back():
    clock = Clock()
    bucket = TokenBucket(rate=1000, burst_seconds=0.5, clock=clock)
    clock.now += bucket.reserve(1500)
    assert bucket.reserve(100) == pytest.approx(0.1)


def test_idle_time_is_saved_up_to_the_burst_only():
    clock = Clock()
    bucket = TokenBucket(rate=1000, burst_seconds=0.5, clock=clock)
    clock.now += 3600
    assert bucket.reserve(500) == 0
    assert bucket.reserve(100) == pytest.approx(0.1)


def test_late_wake_ups_do_not_slow_the_link():
    clock = Clock()
    bucket = TokenBucket(rate=1000, burst_seconds=0.1, clock=clock)
    begin = clock.now
    for _ in range(100):
        wait = bucket.reserve(50)
        clock.now += wait + 0.01 if wait else 0  # every sleep is 10 ms late
    assert clock.now - begin == pytest.approx(5.0, abs=0.12)


def test_overlapping_transfers_share_the_time():
    clock = Clock()
    meter = LinkMeter(minimum_bytes=1000, bursts=(0.0,), clock=clock)
    meter.begin()
    clock.now += 1
    meter.begin()
    clock.now += 1
    meter.end(1000)
    meter.end(3000)
    clock.now += 60
    assert meter.take() == pytest.approx(2000)


@pytest.mark.parametrize("burst", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("idle", [(0.002, 0.02), (0.01, 0.06), (0.1, 0.3)], ids=["busy", "half", "idle"])
def test_what_a_link_carries_after_a_burst_is_measured(burst: float, known: bool, idle: tuple[float, float]):
    rng, clock = np.random.default_rng(0), Clock()
    speed = 2.5e6  # 20 Mbit/s
    bucket = TokenBucket(speed, burst, clock)
    meter = LinkMeter(speed * 0.05, (burst,) if known else (0.0, 0.01, 0.02, 0.04, 0.08, 0.16), clock)
    told = []
    for iteration in range(60):
        clock.now += rng.uniform(*idle)
        meter.begin()
        size = int(speed * rng.uniform(0.06, 0.2))
        clock.now += bucket.reserve(size) + rng.uniform(0.001, 0.004)  # the server answers
        meter.end(size)
        if iteration >= 20:
            told.append(meter.take())
    assert told == pytest.approx([speed] * len(told), rel=0.15)


def test_pushes_of_one_size_tell_nothing_of_bursts():
    clock = Clock()
    meter = LinkMeter(1000, (0.0, 0.1), clock)
    for _ in range(40):
        clock.now += 1
        meter.begin()
        clock.now += 0.5
        meter.end(1000)
    assert meter.take() == pytest.approx(2000)


def test_little_traffic_tells_nothing():
    clock = Clock()
    meter = LinkMeter(minimum_bytes=1000, bursts=(0.0,), clock=clock)
    meter.begin()
    clock.now += 1
    meter.end(999)
    assert meter.take() == 0
    assert meter.take() == 0


def test_bytes_beside_a_transfer_count_and_others_do_not():
    clock = Clock()
    meter = LinkMeter(minimum_bytes=1000, bursts=(0.0,), clock=clock)
    meter.carry(5000)
    meter.begin()
    clock.now += 1
    meter.carry(1000)
    clock.now += 1
    meter.end(3000)
    meter.carry(5000)
    assert meter.take() == pytest.approx(2000)


@pytest.mark.parametrize(("shape", "took"), [(True, 1.0), (False, 0.0)])
async def test_what_goes_beside_pushes_is_measured_where_the_link_is_shaped(monkeypatch, shape, took):
    clock = Clock()

    async def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr("esd.worker.service.link.time.monotonic", clock)
    monkeypatch.setattr("esd.services.clients.traffic.asyncio.sleep", sleep)
    link = Link(10_000, shape=shape)
    clock.now += 60  # the burst is saved up
    start = clock.now
    await TrafficBeside(link).send(10_200)
    assert clock.now - start == pytest.approx(took)
    assert link.uplink.take() == pytest.approx(10_000 if shape else 0)
