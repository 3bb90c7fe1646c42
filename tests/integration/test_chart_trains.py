"""The commands and variables of the chart train a model, with certificates and tokens, as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.free_port import free_port
from tests.support.certificates import Certificates
from tests.support.chart import Object, environment, pods, render

SECRETS = {"parameterServers": "ps", "dispatcher": "dispatcher", "worker": "worker", "client": "client"}
RUN = "--data synthetic:zipf?samples=400&fields=4&keys=500 --batch 10 --dim 4 --dense server"
VALUES = {
    "parameterServers": {"shards": 2},
    "tls": {"enabled": True, "secrets": SECRETS},
    "tokens": SECRETS,
    "workers": {"list": [{"name": "edge-1"}, {"name": "edge-2", "link": "50m"}]},
    "driver": {"arguments": RUN.split()},
}


@contextmanager
def started(pod: Object, places: Mapping[str, str], log: Path, **own: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command of a pod here, with other places for its addresses, ports and folders."""

    def here(text: str) -> str:
        for place, other in places.items():
            text = text.replace(place, other)
        return text

    (container,) = pod["containers"]
    secret = next(each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each)
    own |= {name: here(value).replace("SECRET", secret) for name, value in environment(pod).items() if name not in own}
    own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [here(each) for each in container["command"]]
    with log.with_suffix(".out").open("w") as printed, log.open("w") as errors:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=printed, stderr=errors)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.timeout(600)  # ten processes, on a busy machine
def test_it_trains(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path / "certs", "ps", "dispatcher", "worker", "client")
    ports = {
        "esd-dispatcher:50051": free_port(),
        "esd-ps-0.esd-ps:50052": free_port(),
        "esd-ps-1.esd-ps:50052": free_port(),
    }
    places = {name: f"localhost:{port}" for name, port in ports.items()}
    places |= {
        "/run/secrets/tls": f"{certificates.directory}/SECRET",
        "/run/secrets/token": f"{certificates.directory}/SECRET",
    }
    places |= {"/out": str(tmp_path / "out")}
    found = pods(render(VALUES))
    (driver,) = [pod for name, pod in found.items() if name.startswith("esd-driver")]

    def server(name: str, prefix: str, port: int) -> dict[str, str]:
        return {f"{prefix}_LISTEN": f"127.0.0.1:{port}", f"{prefix}_METRICS_PORT": "none", "POD_NAME": name}

    with contextlib.ExitStack() as stack:

        def start(name: str, pod: Object, **own: str) -> subprocess.Popen[bytes]:
            return stack.enter_context(started(pod, places, tmp_path / f"{name}.log", **own))

        for shard in range(2):
            checkpoints = str(tmp_path / f"checkpoints-{shard}")
            own = server(f"esd-ps-{shard}", "ESD_PS", ports[f"esd-ps-{shard}.esd-ps:50052"])
            start(f"ps-{shard}", found["esd-ps"], **own, ESD_PS_CHECKPOINT_DIR=checkpoints)
        dispatcher = server("esd-dispatcher", "ESD_DISPATCHER", ports["esd-dispatcher:50051"])
        start("dispatcher", found["esd-dispatcher"], **dispatcher, ESD_DISPATCHER_PAGE_PORT="none")
        for name in ("esd-worker-edge-1", "esd-worker-edge-2"):
            own = server(name, "ESD_WORKER", 0)
            start(name, found[name], **own, ESD_WORKER_ADVERTISE_HOST="127.0.0.1")
        run = start("driver", driver)
        assert run.wait(timeout=500) == 0, (tmp_path / "driver.log").read_text()
    result = json.loads((tmp_path / "driver.out").read_text())
    assert result["iterations"] == 20
    assert (tmp_path / "out" / "model" / "SHA256SUMS").is_file()
    for shard in range(2):
        assert list((tmp_path / f"checkpoints-{shard}").iterdir()), "each shard has checkpoints of its own"
