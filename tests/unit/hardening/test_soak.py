"""The growth that the soak run calls steady."""

import os

import numpy as np
import pytest

from hardening.soak import Course

ITERATIONS = list(range(0, 20_000, 50))


def course(slope=0.0, descriptors=0, threads=0):
    """A process with noise and, over the whole run, some growth: MB per 1,000 iterations, and counts."""
    noise = np.random.default_rng(0).normal(0, 0.5, len(ITERATIONS))
    part = np.linspace(0, 1, len(ITERATIONS))
    return Course(
        ITERATIONS,
        (100 + slope * np.array(ITERATIONS) / 1000 + noise).tolist(),
        (20 + descriptors * part).astype(int).tolist(),
        (12 + threads * part).astype(int).tolist(),
    )


def test_a_flat_course_is_steady():
    assert course().steady
    assert course(slope=0.5).growth == pytest.approx(0.5, abs=0.02)
    assert course(slope=0.5).steady


@pytest.mark.parametrize("leak", [{"slope": 1.1}, {"descriptors": 8}, {"threads": 8}])
def test_a_leak_is_not(leak):
    assert not course(**leak).steady


def test_the_warm_up_does_not_count():
    """Memory that is taken once, before the samples that count."""
    whole = course()
    for at in range(100):
        whole.megabytes[at] -= 50
    assert not whole.steady
    assert whole.after(5000).steady


def test_a_process_is_sampled():
    sampled = Course()
    sampled.sample(1, os.getpid())
    assert sampled.iterations == [1]
    assert sampled.megabytes[0] > 10
    assert sampled.descriptors[0] >= 3
    assert sampled.threads[0] >= 1
