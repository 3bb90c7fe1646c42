import pytest

from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.settings import SettingsError, load
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.device import prepare_device


@pytest.fixture
def environment(monkeypatch):
    """Everything that has no default."""
    monkeypatch.setenv("ESD_WORKER_NAME", "a")
    monkeypatch.setenv("ESD_WORKER_DISPATCHER", "127.0.0.1:1")
    monkeypatch.setenv("ESD_WORKER_LINK", "62500000.0")
    monkeypatch.setenv("ESD_WORKER_CACHE_ROWS", "100")
    return monkeypatch


def test_link_and_cache_are_read(environment):
    settings = load(WorkerSettings)
    assert (settings.link, settings.cache_rows, settings.shape_link, settings.device) == (62.5e6, 100, True, "cpu")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ESD_WORKER_LINK", "0"),
        ("ESD_WORKER_LINK", "inf"),
        ("ESD_WORKER_DEVICE", "tpu"),
        ("ESD_WORKER_CACHE_ROWS", "0"),
        ("ESD_WORKER_THREADS", "0"),
        ("ESD_WORKER_PEER_TIMEOUT", "-1"),
    ],
)
def test_wrong_values_are_named(environment, variable, value):
    environment.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable}={value}"):
        load(WorkerSettings)


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(FailedPrecondition, match="ESD_WORKER_DEVICE is cuda:99, torch sees"):
        prepare_device("cuda:99", threads=1)
