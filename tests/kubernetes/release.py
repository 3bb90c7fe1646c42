"""A release of the chart, as Helm installs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python

from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import DeadlineExceeded, Unavailable
from tests.e2e.compose import wait_until
from tests.kubernetes.cluster import Kubernetes

CHART = Path(__file__).parents[2] / "deploy" / "chart"
NAME = "esd"
DRIVER = "app.kubernetes.io/component=driver"
GONE_SECONDS = 180


@dataclass(frozen=True)
class Release:
    """The chart in a namespace of its own.

    Attributes:
        cluster: where it is.
        namespace: of all its objects.
        helm: Helm with this namespace.
    """

    cluster: Kubernetes
    namespace: str
    helm: helm_python.Config

    @classmethod
    @contextmanager
    def in_namespace(cls, cluster: Kubernetes, namespace: str) -> Iterator[Release]:
        """Makes the namespace, and the volumes that its claims get, since nothing here makes them on demand."""
        cluster.kubectl("create", "namespace", namespace)
        release = cls(
            cluster, namespace, helm_python.Config(kubeconfig_path=str(cluster.kubeconfig), namespace=namespace)
        )
        for claim in ("checkpoints-esd-ps-0", "esd-models"):
            release.make_volume(claim)
        try:
            yield release
        finally:
            cluster.kubectl("delete", "namespace", namespace, f"--timeout={GONE_SECONDS}s")

    def volume(self, claim: str) -> Path:
        """Returns the folder of a claim on the node."""
        return self.cluster.volumes / f"{self.namespace}-{claim}"

    def make_volume(self, claim: str) -> None:
        """Makes the volume of a claim: a folder of the node, for the user of the services."""
        folder = self.volume(claim)
        folder.mkdir()
        folder.chmod(0o777)
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": folder.name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": self.namespace, "name": claim},
            },
        }
        self.cluster.kubectl("apply", "--filename", "-", given=json.dumps(volume))

    def install(self, values: Mapping[str, Any]) -> None:
        self.helm.install(CHART, NAME, dict(values))

    def upgrade(self, values: Mapping[str, Any]) -> None:
        self.helm.upgrade(CHART, NAME, dict(values))

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.get("--namespace", self.namespace, *arguments)["items"]
        return found

    def iterations(self) -> int:
        """Returns how many iterations of the running job all workers have trained; 0 while there is no job."""
        (service,) = self.items("services", "--field-selector", f"metadata.name={NAME}-dispatcher")
        try:
            with DispatcherClient(f"{service['spec']['clusterIP']}:50051") as client:
                state = client.describe()
        except (DeadlineExceeded, Unavailable):  # the service of a pod that is not there yet
            return 0
        return 0 if state is None else state.iterations_confirmed

    def result(self, seconds: float) -> dict[str, Any]:
        """Waits for the one Job, and returns the result that its driver printed."""

        def ended() -> bool:
            (job,) = self.items("jobs")
            failed = [each for each in job["status"].get("conditions", []) if each["type"] == "Failed"]
            assert not failed, self.kubectl("logs", "--selector", DRIVER, "--tail", "30")
            return bool(job["status"].get("succeeded"))

        wait_until(ended, seconds)
        (job,) = self.items("jobs")
        (pod,) = [
            each
            for each in self.items("pods", "--selector", f"job-name={job['metadata']['name']}")
            if each["status"]["phase"] == "Succeeded"
        ]
        printed = self.kubectl("logs", pod["metadata"]["name"])
        return json.loads(printed[printed.index('{"iterations"') :].splitlines()[0])
