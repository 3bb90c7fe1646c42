"""Workers get the devices that are asked for, one each, or the run is refused at once, by the name of the device."""

from __future__ import annotations

import time

import pytest
from typer.testing import CliRunner

from esd.cli import serve
from esd.cli.main import app
from esd.run.devices import worker_devices
from esd.run.local_settings import LocalSettings
from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime import gpus
from esd.services.runtime.settings import SettingsError, load
from esd.worker.service.settings import WorkerSettings


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "usable_gpus", lambda: (2, ""))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "usable_gpus", lambda: (0, "there is no NVIDIA driver"))


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("cpu", ("cpu",) * 3),
        ("cuda", ("cuda:0", "cuda:1", "cuda:0")),
        ("auto", ("cuda:0", "cuda:1", "cuda:0")),
        ("cuda:1", ("cuda:1",) * 3),
        ("cuda:1,cuda:0,cpu", ("cuda:1", "cuda:0", "cpu")),
    ],
)
def test_every_worker_gets_a_device(text: str, devices: tuple[str, ...]) -> None:
    assert worker_devices(text, 3) == devices
    settings = LocalSettings(workers=3, device=text)
    settings.check()
    assert settings.devices() == devices
    assert settings.worker(device=devices[0])["ESD_WORKER_DEVICE"] == devices[0]


@pytest.mark.usefixtures("two_gpus")
def test_the_variable_gives_each_worker_a_gpu_of_its_own_and_the_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_WORKER_DEVICE", "cuda")
    assert LocalSettings(workers=2).devices() == ("cuda:0", "cuda:1")
    assert LocalSettings(workers=2, device="cpu").devices() == ("cpu", "cpu")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("cuda:2", "--device cuda:2: cuda:2 is asked for, and there are 2 GPUs here: cuda:0 to cuda:1"),
        ("cuda:0,cuda:1", "--device cuda:0,cuda:1 lists 2 devices, there are 3 workers"),
        ("tpu", "--device tpu: 'tpu' is none of cpu, cuda, cuda:N, auto, nor a list such as cuda:0,cuda:1"),
    ],
)
def test_what_is_not_here_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        worker_devices(text, 3)
    assert str(refused.value) == refusal


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_auto_is_the_processor_and_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_devices("auto", 2) == ("cpu", "cpu")
    refusal = "torch can use no GPU here: there is no NVIDIA driver; cpu trains without one"
    with pytest.raises(InvalidArgument, match=f"--device cuda: cuda is asked for, and {refusal}"):
        worker_devices("cuda", 2)
    monkeypatch.setenv("ESD_WORKER_DEVICE", "cuda")
    with pytest.raises(InvalidArgument, match=f"ESD_WORKER_DEVICE cuda: cuda is asked for, and {refusal}"):
        LocalSettings(workers=2).check()
    place = {"name": "a", "dispatcher": "127.0.0.1:1", "link": 1e9, "cache_rows": 1}
    with pytest.raises(SettingsError, match=f"ESD_WORKER_DEVICE=cuda: .*{refusal}"):
        load(WorkerSettings, **place)  # as a worker in a container does


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_command_for_a_gpu_is_refused_at_once(command: str) -> None:
    started = time.process_time()
    with pytest.raises(EsdError, match="cuda:0 is asked for, and torch can use no GPU here"):
        CliRunner().invoke(app, [command, "--device", "cuda:0"], catch_exceptions=False)
    assert time.process_time() - started < 5


def test_the_reason_is_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    version = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\n"
    monkeypatch.setattr(gpus, "_torch_version", lambda: gpus._TorchVersion(version))
    assert gpus.usable_gpus.__wrapped__()[1].startswith("torch 2.9.0+cpu has no CUDA")
    monkeypatch.setattr(gpus, "_torch_version", lambda: gpus._TorchVersion("cuda: Optional[str] = '12.6'\n"))
    monkeypatch.setattr(gpus, "_COUNT", "print(3)")
    assert gpus.usable_gpus.__wrapped__()[0] == 3
    monkeypatch.setattr(gpus, "_COUNT", "raise OSError")
    assert "no NVIDIA driver" in gpus.usable_gpus.__wrapped__()[1]
    monkeypatch.setattr(gpus, "_COUNT", "import time; time.sleep(60)")
    monkeypatch.setattr(gpus, "_SECONDS", 0.2)
    assert "does not answer" in gpus.usable_gpus.__wrapped__()[1]


@pytest.mark.parametrize(
    ("gpus_here", "text", "device"),
    [
        ("two_gpus", "cuda", "cuda:0"),
        ("two_gpus", "auto", "cuda:0"),
        ("two_gpus", "cuda:1", "cuda:1"),
        ("no_gpu", "auto", "cpu"),
        ("no_gpu", "cpu", "cpu"),
    ],
)
def test_a_worker_trains_on_a_device_with_a_number(
    request: pytest.FixtureRequest, gpus_here: str, text: str, device: str
) -> None:
    """torch takes no other name of a device for the current one of a thread."""
    request.getfixturevalue(gpus_here)
    place = {"name": "a", "dispatcher": "127.0.0.1:1", "link": 1e9, "cache_rows": 1}
    assert load(WorkerSettings, device=text, **place).device == device


@pytest.mark.usefixtures("two_gpus")
def test_the_replicas_of_a_container_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker gives all replicas of a service one environment and the same GPUs."""
    monkeypatch.setattr(serve, "local_address", lambda _: "10.0.0.2")
    monkeypatch.setattr(serve, "interface_of", lambda _: "eth0")
    monkeypatch.setattr(serve, "replica_link", lambda *_: 1e6)
    monkeypatch.setenv("ESD_WORKER_DISPATCHER", "dispatcher:50051")
    monkeypatch.setenv("ESD_WORKER_DEVICE", "cuda")
    places = []
    for number in (1, 2, 3):
        monkeypatch.setattr(serve, "replica_number", lambda _, number=number: number)
        places.append(serve._place_of_worker("500m", {}))
    assert [place["ESD_WORKER_DEVICE"] for place in places] == ["cuda:0", "cuda:1", "cuda:0"]
