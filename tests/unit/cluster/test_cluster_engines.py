"""The errors of `esd cluster` about engines that it cannot use; tests/e2e shows its work on the others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from esd.cli.cluster import down
from esd.cluster.config import Cluster, read_cluster
from esd.cluster.containers import containers_of
from esd.cluster.engines import connected
from esd.services.domain.errors import FailedPrecondition, Unavailable

CONTAINER = "esd_redis_edge-7"
HANGS_UP: dict[str, Any] = {}
RUNNING = {
    "Id": "c0ffee",
    "State": {"Status": "running"},
    "Config": {"Labels": {"esd.fingerprint": "of an earlier up", "esd.service": "redis"}},
}
IMAGE = {"Id": "sha256:4711", "RepoTags": ["esd-service:local"], "Architecture": "amd64"}


@contextmanager
def engine(processor: str, images: Mapping[str, Any], running: Any = None) -> Iterator[str]:
    """As much of an engine's API as is asked before anything is started; asked for images, one without any hangs up.

    It says of every container that it is `running`, and lets none be stopped or removed.
    """

    known: dict[str, Any] = {
        "/version": {"ApiVersion": "1.45", "MinAPIVersion": "1.24", "Arch": processor},
        "/_ping": "OK",
    }
    known |= {f"/images/{name}/json": image for name, image in images.items()}
    if running:
        known |= {f"/containers/{name}/json": running for name in (running["Id"], CONTAINER)}
        known["/containers/json"] = [running]

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/v1.45").partition("?")[0]
            if path.startswith("/images/") and images is HANGS_UP:
                self.connection.close()
                return
            body = known.get(path)
            self._answer(404 if body is None else 200, body or {"message": "No such image or container"})

        def do_POST(self) -> None:
            self._answer(409, {"message": f"{self.path} is to be done"})

        def do_DELETE(self) -> None:
            self._answer(409, {"message": f"{self.path} is to be removed"})

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def cluster(directory: Path, address: str) -> Cluster:
    """A cluster of one machine."""
    file = directory / "cluster.toml"
    file.write_text(f"""
head = "edge-7"
redis_image = "esd-service:local"
[[hosts]]
name = "edge-7"
engine = "{address}"
address = "10.0.0.7"
link = "1g"
""")
    return read_cluster(file)


def test_a_package_that_ssh_needs_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    cluster(tmp_path, "ssh://esd@10.0.0.7")
    with pytest.raises(
        FailedPrecondition,
        match=r"needs the package paramiko, which is not installed: pip install 'esd-train\[cluster\]'",
    ):
        down(tmp_path / "cluster.toml")


def start_first(described: Cluster) -> None:
    with connected(described) as engines:
        engines.start(containers_of(described)[:1])


def test_an_image_for_another_processor_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine("amd64", {"esd-service:local": IMAGE}) as here, engine("arm64", {"other": IMAGE}) as there:
        monkeypatch.setenv("DOCKER_HOST", here)
        with pytest.raises(FailedPrecondition, match=r"esd-service:local .* is for amd64, and edge-7 is arm64"):
            start_first(cluster(tmp_path, there))


def test_an_engine_that_goes_away_is_named(tmp_path: Path) -> None:
    with engine("amd64", HANGS_UP) as there, pytest.raises(Unavailable, match=rf"edge-7 \({there}\): "):
        start_first(cluster(tmp_path, there))


def test_what_runs_is_removed_when_there_is_an_image_to_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine("amd64", {"other": IMAGE}) as here, engine("amd64", {"other": IMAGE}, RUNNING) as there:
        monkeypatch.setenv("DOCKER_HOST", here)
        with pytest.raises(FailedPrecondition, match="neither on edge-7 nor on this machine"):
            start_first(cluster(tmp_path, there))
    with (
        engine("amd64", {"esd-service:local": IMAGE}, RUNNING) as there,
        pytest.raises(Unavailable, match="is to be removed"),
    ):
        start_first(cluster(tmp_path, there))


def test_an_engine_that_does_not_end_a_container_is_named(tmp_path: Path) -> None:
    with (
        engine("amd64", {}, RUNNING) as there,
        connected(cluster(tmp_path, there)) as engines,
        pytest.raises(Unavailable, match=rf"edge-7 \({there}\): .*c0ffee/stop.* is to be done"),
    ):
        engines.remove(volumes=False)
