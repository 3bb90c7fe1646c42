"""The chart is accepted by Helm and by the schemas of Kubernetes, and its pods have no more rights than they need."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest

from scripts import chart
from tests.support.chart import CHART, VALUES, Object, environment, find, pods, render

ROOT = Path(__file__).parents[3]
NEWEST = kubernetes_validate.latest_version()
OLDEST = "1.31"  # the first that is given the same objects as the newest

# Objects of operators, whose schemas are not those of Kubernetes.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")

everywhere = pytest.mark.parametrize("name", VALUES)


@pytest.fixture(scope="module", autouse=True)
def _schemas_read_once() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(kubernetes_validate.utils.schema_contents)
        patch.setattr(kubernetes_validate.utils, "schema_contents", read)
        yield


@pytest.mark.parametrize("path", chart.files())
def test_files_are_as_the_values_make_them(path: Path) -> None:
    assert (ROOT / path).read_text() == chart.files()[path], "run `make services`"


@everywhere
@pytest.mark.parametrize("version", ["1.20.0", NEWEST])
def test_helm_finds_no_mistake(name: str, version: str) -> None:
    report = helm_python.lint(CHART, VALUES[name], strict=True, kube_version=version)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"] if each["severity"] > 1] == []


@everywhere
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    objects = [each for each in render(VALUES[name]) if not each["apiVersion"].startswith(FOREIGN)]
    assert len(objects) > 10
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    deployment = find(render({}), "Deployment", "esd-dispatcher")
    deployment["spec"]["template"]["spec"]["nodeSelektor"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="nodeSelektor"):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)


@everywhere
def test_every_pod_is_restricted_as_the_strictest_pod_security_standard_asks(name: str) -> None:
    for workload, pod in pods(render(VALUES[name])).items():
        assert pod["automountServiceAccountToken"] is False, workload
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@everywhere
def test_no_variable_of_a_service_of_kubernetes_looks_like_a_setting(name: str) -> None:
    """A service `esd-ps` would give every pod ESD_PS_PORT, which the parameter server refuses as an unknown setting."""
    for workload, pod in pods(render(VALUES[name])).items():
        assert pod["enableServiceLinks"] is False, workload


@everywhere
def test_every_port_names_its_protocol(name: str) -> None:
    """A server-side apply of older versions refuses a port without one."""

    def ports(described: Any) -> Any:
        if isinstance(described, dict):
            for key, value in described.items():
                yield from value if key == "ports" else ports(value)
        elif isinstance(described, list):
            for each in described:
                yield from ports(each)

    found = list(ports(render(VALUES[name])))
    assert len(found) > 10
    assert {each["protocol"] for each in found} == {"TCP"}


def test_memory_is_requested_as_described_and_nothing_is_limited_by_default() -> None:
    requests = {name: pod["containers"][0]["resources"] for name, pod in pods(render({})).items()}
    assert requests["esd-ps"] == {"requests": {"memory": "1Gi"}}
    assert requests["esd-worker-edge-1"] == requests["esd-dispatcher"] == {"requests": {"memory": "2Gi"}}
    own = pods(render(VALUES["workers"]))["esd-ps"]["containers"][0]["resources"]
    assert own == {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}}


def test_health_is_asked_by_the_kubelet_and_with_certificates_by_a_command() -> None:
    for name, by_command in (("defaults", False), ("tls", True), ("cert-manager", True)):
        for workload, pod in pods(render(VALUES[name])).items():
            (container,) = pod["containers"]
            if "driver" in workload:
                assert "readinessProbe" not in container
                continue
            for probe in ("startupProbe", "readinessProbe"):
                assert ("exec" in container[probe], "grpc" in container[probe]) == (by_command, not by_command)
            assert container["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": "metrics"}
            assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 300


def test_every_parameter_server_has_a_name_a_number_and_a_claim() -> None:
    objects = render(VALUES["workers"])
    servers = find(objects, "StatefulSet", "esd-ps")["spec"]
    assert (servers["replicas"], servers["serviceName"]) == (2, "esd-ps")
    assert find(objects, "Service", "esd-ps")["spec"]["clusterIP"] == "None"
    (claim,) = servers["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert {"name": "checkpoints", "mountPath": "/checkpoints"} in servers["template"]["spec"]["containers"][0][
        "volumeMounts"
    ]
    variables = environment(servers["template"]["spec"])
    assert (variables["ESD_PS_SHARDS"], variables["ESD_PS_CHECKPOINT_DIR"]) == ("2", "/checkpoints")
    assert variables["ESD_PS_MAX_MESSAGE_BYTES"] == "134217728", "without an exponent"


def test_checkpoints_in_an_object_store_need_no_claim() -> None:
    key = {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "bucket", "key": "secret"}}}
    objects = render({"parameterServers": {"storage": {"url": "s3://bucket/kept"}, "pod": {"extraEnv": [key]}}})
    servers = find(objects, "StatefulSet", "esd-ps")["spec"]
    assert "volumeClaimTemplates" not in servers
    pod = servers["template"]["spec"]
    assert environment(pod)["ESD_PS_CHECKPOINT_DIR"] == "s3://bucket/kept"
    assert key in pod["containers"][0]["env"]
    assert "/checkpoints" not in [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]


def test_rows_in_redis_need_no_claim_and_its_password_is_a_file() -> None:
    objects = render(VALUES["redis"])
    servers = find(objects, "StatefulSet", "esd-ps")["spec"]
    assert "volumeClaimTemplates" not in servers
    pod = servers["template"]["spec"]
    variables = environment(pod)
    assert variables["ESD_PS_STORE"] == "rediss://redis.stores:6379/0"
    assert variables["ESD_PS_STORE_PASSWORD_FILE"] == "/run/secrets/store/password"
    assert variables["ESD_PS_STORE_TLS_CA"] == "/run/secrets/store/ca.crt"
    assert "ESD_PS_CHECKPOINT_DIR" not in variables
    assert pod["containers"][0]["image"] == "registry.lan:5000/esd/esd-service:3"
    assert pod["serviceAccountName"] == "default"
    assert not [each for each in objects if each["kind"] in {"Job", "ServiceAccount"}]


def test_every_worker_is_a_deployment_on_its_node_with_its_link() -> None:
    objects = render(VALUES["workers"])
    workers = [each for each in objects if each["metadata"]["name"].startswith("esd-worker-")]
    assert [each["metadata"]["name"] for each in workers] == [f"esd-worker-edge-{number}" for number in range(1, 7)]
    for each in workers:
        assert (each["spec"]["replicas"], each["spec"]["strategy"]) == (1, {"type": "Recreate"})
    fifth, sixth = (each["spec"]["template"]["spec"] for each in workers[4:])
    assert fifth["nodeSelector"] == {"kubernetes.io/hostname": "edge-5"}
    assert sixth["nodeSelector"] == {"site": "north"}
    variables = environment(fifth)
    assert (
        variables.items()
        >= {
            "ESD_WORKER_NAME": "edge-5",
            "ESD_WORKER_LINK": "50m",
            "ESD_WORKER_CACHE_ROWS": "16000",
            "ESD_WORKER_MOST_SAMPLES": "32",
            "ESD_WORKER_CODE": "/code",
        }.items()
    )
    assert environment(sixth)["ESD_WORKER_SHAPE_LINK"] == "true"


def test_a_worker_on_a_gpu_gets_one_and_the_image_for_it() -> None:
    found = pods(render(VALUES["gpu"]))
    first, second = found["esd-worker-edge-1"], found["esd-worker-edge-2"]
    (container,) = first["containers"]
    assert container["image"] == "esd-cuda:local"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}, "requests": {"memory": "2Gi"}}
    assert (first["runtimeClassName"], first["hostNetwork"], first["dnsPolicy"]) == (
        "nvidia",
        True,
        "ClusterFirstWithHostNet",
    )
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "0"} in container["env"]
    assert second["containers"][0]["image"] == "esd-worker:local"
    assert "hostNetwork" not in second
    assert environment(second)["ESD_WORKER_LISTEN"] == "[::]:50053"


def policies(objects: list[Object]) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}


def test_workers_accept_no_connection_unless_they_reach_each_other() -> None:
    found = policies(render({}))
    assert found["esd-worker"]["ingress"] == found["esd-driver"]["ingress"] == []
    for name, ports in (("esd-ps-server", [50052]), ("esd-dispatcher", [50051, 8080])):
        (rule,) = found[name]["ingress"]
        assert [each["port"] for each in rule["ports"]] == ports
        release = {"app.kubernetes.io/name": "esd", "app.kubernetes.io/instance": "esd"}
        assert rule["from"] == [{"podSelector": {"matchLabels": release}}]
    (rule,) = policies(render(VALUES["workers"]))["esd-worker"]["ingress"]
    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    assert "ports" not in rule, "the all-reduce takes ports of the system's choice"


def test_monitoring_reaches_metrics_and_nothing_else() -> None:
    found = policies(render(VALUES["monitoring"]))
    for name, port in (("esd-ps-server", 9102), ("esd-dispatcher", 9101), ("esd-worker", 9103)):
        rule = found[name]["ingress"][-1]
        assert rule["from"] == VALUES["monitoring"]["networkPolicy"]["monitoring"]
        assert rule["ports"] == [{"port": port, "protocol": "TCP"}]


def test_a_drain_is_never_blocked_for_ever() -> None:
    budgets = [each["spec"] for each in render({}) if each["kind"] == "PodDisruptionBudget"]
    assert [each["maxUnavailable"] for each in budgets] == [1, 1]
    assert not [each for each in budgets if "minAvailable" in each]
    assert policies(render({"networkPolicy": {"enabled": False}})) == {}
    none = render({"podDisruptionBudgets": {"enabled": False}})
    assert "PodDisruptionBudget" not in {each["kind"] for each in none}


def test_the_driver_is_another_job_when_anything_about_it_changes() -> None:
    def job(values: dict[str, Any]) -> str:
        (found,) = [each for each in render(values) if each["kind"] == "Job"]
        return str(found["metadata"]["name"])

    assert job({}) == job({"dispatcher": {"settings": {"lease_seconds": 9}}})
    changes: list[dict[str, Any]] = [
        {"driver": {"table": "another"}},
        {"image": {"tag": "4"}},
        {"pod": {"labels": {"team": "ads"}}},
        {"workers": {"list": [{"name": "a"}]}},
    ]
    assert len({job(values) for values in ({}, *changes)}) == 5
