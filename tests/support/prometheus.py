"""A real Prometheus that scrapes given targets with the configuration of deploy/prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.free_port import free_port

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "prometheus"
POLL_SECONDS = 0.1  # between questions; Prometheus tells of nothing by itself
START_SECONDS = 110
LASTING_SECONDS = 60


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """The value of an expression, now or at a time: a list of {"metric": labels, "value": [time, text]}."""
        asked = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        answer = self._get(f"/api/v1/query?{urllib.parse.urlencode(asked)}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def values(self, expression: str, at: float | None = None) -> list[float]:
        return [float(result["value"][1]) for result in self.query(expression, at)]

    def until(self, expression: str, seconds: float = 110) -> None:
        """Returns when an expression gives something."""
        deadline = time.monotonic() + seconds
        while not self.query(expression):
            assert time.monotonic() < deadline, f"{expression} stayed empty"
            time.sleep(POLL_SECONDS)

    def alerts(self) -> set[str]:
        """Names of the alerts that fire and last longer than a minute, unlike the alerts of a stall."""
        deadline = time.monotonic() + LASTING_SECONDS
        while (firing := self._firing()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return firing

    def _firing(self) -> set[str]:
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def rule_errors(self) -> list[str]:
        """The errors in evaluating rules."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:
            return dict(json.load(answer))


def configuration(targets: Mapping[str, Sequence[str]]) -> str:
    """deploy/prometheus/prometheus.yml with other targets, looked at every second, and a served model and lanes."""
    text = (CONFIGURATION / "prometheus.yml").read_text().replace("interval: 5s", "interval: 1s")
    text = re.sub(r"rule_files: \[(.*)\]", lambda found: f"rule_files: {_absolute(found[1])}", text)
    for job, addresses in targets.items():
        static = f"static_configs: [{{targets: {json.dumps(list(addresses))}}}]\n"
        if job in ("model", "lanes"):
            text += f"  - job_name: {job}\n    {static}"
            continue
        text, found = re.subn(rf"(job_name: {job}\n)((?:    .*\n?)+)", rf"\1    {static}", text)
        assert found == 1, job
    return text


def _absolute(files: str) -> str:
    return json.dumps([str(CONFIGURATION / name.strip()) for name in files.split(",")])


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, Sequence[str]]) -> Iterator[Prometheus]:
    """A server that keeps its data in `directory`."""
    file = directory / "prometheus.yml"
    file.write_text(configuration(targets))
    server = Prometheus(f"127.0.0.1:{free_port()}")
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={server.address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _await_ready(server, process, directory / "prometheus.log")
        yield server
    finally:
        process.terminate()
        process.wait()


def _await_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.query("vector(1)")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(POLL_SECONDS)
            continue
        return
    raise RuntimeError(f"Prometheus did not start:\n{log.read_text()}")
