"""Certificates and tokens: every pod has its own, by names that the services ask for, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.settings import ClientSettings, Settings, load
from esd.worker.service.settings import WorkerSettings
from tests.support.certificates import Certificates
from tests.support.chart import VALUES, Object, environment, pods, render

SETTINGS: dict[str, type[Settings]] = {
    "esd-ps": ParameterServerSettings,
    "esd-dispatcher": DispatcherSettings,
    "esd-worker": WorkerSettings,
    "esd-driver": ClientSettings,
}


def settings_of(workload: str) -> type[Settings]:
    return next(settings for prefix, settings in SETTINGS.items() if workload.startswith(prefix))


def secrets(pod: Object) -> set[str]:
    return {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certs"), "worker")


@pytest.mark.parametrize("name", VALUES)
def test_services_take_the_environment_that_the_chart_gives_them(
    name: str, made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every variable is a setting of its service, with a value that it takes; files are in a folder of the test."""
    (tmp_path / "password").write_text("secret")
    folders = {
        "/run/secrets/tls": made.directory / "worker",
        "/run/secrets/token": made.directory / "worker",
        "/run/secrets/store/ca.crt": made.directory / "worker" / "ca.crt",
        "/run/secrets/store": tmp_path,
    }
    for workload, pod in pods(render(VALUES[name])).items():
        with monkeypatch.context() as patch:
            for variable, value in environment(pod).items():
                for place, folder in folders.items():
                    value = value.replace(place, str(folder))  # noqa: PLW2901 - one folder after the other
                patch.setenv(variable, "cpu" if variable == "ESD_WORKER_DEVICE" else value)  # a GPU may not be here
            settings = settings_of(workload)
            loaded = load(settings)
            assert loaded.model_fields_set or settings is ClientSettings


def test_every_worker_may_have_a_certificate_of_its_own() -> None:
    found = pods(render(VALUES["tls"]))
    assert secrets(found["esd-worker-edge-1"]) == {"esd-worker-edge-1", "esd-worker"}
    assert secrets(found["esd-worker-edge-2"]) == {"esd-worker"}
    assert secrets(found["esd-dispatcher"]) == {"esd-dispatcher"}
    assert secrets(found["esd-ps"]) == {"esd-ps"}
    for workload, pod in found.items():
        variables = environment(pod)
        prefix = settings_of(workload).model_config["env_prefix"]
        assert variables[f"{prefix}TLS_KEY"] == "/run/secrets/tls/tls.key"
        assert variables[f"{prefix}TOKEN_FILE"] == "/run/secrets/token/token"
        if not workload.startswith("esd-driver"):
            assert variables[f"{prefix}TLS_CLIENTS"] == "*", "roles follow from the names of certificates"
        if workload.startswith("esd-worker"):
            assert variables["ESD_WORKER_TLS_PEER_NAME"] == "worker", "certificates name no addresses of pods"


def test_without_tls_no_pod_has_a_secret() -> None:
    for pod in pods(render({})).values():
        assert secrets(pod) == set()
        assert not [name for name in environment(pod) if "TLS" in name or "TOKEN" in name]


def test_cert_manager_makes_a_certificate_for_each_with_its_role_and_the_names_that_are_called() -> None:
    objects = render(VALUES["cert-manager"])
    found = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    assert set(found) == {"esd-ps", "esd-dispatcher", "esd-worker-edge-1", "esd-worker-edge-2", "esd-driver"}
    (driver,) = [pod for name, pod in pods(objects).items() if name.startswith("esd-driver")]
    called = " ".join(driver["containers"][0]["command"])
    assert "esd-dispatcher:50051" in called
    assert "esd-ps-0.esd-ps:50052,esd-ps-1.esd-ps:50052" in called
    names = {name: spec["dnsNames"] for name, spec in found.items()}
    assert {"esd-ps-0.esd-ps", "esd-ps-1.esd-ps"} <= set(names["esd-ps"])
    assert {"dispatcher", "esd-dispatcher"} <= set(names["esd-dispatcher"])
    assert names["esd-worker-edge-1"][:2] == ["worker-edge-1", "worker"]
    assert names["esd-driver"][0] == "client"
    for workload, pod in pods(objects).items():
        (secret,) = secrets(pod)
        made = next(spec for name, spec in found.items() if workload.startswith(name))
        assert secret == made["secretName"]
        assert "localhost" in made["dnsNames"], "the probe calls the service at this address"
        assert made["ipAddresses"] == ["127.0.0.1"]


def test_one_wrong_name_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {"workers": {"list": [{"name": "a", "settings": {"cache_rows": "many"}}]}}
    variables = environment(pods(render(values))["esd-worker-a"])
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(Exception, match="ESD_WORKER_CACHE_ROWS=many"):
        load(WorkerSettings)
