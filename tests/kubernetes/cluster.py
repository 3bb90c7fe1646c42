"""A Kubernetes of one node on this machine: control plane, kubelet with Docker, networks of pods, names of services.

Every part is the real one, in the release that Debian has the source of. One thing is ours: the names of services come
from dnsmasq, which a thread tells the addresses of services and of the pods behind headless ones, since Debian has no
CoreDNS. Network policies are not enforced, as with any plain bridge.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from testbed.free_port import free_port
from tests.e2e.compose import wait_until

READY_SECONDS = 180
STOP_SECONDS = 60
NODE = "edge"
_BINARIES = Path(os.environ["ESD_KUBERNETES_BINARIES"])
_PODS, _GATEWAY, _SERVICES = "10.87.28.0/24", "10.87.28.1", "10.87.29.0/24"
_BRIDGE = "esd-pods"
_TOKEN = "admin-of-a-test"


@dataclass(frozen=True)
class Kubernetes:
    """A running cluster.

    Attributes:
        kubeconfig: with all rights.
        volumes: folder for the contents of persistent volumes.
    """

    kubeconfig: Path
    volumes: Path

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Returns the output of a command that has to work."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}:\n{done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Returns objects as `kubectl get` has them."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output", "json"))
        return found


@contextmanager
def kubernetes(directory: Path) -> Iterator[Kubernetes]:
    """Runs a cluster until the end of the block.

    Args:
        directory: empty, for its state, on a disk that holds the images.
    """
    port = free_port()
    cluster = Kubernetes(_write_kubeconfig(directory, port), directory / "volumes")
    cluster.volumes.mkdir()
    with ExitStack() as stack:
        stack.callback(_remove_traces, directory)

        def run(name: str, *command: str | Path) -> subprocess.Popen[bytes]:
            return stack.enter_context(_running(directory / f"{name}.log", command))

        _start_control_plane(directory, cluster, port, run)
        _start_node(directory, cluster, run)
        stack.enter_context(_named_services(directory, cluster))
        yield cluster
        cluster.kubectl("delete", "pods", "--all", "--all-namespaces", "--force", "--grace-period=0")


def _start_control_plane(directory: Path, cluster: Kubernetes, port: int, run: Callable[..., object]) -> None:
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    run(
        "etcd", "/usr/bin/etcd", "--data-dir", directory / "etcd", "--listen-client-urls", store,
        "--advertise-client-urls", store, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
        "--initial-cluster", f"default={peers}",
    )  # fmt: skip
    key = directory / "service-accounts.key"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    run(
        "apiserver", _BINARIES / "kube-apiserver", "--etcd-servers", store, "--cert-dir", directory / "api",
        "--bind-address", "127.0.0.1", "--secure-port", str(port), "--token-auth-file", tokens,
        "--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", _SERVICES,
        "--service-account-key-file", key, "--service-account-signing-key-file", key,
        "--service-account-issuer", "https://kubernetes.default.svc", "--allow-privileged",
        "--kubelet-preferred-address-types", "InternalIP",
    )  # fmt: skip
    wait_until(lambda: _answers(cluster), READY_SECONDS)
    access = ("--kubeconfig", cluster.kubeconfig, "--leader-elect=false", "--port=0", "--secure-port=0")
    run(
        "controllers", _BINARIES / "kube-controller-manager", *access, "--service-account-private-key-file", key,
        "--use-service-account-credentials", "--pod-eviction-timeout=30s",
    )  # fmt: skip
    run("scheduler", _BINARIES / "kube-scheduler", *access)


def _start_node(directory: Path, cluster: Kubernetes, run: Callable[..., object]) -> None:
    networks = directory / "networks"
    networks.mkdir()
    addresses = {
        "type": "host-local", "dataDir": str(directory / "addresses"), "ranges": [[{"subnet": _PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }  # fmt: skip
    bridge = {"type": "bridge", "bridge": _BRIDGE, "isGateway": True, "ipMasq": True, "hairpinMode": True}
    accepted = {"type": "firewall"}  # what pods send each other, whatever this machine does with packets that pass it
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge | {"ipam": addresses}, accepted]}
    (networks / "pods.conflist").write_text(json.dumps(network))
    run(
        "kubelet", _BINARIES / "kubelet", "--kubeconfig", cluster.kubeconfig, "--root-dir", directory / "kubelet",
        "--cert-dir", directory / "kubelet-certificates", "--hostname-override", NODE, "--node-ip", _GATEWAY,
        "--container-runtime", "docker", "--docker-endpoint", os.environ["DOCKER_HOST"], "--cgroup-driver", "cgroupfs",
        "--cgroups-per-qos=false", "--enforce-node-allocatable=", "--fail-swap-on=false", "--eviction-hard=",
        "--pod-infra-container-image", "esd-e2e-pause", "--network-plugin", "cni", "--cni-conf-dir", networks,
        "--cni-bin-dir", "/usr/lib/cni", "--cni-cache-dir", directory / "cni", "--cluster-dns", _GATEWAY,
        "--cluster-domain", "cluster.local", "--port", str(free_port()), "--healthz-port", "0",
        "--read-only-port", "0", "--authorization-mode", "AlwaysAllow", "--anonymous-auth=true",
        "--resolv-conf", "", "--node-labels", f"kubernetes.io/hostname={NODE}", "--oom-score-adj", "0",
        "--dynamic-config-dir=", "--image-gc-high-threshold", "100",
    )  # fmt: skip
    run(
        "proxy", _BINARIES / "kube-proxy", "--kubeconfig", cluster.kubeconfig, "--proxy-mode", "iptables",
        "--cluster-cidr", _PODS, "--hostname-override", NODE, "--conntrack-max-per-core", "0",
        "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0", "--oom-score-adj", "0",
        # So that answers come back through the rules where a bridge passes none of its packets to them.
        "--masquerade-all", "--healthz-bind-address", "", "--metrics-bind-address", f"127.0.0.1:{free_port()}",
    )  # fmt: skip

    def ready() -> bool:
        (node,) = cluster.get("nodes")["items"] or [{"status": {"conditions": []}}]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])

    wait_until(ready, READY_SECONDS)
    accounts = "serviceaccount/default"
    wait_until(lambda: accounts in cluster.kubectl("get", "serviceaccounts", "--output", "name"), READY_SECONDS)


@contextmanager
def _named_services(directory: Path, cluster: Kubernetes) -> Iterator[None]:
    """Answers the names of services to pods, as the cluster's own server of names does."""
    hosts = directory / "hosts"
    hosts.touch()
    if not Path(f"/sys/class/net/{_BRIDGE}").exists():  # else the plugin has made it, with the first pod
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{_GATEWAY}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
    command = [
        "/usr/sbin/dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--addn-hosts", hosts,
        "--listen-address", _GATEWAY, "--bind-interfaces", "--local", "/cluster.local/", "--pid-file", "--user=root",
    ]  # fmt: skip
    ended = threading.Event()
    with _running(directory / "names.log", command) as names:

        def follow() -> None:
            while not ended.wait(0.5):
                found = "\n".join(_hosts(cluster))
                if found != hosts.read_text():
                    hosts.write_text(found)
                    names.send_signal(signal.SIGHUP)

        follower = threading.Thread(target=follow, name="names of services")
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def _hosts(cluster: Kubernetes) -> Iterator[str]:
    for each in cluster.get("services", "--all-namespaces")["items"]:
        if (address := each["spec"].get("clusterIP", "None")) != "None":
            yield f"{address} {_name(each)}"
    for each in cluster.get("endpoints", "--all-namespaces")["items"]:
        for subset in each.get("subsets", []):
            for target in (*subset.get("addresses", []), *subset.get("notReadyAddresses", [])):
                if "hostname" in target:
                    yield f"{target['ip']} {target['hostname']}.{_name(each)}"


def _name(owner: dict[str, Any]) -> str:
    return f"{owner['metadata']['name']}.{owner['metadata']['namespace']}.svc.cluster.local"


def _write_kubeconfig(directory: Path, port: int) -> Path:
    file = directory / "kubeconfig"
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": server}],
                "users": [{"name": "admin", "user": {"token": _TOKEN}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            }
        )
    )
    return file


def _answers(cluster: Kubernetes) -> bool:
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "get", "--raw", "/readyz"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@contextmanager
def _running(log: Path, command: Sequence[str | Path]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([str(each) for each in command], stdout=file, stderr=file)
    try:
        yield process
    finally:
        ended = process.poll() is not None
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert not ended, f"{command[0]} ended: {log.read_text()[-2000:]}"


def _remove_traces(directory: Path) -> None:
    """Removes the traces of plugins, proxy and kubelet: the bridge, the rules that lead to services, mounts."""
    subprocess.run([_BINARIES / "kube-proxy", "--cleanup"], capture_output=True, check=False, timeout=60)
    if Path(f"/sys/class/net/{_BRIDGE}").exists():
        _ip("link", "del", _BRIDGE)
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if f" {directory}/" in line]
    for each in reversed(mounted):
        subprocess.run(["umount", each], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
