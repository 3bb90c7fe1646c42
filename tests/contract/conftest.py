"""A table of every store: in memory, with a checkpoint directory or URL, in a Redis, a Valkey and a Redis Cluster."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.stores import SPEC, open_url


@pytest.fixture(params=["memory", "directory", "objects", "redis", "valkey", "redis+cluster"])
def url(request):
    fixtures = {
        "directory": "tmp_path",
        "objects": "s3_url",
        "redis": "redis_url",
        "valkey": "valkey_url",
        "redis+cluster": "redis_cluster_url",
    }
    return request.getfixturevalue(fixtures[request.param]) if request.param in fixtures else request.param


@pytest.fixture
def store(url):
    store = open_url(url)
    yield store
    store.close()


@pytest.fixture
def table(store):
    store.create(SPEC)
    return store.open(SPEC)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
