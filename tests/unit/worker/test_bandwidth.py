import pytest

from worker.core.bandwidth import LinkMeter, TokenBucket


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
    meter = LinkMeter(minimum_bytes=1000, clock=clock)
    meter.begin()
    clock.now += 1
    meter.begin()
    clock.now += 1
    meter.end(1000)
    meter.end(3000)
    clock.now += 60
    assert meter.take() == pytest.approx(2000)


def test_little_traffic_tells_nothing():
    clock = Clock()
    meter = LinkMeter(minimum_bytes=1000, clock=clock)
    meter.begin()
    clock.now += 1
    meter.end(999)
    assert meter.take() == 0
    assert meter.take() == 0
